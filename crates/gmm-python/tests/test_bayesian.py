"""Fits by variational Bayes against scikit-learn, and against closed forms."""

import numpy as np
import pytest
from conftest import KINDS
from scipy.special import digamma, multigammaln
from scipy.stats import multivariate_t, norm, t
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import BayesianGaussianMixture as Original
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from gmm_rs.exceptions import ParameterError
from gmm_rs.mixture import BayesianGaussianMixture

FAMILIES = ["dirichlet_process", "dirichlet_distribution"]
FITTED = (
    "weights_ means_ covariances_ precisions_ precisions_cholesky_ weight_concentration_prior_ weight_concentration_ "
    "mean_precision_prior_ mean_precision_ mean_prior_ degrees_of_freedom_prior_ degrees_of_freedom_ covariance_prior_"
).split()

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


class Corrected(Original):
    """scikit-learn's class with the expected log precisions of the Gamma distributions of 'diag' and 'spherical', and of
    the Wishart distribution of 'tied', whose degrees of freedom count the rows of all components."""

    def _estimate_log_prob(self, X, xp=None):
        d, freedom, k = X.shape[1], self.degrees_of_freedom_, self.n_components
        if self.covariance_type == "full":
            return super()._estimate_log_prob(X)
        if self.covariance_type == "tied":
            ours = np.sum(digamma(0.5 * (k * freedom - np.arange(d)))) + d * np.log(2.0 / k)
        elif self.covariance_type == "diag":
            ours = d * (digamma(0.5 * freedom) + np.log(2.0))
        else:
            ours = d * (digamma(0.5 * d * freedom) + np.log(2.0 / d))
        theirs = np.sum(digamma(0.5 * (freedom - np.arange(d)[:, None])), 0) + d * np.log(2.0)
        return super()._estimate_log_prob(X) + 0.5 * (ours - theirs)


def blobs(d, seed=0):
    """300 rows of three overlapping components."""
    rng = np.random.default_rng(seed)
    return np.concatenate([s * rng.normal(size=(100, d)) + m for s, m in ((1, 0), (0.5, 2), (2, -3))])


def apart(d, seed=0):
    """300 rows of three components whose responsibilities are 0 or 1."""
    rng = np.random.default_rng(seed)
    centres = 100.0 * rng.permutation(3 * d).reshape(3, d)
    return np.concatenate([rng.normal(size=(n, d)) + centre for n, centre in zip((150, 90, 60), centres)])


def model(n_components=3, covariance_type="full", **parameters):
    return BayesianGaussianMixture(
        n_components=n_components, covariance_type=covariance_type, device="cpu", **parameters
    )


def equal(ours, theirs, rtol=1e-9):
    for name in FITTED:
        ours_, theirs_ = getattr(ours, name), getattr(theirs, name)
        assert isinstance(ours_, tuple) is isinstance(theirs_, tuple), name
        assert np.shape(ours_) == np.shape(theirs_), name
        scale = np.abs(theirs_).max()
        np.testing.assert_allclose(ours_, theirs_, rtol=0, atol=rtol * scale, err_msg=name)


def both(cls, X, iterations, **parameters):
    """Fits of both classes that go on from scikit-learn's k-means start."""
    theirs = cls(random_state=0, tol=0, max_iter=0, **parameters).fit(X)
    ours = BayesianGaussianMixture.from_sklearn(theirs, device="cpu")
    return [one.set_params(warm_start=True, max_iter=iterations).fit(X) for one in (ours, theirs)]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("iterations", [1, 2, 7, 50])
