"""Predictions use the given attributes and are exact up to rounding, even for ill-conditioned factors."""

import mpmath
import numpy as np
import pytest
from conftest import KINDS, model
from scipy.linalg import rq

mpmath.mp.prec = 400

SIZES = [1, 2, 3, 5, 16, 64, 200]


def attributes(kind, k, d, dtype, offset, condition=1e12, seed=0):
    """An estimator whose precisions have condition number `condition`, and typical rows for it."""
    rng = np.random.default_rng(seed + d)
    one = model(k, kind)
    one.weights_ = np.full(k, 1.0 / k).astype(dtype)
    means = offset + 3.0 * rng.normal(size=(k, d))
    factors = np.array([_factor(rng, d, condition) for _ in range(k)])
    deviations = condition ** (-0.5 * rng.random((k, d)))
    if kind == "full":
        one.precisions_cholesky_ = factors
    elif kind == "tied":
        one.precisions_cholesky_ = factors[0]
    else:
        one.precisions_cholesky_ = 1 / (deviations if kind == "diag" else deviations[:, 0])
    one.means_, one.precisions_cholesky_ = means.astype(dtype), one.precisions_cholesky_.astype(dtype)
    one.n_features_in_ = d
    X = []
    for i in range(6):
        u = dense(one, i % k).astype(np.float64)
        X.append(one.means_[i % k] + np.linalg.solve(u.T, rng.normal(size=d)))
    return one, np.array(X, dtype)


def _factor(rng, d, condition):
    """Upper triangular U with a positive diagonal."""
    rotation = np.linalg.qr(rng.normal(size=(d, d)))[0]
    upper = rq(rotation * condition ** (0.5 * np.linspace(0, 1, d)))[0]
    return upper * np.sign(np.diag(upper))


def dense(one, c):
    """The factor of component `c` as a matrix."""
    d = one.means_.shape[1]
    factors = one.precisions_cholesky_
    return {
        "full": lambda: factors[c],
        "tied": lambda: factors,
        "diag": lambda: np.diag(factors[c]),
        "spherical": lambda: np.eye(d, dtype=factors.dtype) * factors[c],
    }[one.covariance_type]()


_exact = np.frompyfunc(lambda v: mpmath.mpf(float(v)), 1, 1)


def exact(one, x):
    """ln p(x) of one row, and a bound of its change if every input changes by one unit in the last place."""
    k, d = one.means_.shape
    parts, steps = [], []
    for c in range(k):
        u, mean = dense(one, c), one.means_[c]
        z = _exact(x) - _exact(mean)
        # Column by column, only nonzero entries.
        y = np.array([sum(_exact(u[: i + 1, i][u[: i + 1, i] != 0]) * z[: i + 1][u[: i + 1, i] != 0]) for i in range(d)])
        determinant = mpmath.mpf(1)
        for v in _exact(np.diag(u)):
            determinant *= v
        quadratic = sum(v * v for v in y)
        parts.append(mpmath.log(mpmath.mpf(float(one.weights_[c])) * determinant) - quadratic / 2)
        y, z = y.astype(np.float64), z.astype(np.float64)
        gradient = np.abs(u.astype(np.float64) @ y)
        of_factors = np.abs(np.outer(z, y) - np.diag(1 / np.diag(u.astype(np.float64)))) * np.spacing(np.abs(u)) * (u != 0)
        steps.append(gradient @ (np.spacing(np.abs(x)) + np.spacing(np.abs(mean))).astype(np.float64) + of_factors.sum())
    top = max(parts)
    shares = [mpmath.exp(part - top) for part in parts]
    value = top + mpmath.log(sum(shares)) - mpmath.mpf(d) / 2 * mpmath.log(2 * mpmath.pi)
    step = sum(float(share / sum(shares)) * step for share, step in zip(shares, steps))
    return value, step + float(np.spacing(np.abs(x.dtype.type(float(value)))))


def errors(found, values):
    return np.array([float(abs(mpmath.mpf(float(f)) - v)) for f, v in zip(found, values)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("d", SIZES)
def test_log_densities_are_within_four_steps_of_exact_ones_and_no_worse_than_scikit_learns(d, dtype, kind):
    for offset in [0.0, 1e3]:
        one, X = attributes(kind, 2, d, dtype, offset)
        values, steps = zip(*(exact(one, x) for x in X))
        ours = errors(one.score_samples(X), values)
        assert (ours <= 4 * np.array(steps)).all(), (offset, ours / steps)
        theirs = errors(one.to_sklearn().score_samples(X), values)
        assert ours.max() <= max(theirs.max(), max(steps)), (offset, ours, theirs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_row_alone_is_evaluated_to_the_bits_that_it_has_among_others(dtype, kind):
    one, X = attributes(kind, 3, 21, dtype, 10.0, condition=100.0)
    many = np.repeat(X, 50, axis=0)
    densities, resp, labels = one.score_samples(many), one.predict_proba(many), one.predict(many)
    for i in [0, 77, 299]:
        row = many[i : i + 1]
        assert one.score_samples(row)[0] == densities[i]
        np.testing.assert_array_equal(one.predict_proba(row)[0], resp[i])
        assert one.predict(row)[0] == labels[i]
    assert densities.dtype == dtype


@pytest.mark.parametrize("kind", KINDS)
def test_float32_rows_under_float64_attributes_have_float64_digits(kind):
    one, X = attributes(kind, 2, 16, np.float64, 1.0)
    narrow = X.astype(np.float32)
    found = one.score_samples(narrow)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, one.score_samples(narrow.astype(np.float64)))


@pytest.mark.parametrize("kind", ["full", "tied"])
def test_lower_factors_and_other_square_roots_give_the_same_density(kind):
    one, X = attributes(kind, 2, 16, np.float64, 10.0, condition=1e6)
    want = one.score_samples(X)
    upper = one.precisions_cholesky_
    scale = np.abs(want).max()
    flip = np.eye(16)[::-1]
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(16, 16)))[0]
    for turned in [upper @ rotation, upper @ flip]:
        one.precisions_cholesky_ = np.ascontiguousarray(turned)
        np.testing.assert_allclose(one.score_samples(X), want, rtol=0, atol=1e-6 * scale)
    one.precisions_cholesky_ = np.linalg.cholesky(upper @ np.swapaxes(upper, -1, -2))
    np.testing.assert_allclose(one.score_samples(X), want, rtol=0, atol=1e-3 * scale)


def test_factors_in_any_memory_order_and_type_are_read_right():
    one, X = attributes("full", 2, 7, np.float64, 1.0, condition=100.0)
    want = one.score_samples(X)
    factors = one.precisions_cholesky_
    for same in [
        np.asfortranarray(factors),
        np.repeat(factors, 2, axis=0)[::2],
        factors.astype(">f8"),
        np.frombuffer(b"x" + factors.tobytes(), np.uint8)[1:].view(np.float64).reshape(factors.shape),
    ]:
        one.precisions_cholesky_ = same
        np.testing.assert_array_equal(one.score_samples(X), want)


def test_score_is_the_mean_and_the_criteria_follow():
    one, X = attributes("full", 2, 30, np.float64, 5.0)
    total = one.score_samples(X).sum()
    assert one.score(X) == pytest.approx(total / len(X), rel=1e-14)
    assert one.aic(X) == pytest.approx(-2 * total + 2 * one._n_parameters(), rel=1e-14)
    weights = np.arange(1.0, 7.0)
    assert one.score(X, sample_weight=weights) == pytest.approx(np.average(one.score_samples(X), weights=weights))
