"""The steps of an EM iteration: statistics of passes, their sums and byte form, and the M-step."""

import pickle

import numpy as np
import pytest
from conftest import KINDS, model, start

from gmm_rs import Statistics
from gmm_rs.exceptions import NumericalError, ParameterError
from gmm_rs.steps import PassRows, e_step, m_step


def given(X, k, kind):
    """A mixture from which EM makes progress, as a fitted estimator."""
    return model(k, kind, max_iter=0, **start(X, k, kind)).fit(X)


@pytest.mark.parametrize("kind", KINDS)
def test_a_loop_of_steps_is_a_fit(rows, kind):
    fitted = model(3, kind, max_iter=5, tol=0.0, n_jobs=1, **start(rows, 3, kind))
    with pytest.warns(match="converge"):
        fitted.fit(rows)
    mixture = given(rows, 3, kind)
    parameters = (mixture.weights_, mixture.means_, mixture.covariances_)
    trace = []
    for _ in range(5):
        # Of three parts, added by Python's own `sum`.
        parts = [e_step(part, parameters, kind, n_jobs=1) for part in (rows[:100], rows[100:101], rows[101:])]
        total = sum(parts)
        assert total.n_rows == len(rows) == total.total_weight
        trace.append(total.mean_log_likelihood)
        parameters = m_step(total, parameters)
    assert np.allclose(trace, fitted.lower_bounds_, rtol=1e-12)
    for found, wanted in zip(parameters, (fitted.weights_, fitted.means_, fitted.covariances_)):
        assert np.allclose(found, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_the_moments_are_those_of_the_definition(rows, kind):
    mixture = given(rows, 3, kind)
    weights = np.arange(len(rows)) % 4.0
    found = e_step(rows, mixture, sample_weight=weights)
    r = mixture.predict_proba(rows) * weights[:, None]
    z = rows[:, None, :] - mixture.means_
    second = {
        "full": np.einsum("nc,nci,ncj->cij", r, z, z),
        "tied": np.einsum("nc,nci,ncj->ij", r, z, z),
        "diag": np.einsum("nc,nci->ci", r, z**2),
        "spherical": np.einsum("nc,nci->c", r, z**2),
    }[kind]
    assert (found.covariance_type, found.n_rows, found.total_weight) == (kind, 225, weights.sum())
    assert (found.centres == mixture.means_).all()
    for ours, theirs in [(found.weight, r.sum(0)), (found.first, np.einsum("nc,nci->ci", r, z)), (found.second, second)]:
        assert ours.shape == theirs.shape
        assert np.allclose(ours, theirs, rtol=1e-10, atol=1e-9)
    assert np.isclose(found.log_likelihood, weights @ mixture.score_samples(rows), rtol=1e-12)


def test_statistics_survive_bytes_and_pickles(rows):
    found = e_step(rows, given(rows, 3, "full"))
    for again in (Statistics.from_bytes(found.to_bytes()), pickle.loads(pickle.dumps(found))):
        assert again == found and again.to_bytes() == found.to_bytes()
    assert found != e_step(rows[1:], given(rows, 3, "full")) and found != 3
    assert repr(found) == "Statistics(<300 rows, full, k=3, d=3>)"
    with pytest.raises(TypeError):
        hash(found)


def test_rows_are_loaded_once_for_many_passes(rows):
    first, second = given(rows, 3, "diag"), given(rows, 2, "full")
    held = PassRows(rows, np.median(rows, axis=0), n_jobs=1)
    for mixture in (first, second, first):
        wanted = e_step(rows, mixture, n_jobs=1)
        found = held.e_step(mixture)
        assert np.isclose(found.log_likelihood, wanted.log_likelihood, rtol=1e-13)
        assert np.allclose(found.second, wanted.second, rtol=1e-11)


def misaligned(array):
    """A copy that begins at an odd address, as arrays from a network may."""
    buffer = np.empty(array.nbytes + 1, np.uint8)[1:]
    copy = buffer.view(array.dtype).reshape(array.shape)
    copy[:] = array
    assert not copy.flags.aligned
    return copy


def test_arrays_may_lie_anywhere_in_memory(rows):
    mixture = given(rows, 3, "full")
    weights = np.arange(len(rows)) % 4.0
    parameters = (mixture.weights_, mixture.means_, mixture.covariances_)
    wanted = e_step(rows, parameters, sample_weight=weights, n_jobs=1)
    odd = tuple(map(misaligned, parameters))
    assert e_step(misaligned(rows), odd, sample_weight=misaligned(weights), n_jobs=1) == wanted
    shift = np.median(rows, axis=0)
    held = [PassRows(rows, where, n_jobs=1).e_step(odd) for where in (shift, misaligned(shift))]
    assert held[0] == held[1]
    begin = start(rows, 3, "full")
    fits = [model(3, **{**begin, "means_init": means}).fit(rows) for means in map(misaligned, [begin["means_init"]] * 2)]
    assert (fits[0].means_ == fits[1].means_).all()


def test_what_does_not_match_is_an_error(rows):
    a, b = given(rows, 3, "full"), given(rows[1:], 3, "full")
    of_a, of_b = e_step(rows, a), e_step(rows, given(rows, 3, "diag"))
    with pytest.raises(ParameterError, match="different shape: full k=3 d=3 and diag k=3 d=3"):
        of_a + of_b
    b.means_ = b.means_ + 1.0
    with pytest.raises(ParameterError, match="different centres"):
        m_step(of_a, b)
    wider = (a.weights_, a.means_, 2.0 * a.covariances_)
    with pytest.raises(ParameterError, match="different mixtures"):
        m_step(of_a, wider)
    with pytest.raises(ParameterError, match="different mixtures"):
        of_a + e_step(rows, wider)
    with pytest.raises(ParameterError, match="X has 2 columns, the mixture has 3"):
        e_step(rows[:, :2], a)
    with pytest.raises(ParameterError, match="shift has shape"):
        PassRows(rows, [0.0])
    with pytest.raises(ParameterError, match="reg_covar"):
        m_step(of_a, a, reg_covar=-1.0)
    with pytest.raises(ParameterError, match="checksum"):
        Statistics.from_bytes(of_a.to_bytes()[:-1] + b"\0")
    with pytest.raises(ParameterError, match="not statistics"):
        Statistics.from_bytes(b"hello")
    with pytest.raises(NumericalError, match="not finite|vanish"):
        e_step([[1e200, 0.0, 0.0]], a)
    for wrong in (lambda: of_a + 1, lambda: m_step(3, a), lambda: Statistics(b"")):
        with pytest.raises(TypeError):
            wrong()