@pytest.mark.parametrize("d", [1, 3])
def test_every_attribute_after_every_iteration_is_scikit_learns(kind, family, iterations, d):
    ours, theirs = both(
        Original if kind in ("full", "tied") or d == 1 else Corrected,
        blobs(d),
        iterations,
        n_components=5,
        covariance_type=kind,
        weight_concentration_prior_type=family,
    )
    equal(ours, theirs)
    assert ours.n_iter_ == theirs.n_iter_ == iterations


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", ["diag", "spherical"])
def test_the_m_step_of_diag_and_spherical_is_scikit_learns(kind, family):
    # Responsibilities of 0 and 1 do not depend on the expected log precisions.
    ours, theirs = both(
        Original, apart(4), 1, n_components=3, covariance_type=kind, weight_concentration_prior_type=family, reg_covar=1e-3
    )
    assert set(np.round(theirs.predict_proba(apart(4)), 12).ravel()) == {0.0, 1.0}
    equal(ours, theirs)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_posterior_of_the_k_means_start_is_scikit_learns(kind, family):
    X = apart(2)
    parameters = {"covariance_type": kind, "weight_concentration_prior_type": family, "random_state": 0, "max_iter": 0}
    ours, theirs = (cls(n_components=3, **parameters).fit(X) for cls in (BayesianGaussianMixture, Original))
    at = [np.argmin(np.abs(theirs.means_ - mean).sum(axis=1)) for mean in ours.means_]
    assert sorted(at) == [0, 1, 2]
    np.testing.assert_allclose(ours.means_, theirs.means_[at], rtol=1e-9)
    np.testing.assert_allclose(ours.mean_precision_, theirs.mean_precision_[at], rtol=1e-12)
    covariances = theirs.covariances_ if kind == "tied" else theirs.covariances_[at]
    np.testing.assert_allclose(ours.covariances_, covariances, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", KINDS)
def test_given_priors_count_as_in_scikit_learn(kind, family):
    X = blobs(2)
    scale = {"full": [[2.0, 0.5], [0.5, 1.0]], "tied": [[2.0, 0.5], [0.5, 1.0]], "diag": [2.0, 0.3], "spherical": 0.7}
    ours, theirs = both(
        Original if kind in ("full", "tied") else Corrected,
        X,
        5,
        n_components=4,
        covariance_type=kind,
        weight_concentration_prior_type=family,
        weight_concentration_prior=3.0,
        mean_precision_prior=0.2,
        mean_prior=[1.0, -2.0],
        degrees_of_freedom_prior=4.5,
        covariance_prior=scale[kind],
        reg_covar=0.01,
    )
    equal(ours, theirs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_predictions_are_those_of_the_e_step(kind, family):
    X = blobs(3)
    ours = model(4, kind, random_state=0, weight_concentration_prior_type=family).fit(X)
    # The same attributes in the class with the corrected expectations.
    theirs = Corrected(**{n: v for n, v in ours.get_params().items() if n in Original().get_params()})
    for name in FITTED:
        setattr(theirs, name, getattr(ours, name))
    theirs.n_features_in_ = 3
    np.testing.assert_allclose(ours.score_samples(X), theirs.score_samples(X), rtol=1e-10)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-10)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    assert ours.score(X) == pytest.approx(theirs.score(X), rel=1e-12)
    weights = np.random.default_rng(0).uniform(size=len(X))
    assert ours.score(X, sample_weight=weights) == pytest.approx(np.average(theirs.score_samples(X), weights=weights))
    np.testing.assert_array_equal(ours.predict(X), clone(ours).fit_predict(X))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", ["full", "tied"])
def test_the_bound_of_one_component_is_the_log_evidence(kind, family):
    """The posterior of one component is exact, and so is the bound: all constants are in it.

    Source: Murphy 2007, Conjugate Bayesian analysis of the Gaussian distribution, eq. 266.
    """
    X = blobs(3)[:40]
    n, d = X.shape
    freedom, beta, mean, scale = 5.0, 0.3, np.array([0.1, 0.2, 0.3]), np.diag([1.0, 2.0, 3.0])
    one = model(
        1,
        kind,
        tol=1e-9,
        reg_covar=0,
        weight_concentration_prior_type=family,
        degrees_of_freedom_prior=freedom,
        mean_precision_prior=beta,
        mean_prior=mean,
        covariance_prior=scale,
    ).fit(X)
    away = X.mean(axis=0) - mean
    after = scale + (X - X.mean(axis=0)).T @ (X - X.mean(axis=0)) + beta * n / (beta + n) * np.outer(away, away)
    evidence = (
        -0.5 * n * d * np.log(np.pi)
        + multigammaln(0.5 * (freedom + n), d)
        - multigammaln(0.5 * freedom, d)
        + 0.5 * freedom * np.linalg.slogdet(scale)[1]
        - 0.5 * (freedom + n) * np.linalg.slogdet(after)[1]
        + 0.5 * d * np.log(beta / (beta + n))
    )
    # The one stick of a truncated process has a posterior too, whose divergence from its prior the bound lacks.
    expected = evidence if family == "dirichlet_distribution" else evidence - np.log(n + 1.0)
    assert one.lower_bound_ == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_the_predictive_density_is_a_mixture_of_student_distributions(kind):
    X = blobs(2)
    one = model(3, kind, random_state=0).fit(X)
    freedom = np.broadcast_to(one.degrees_of_freedom_, (3,)) * (3 if kind == "tied" else 1)
    total = np.zeros(len(X))
    for c in range(3):
        nu, wider = freedom[c], 1 + 1 / one.mean_precision_[c]
        covariance = one.covariances_ if kind == "tied" else one.covariances_[c]
        if kind in ("full", "tied"):
            shape = covariance * wider * nu / (nu - 1)
            density = multivariate_t(one.means_[c], shape, nu - 1).pdf(X)
        elif kind == "diag":
            density = t(nu, one.means_[c], np.sqrt(covariance * wider)).pdf(X).prod(axis=1)
        else:
            density = multivariate_t(one.means_[c], covariance * wider * np.eye(2), 2 * nu).pdf(X)
        total += one.weights_[c] * density
    np.testing.assert_allclose(one.predictive_log_density(X), np.log(total), rtol=1e-9)
    # The E-step's terms are less than a density.
    assert (one.score_samples(X) < one.predictive_log_density(X)).mean() > 0.9


@pytest.mark.parametrize("kind", KINDS)
def test_draws_of_the_posterior_have_its_moments(kind):
    one = model(3, kind, random_state=0).fit(blobs(2))
    weights, means, covariances = one.sample_posterior(4000)
    assert weights.shape == (4000, 3) and means.shape == (4000, 3, 2)
    assert covariances.shape == (4000, *one.covariances_.shape)
    np.testing.assert_allclose(weights.sum(axis=1), 1.0)
    np.testing.assert_allclose(weights.mean(axis=0), one.weights_, atol=0.005)
    # E Λ is the inverse of `covariances_`.
    inverse = np.linalg.inv(covariances) if kind in ("full", "tied") else 1 / covariances
    np.testing.assert_allclose(inverse.mean(axis=0), one.precisions_, rtol=0.05, atol=0.02)
    np.testing.assert_allclose(means.mean(axis=0), one.means_, atol=0.05)


def test_a_row_of_weight_two_is_two_rows():
    X = blobs(2)
    weights = np.random.default_rng(0).integers(0, 3, len(X)).astype(float)
    start = model(4, random_state=0, max_iter=0).fit(X)
    found = []
    for rows, weight in ((X, weights), (np.repeat(X, weights.astype(int), axis=0), None)):
        one = model(4, warm_start=True, max_iter=10, tol=0)
        for name in [*FITTED, "n_features_in_"]:
            setattr(one, name, getattr(start, name))
        one.converged_, one.lower_bound_ = False, -np.inf
        found.append(one.fit(rows, sample_weight=weight))
    equal(*found, rtol=1e-10)
    assert found[0].lower_bound_ == pytest.approx(found[1].lower_bound_, rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_in_parts_is_the_fit(kind):
    X = blobs(2)
    whole = model(4, kind, random_state=0, max_iter=20, tol=0).fit(X)
    parts = model(4, kind, random_state=0, max_iter=8, tol=0, warm_start=True).fit(X)
    bounds = parts.lower_bounds_
    parts.set_params(max_iter=12).fit(X)
    equal(parts, whole, rtol=1e-12)
    assert parts.n_iter_ == 12
    np.testing.assert_allclose([*bounds, *parts.lower_bounds_], whole.lower_bounds_, rtol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_bound_never_falls_without_regularisation(kind, family):
    one = model(
        8, kind, random_state=0, reg_covar=0, max_iter=200, tol=0, weight_concentration_prior_type=family
    ).fit(blobs(3))
    changes = np.diff(one.lower_bounds_)
    assert (changes > -1e-9 * np.abs(one.lower_bound_)).all()
    assert len(one.lower_bounds_) == one.n_iter_ == 200 and not one.converged_


def test_tol_is_a_change_of_the_whole_bound():
    X = blobs(2)
    one = model(4, random_state=0, tol=0.5, max_iter=500).fit(X)
    changes = np.abs(np.diff(one.lower_bounds_))
    assert one.converged_ and changes[-1] < 0.5 and (changes[:-1] >= 0.5).all()


def test_components_that_the_data_do_not_need_stay_empty():
    X = apart(2)
    for family in FAMILIES:
        prior = {"weight_concentration_prior": 1e-3, "weight_concentration_prior_type": family}
        one = model(10, random_state=0, max_iter=1000, **prior).fit(X)
        np.testing.assert_allclose(np.sort(one.weights_)[-3:], [0.2, 0.3, 0.5], atol=0.01)
    few, many = (model(k, random_state=0, max_iter=1000, n_init=3).fit(X).lower_bound_ for k in (2, 3))
    assert few < many


def test_more_starts_never_lower_the_bound():
    X = blobs(2)
    for seed in range(4):
        one, many = (model(6, random_state=seed, init_params="random", n_init=n).fit(X) for n in (1, 5))
        assert many.lower_bound_ >= one.lower_bound_


def test_without_iterations_there_is_no_bound():
    ours, theirs = (cls(n_components=3, random_state=0, max_iter=0).fit(blobs(2)) for cls in (model, Original))
    for one in (ours, theirs):
        assert (one.lower_bound_, one.lower_bounds_, one.n_iter_, one.converged_) == (-np.inf, [], 0, False)


def test_a_callback_sees_the_bounds_and_can_stop_the_fit():
    seen = []
    one = model(4, random_state=0, tol=0, callback=lambda *at: seen.append(at) or len(seen) == 5).fit(blobs(2))
    assert seen == list(enumerate(one.lower_bounds_, 1)) and one.n_iter_ == 5
    # A warm start counts its own iterations.
    one.set_params(warm_start=True, callback=lambda *at: seen.append(at), max_iter=2).fit(blobs(2))
    assert [at for at, _ in seen[5:]] == [1, 2] and [bound for _, bound in seen[5:]] == one.lower_bounds_


@pytest.mark.parametrize("verbose", [1, 2])
def test_it_prints_what_scikit_learn_prints(verbose, capsys):
    said = []
    for cls in (model, Original):
        cls(n_components=2, random_state=0, verbose=verbose, verbose_interval=1, max_iter=2, tol=0).fit(blobs(2))
        said.append([line.split("\t")[0].split(" time")[0] for line in capsys.readouterr().out.splitlines()])
    assert said[0] == said[1]


def test_float32_rows_give_float32_attributes_and_nearly_the_same_posterior():
    X = blobs(2)
    wide = model(3, random_state=0).fit(X)
    narrow = model(3, random_state=0).fit(X.astype(np.float32))
    assert narrow.means_.dtype == narrow.covariances_.dtype == np.float32
    equal(narrow, wide, rtol=1e-3)
    assert narrow.predict_proba(X.astype(np.float32)).dtype == np.float32


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"degrees_of_freedom_prior": 1.0}, "should be greater than 1, but got 1.000"),
        ({"mean_prior": [0.0, 1.0, 2.0]}, "The parameter 'means' should have the shape of"),
        ({"mean_prior": [0.0, np.nan]}, "'means'"),
        ({"covariance_prior": [[1.0, 2.0], [2.0, 1.0]]}, "symmetric, positive-definite"),
        ({"covariance_prior": [1.0, 2.0]}, "full covariance_prior"),
        ({"covariance_prior": [1.0, -2.0], "covariance_type": "diag"}, "positive"),
        ({"covariance_prior": [1.0, 2.0], "covariance_type": "spherical"}, "spherical covariance_prior"),
        ({"n_components": 301}, "Expected n_samples >= n_components but got n_components = 301, n_samples = 300"),
    ],
    ids=str,
)
def test_a_wrong_prior_is_named(parameters, said):
    with pytest.raises(ParameterError, match=said.replace("(", r"\(")):
        BayesianGaussianMixture(**parameters).fit(blobs(2))


