//! Comparisons that count the numbers compared and record the largest error.

use gmm_host::init::RowDraw;
use gmm_host::{DISTANCE_ROWS, EvaluateOptions, Resident};
use gmm_model::{Mixture, Precision, Statistics};

/// The result of a section.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) cases: usize,
    pub(crate) numbers: usize,
    /// Largest error relative to the allowed one, and where it occurred.
    pub(crate) worst: f64,
    pub(crate) worst_at: String,
    pub(crate) failures: Vec<String>,
}

/// The allowed error, relative to the size of the numbers compared: 2e-5 in f32, 1e-10 in f64.
pub(crate) fn allowed(precision: Precision) -> f64 {
    match precision {
        Precision::F32 => 2e-5,
        Precision::F64 => 1e-10,
    }
}

impl Tally {
    /// Compares numbers that may differ by `tolerance * scale`.
    pub(crate) fn close(&mut self, got: &[f64], want: &[f64], tolerance: f64, scale: f64, what: &str) {
        self.numbers += want.len();
        self.expect(got.len() == want.len(), || format!("{what}: {} numbers of {}", got.len(), want.len()));
        let bound = (tolerance * scale).max(f64::MIN_POSITIVE);
        let error = |(a, b): (&f64, &f64)| if a == b { 0.0 } else { (a - b).abs() / bound };
        let mut largest = (0.0, 0);
        for (i, pair) in got.iter().zip(want).enumerate() {
            let error = error(pair);
            if error.is_nan() || error > largest.0 {
                largest = (if error.is_nan() { f64::INFINITY } else { error }, i);
            }
        }
        let (error, i) = largest;
        if error > self.worst {
            (self.worst, self.worst_at) = (error, what.to_owned());
        }
        self.expect(error <= 1.0, || {
            format!("{what}[{i}]: {:e}, want {:e}, scale {scale:e}, {error:.2} of what is allowed", got[i], want[i])
        });
    }

