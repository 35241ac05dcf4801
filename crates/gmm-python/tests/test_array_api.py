"""With scikit-learn's array API dispatch, results have the array library of the input."""

import os
import subprocess
import sys
import textwrap

PROGRAM = """
    import array_api_strict as xp
    import numpy as np
    from sklearn import config_context
    from gmm_rs.mixture import GaussianMixture

    rows = np.random.default_rng(0).normal(size=(100, 2)) + np.repeat([[0.0], [9.0]], 50, axis=0)
    want = GaussianMixture(2, random_state=0, device="cpu").fit(rows)
    X, weights = xp.asarray(rows), np.ones(100)
    for dispatches, kind in [(True, type(X)), (False, np.ndarray)]:
        with config_context(array_api_dispatch=dispatches):
            one = GaussianMixture(2, random_state=0, device="cpu")
            found = [one.fit_predict(X), one.predict(X), one.predict_proba(X), one.score_samples(X)]
            assert [type(array) for array in found] == [kind] * 4, found
            assert one.score(X) == want.score(rows) and one.bic(X) == want.bic(rows)
            assert one.score(X, sample_weight=weights) == want.score(rows, sample_weight=weights)
            # For other input, results are NumPy arrays.
            assert type(one.predict(rows)) is np.ndarray
            attributes = (one.weights_, one.means_, one.covariances_, one.precisions_, one.precisions_cholesky_)
            assert [type(array) for array in (*attributes, *one.sample(3))] == [kind] * 7
            assert np.array_equal(np.from_dlpack(one.means_), want.means_)
            # A warm start continues from arrays of that library, and initial parameters may be such arrays.
            again = GaussianMixture(2, means_init=one.means_, random_state=0, device="cpu", warm_start=True)
            assert type(again.fit(X).fit(X).means_) is kind
            assert type(one.to_sklearn().means_) is kind
        wanted = [want.predict(rows), want.predict(rows), want.predict_proba(rows), want.score_samples(rows)]
        for a, b in zip(found, wanted):
            assert np.array_equal(np.from_dlpack(a), b) and np.from_dlpack(a).dtype == b.dtype
    print("all is well")
"""


def test_results_are_of_the_callers_library_where_scikit_learn_dispatches():
    # SciPy reads this variable once, when it is imported.
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    program = [sys.executable, "-c", textwrap.dedent(PROGRAM)]
    done = subprocess.run(program, env=environment, capture_output=True, text=True)
    assert done.stdout == "all is well\n", done.stderr
