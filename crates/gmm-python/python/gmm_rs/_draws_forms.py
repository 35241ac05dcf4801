"""Conversion of draws to pandas DataFrames, HTML for notebooks, and ArviZ data."""

import inspect
from html import escape

import numpy as np

from gmm_rs import _core
from gmm_rs.exceptions import ParameterError
from gmm_rs.likelihood import Likelihood

# Maximum number of summary lines shown in a notebook.
_MOST = 60

_DIMENSIONS = {
    "full": ["component", "feature", "feature_b"],
    "tied": ["feature", "feature_b"],
    "diag": ["component", "feature"],
    "spherical": ["component"],
}


def frame(draws):
    """A `pandas.DataFrame` with one row per draw, the table that `gmm mcmc` writes to parquet."""
    import pandas

    total = draws.n_chains * draws.n_draws
    columns = {"chain": np.arange(total) // max(draws.n_draws, 1), "draw": np.arange(total) % max(draws.n_draws, 1)}
    for name in ("weights", "means", "covariances"):
        array = getattr(draws, name)
        for at in np.ndindex(array.shape[2:]):
            columns[f"{name}[{','.join(map(str, at))}]"] = array[(..., *at)].ravel()
    for name, values in draws.sample_stats.items():
        columns[name] = values.ravel()
    return pandas.DataFrame(columns)


def html(draws):
    """The summary as a table; all text is escaped."""
    k, d = draws.means.shape[2:]
    names = "" if draws.feature_names is None else f" ({', '.join(draws.feature_names)})"
    title = f"{_count(draws.n_chains, 'chain')} of {_count(draws.n_draws, 'draw')}, {_count(k, 'component')} in "
    title += f"{_count(d, 'column')}{names}"
    found = draws.summary()
    head = "".join(f"<th>{escape(name)}</th>" for name in found)
    lines = list(zip(*found.values()))
    body = "".join(
        f"<tr><td>{escape(str(name))}</td>" + "".join(f"<td>{escape(_shown(v))}</td>" for v in numbers) + "</tr>"
        for name, *numbers in lines[:_MOST]
    )
    more = f"<p>and {len(lines) - _MOST} more lines: see summary()</p>" if len(lines) > _MOST else ""
    concerns = "".join(f"<p>{escape(text)}</p>" for text in draws.concerns()) if lines else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<div><p>Draws: {escape(title)}</p>{table}{more}{concerns}</div>"


def _count(n, what):
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _shown(value):
    return f"{value:.4g}"


def arviz_data(draws, X):
    """ArviZ data, with the log-likelihood of the rows if `X` is given."""
    import arviz

    k, d = draws.means.shape[2:]
    dims = {
        "weights": ["component"],
        "means": ["component", "feature"],
        "covariances": _DIMENSIONS[draws.covariance_type],
    }
    names = draws.feature_names
    # Duplicate names cannot be used as coordinates.
    features = list(range(d)) if names is None or len(set(names)) < d else list(names)
    coords = {"component": list(range(k)), "feature": features, "feature_b": features}
    groups = {
        "posterior": {name: getattr(draws, name) for name in dims},
        "sample_stats": draws.sample_stats,
    }
    if X is not None:
        groups["log_likelihood"] = {"rows": draws.log_likelihood(X)}
        dims["rows"] = ["row"]
    used = {dimension for name in dims for dimension in dims[name]}
    coords = {name: values for name, values in coords.items() if name in used}
    # Before ArviZ 1.0, `from_dict` took each group as an argument.
    if "posterior" in inspect.signature(arviz.from_dict).parameters:
        return arviz.from_dict(**groups, coords=coords, dims=dims)
    return arviz.from_dict(groups, coords=coords, dims=dims)


def log_likelihood(draws, X, names):
    """The log density of each row under each draw, (C, N, n)."""
    if names is not None and draws.feature_names is not None and list(names) != draws.feature_names:
        raise ParameterError(f"X has the columns {list(names)}, but the draws have {draws.feature_names}")
    rows = Likelihood(X, draws.covariance_type)
    d = draws.means.shape[3]
    if rows.n_features != d:
        raise ParameterError(f"X has {rows.n_features} columns, but the draws have {d}")
    shape = (draws.n_chains, draws.n_draws, rows.n_samples)
    _core.check_pointwise_memory(min(8 * int(np.prod(shape, dtype=object)), 2**64 - 1))
    found = np.empty(shape)
    for at in np.ndindex(shape[:2]):
        found[at] = rows.log_densities(draws.weights[at], draws.means[at], draws.covariances[at])
    return found