@pytest.mark.parametrize(
    "name", ["weight_concentration_prior", "mean_precision_prior", "degrees_of_freedom_prior", "covariance_prior"]
)
def test_a_prior_of_zero_is_refused_in_scikit_learns_words(name):
    for cls in (BayesianGaussianMixture, Original):
        with pytest.raises(ValueError, match=f"The '{name}' parameter of BayesianGaussianMixture must be"):
            cls(**{name: 0.0}).fit(blobs(2))


def test_a_fit_that_does_not_converge_warns():
    with pytest.warns(ConvergenceWarning, match="did not converge"):
        model(4, max_iter=1, random_state=0).fit(blobs(2))


@pytest.mark.filterwarnings("ignore::gmm_rs.exceptions.DataWarning")
def test_a_constant_column_gives_a_posterior():
    X = np.column_stack([blobs(1), np.ones(300)])
    for kind in KINDS:
        one = model(3, kind, random_state=0).fit(X)
        assert np.isfinite(one.covariances_).all() and np.isfinite(one.lower_bound_)


def test_the_parameters_are_scikit_learns_and_six_more():
    ours, theirs = BayesianGaussianMixture().get_params(), Original().get_params()
    assert {name: ours[name] for name in theirs} == theirs
    assert set(ours) - set(theirs) == {"device", "precision", "n_jobs", "init_rows", "callback", "moves"}


