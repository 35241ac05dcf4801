//! k-means with labelled rows, which stay in their clusters (constrained k-means: Basu, Banerjee and Mooney 2002,
//! Semi-supervised clustering by seeding).

use gmm_model::{Draws, LabelledRows, Statistics};
use ndarray::Array2;

use super::Start;
use super::drawn::{RowDraw, cumulative};
use crate::em::check;
use crate::{Error, Resident};

/// Largest number of passes that move the centres.
const MOST: usize = 100;

/// The sums of all rows in the clusters that they are nearest to, or labelled with. A component with labelled rows
/// begins at their mean; the others are drawn by k-means++ among the unlabelled rows, far from these. If all rows are
/// labelled, the others are empty.
///
/// Cost: a pass for each component, and one for each move of the centres.
///
/// # Errors
/// Any error of the engine.
pub(super) fn clusters(
    rows: &mut dyn Resident,
    start: Start<'_>,
    labelled: &LabelledRows,
    seeds_alone: bool,
    draws: &mut Draws,
) -> Result<Statistics, Error> {
    if start.rule.is_known {
        let mut centres = Array2::from_shape_fn((start.k, start.shift.len()), |(_, j)| start.shift[j]);
        labelled.groups().for_each(|(c, group)| centres.row_mut(c).assign(&group.centres.row(0)));
        return Ok(labelled.about(centres)?);
    }
    let mut centres = seeds(rows, start, labelled, draws)?;
    let mut sums = assigned(rows, start, labelled, &centres)?;
    if seeds_alone {
        return Ok(sums);
    }
    for _ in 0..MOST {
        let mut moved = centres.clone();
        for c in (0..start.k).filter(|&c| sums.weight[c] > 0.0) {
            moved.row_mut(c).scaled_add(sums.weight[c].recip(), &sums.first.row(c));
        }
        if moved == centres {
            break;
        }
        let next = assigned(rows, start, labelled, &moved)?;
        // No row changed its cluster: then neither do the centres, up to rounding.
        let settled = next.weight == sums.weight && (&moved - &centres).iter().all(|v| v.abs() <= f64::EPSILON);
        (centres, sums) = (moved, next);
        if settled {
            break;
        }
    }
    Ok(sums)
}

fn assigned(
    rows: &mut dyn Resident,
    start: Start<'_>,
    labelled: &LabelledRows,
    centres: &Array2<f64>,
) -> Result<Statistics, Error> {
    let mut sums = rows.nearest(start.kind, centres.view())?;
    sums.add(&labelled.about(centres.clone())?)?;
    check(&sums, 0)?;
    Ok(sums)
}

fn seeds(
    rows: &mut dyn Resident,
    start: Start<'_>,
    labelled: &LabelledRows,
    draws: &mut Draws,
) -> Result<Array2<f64>, Error> {
    let Start { data, k, .. } = start;
    let mut centres = Array2::zeros((k, data.dim().1));
    let mut is_set = vec![false; k];
    let mut left = Vec::new();
    rows.forget_centres();
    for (c, group) in labelled.groups() {
        let mean = &group.centres.row(0) + &(&group.first.row(0) / group.weight[0]);
        left = rows.add_centre(mean.as_slice().expect("row-major"))?;
        centres.row_mut(c).assign(&mean);
        is_set[c] = true;
    }
    let trials = 2 + (k as f64).ln() as usize;
    for c in (0..k).filter(|&c| !is_set[c]) {
        let potential: f64 = left.iter().sum();
        let row = if potential > 0.0 && potential.is_finite() {
            let groups = cumulative(left);
            let groups: Vec<usize> = (0..trials).map(|_| draws.weighted_index(&groups)).collect();
            let drawn: Vec<RowDraw> =
                groups.into_iter().map(|group| RowDraw { group, uniform: draws.uniform() }).collect();
            let weighed = rows.weigh_draws(&drawn, data.weights())?;
            let best = (1..trials).fold(0, |best, i| if weighed.left[i] < weighed.left[best] { i } else { best });
            left = rows.add_drawn(best)?;
            data.pick(&[weighed.rows[best]])?
        } else {
            // All rows lie on centres, or there is none yet.
            let row = data.pick(&[draws.index(data.dim().0)])?;
            left = rows.add_centre(row.as_slice().expect("one row"))?;
            row
        };
        centres.row_mut(c).assign(&row.row(0));
    }
    rows.forget_centres();
    Ok(centres)
}
