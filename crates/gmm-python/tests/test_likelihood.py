"""The log-likelihood of fixed rows as a function of the parameters."""

import multiprocessing
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import polars as pl
import pytest
from conftest import KINDS, model

from gmm_rs import Likelihood, exceptions


def mixture(X, kind, k=3, seed=0):
    """Weights, means and covariances that overlap on `X`."""
    rng = np.random.default_rng(seed)
    d = X.shape[1]
    weights = rng.dirichlet(np.full(k, 5.0))
    means = X[rng.choice(len(X), k, replace=False)].astype(np.float64)
    factors = 2.0 * np.eye(d) + np.tril(rng.normal(size=(k, d, d)))
    covariances = factors @ factors.swapaxes(1, 2)
    variances = np.diagonal(covariances, axis1=1, axis2=2).copy()
    shaped = {"full": covariances, "tied": covariances[0], "diag": variances, "spherical": variances[:, 0]}
    return weights, means, shaped[kind]


def peer(X, kind, parameters):
    """The same mixture as a scikit-learn estimator."""
    one = model(len(parameters[0]), kind)
    one.weights_, one.means_, one.covariances_ = parameters
    inverse = np.linalg.inv if kind in ("full", "tied") else np.reciprocal
    factor = np.linalg.cholesky if kind in ("full", "tied") else np.sqrt
    one.precisions_cholesky_ = factor(inverse(one.covariances_))
    one.converged_, one.n_features_in_ = True, X.shape[1]
    return one.to_sklearn()


def cpu(X, kind="full", **options):
    return Likelihood(X, kind, device="cpu", **options)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", KINDS)
def test_values_are_those_of_scikit_learn(rows, kind, dtype):
    X = rows.astype(dtype)
    parameters = mixture(X, kind)
    want = peer(X, kind, parameters).score_samples(X.astype(np.float64))
    likelihood = cpu(X, kind)
    rtol = 1e-10 if dtype is np.float64 else 1e-5
    np.testing.assert_allclose(likelihood.log_densities(*parameters), want, rtol=rtol)
    assert likelihood.value(*parameters) == pytest.approx(want.sum(), rel=rtol)


