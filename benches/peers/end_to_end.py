"""Work of other programs from a file to its end, in a process of its own, which the driver times.

    end_to_end.py versions
    end_to_end.py read PACKAGE FORMAT FILE [--check]
    end_to_end.py fit FORMAT FILE START COMPONENTS OUTPUT ITERATIONS

Prints one JSON object. `read` makes a C-contiguous NumPy matrix of the file; with --check, its sums are added. `fit`
is scikit-learn's GaussianMixture, from the parameters of the model file START or, if that is `random`, from random
rows; it writes its parameters to the .npz file OUTPUT.
"""

import importlib.metadata
import json
import platform
import sys
import time

PACKAGES = ["numpy", "scikit-learn", "polars", "pandas", "pyarrow", "torch", "gmm_rs"]


def versions():
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return {"python": platform.python_version(), "packages": found}


def with_numpy(form):
    import numpy as np

    if form != "npy":
        raise SystemExit(f"numpy does not read {form} here")
    return np.load


def with_polars(form):
    import polars as pl

    read = {
        "csv": lambda path: pl.read_csv(path, has_header=False),
        "parquet": pl.read_parquet,
        "arrow": pl.read_ipc,
    }[form]
    return lambda path: read(path).to_numpy(order="c")


def with_pandas(form):
    import numpy as np
    import pandas as pd

    read = {
        "csv": lambda path: pd.read_csv(path, header=None),
        "parquet": pd.read_parquet,
        "arrow": pd.read_feather,
    }[form]
    return lambda path: np.ascontiguousarray(read(path).to_numpy())


def with_pyarrow(form):
    import numpy as np
    import pyarrow.csv
    import pyarrow.feather
    import pyarrow.parquet

    read = {
        "csv": lambda path: pyarrow.csv.read_csv(
            path, read_options=pyarrow.csv.ReadOptions(autogenerate_column_names=True)
        ),
        "parquet": pyarrow.parquet.read_table,
        "arrow": pyarrow.feather.read_table,
    }[form]
    return lambda path: np.column_stack([column.to_numpy() for column in read(path).columns])


READERS = {"numpy": with_numpy, "polars": with_polars, "pandas": with_pandas, "pyarrow": with_pyarrow}


def sums(X):
    import numpy as np

    columns = X.sum(axis=0, dtype=np.float64)
    return [float(columns.sum()), float(columns @ np.arange(1, X.shape[1] + 1))]


def read(package, form, path, *check):
    reader = READERS[package](form)
    begin = time.perf_counter()
    X = reader(path)
    answer = {"read_seconds": time.perf_counter() - begin, "shape": X.shape, "dtype": str(X.dtype)}
    if not X.flags.c_contiguous:
        raise SystemExit("the matrix is not C-contiguous")
    return {**answer, "sums": sums(X)} if check else answer


def first_reader(form):
    """The reader of the first package that is installed, fastest first."""
    for package in ["numpy"] if form == "npy" else ["polars", "pandas", "pyarrow"]:
        try:
            return package, READERS[package](form)
        except ModuleNotFoundError:
            pass
    raise ModuleNotFoundError(f"no package that reads {form} is installed")


def given(path):
    """Options that start scikit-learn from a model file of gmm."""
    import numpy as np

    with open(path) as file:
        model = json.load(file)
    weights = np.array(model["weights"])
    return {
        "weights_init": weights / weights.sum(),
        "means_init": np.array(model["means"]),
        "precisions_init": np.linalg.inv(np.array(model["covariances"])),
    }


def fit(form, path, start, components, output, iterations):
    import warnings

    package, reader = first_reader(form)
    import numpy as np
    from sklearn.mixture import GaussianMixture

    begin = time.perf_counter()
    X = reader(path)
    fitted = time.perf_counter()
    options = {} if start == "random" else given(start)
    # In the precision of the rows, as scikit-learn computes.
    options = {name: value.astype(X.dtype) for name, value in options.items()}
    if "weights_init" in options:
        options["weights_init"] /= options["weights_init"].sum()
    model = GaussianMixture(
        int(components),
        max_iter=int(iterations),
        tol=0.0,
        n_init=1,
        init_params="random_from_data",
        random_state=0,
        **options,
    )
    with warnings.catch_warnings():
        # Every fit stops at max_iter.
        warnings.simplefilter("ignore")
        model.fit(X)
    done = time.perf_counter()
    np.savez(output, weights=model.weights_, means=model.means_, covariances=model.covariances_)
    return {
        "reader": package,
        "read_seconds": fitted - begin,
        "fit_seconds": done - fitted,
        "lower_bound": float(model.lower_bound_),
        "iterations": model.n_iter_,
    }


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    try:
        answer = {"versions": versions, "read": read, "fit": fit}[what](*arguments)
    except ModuleNotFoundError as error:
        answer = {"missing": str(error)}
    print(json.dumps(answer))