    pub(crate) fn expect(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.failures.push(what());
        }
    }

    /// Compares statistics, each kind of moment relative to its own size.
    pub(crate) fn statistics(&mut self, got: &Statistics, want: &Statistics, tolerance: f64, what: &str) {
        let total = want.total_weight;
        let second = size(&want.second).max(f64::MIN_POSITIVE);
        self.close(&got.weight, &want.weight, tolerance, total, &format!("{what}: weight"));
        // First moments cancel; their terms have the size of the weight times a standard deviation.
        let (a, b) = (got.first.as_slice().expect("row-major"), want.first.as_slice().expect("row-major"));
        self.close(a, b, tolerance, (second * total).sqrt(), &format!("{what}: first"));
        self.close(&got.second, &want.second, tolerance, second, &format!("{what}: second"));
        let ll = want.log_likelihood.abs().max(total);
        self.close(&[got.log_likelihood], &[want.log_likelihood], tolerance, ll, &format!("{what}: log-likelihood"));
        self.close(&[got.total_weight], &[total], 1e-15, total, &format!("{what}: total weight"));
        self.expect(got.n_rows == want.n_rows && got.centres == want.centres, || format!("{what}: rows or centres"));
        self.expect(got.is_finite(), || format!("{what}: not finite"));
    }

    /// Compares every pass of one engine with the other's, over rows with the given weights.
    pub(crate) fn passes(
        &mut self,
        (fast, slow): (&mut dyn Resident, &mut dyn Resident),
        weights: Option<&[f64]>,
        mixture: &Mixture,
        tolerance: f64,
        what: &str,
    ) {
        self.cases += 1;
        let (kind, k, n) = (mixture.covariance_type(), mixture.n_components(), fast.dim().0);
        let centres = mixture.means();
        let pass = |rows: &mut dyn Resident| rows.pass(mixture).expect("a pass");
        self.statistics(&pass(fast), &pass(slow), tolerance, what);
        let nearest = |rows: &mut dyn Resident| rows.nearest(kind, centres).expect("a pass");
        self.statistics(&nearest(fast), &nearest(slow), tolerance, &format!("{what}: nearest"));
        let fill = |start: usize, out: &mut [f64]| {
            for (i, r) in out.iter_mut().enumerate() {
                *r = ((start * k + i) % 7) as f64 / 7.0;
            }
        };
        let given = |rows: &mut dyn Resident| rows.given(kind, centres, &fill).expect("a pass");
        self.statistics(&given(fast), &given(slow), tolerance, &format!("{what}: given"));
        let near = |rows: &mut dyn Resident| {
            let last = rows.add_centre(&centres.row(k - 1).to_vec()).expect("a pass");
            let sums = rows.add_centre(&centres.row(0).to_vec()).expect("a pass");
            let near = rows.near(&[n / 2..n, 0..n / 2]).expect("a pass");
            ([last, sums].concat(), near)
        };
        let (got, want) = (near(fast), near(slow));
        self.draws((fast, slow), weights, tolerance, what);
        fast.forget_centres();
        slow.forget_centres();
        self.close(&got.0, &want.0, tolerance, size(&want.0), &format!("{what}: sums of squared distances"));
        self.close(&got.1, &want.1, tolerance, size(&want.1), &format!("{what}: squared distances"));
        self.evaluation(fast, slow, mixture, tolerance, what);
    }

    /// Compares the rows drawn by their distances to the current centres, and the sums that would remain.
    fn draws(
        &mut self,
        (fast, slow): (&mut dyn Resident, &mut dyn Resident),
        weights: Option<&[f64]>,
        tolerance: f64,
        what: &str,
    ) {
        let groups = fast.dim().0.div_ceil(DISTANCE_ROWS);
        let draw = |i: usize, by: f64| RowDraw { group: i * 5 % groups, uniform: (i as f64 + 0.4) / 8.0 + by };
        let mut weigh = |draws: &[RowDraw]| slow.weigh_draws(draws, weights).expect("a pass");
        // Leaves out draws so near the boundary between two rows that rounding may decide.
        let around = [-tolerance, tolerance].map(|by| weigh(&(0..8).map(|i| draw(i, by)).collect::<Vec<_>>()).rows);
        let settled = (0..8).filter(|&i| around[0][i] == around[1][i]);
        let draws: Vec<RowDraw> = settled.map(|i| draw(i, 0.0)).collect();
        if draws.is_empty() {
            return;
        }
        let (got, want) = (fast.weigh_draws(&draws, weights).expect("a pass"), weigh(&draws));
        self.expect(got.rows == want.rows, || format!("{what}: rows {:?}, not {:?}", got.rows, want.rows));
        self.close(&got.left, &want.left, tolerance, size(&want.left), &format!("{what}: what rows would leave"));
    }

    /// Compares log densities, responsibilities, labels and totals.
    pub(crate) fn evaluation(
        &mut self,
        fast: &mut dyn Resident,
        slow: &mut dyn Resident,
        mixture: &Mixture,
        tolerance: f64,
        what: &str,
    ) {
        let (k, n) = (mixture.n_components(), fast.dim().0);
        let run = |rows: &mut dyn Resident| {
            let (mut densities, mut r, mut labels) = (vec![f64::NAN; n], vec![f64::NAN; n * k], vec![u32::MAX; n]);
            let wanted = EvaluateOptions {
                log_densities: Some(&mut densities),
                responsibilities: Some((&mut r).into()),
                labels: Some(&mut labels),
            };
            let totals = rows.evaluate(mixture, wanted).expect("an evaluation");
            (totals, densities, r, labels)
        };
        let (got, want) = (run(fast), run(slow));
        let finite: Vec<f64> = want.1.iter().copied().filter(|v| v.is_finite()).collect();
        // The rounding error of a log density is relative to its size, and carries over to the responsibilities.
        let largest = size(&finite).max(1.0);
        let total = want.0.total_weight.max(1.0);
        self.close(&got.1, &want.1, tolerance, largest, &format!("{what}: log density"));
        self.close(&got.2, &want.2, tolerance, largest, &format!("{what}: responsibility"));
        let sums: Vec<f64> = got.2.chunks_exact(k).map(|row| row.iter().sum()).collect();
        self.close(&sums, &vec![1.0; n], tolerance, 1.0, &format!("{what}: sum of responsibilities"));
        let scale = total * largest;
        let ll = (got.0.log_likelihood, want.0.log_likelihood);
        self.close(&[ll.0], &[ll.1], tolerance, scale, &format!("{what}: total log-likelihood"));
        self.close(&[got.0.entropy], &[want.0.entropy], tolerance, scale, &format!("{what}: entropy"));
        let wrong = (0..n).find(|&i| {
            let r = |c: u32| want.2[i * k + c as usize];
            got.3[i] as usize >= k || r(got.3[i]) < r(want.3[i]) - 2.0 * tolerance * largest
        });
        self.expect(wrong.is_none(), || format!("{what}: label of row {wrong:?}"));
    }
}

/// The largest magnitude.
pub(crate) fn size(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |m: f64, v| m.max(v.abs()))
}