def test_row_weights_count_in_values_and_not_in_densities(rows):
    parameters = mixture(rows, "full")
    weights = np.random.default_rng(0).integers(0, 4, len(rows))
    weighted = cpu(rows, sample_weight=weights)
    densities = cpu(rows).log_densities(*parameters)
    np.testing.assert_array_equal(weighted.log_densities(*parameters), densities)
    assert weighted.value(*parameters) == pytest.approx(weights @ densities, rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_gives_each_mixture_the_bits_that_it_has_alone(rows, kind):
    likelihood = cpu(rows, kind)
    sets = [mixture(rows, kind, seed=seed) for seed in range(150)]
    alone = [likelihood.value(*parameters) for parameters in sets]
    np.testing.assert_array_equal(likelihood.batch(*map(np.stack, zip(*sets))), alone)
    assert likelihood.batch(*(a[:0] for a in map(np.stack, zip(*sets)))).shape == (0,)


def slope(function, at, step=1e-5):
    """Central differences of a function of an array, with the array's shape."""
    found = np.empty(at.shape)
    for index in np.ndindex(*at.shape):
        up, down = at.copy(), at.copy()
        up[index] += step
        down[index] -= step
        found[index] = (function(up) - function(down)) / (2 * step)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_is_the_slope(rows, kind):
    likelihood = cpu(rows, kind)
    weights, means, covariances = mixture(rows, kind)
    value, gradient = likelihood.value_and_gradient(weights, means, covariances)
    assert value == pytest.approx(likelihood.value(weights, means, covariances), rel=1e-12)

    def of_log_weights(a):
        return likelihood.value(np.exp(a) / np.exp(a).sum(), means, covariances)

    def of_scales(scales):
        matrices = kind in ("full", "tied")
        return likelihood.value(weights, means, scales @ scales.swapaxes(-1, -2) if matrices else np.exp(2 * scales))

    scales = np.linalg.cholesky(covariances) if kind in ("full", "tied") else np.log(covariances) / 2
    wanted = [
        slope(of_log_weights, np.log(weights)),
        slope(lambda at: likelihood.value(weights, at, covariances), means),
        slope(of_scales, scales),
    ]
    if kind in ("full", "tied"):
        # Entries above the diagonal are not parameters: factors are lower triangular.
        wanted[2] = np.tril(wanted[2])
    for found, want in zip(gradient, wanted):
        assert found.shape == want.shape
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize("kind", KINDS)
def test_a_point_is_a_mixture_and_back(rows, kind):
    likelihood = cpu(rows, kind)
    space = likelihood.unconstrained(3)
    parameters = mixture(rows, kind)
    point = space.point(*parameters)
    assert point.shape == (space.n_dim,)
    for found, want in zip(space.parameters(point), parameters):
        np.testing.assert_allclose(found, want, rtol=1e-12)
    assert space.value(point) == pytest.approx(likelihood.value(*parameters), rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_points_are_slopes_with_and_without_the_jacobian(rows, kind):
    space = cpu(rows, kind).unconstrained(3)
    point = space.point(*mixture(rows, kind))
    for jacobian in (False, True):
        value, gradient = space.value_and_gradient(point, jacobian=jacobian)
        assert value == pytest.approx(space.value(point, jacobian=jacobian), rel=1e-12)
        want = slope(lambda at: space.value(at, jacobian=jacobian), point)
        np.testing.assert_allclose(gradient, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize("kind", KINDS)
def test_the_jacobian_is_the_determinant_of_the_map(rows, kind):
    space = cpu(rows, kind).unconstrained(2)
    point = space.point(*mixture(rows, kind, k=2))
    lower = np.tril_indices(3)

    def coordinates(at):
        weights, means, covariances = space.parameters(at)
        free = covariances[..., lower[0], lower[1]] if kind in ("full", "tied") else covariances
        return np.concatenate([weights[:-1], means.ravel(), free.ravel()])

    columns = [slope(lambda at, i=i: coordinates(at)[i], point) for i in range(space.n_dim)]
    assert space.log_jacobian(point) == pytest.approx(np.linalg.slogdet(np.array(columns))[1], rel=1e-6)


def test_many_points_are_evaluated_together(rows):
    space = cpu(rows).unconstrained(3)
    points = np.stack([space.point(*mixture(rows, "full", seed=seed)) for seed in range(5)])
    for jacobian in (False, True):
        alone = [space.value(point, jacobian=jacobian) for point in points]
        np.testing.assert_array_equal(space.value(points, jacobian=jacobian), alone)
    assert space.log_jacobian(points).shape == (5,)


def test_a_point_without_a_covariance_has_no_density_and_one_that_is_no_number_is_refused(rows):
    space = cpu(rows, "diag").unconstrained(2)
    points = np.stack([space.point(*mixture(rows, "diag", k=2))] * 3)
    points[1, -1] = 1e4
    values = space.value(points, jacobian=True)
    assert values[1] == -np.inf and values[0] == values[2] and np.isfinite(values[0])
    with pytest.raises(exceptions.GmmError):
        space.value_and_gradient(points[1])
    points[1, -1] = np.nan
    with pytest.raises(exceptions.ParameterError, match="the point is NaN at 12"):
        space.value(points)


@pytest.mark.parametrize("kind", KINDS)
def test_a_component_moves_and_moves_back(rows, kind):
    likelihood = cpu(rows, kind)
    weights, means, covariances = mixture(rows, kind)
    components = likelihood.components(weights, means, covariances)
    before = components.value
    assert before == pytest.approx(likelihood.value(weights, means, covariances), rel=1e-12)

    means[1] += 0.5
    covariance = covariances * 1.5 if kind == "tied" else covariances[1] * 1.5
    after = components.update_component(1, mean=means[1], covariance=covariance, weights=[0.2, 0.3, 0.5])
    if kind == "tied":
        covariances = covariance
    else:
        covariances[1] = covariance
    assert after == components.value == pytest.approx(likelihood.value([0.2, 0.3, 0.5], means, covariances), rel=1e-12)
    for found, want in zip(components.parameters, ([0.2, 0.3, 0.5], means, covariances)):
        np.testing.assert_array_equal(found, want)
    want = likelihood.log_densities([0.2, 0.3, 0.5], means, covariances)
    np.testing.assert_allclose(components.log_densities(), want, rtol=1e-12)

    assert components.undo() and components.value == before and not components.undo()
    assert components.update_weights([0.1, 0.1, 0.8]) == components.value != before
    assert components.update(*mixture(rows, kind)) == before


def test_two_chains_stand_on_one_likelihood(rows):
    likelihood = cpu(rows)
    one, two = (likelihood.components(*mixture(rows, "full", seed=seed)) for seed in (0, 1))
    value = two.value
    one.update_weights([0.1, 0.1, 0.8])
    assert two.value == value


def refused(message, call, *arguments, error=exceptions.ParameterError, **named):
    with pytest.raises(error, match=message):
        call(*arguments, **named)


def test_parameters_that_are_no_mixture_are_refused(rows):
    likelihood = cpu(rows)
    weights, means, covariances = mixture(rows, "full")
    refused("sum to 1.1", likelihood.value, weights * 1.1, means, covariances)
    refused(
        "component 1 is not positive definite", likelihood.value, weights, means, covariances * [[[1]], [[-1]], [[1]]]
    )
    refused(r"means has shape \[9\]", likelihood.value, weights, means.ravel(), covariances)
    refused(r"covariances has shape \[3, 3\]", likelihood.value, weights, means, covariances[0])
    refused(
        "the data have 3 columns, the mixture has 2", likelihood.value, weights, means[:, :2], covariances[:, :2, :2]
    )
    refused(r"means has shape \[2, 3, 3\]", likelihood.batch, weights[None], np.stack([means] * 2), covariances[None])
    refused("complex", likelihood.value, weights, means * 1j, covariances)


def test_steps_that_cannot_be_are_refused_and_change_nothing(rows):
    components = cpu(rows).components(*mixture(rows, "full"))
    before = components.value
    refused("below the number of components", components.update_component, 3, mean=[0.0, 0.0, 0.0])
    refused("component is -1", components.update_component, -1, mean=[0.0, 0.0, 0.0])
    refused("component's mean has shape", components.update_component, 0, mean=[0.0])
    refused(r"shape \(1, 3\)", components.update_component, 0, mean=[[0.0, 0.0, 0.0]])
    refused("not positive definite", components.update_component, 0, covariance=-np.eye(3))
    refused("as before|shape", components.update, *mixture(rows, "full", k=2))
    assert components.value == before


def test_rows_and_choices_that_cannot_be_are_refused(rows):
    bad = rows.copy()
    bad[3, 1] = np.nan
    refused("row 3, column 1 is NaN", cpu, bad, error=exceptions.DataError)
    refused("Reshape your data", cpu, rows[:, 0], error=ValueError)
    refused("unknown covariance_type 'round': choose one of full, tied, diag, spherical", cpu, rows, "round")
    refused("row 0 is -1", cpu, rows, sample_weight=np.r_[-1.0, np.ones(len(rows) - 1)], error=exceptions.DataError)
    refused("n_components is 0", cpu(rows).unconstrained, 0)
    refused("unknown device", Likelihood, rows, device="tpu")


def test_a_value_of_minus_infinity_has_no_gradient():
    likelihood = cpu([[0.0], [1e200]], "diag")
    parameters = [1.0], [[0.0]], [[1.0]]
    assert likelihood.value(*parameters) == -np.inf
    refused("log-likelihood", likelihood.value_and_gradient, *parameters, error=exceptions.NumericalError)


def test_frames_are_rows(rows):
    parameters = mixture(rows, "full")
    frame = pl.DataFrame({name: rows[:, i] for i, name in enumerate("abc")})
    assert cpu(frame).value(*parameters) == cpu(rows).value(*parameters)


def test_a_pickle_answers_as_before(rows):
    parameters = mixture(rows, "full")
    likelihood = cpu(rows, sample_weight=np.arange(len(rows)))
    again = pickle.loads(pickle.dumps(likelihood))
    assert again.value(*parameters) == likelihood.value(*parameters)
    space = likelihood.unconstrained(3)
    point = space.point(*parameters)
    assert pickle.loads(pickle.dumps(space)).value(point) == space.value(point)


def _answers(queue, likelihood, components, parameters):
    queue.put((likelihood.value(*parameters), components.update_weights([0.1, 0.1, 0.8]), components.undo()))


def test_a_forked_process_loads_the_rows_for_itself(rows):
    likelihood, parameters = cpu(rows), mixture(rows, "full")
    components = likelihood.components(*parameters)
    moved = components.update_weights([0.1, 0.1, 0.8])
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_answers, args=(queue, likelihood, components, parameters))
    child.start()
    assert queue.get(timeout=30) == (likelihood.value(*parameters), moved, True)
    child.join(30)
    assert child.exitcode == 0


def test_threads_share_a_likelihood(rows):
    likelihood, parameters = cpu(rows), mixture(rows, "full")
    want, found = likelihood.value(*parameters), []
    threads = [
        threading.Thread(target=lambda: found.extend(likelihood.value(*parameters) for _ in range(50)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [want] * 200


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent otherwise there")
def test_ctrl_c_stops_a_batch_within_a_second():
    program = """
        import time
        import numpy as np
        from gmm_rs import Likelihood

        likelihood = Likelihood(np.random.default_rng(0).normal(size=(100_000, 10)), "diag", device="cpu")
        sets = [np.tile(a, (20_000, *[1] * a.ndim)) for a in (np.full(10, 0.1), np.ones((10, 10)), np.ones((10, 10)))]
        print("begun", flush=True)
        try:
            likelihood.batch(*sets)
        except KeyboardInterrupt:
            print(time.time(), likelihood.value(*(a[0] for a in sets)) < 0, flush=True)
    """
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "begun\n"
    time.sleep(0.5)
    sent = time.time()
    child.send_signal(signal.SIGINT)
    at, answers = child.stdout.readline().split()
    assert float(at) - sent < 1.0 and answers == "True"
    assert child.wait(60) == 0
