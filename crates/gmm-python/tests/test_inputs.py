"""Arrays, frames and lists of all kinds give the same fit."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from conftest import model

from gmm_rs import _bridge
from gmm_rs.mixture import GaussianMixture


def fitted(X):
    return model(random_state=0).fit(X)


def check(rows, other, exact=True):
    want, found = fitted(rows), fitted(other)
    if exact:
        np.testing.assert_array_equal(found.means_, want.means_)
        np.testing.assert_array_equal(found.predict(other), want.predict(rows))
    else:
        np.testing.assert_allclose(found.means_, want.means_, rtol=1e-3, atol=1e-3)


def test_row_16_fortran_order(rows):
    check(rows, np.asfortranarray(rows))


def test_row_16_strides(rows):
    check(rows, np.repeat(np.repeat(rows, 2, axis=0), 3, axis=1)[::2, ::3])
    check(rows, rows[::-1].copy()[::-1])


def test_row_16_read_only(rows):
    frozen = rows.copy()
    frozen.flags.writeable = False
    check(rows, frozen)


def test_row_16_memory_mapped(rows, tmp_path):
    np.save(tmp_path / "rows.npy", rows)
    check(rows, np.load(tmp_path / "rows.npy", mmap_mode="r"))


def test_other_byte_order_and_unaligned(rows):
    check(rows, rows.astype(rows.dtype.newbyteorder()))
    raw = np.zeros(rows.nbytes + 1, dtype=np.uint8)
    unaligned = raw[1:].view(np.float64).reshape(rows.shape)
    unaligned[:] = rows
    check(rows, unaligned)


def test_row_14_integers_and_halves_are_converted(rows):
    whole = np.round(rows * 100).astype(np.int32)
    check(whole.astype(np.float64), whole)
    halves = rows.astype(np.float16)
    check(halves.astype(np.float64), halves)


def test_row_15_float32_in_float32_out(rows):
    X = rows.astype(np.float32)
    one = fitted(X)
    for found in (one.means_, one.covariances_, one.score_samples(X), one.predict_proba(X)):
        assert found.dtype == np.float32
    assert one.score_samples(rows).dtype == np.float64
    check(rows, X, exact=False)


def test_float32_rows_can_be_computed_in_float64(rows):
    X = rows.astype(np.float32)
    want = fitted(X.astype(np.float64))
    found = model(random_state=0, precision="f64").fit(X)
    np.testing.assert_allclose(found.means_, want.means_, rtol=1e-6)


def test_rows_in_place_are_not_copied(rows):
    assert _bridge.contiguous(rows) is rows


def test_a_list(rows):
    check(rows, rows.tolist())


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_frames_keep_their_columns_names(rows, frame):
    named = frame({name: rows[:, i] for i, name in enumerate("abc")})
    check(rows, named)
    one = fitted(named)
    assert list(one.feature_names_in_) == ["a", "b", "c"]
    # Row 18.
    with pytest.raises(ValueError, match="same order"):
        one.predict(named[["c", "b", "a"]])


def test_plain_arrays_are_told_what_scikit_learn_tells_them(rows):
    one = fitted(pd.DataFrame(rows, columns=list("abc")))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        one.predict(rows)
    one.fit(rows)
    assert not hasattr(one, "feature_names_in_") and one.n_features_in_ == 3
    with pytest.raises(ValueError, match="X has 2 features, but GaussianMixture is expecting 3 features"):
        one.predict(rows[:, :2])
    for wrong, words in [(rows[0], "Expected 2D array"), (rows[:1], "minimum of 2"), (rows[:, :0], "0 feature")]:
        with pytest.raises(ValueError, match=words):
            one.fit(wrong)
    np.testing.assert_array_equal(one.predict(rows.astype(">f8")), one.predict(rows))


def test_parameters_are_those_of_the_class_that_is_asked():
    class Other(GaussianMixture):
        def __init__(self, n_components=3):
            super().__init__(n_components)

    assert list(Other().get_params()) == ["n_components"]
    assert "covariance_type" in GaussianMixture().get_params()


@pytest.mark.parametrize("init_params", ["random_from_data", "kmeans", "k-means++"])
def test_row_39_also_where_the_start_is_drawn(rows, init_params):
    weights = np.random.default_rng(0).integers(0, 4, len(rows))
    for seed in range(5):
        weighted, repeated = (
            model(random_state=seed, init_params=init_params, max_iter=0).fit(X, sample_weight=w)
            for X, w in ((rows, weights), (rows.repeat(weights, axis=0), None))
        )
        np.testing.assert_allclose(weighted.means_, repeated.means_, rtol=1e-9)
        np.testing.assert_allclose(weighted.covariances_, repeated.covariances_, rtol=1e-8, atol=1e-10)


def test_row_39_a_row_of_weight_two_is_the_row_twice(rows):
    weights = np.random.default_rng(0).integers(0, 4, len(rows))
    from conftest import start

    given = start(rows, 3, "full")
    weighted = model(**given).fit(rows, sample_weight=weights)
    repeated = model(**given).fit(rows.repeat(weights, axis=0))
    np.testing.assert_allclose(weighted.means_, repeated.means_, rtol=1e-9)
    np.testing.assert_allclose(weighted.covariances_, repeated.covariances_, rtol=1e-8, atol=1e-10)
    assert weighted.score(rows, sample_weight=weights) == pytest.approx(repeated.score(rows.repeat(weights, axis=0)))
    np.testing.assert_array_equal(model(**given).fit_predict(rows, sample_weight=weights), weighted.predict(rows))
