"""Plots of mixtures and fits; each function draws on matplotlib axes and returns them.

matplotlib is an optional dependency: ``pip install gmm_rs[plot]``.
"""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from gmm_rs import _inputs
from gmm_rs.exceptions import ParameterError

__all__ = ["bic", "density", "ellipses", "trace"]


def ellipses(model, X=None, *, columns=(0, 1), levels=(1.0, 2.0), ax=None):
    """Plot the ellipses of each component in two columns.

    Parameters
    ----------
    model : GaussianMixture
        Fitted model with ``d`` columns.

    X : array-like of shape (n, d), default=None
        Rows to plot, in the colour of their component.

    columns : pair of int, default=(0, 1)
        Indices of the two columns.

    levels : sequence of float, default=(1.0, 2.0)
        Radii of the ellipses, in standard deviations.

    ax : matplotlib axes, default=None
        Axes to plot on. None means the current axes.

    Returns
    -------
    ax : matplotlib axes
    """
    from matplotlib.patches import Ellipse

    pair = _pair(model, columns)
    ax = _axes(ax)
    if X is not None:
        labels = model.predict(X)
        X = _inputs.array(X)
        for component in range(len(model.means_)):
            rows = X[labels == component]
            ax.scatter(rows[:, pair[0]], rows[:, pair[1]], s=4, alpha=0.5, color=f"C{component % 10}")
    for component, (mean, covariance) in enumerate(zip(model.means_, _covariances(model))):
        variances, directions = np.linalg.eigh(covariance[np.ix_(pair, pair)])
        angle = np.degrees(np.arctan2(directions[1, 1], directions[0, 1]))
        for level in levels:
            height, width = 2 * level * np.sqrt(variances)
            shape = {"angle": angle, "fill": False, "color": f"C{component % 10}"}
            ax.add_patch(Ellipse(mean[pair], width, height, **shape))
        ax.plot(*mean[pair], "+", color=f"C{component % 10}")
    ax.autoscale_view()
    return _named(ax, model, pair)


def density(model, *, columns=(0, 1), limits=None, resolution=100, ax=None):
    """Plot contours of the log density in two columns, with the other columns integrated out.

    Parameters
    ----------
    model : GaussianMixture
        Fitted model with ``d`` columns.

    columns : pair of int, default=(0, 1)
        Indices of the two columns.

    limits : ((left, right), (bottom, top)), default=None
        Range of the plot. None covers three standard deviations around every component.

    resolution : int, default=100
        Number of grid points per axis.

    ax : matplotlib axes, default=None
        Axes to plot on. None means the current axes.

    Returns
    -------
    ax : matplotlib axes
    """
    pair = _pair(model, columns)
    ax = _axes(ax)
    means = np.asarray(model.means_, dtype=np.float64)[:, pair]
    covariances = _covariances(model)[:, pair][:, :, pair]
    if limits is None:
        reach = 3 * np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))
        limits = np.stack([(means - reach).min(axis=0), (means + reach).max(axis=0)], axis=1)
    x, y = (np.linspace(*limit, resolution) for limit in limits)
    points = np.stack(np.meshgrid(x, y), axis=-1)
    total = np.full(points.shape[:2], -np.inf)
    for weight, mean, covariance in zip(model.weights_, means, covariances):
        scaled = np.linalg.solve(np.linalg.cholesky(covariance), (points - mean)[..., None])[..., 0]
        log = np.log(weight) - 0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1] - 0.5 * (scaled**2).sum(axis=-1)
        total = np.logaddexp(total, log)
    # Densities below e⁻¹² of the peak are not drawn.
    ax.contourf(x, y, total, levels=np.linspace(total.max() - 12, total.max(), 13), extend="min")
    return _named(ax, model, pair)


def trace(model, *, ax=None):
    """Plot the mean log-likelihood at each iteration of the fit.

    Parameters
    ----------
    model : GaussianMixture
        Fitted model.

    ax : matplotlib axes, default=None
        Axes to plot on. None means the current axes.

    Returns
    -------
    ax : matplotlib axes
    """
    check_is_fitted(model)
    ax = _axes(ax)
    ax.plot(np.arange(1, len(model.lower_bounds_) + 1), model.lower_bounds_, marker=".")
    ax.set_xlabel("iteration")
    ax.set_ylabel("mean log-likelihood")
    return ax


def bic(models, X, *, ax=None):
    """Plot the Bayesian information criterion of several fits on the same rows; lower is better.

    Parameters
    ----------
    models : iterable of GaussianMixture
        Fitted models. There is one line per covariance type.

    X : array-like of shape (n, d)
        Rows.

    ax : matplotlib axes, default=None
        Axes to plot on. None means the current axes.

    Returns
    -------
    ax : matplotlib axes
    """
    ax = _axes(ax)
    lines = {}
    for model in models:
        lines.setdefault(model.covariance_type, []).append((model.n_components, model.bic(X)))
    for kind, points in lines.items():
        ax.plot(*zip(*sorted(points)), marker="o", label=kind)
    ax.set_xlabel("components")
    ax.set_ylabel("BIC")
    ax.legend()
    return ax


def _pair(model, columns):
    """`columns` as a list, checked to be two columns of the mixture."""
    check_is_fitted(model)
    d = model.means_.shape[1]
    pair = list(columns)
    if len(pair) != 2 or not all(0 <= column < d for column in pair):
        raise ParameterError(f"columns={columns!r}: it must be two column indices from 0 to {d - 1}")
    return pair


def _covariances(model):
    """Covariances as full matrices, (k, d, d), float64."""
    k, d = model.means_.shape
    given = np.asarray(model.covariances_, dtype=np.float64)
    if model.covariance_type == "full":
        return given
    if model.covariance_type == "tied":
        return np.broadcast_to(given, (k, d, d))
    variances = given if model.covariance_type == "diag" else np.repeat(given[:, None], d, axis=1)
    return variances[:, :, None] * np.eye(d)


def _axes(ax):
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("gmm_rs.plot needs matplotlib: pip install gmm_rs[plot]") from error
    return pyplot.gca()


def _named(ax, model, pair):
    names = getattr(model, "feature_names_in_", [f"column {i}" for i in range(model.means_.shape[1])])
    ax.set_xlabel(names[pair[0]])
    ax.set_ylabel(names[pair[1]])
    return ax
