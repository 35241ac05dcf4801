"""Data far from the origin do not lose precision, as they do in scikit-learn's class."""

import numpy as np
import pytest
from conftest import KINDS, model, start


@pytest.mark.parametrize("kind", KINDS)
def test_row_29_an_offset_of_1e8_in_float64(rows, kind):
    # Multiples of 2⁻²⁰ are exact after adding the offset, so both fits use the same rows.
    X = np.round(rows * 2**20) / 2**20
    given = start(X, 3, kind)
    near = model(3, kind, **given).fit(X)
    far = model(3, kind, **{**given, "means_init": given["means_init"] + 2.0**27}).fit(X + 2.0**27)
    assert far.n_iter_ == near.n_iter_
    np.testing.assert_allclose(far.means_ - 2.0**27, near.means_, rtol=0, atol=1e-7)
    np.testing.assert_allclose(far.covariances_, near.covariances_, rtol=1e-5, atol=1e-7)
    assert far.lower_bound_ == pytest.approx(near.lower_bound_, rel=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_row_30_an_offset_of_1e4_in_float32(rows, kind):
    X = (np.round(rows * 2**6) / 2**6).astype(np.float32)
    given = start(X, 3, kind)
    near = model(3, kind, **given).fit(X)
    far = model(3, kind, **{**given, "means_init": given["means_init"] + 2.0**13}).fit(X + np.float32(2**13))
    assert far.means_.dtype == np.float32
    np.testing.assert_allclose(far.means_ - 2.0**13, near.means_, rtol=0, atol=2e-3)
    np.testing.assert_allclose(far.covariances_, near.covariances_, rtol=2e-3, atol=1e-3)


def test_row_31_two_points_in_float32():
    X = np.array([[9999.0], [0.0]], dtype=np.float32)
    given = {"means_init": [[9999.0], [0.0]], "weights_init": [0.5, 0.5], "precisions_init": [1.0, 1.0]}
    one = model(2, "spherical", reg_covar=0.1, **given).fit(X)
    np.testing.assert_allclose(one.covariances_, [0.1, 0.1], rtol=1e-6)


def test_row_36_a_row_at_1e200_has_a_label_and_no_density(rows):
    one = model(random_state=0).fit(rows)
    far = np.full((1, 3), 1e200)
    assert one.score_samples(far)[0] == -np.inf
    assert one.predict(far)[0] in range(3)
    assert one.predict_proba(far).sum() == pytest.approx(1.0)


def test_row_35_responsibilities_that_underflow_still_sum_to_one(rows):
    one = model(random_state=0).fit(rows)
    np.testing.assert_allclose(one.predict_proba(rows * 1e6).sum(axis=1), 1.0, rtol=1e-12)


def test_row_38_columns_of_very_different_scale(rows):
    scales = np.array([1e-8, 1.0, 1e8])
    given = start(rows, 3, "full")
    plain = model(reg_covar=0.0, **given).fit(rows)
    given["means_init"] = given["means_init"] * scales
    given["precisions_init"] = given["precisions_init"] / np.outer(scales, scales)
    scaled = model(reg_covar=0.0, **given).fit(rows * scales)
    np.testing.assert_allclose(scaled.means_ / scales, plain.means_, rtol=1e-7)


def test_factors_of_a_float32_fit_are_usable_though_its_covariances_are_nearly_singular():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 1))
    X = np.hstack([1e3 * x, 1e3 * x + 1e-1 * rng.normal(size=(400, 1))]).astype(np.float32)
    one = model(1, reg_covar=0.0, precision="f64").fit(X)
    # The smallest eigenvalue is below the float32 resolution of the largest.
    assert one.covariances_.dtype == np.float32
    assert one.score(X) == pytest.approx(one.lower_bound_, rel=1e-3)
