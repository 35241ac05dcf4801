"""Data to test mixtures with: rows from a mixture that is known."""

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
    """Draw a mixture, and rows from it.

    The same integer `random_state` gives the same rows on every machine.

    Parameters
    ----------
    n_samples : int, default=1000
        Rows ``n``.

    n_features : int, default=2
        Columns ``d``.

    n_components : int, default=3
        Components ``k``.

    covariance_type : {'full', 'tied', 'diag', 'spherical'}, default='full'
        Kind of the covariances; full and tied ones are really correlated.

    separation : float, default=2.0
        Least distance of two means, in units of the root of the largest trace of a covariance.

    concentration : float, default=10.0
        Of the Dirichlet that gives the weights: large is even, below 1 is very uneven.

    degrees_of_freedom : float, default=None
        Of the Wishart that gives the covariances, above ``d - 1``; None is ``2 d + 2``. Few make them worse
        conditioned.

    scale : float, default=1.0
        Standard deviation of a column in the average component.

    random_state : int, RandomState instance or None, default=None
        Seed.

    return_mixture : bool, default=False
        Whether to return the mixture as well.

    Returns
    -------
    X : ndarray of shape (n, d)
        Rows.

    y : ndarray of shape (n,)
        The components that they come from.

    mixture : GaussianMixture
        The mixture, as if fitted. Only where `return_mixture` is set.

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
