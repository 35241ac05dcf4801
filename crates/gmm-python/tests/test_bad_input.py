"""User errors raise a `ValueError` that says what is wrong, where, and what to try. The row numbers are those of the
table of bad input, against which the command line is also tested."""

import multiprocessing
import re

import numpy as np
import pytest
from conftest import KINDS, model
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from gmm_rs import exceptions
from gmm_rs.mixture import GaussianMixture

X = np.random.default_rng(0).normal(size=(20, 2))


def refused(message, rows=X, error=ValueError, **parameters):
    """Check that a fit raises an error with this message."""
    with pytest.raises(error, match=message):
        model(**{"k": 2, **parameters}).fit(rows)


def fits(rows, **parameters):
    """Check that a fit succeeds with finite parameters."""
    one = model(**{"k": 2, "random_state": 0, **parameters}).fit(rows)
    assert np.isfinite(one.means_).all() and np.isfinite(one.covariances_).all()
    return one


def test_rows_01_and_02_no_rows_and_no_columns():
    refused(r"0 sample\(s\) \(shape=\(0, 2\)\)", np.empty((0, 2)))
    refused(r"0 feature\(s\) \(shape=\(20, 0\)\)", np.empty((20, 0)))


def test_row_03_one_dimension():
    refused("Reshape your data", np.arange(9.0))


def test_row_04_three_dimensions():
    refused("dim 3", np.zeros((2, 3, 4)))


def test_row_05_fewer_than_two_rows():
    refused("minimum of 2", np.zeros((1, 2)), k=1)


def test_row_06_more_components_than_rows():
    refused("n_components = 21, n_samples = 20", k=21)


def test_row_07_as_many_components_as_rows():
    fits(X, k=20)


@pytest.mark.parametrize("k", [0, -1, 2.5])
def test_row_08_no_whole_number_of_components(k):
    refused("'n_components' parameter", k=k)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_rows_09_and_10_numbers_that_are_none(value):
    rows = X.copy()
    rows[7, 1] = rows[9, 0] = value
    word = "NaN" if np.isnan(value) else "inf"
    refused(f"row 7, column 1 is -?{word}", rows, error=exceptions.DataError)
    with pytest.raises(ValueError, match="row 7, column 1"):
        fits(X).predict(rows)


def test_row_11_text():
    refused("not compatible with arrays of bytes/strings", np.array([["a", "b"]] * 20))


def test_rows_12_and_13_complex_and_sparse():
    refused("Complex data not supported", X + 1j)
    refused("Sparse data was passed", sparse.csr_array(X), error=TypeError)


def test_row_17_other_columns_at_predict():
    with pytest.raises(ValueError, match="X has 3 features.* expecting 2 features"):
        fits(X).predict(np.zeros((4, 3)))


@pytest.mark.parametrize("method", ["predict", "predict_proba", "score", "score_samples", "bic", "aic"])
def test_row_19_not_fitted(method):
    with pytest.raises(NotFittedError):
        getattr(model(), method)(X)
    with pytest.raises(NotFittedError):
        model().sample()


def test_row_20_nothing_to_predict():
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        fits(X).predict(np.empty((0, 2)))


def test_row_21_identical_rows():
    found = fits(np.full((20, 2), 3.0), k=1)
    np.testing.assert_allclose(found.covariances_[0], 1e-6 * np.eye(2), rtol=1e-9)


def test_row_22_identical_rows_and_several_components():
    with pytest.warns(ConvergenceWarning, match="fewer distinct rows"):
        fits(np.full((20, 2), 3.0), k=3)


def test_row_23_identical_rows_without_regularisation():
    refused("component 0", np.full((20, 2), 3.0), k=1, reg_covar=0.0, error=exceptions.NumericalError)


def test_row_24_a_constant_column():
    rows = np.column_stack([X, np.full(20, 5.0)])
    with pytest.warns(exceptions.DataWarning, match=r"column\(s\) \[2\]"):
        fits(rows, k=1)
    refused("column 2", rows, k=1, reg_covar=0.0)