def test_a_fit_leaves_scikit_learns_attributes_and_the_engine():
    theirs, ours = (vars(cls(n_components=3, random_state=0).fit(blobs(2))) for cls in (Original, model))
    fitted = {name for name in theirs if name.endswith("_")}
    assert {name for name in ours if name.endswith("_")} == fitted | {"engine_"}
    for name in fitted:
        assert type(ours[name]) is type(theirs[name]) or np.isscalar(ours[name]), name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_scikit_learns_twin_has_the_same_attributes_both_ways(kind, family):
    ours = model(3, kind, random_state=0, weight_concentration_prior_type=family).fit(blobs(2))
    theirs = ours.to_sklearn()
    assert type(theirs) is Original
    equal(theirs, ours, rtol=0)
    back = BayesianGaussianMixture.from_sklearn(theirs, device="cpu")
    equal(back, ours, rtol=0)
    np.testing.assert_array_equal(back.score_samples(blobs(2)), ours.score_samples(blobs(2)))
    if kind == "full":
        np.testing.assert_allclose(theirs.score_samples(blobs(2)), ours.score_samples(blobs(2)), rtol=1e-10)


def test_samples_follow_the_mixture_of_the_posterior_means():
    one = model(2, random_state=0).fit(blobs(1))
    X, y = one.sample(40_000)
    np.testing.assert_allclose(np.bincount(y, minlength=2) / len(y), one.weights_, atol=0.01)
    edges = np.linspace(-6, 4, 6)
    share = [np.mean(X[:, 0] < edge) for edge in edges]
    exact = norm.cdf(edges[:, None], one.means_[:, 0], np.sqrt(one.covariances_[:, 0, 0])) @ one.weights_
    np.testing.assert_allclose(share, exact, atol=0.01)
    with pytest.raises(ValueError, match="Invalid value for 'n_samples'"):
        one.sample(0)


@parametrize_with_checks([BayesianGaussianMixture(device="cpu", max_iter=5, n_init=2)])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("kind", KINDS)
def test_scikit_learns_checks_for_every_kind(kind):
    results = check_estimator(
        BayesianGaussianMixture(device="cpu", covariance_type=kind), on_fail=None, on_skip=None
    )
    assert [r["check_name"] for r in results if r["status"] in ("failed", "xfail")] == []
