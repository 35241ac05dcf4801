//! Covariance ellipses of a component over two columns, in pixels.

use gmm_model::Mixture;

use crate::canvas::At;
use crate::panel::Panel;

/// Variance of column `i`, covariance, and variance of column `j`, of component `c`.
pub(super) fn covariance(mixture: &Mixture, c: usize, [i, j]: [usize; 2]) -> [f64; 3] {
    let all = mixture.covariances().matrix(c, mixture.n_features());
    [all[[i, i]], all[[i, j]], all[[j, j]]]
}

/// An ellipse in the picture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ellipse {
    pub(super) centre: At,
    /// Half the longer and half the shorter axis, in pixels.
    pub(super) radii: (f64, f64),
    /// Angle of the longer axis, clockwise from the right.
    pub(super) degrees: f64,
}

/// Maximum radius in pixels: the visible part of a longer ellipse looks straight anyway.
const FAR: f64 = 1e5;

/// Returns the ellipse of the points at `sigma` standard deviations from the mean, (x − μ)ᵀ Σ⁻¹ (x − μ) = σ², in
/// pixels. The panel's axes are linear, so it is an ellipse in the picture too. `None` if it is too small, too large or
/// too far off.
pub(super) fn ellipse(mixture: &Mixture, c: usize, columns: [usize; 2], sigma: f64, panel: &Panel) -> Option<Ellipse> {
    let [i, j] = columns;
    let mean = (mixture.means()[[c, i]], mixture.means()[[c, j]]);
    let [xx, xy, yy] = covariance(mixture, c, columns);
    let centre = panel.place(mean.0, mean.1);
    // Standard deviations in pixels, from a mean moved by one deviation: the axis' span itself may overflow.
    let aside = panel.place(mean.0 + xx.sqrt(), mean.1 + yy.sqrt());
    let (sx, sy) = (aside.0 - centre.0, centre.1 - aside.1);
    let r = if xx > 0.0 && yy > 0.0 { (xy / xx.sqrt() / yy.sqrt()).clamp(-1.0, 1.0) } else { 0.0 };
    // Eigenvalues of [[a, b], [b, e]]; the picture's second axis points down.
    let (a, b, e) = (sx * sx, -r * sx * sy, sy * sy);
    let half = f64::midpoint(a, -e).hypot(b);
    let (long, short) = (f64::midpoint(a, e) + half, (f64::midpoint(a, e) - half).max(0.0));
    let degrees = 0.5 * (2.0 * b).atan2(a - e).to_degrees();
    let radii = (sigma * long.sqrt(), sigma * short.sqrt());
    let seen = [centre.0, centre.1, radii.1].iter().all(|v| v.abs() < FAR) && radii.0.is_finite() && radii.0 > 0.05;
    seen.then_some(Ellipse { centre, radii: (radii.0.min(FAR), radii.1.max(0.05)), degrees })
}

#[cfg(test)]
mod tests {
    use gmm_model::{Covariances, Mixture};
    use ndarray::{Array3, array};

    use super::*;
    use crate::panel::Axis;
    use crate::scale::Scale;

    #[test]
    fn points_of_an_ellipse_are_as_far_from_the_mean_as_they_should_be() {
        let panel = |x: Scale, y: Scale| Panel::at((20.0, 30.0), (500.0, 300.0), Axis::bare(x), Axis::bare(y));
        for (variances, r) in
            [([1.0, 4.0], 0.8), ([4.0, 1.0], -0.95), ([2.0, 2.0], 0.0), ([1e-4, 9e8], 0.3), ([3.0, 3.0], 0.999)]
        {
            let [xx, yy]: [f64; 2] = variances;
            let xy = r * (xx * yy).sqrt();
            let covariance = Array3::from_shape_vec((1, 2, 2), vec![xx, xy, xy, yy]).unwrap();
            let mixture = Mixture::new(array![1.0], array![[5.0, -7.0]], Covariances::Full(covariance)).unwrap();
            let (x, y) = (
                Scale::between(5.0 - 4.0 * xx.sqrt(), 5.0 + 3.0 * xx.sqrt()),
                Scale::between(-7.0 - 5.0 * yy.sqrt(), -7.0 + 3.0 * yy.sqrt()),
            );
            let panel = panel(x, y);
            for sigma in [1.0, 2.0] {
                let Ellipse { centre, radii, degrees } = ellipse(&mixture, 0, [0, 1], sigma, &panel).unwrap();
                for step in 0..24 {
                    let (sin, cos) = (f64::from(step) * 15.0).to_radians().sin_cos();
                    let (s, c) = degrees.to_radians().sin_cos();
                    let (u, v) = (radii.0 * cos, radii.1 * sin);
                    let pixel = (centre.0 + u * c - v * s, centre.1 + u * s + v * c);
                    // Convert back to values and then to distances, independently of the code under test.
                    let of = |scale: &Scale, share: f64| scale.ends().0 + share * (scale.ends().1 - scale.ends().0);
                    let dx = of(&x, (pixel.0 - 20.0) / 500.0) - 5.0;
                    let dy = of(&y, (330.0 - pixel.1) / 300.0) + 7.0;
                    let distance = (yy * dx * dx - 2.0 * xy * dx * dy + xx * dy * dy) / (xx * yy - xy * xy);
                    assert!((distance - sigma * sigma).abs() < 1e-6 * sigma * sigma, "{variances:?} {r}: {distance}");
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_seen_is_not_drawn() {
        let panel = Panel::at(
            (0.0, 0.0),
            (100.0, 100.0),
            Axis::bare(Scale::between(0.0, 1.0)),
            Axis::bare(Scale::between(0.0, 1.0)),
        );
        let of = |variance: f64, mean: f64| {
            let mixture =
                Mixture::new(array![1.0], array![[mean, 0.5]], Covariances::Spherical(array![variance])).unwrap();
            ellipse(&mixture, 0, [0, 1], 1.0, &panel)
        };
        assert!(of(0.01, 0.5).is_some());
        assert!(of(1e200, 0.5).is_none() && of(0.01, 1e300).is_none() && of(1e-12, 0.5).is_none());
        // Far larger than the panel in one column: looks like two lines, in the right position.
        let wide = Covariances::Diag(array![[0.01, 1e12]]);
        let wide = Mixture::new(array![1.0], array![[0.5, 0.5]], wide).unwrap();
        let Ellipse { radii, degrees, .. } = ellipse(&wide, 0, [0, 1], 2.0, &panel).unwrap();
        assert!((radii.1 - 20.0).abs() < 1e-9 && radii.0 == FAR && (degrees.abs() - 90.0).abs() < 1e-9);
    }
}
