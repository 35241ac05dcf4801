"""Synthetic data: rows drawn from a random mixture."""

from gmm_rs import _bridge, _core
from gmm_rs.mixture import GaussianMixture

__all__ = ["make_gmm"]


def make_gmm(
    n_samples=1000,
    n_features=2,
    n_components=3,
    *,
    covariance_type="full",
    separation=2.0,
    concentration=10.0,
    degrees_of_freedom=None,
    scale=1.0,
    random_state=None,
    return_mixture=False,
):
    """Draw a random mixture, and rows from it.

    The same integer `random_state` gives the same rows on every machine.

    Parameters
    ----------
    n_samples : int, default=1000
        Number of rows ``n``.

    n_features : int, default=2
        Number of columns ``d``.

    n_components : int, default=3
        Number of components ``k``.

    covariance_type : {'full', 'tied', 'diag', 'spherical'}, default='full'
        Covariance type. Full and tied covariances have nonzero correlations.

    separation : float, default=2.0
        Minimum distance between means, in units of the square root of the largest trace of a covariance.

    concentration : float, default=10.0
        Concentration of the Dirichlet distribution of the weights: large values give even weights, values below 1 very
        uneven ones.

    degrees_of_freedom : float, default=None
        Degrees of freedom of the Wishart distribution of the covariances, above ``d - 1``; None means ``2 d + 2``.
        Smaller values give larger condition numbers.

    scale : float, default=1.0
        Standard deviation of a column in the average component.

    random_state : int, RandomState instance or None, default=None
        Random seed.

    return_mixture : bool, default=False
        Whether to return the mixture as well.

    Returns
    -------
    X : ndarray of shape (n, d)
        Rows.

    y : ndarray of shape (n,)
        Component of each row.

    mixture : GaussianMixture
        The mixture as a fitted estimator. Returned only if `return_mixture` is True.

    Examples
    --------
    >>> from gmm_rs.datasets import make_gmm
    >>> X, y = make_gmm(100, 3, random_state=0)
    >>> X.shape, y.shape
    ((100, 3), (100,))
    """
    seed = _bridge.seed(random_state)
    options = {
        "concentration": concentration,
        "separation": separation,
        "degrees_of_freedom": degrees_of_freedom,
        "scale": scale,
    }
    found = _core.synthetic(n_components, n_features, covariance_type, seed, options)
    mixture = GaussianMixture(n_components, covariance_type=covariance_type, random_state=random_state)
    _bridge.set_parameters(mixture, found, found["means"].dtype)
    mixture.n_features_in_ = n_features
    X, y = _core.sample(_bridge.parameters(mixture), n_samples, seed)
    return (X, y, mixture) if return_mixture else (X, y)