def test_rows_25_and_26_collinear_columns_and_more_columns_than_rows():
    rows = np.column_stack([X, X.sum(axis=1)])
    fits(rows, k=1)
    refused("column 2", rows, k=1, reg_covar=0.0)
    wide = np.random.default_rng(1).normal(size=(5, 12))
    fits(wide, k=1)
    refused("component 0", wide, k=1, reg_covar=0.0)


def test_rows_27_and_28_one_column_and_one_component():
    found = fits(X[:, :1], k=1, reg_covar=0.0)
    np.testing.assert_allclose(found.means_[0], X[:, 0].mean(), rtol=1e-12)
    np.testing.assert_allclose(found.covariances_.ravel(), X[:, 0].var(), rtol=1e-12)


def test_row_32_numbers_whose_squares_overflow():
    refused("rescale the data", X * 1e200, error=exceptions.DataError)
    refused("rescale the data or use f64", (X * 1e30).astype(np.float32))


def test_row_33_numbers_that_reg_covar_drowns():
    with pytest.warns(exceptions.DataWarning, match="reg_covar"):
        fits(X * 1e-200, k=1)


def test_row_34_a_component_that_empties():
    given = {"means_init": [[0.0, 0.0], [1e6, 1e6]], "weights_init": [0.5, 0.5], "precisions_init": [1.0, 1.0]}
    with pytest.warns(ConvergenceWarning, match=r"components \[1\] are empty"):
        found = fits(X, kind="spherical", **given)
    np.testing.assert_array_equal(found.means_[1], [1e6, 1e6])
    assert found.weights_[1] == 0.0


def test_row_37_a_weight_of_zero_to_start_from():
    given = {"means_init": [[0.0, 0.0], [1.0, 1.0]], "weights_init": [1.0, 0.0], "precisions_init": [1.0, 1.0]}
    with pytest.warns(ConvergenceWarning, match="are empty"):
        fits(X, kind="spherical", **given)


def test_row_40_no_iterations_and_one():
    assert not fits(X, max_iter=0).converged_
    with pytest.warns(ConvergenceWarning):
        assert not fits(X, max_iter=1).converged_


@pytest.mark.filterwarnings("ignore::gmm_rs.exceptions.DataWarning")
def test_row_41_a_falling_likelihood_is_reported_once():
    with pytest.warns(ConvergenceWarning, match=r"fell by .* \(the largest of \d+ falls\)") as seen:
        fits(X, kind="spherical", reg_covar=0.5, tol=1e-6, init_params="random")
    assert sum("fell by" in str(one.message) for one in seen) == 1


def test_row_42_more_components_than_memory_holds():
    rows = np.zeros((50_000, 400), dtype=np.float32)
    with pytest.raises(exceptions.OutOfMemoryError, match=r"needs \d+ bytes of memory, \d+ are free"):
        GaussianMixture(50_000, device="cpu", init_params="random_from_data").fit(rows)
    assert issubclass(exceptions.OutOfMemoryError, MemoryError)


@pytest.mark.parametrize("value", [-1.0, np.nan])
@pytest.mark.parametrize("name", ["tol", "reg_covar"])
def test_row_43_negative_tolerance_or_regularisation(name, value):
    refused(f"'{name}' parameter", **{name: value})


