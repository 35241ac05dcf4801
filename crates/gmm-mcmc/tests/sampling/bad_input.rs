//! Invalid options and starts of a sampler.

use gmm_host::{CpuEngine, Likelihood};
use gmm_mcmc::{Error, Options, Posterior, Prior, PriorOptions, Relabel, Run, Sampler, Target, starts};
use gmm_model::{CovarianceType, Covariances, Dataset, Mixture, Precision};
use ndarray::array;

use crate::Case;

fn case() -> Case {
    let truth =
        Mixture::new(array![0.5, 0.5], array![[-2.0, 0.0], [2.0, 1.0]], Covariances::Spherical(array![1.0, 1.0]));
    Case::of(&truth.unwrap(), 30, &PriorOptions::default())
}

#[test]
fn options_out_of_range_are_refused_by_name() {
    let refused = |options: Options, name: &str| match options.validate() {
        Err(Error::Option { option, .. }) => assert_eq!(option, name),
        other => panic!("{name}: {other:?}"),
    };
    let base = || Options::new(Sampler::Nuts);
    assert!(base().validate().is_ok());
    refused(Options { chains: 0, ..base() }, "chains");
    refused(Options { chains: 5000, ..base() }, "chains");
    refused(Options { draws: 0, ..base() }, "draws");
    refused(Options { thin: 0, ..base() }, "thin");
    refused(Options { warmup: 5, ..base() }, "warmup");
    assert!(Options { warmup: 0, ..Options::new(Sampler::Rwm) }.validate().is_ok());
    refused(Options { target_accept: 1.0, ..base() }, "target_accept");
    refused(Options { target_accept: f64::NAN, ..base() }, "target_accept");
    refused(Options { max_depth: 0, ..base() }, "max_depth");
    refused(Options { draws: usize::MAX, thin: 2, ..base() }, "draws * thin + warmup");
    assert!(Run::new(Options { chains: 2, ..base() }, vec![vec![0.0]]).is_err());
}

#[test]
fn a_start_without_density_is_an_error_that_names_the_chain() {
    for sampler in [Sampler::Nuts, Sampler::Rwm] {
        let mut case = case();
        let options = crate::options(sampler, 10, 50);
        let good = starts::about(&case.fitted, &case.target, &mut case.likelihood, 0, 0).unwrap();
        // A standard deviation of e⁸⁰⁰ overflows; with one of e⁻⁴⁰⁰, the rows are e⁴⁰⁰ standard deviations away.
        for far in [800.0, -400.0] {
            let mut bad = good.clone();
            bad[5..].fill(far);
            let mut run = Run::new(options.clone(), vec![good.clone(), bad]).unwrap();
            let mut observer = |_, _: &Run| std::ops::ControlFlow::Continue(());
            let error = run.go_on(&mut case.likelihood, &case.target, &mut observer).unwrap_err();
            assert!(matches!(error, Error::Start { chain: 1, .. }), "{sampler:?} {far}: {error:?}");
        }
    }
}

#[test]
fn starts_are_near_the_fit_apart_from_each_other_and_have_a_density() {
    let mut case = case();
    let points: Vec<Vec<f64>> =
        (0..4).map(|i| starts::about(&case.fitted, &case.target, &mut case.likelihood, 3, i).unwrap()).collect();
    assert!(points[0] != points[1] && points[2] != points[3]);
    let found = case.target.values_and_gradients(&mut case.likelihood, &points).unwrap();
    assert!(found.iter().all(Option::is_some));
    // A component of weight 0 gets a positive weight: its log ratio would be infinite.
    let empty = Mixture::new(array![1.0, 0.0], case.fitted.means().to_owned(), case.fitted.covariances().clone());
    let point = starts::about(&empty.unwrap(), &case.target, &mut case.likelihood, 3, 0).unwrap();
    assert!(point.iter().all(|v| v.is_finite()));
}

#[test]
fn components_are_put_in_order_by_a_column_or_after_the_best_draw() {
    let mut case = case();
    let mut run = case.run(crate::options(Sampler::Nuts, 40, 50));
    case.finish(&mut run);
    // Exchanges the components of every second draw.
    let m = case.target.dim();
    for chain in &mut run.chains {
        for point in chain.points.chunks_exact_mut(m).step_by(2) {
            let mixture = case.target.map().to_mixture(point).unwrap().permuted(&[1, 0]).unwrap();
            point.copy_from_slice(&case.target.map().from_mixture(&mixture).unwrap());
        }
    }
    let means = |relabel| {
        let posterior = Posterior::new(&run, &case.target, relabel).unwrap();
        posterior.draws.means.chunks_exact(4).map(|m| m[0] < m[2]).collect::<Vec<bool>>()
    };
    assert!(means(Relabel::None).chunks_exact(2).all(|two| two[0] != two[1]));
    assert!(means(Relabel::Order { column: 0 }).iter().all(|&ascending| ascending));
    let pivot = means(Relabel::Pivot);
    assert!(pivot.iter().all(|&one| one == pivot[0]));
    let refused = Posterior::new(&run, &case.target, Relabel::Order { column: 2 });
    assert!(matches!(refused, Err(Error::Option { .. })));
    for (text, want) in [("none", Relabel::None), ("order:1", Relabel::Order { column: 1 }), ("pivot", Relabel::Pivot)]
    {
        assert_eq!(text.parse::<Relabel>().unwrap(), want);
    }
    assert!("order:x".parse::<Relabel>().is_err() && "sorted".parse::<Relabel>().is_err());
}

#[test]
fn rows_beyond_the_range_of_squares_leave_no_start() {
    let data = Dataset::new(array![[0.0], [1.0], [1e200], [2.0]]).unwrap();
    let mut likelihood = Likelihood::new(&CpuEngine::new(1).unwrap(), &data, Precision::F64).unwrap();
    let normal = "[means]\nprior = 'normal'\nmean = 0.0\nsd = 1.0\n[covariances]\nprior = 'inverse-gamma'\nscale = 1.0";
    let prior = PriorOptions::from_toml(normal).unwrap();
    let target = Target::new(Prior::new(&prior, CovarianceType::Diag, 1, &data).unwrap()).unwrap();
    let mixture = Mixture::new(array![1.0], array![[0.0]], Covariances::Diag(array![[1.0]])).unwrap();
    let start = starts::about(&mixture, &target, &mut likelihood, 0, 2);
    assert!(matches!(start, Err(Error::Start { chain: 2, .. })), "{start:?}");
}
