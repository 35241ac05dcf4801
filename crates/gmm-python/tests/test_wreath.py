"""mclust's data set wreath: the number of components and the likelihoods that mclust finds.

The rows are read from the package itself, `mclust/data/Rdata.rdb` of R's library, which `GMM_MCLUST_DATA` names, or which Debian's
r-cran-mclust installs. Without it the test is skipped.
"""

import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from gmm_rs.selection import select

FILE = Path(os.environ.get("GMM_MCLUST_DATA", "/usr/lib/R/site-library/mclust/data/Rdata.rdb"))


def wreath():
    """The object of 2,000 doubles: each object is a length and a zlib stream of R's serialisation, version 3."""
    rest = FILE.read_bytes()
    while rest:
        stream = zlib.decompressobj()
        found = stream.decompress(rest[4:])
        rest = stream.unused_data
        # The header ends with the name of an encoding and its length; then the kind of the object, a vector of doubles.
        at = 18 + struct.unpack(">I", found[14:18])[0]
        flags, length = struct.unpack(">II", found[at : at + 8])
        if (flags & 0xFF, length) == (14, 2000):
            return np.frombuffer(found, ">f8", 2000, at + 8).astype(float).reshape(2, 1000).T
    raise ValueError(f"{FILE} has no wreath")


# From mclust 6.0.0: `mclustBIC(wreath, G = 1:20, modelNames = m)` has its maximum at 14, and `Mclust(wreath, G = 14, modelNames = m)`
# has this log-likelihood and this number of parameters, for m = VVV, EEE, VVI and VII. mclust stops at a relative change of 1e-5.
@pytest.mark.skipif(not FILE.exists(), reason="needs the R package mclust")
@pytest.mark.parametrize(
    ("kind", "log_likelihood", "parameters"),
    [
        ("full", -5244.51427665, 83),
        ("tied", -5441.74471601, 44),
        ("diag", -5384.33514548, 69),
        ("spherical", -5439.21102481, 55),
    ],
)
def test_a_tree_finds_the_fourteen_components_of_mclust(kind, log_likelihood, parameters):
    X = wreath()
    options = {"init_params": "tree", "tol": 1e-9, "max_iter": 2000, "reg_covar": 0.0}
    found = select(X, k=range(1, 21), covariance_type=kind, device="cpu", **options)
    best = {name: values[found.best_index_] for name, values in found.table.items()}
    assert best["k"] == 14
    assert best["n_parameters"] == parameters
    assert log_likelihood - 1e-6 <= best["log_likelihood"] <= log_likelihood + 1e-3