def test_row_44_unknown_words_list_the_choices():
    with pytest.raises(ValueError, match="covariance_type.*must be a str among.*'diag'"):
        GaussianMixture(covariance_type="round").fit(X)
    refused("'init_params' parameter .* must be a str among", init_params="guess")
    refused("'precision' parameter .* must be a str among", precision="f16")
    with pytest.raises(ValueError, match="unknown device 'tpu': choose one of auto, cpu"):
        GaussianMixture(device="tpu").fit(X)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([0.5, 0.6], r"'weights' should be normalized, but got sum\(weights\) = 1.1"),
        ([1.5, -0.5], r"'weights' should be in the range \[0, 1\].*component 0"),
        ([1.0], r"'weights' should have the shape of \(2,\), but got \(1,\)"),
        ([np.nan, 1.0], r"'weights' contains NaN or infinity, first at \(0,\)"),
        ([1j, 1.0], "'weights': complex"),
        (["a", "b"], "'weights' is an array of <U1: .* bytes/strings"),
    ],
)
def test_row_45_weights_to_start_from(weights, message):
    refused(message, weights_init=weights)


def test_row_46_means_to_start_from():
    refused(r"'means' should have the shape of \(2, 2\), but got \(2, 3\)", means_init=np.zeros((2, 3)))
    refused(r"'means' contains NaN or infinity, first at \(0, 1\)", means_init=[[0.0, np.nan], [1.0, 1.0]])


@pytest.mark.parametrize("kind", KINDS)
def test_row_47_precisions_to_start_from(kind):
    one, two = np.eye(2), np.ones((2, 2))
    good = {"full": np.array([one, one]), "tied": one, "diag": two, "spherical": two[0]}[kind]
    fits(X, kind=kind, precisions_init=good)
    bad = good.copy()
    bad.flat[-1] = -1.0
    component = 0 if kind == "tied" else 1
    message = f"'{kind} precision' should be .*positive.*component {component} is not positive"
    refused(message, kind=kind, precisions_init=bad)
    refused(f"'{kind} precision' should have the shape of", kind=kind, precisions_init=good[..., :1])
    if kind in ("full", "tied"):
        bad = good.copy()
        bad[..., 0, 1] = 0.5
        refused("precisions_init of component 0 is not symmetric", kind=kind, precisions_init=bad)


@pytest.mark.parametrize("n", [0, -1, 2.5, True])
def test_row_48_samples_of_no_whole_number(n):
    with pytest.raises(ValueError, match=re.escape(f"'n_samples': {n!r}")):
        fits(X).sample(n)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.r_[np.ones(19), -1.0], "row 19 is -1"),
        (np.r_[np.ones(19), np.nan], "NaN"),
        (np.zeros(20), "at least one non-zero"),
        (np.ones(3), r"\(3,\)"),
    ],
)
def test_row_49_row_weights(weights, message):
    with pytest.raises(ValueError, match=message):
        model(2).fit(X, sample_weight=weights)


def test_a_gpu_that_is_not_there_is_an_error():
    with pytest.raises(exceptions.DeviceError):
        GaussianMixture(device="cuda:999").fit(X)


def test_every_error_is_a_value_error():
    for name in exceptions.__all__:
        one = getattr(exceptions, name)
        # Ctrl-C is not an error.
        assert issubclass(one, (ValueError, UserWarning, KeyboardInterrupt))


def _fit_in_child(queue):
    queue.put(model(2, random_state=0).fit(X).lower_bound_)


def test_row_59_a_forked_process_fits_as_well():
    here = model(2, random_state=0).fit(X).lower_bound_
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_fit_in_child, args=(queue,))
    child.start()
    assert queue.get(timeout=30) == here
    child.join(30)
    assert child.exitcode == 0


def test_row_97_a_spike_is_a_data_warning_with_component_and_column():
    rows = np.vstack([X, np.column_stack([50 + X[:, 0], np.full(20, 30.0)])])
    for kind in ("full", "diag"):
        with pytest.warns(exceptions.DataWarning, match=r"more than half the variance of component \d \(column 1\)"):
            fits(rows, kind=kind, tol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_variances_that_underflow_are_a_numerical_error(kind):
    refused("underflows", X * 1e-160, error=exceptions.NumericalError, kind=kind, reg_covar=0.0)
    refused("underflows", X * 1e-160, error=exceptions.NumericalError, kind=kind, reg_covar=0.0, init_params="random")
