"""Model selection."""

import itertools
import json
import sys

import numpy as np
import pandas as pd
import pytest
from conftest import stopped_within_a_second
from sklearn.exceptions import ConvergenceWarning
from test_files import gmm

from gmm_rs import exceptions, select
from gmm_rs.datasets import make_gmm
from gmm_rs.mixture import GaussianMixture

ON = {"device": "cpu", "random_state": 0}


def test_the_winner_is_the_fit_of_lowest_criterion_among_fits_one_by_one(rows):
    for criterion in ("bic", "aic"):
        found = select(rows, range(1, 6), covariance_type=("full", "diag"), criterion=criterion, **ON)
        fits = [
            GaussianMixture(k, covariance_type=kind, **ON).fit(rows)
            for kind, k in itertools.product(("full", "diag"), range(1, 6))
        ]
        values = [getattr(fit, criterion)(rows) for fit in fits]
        np.testing.assert_allclose(found.table[criterion], values, rtol=1e-10)
        assert found.best_index_ == int(np.argmin(values))
        best = fits[found.best_index_]
        for name in ("weights_", "means_", "covariances_", "precisions_cholesky_", "precisions_"):
            assert getattr(found.best_estimator_, name).tobytes() == getattr(best, name).tobytes()
        for name in ("converged_", "n_iter_", "lower_bound_", "lower_bounds_", "engine_", "n_features_in_", "fast_loss_"):
            assert getattr(found.best_estimator_, name) == getattr(best, name)
        assert found.best_estimator_.get_params() == best.get_params()
        assert found.best_params_ == {"n_components": best.n_components, "covariance_type": best.covariance_type}


def test_candidates_and_choice_are_those_of_the_program(rows, tmp_path):
    np.save(tmp_path / "rows.npy", rows)
    for criterion in ("bic", "icl"):
        found = select(rows, [1, 3, 2, 400], covariance_type=["tied", "spherical"], criterion=criterion, n_jobs=2, **ON)
        options = ["--covariance", "tied,spherical", "--criterion", criterion, "--device", "cpu", "--threads", "2"]
        said = json.loads(gmm("select", "rows.npy", "-k", "1,3,2,400", "--json", *options, cwd=tmp_path))
        assert len(said["candidates"]) == len(found.table["k"]) == 8
        for i, one in enumerate(said["candidates"]):
            assert (one["n_components"], one["covariance_type"]) == (found.table["k"][i], found.table["covariance_type"][i])
            if "error" in one:
                assert one["error"] == found.table["error"][i]
                continue
            assert not found.table["error"][i]
            for theirs, ours in [("log_likelihood",) * 2, ("bic",) * 2, ("aic",) * 2, ("icl",) * 2]:
                assert one[theirs] == found.table[ours][i]
            assert (one["iterations"], one["converged"]) == (found.table["iterations"][i], found.table["converged"][i])
        assert said["best"] == found.best_params_


def test_a_candidate_that_cannot_be_fitted_hides_no_other():
    X = np.random.default_rng(0).normal(size=(6, 2))
    found = select(X, [1, 7, 2], **ON)
    assert found.table["error"][1] and not found.table["error"][0]
    assert np.isnan(found.table["bic"][1]) and found.best_params_["n_components"] in (1, 2)
    with pytest.raises(exceptions.ParameterError, match="7"):
        select(X, 7, **ON)


def test_the_table_has_a_frame_a_text_and_an_escaped_page(rows):
    found = select(rows, [1, 3, 301], covariance_type=("diag", "full"), **ON)
    frame = found.to_frame()
    assert list(frame.columns)[:7] == ["k", "covariance_type", "log_likelihood", "n_parameters", "bic", "aic", "icl"]
    assert frame.loc[found.best_index_, "bic"] == frame["bic"].min() and len(frame) == 6
    assert frame.loc[4, "n_parameters"] == 3 * (6 + 3) + 2
    lines = repr(found).splitlines()
    assert len(lines) == 7 and [i for i, line in enumerate(lines) if line.lstrip().startswith("*")] == [found.best_index_ + 1]
    assert "301" in lines[3] and str(found.table["error"][2]) in lines[3]
    page = found._repr_html_()
    assert page.count("<tr") == 7 and page.count("bold") == 1
    found.table["error"] = np.array(["<script>"] * 6)
    assert "<script>" not in found._repr_html_() and "&lt;script&gt;" in found._repr_html_()


def test_names_weights_and_types_are_as_in_a_fit(rows):
    frame = pd.DataFrame(rows.astype(np.float32), columns=["x", "y", "z"])
    weights = np.arange(len(rows)) % 3
    found = select(frame, (2, 3), sample_weight=weights, **ON)
    assert found.best_estimator_.feature_names_in_.tolist() == ["x", "y", "z"]
    assert found.best_estimator_.means_.dtype == np.float32
    k = found.best_params_["n_components"]
    alone = GaussianMixture(k, **ON).fit(frame, sample_weight=weights)
    np.testing.assert_array_equal(found.best_estimator_.means_, alone.means_)


def test_a_best_candidate_that_did_not_converge_warns(rows):
    with pytest.warns(ConvergenceWarning, match="3 components with diag covariances, did not converge: raise max_iter"):
        found = select(rows, 3, covariance_type="diag", max_iter=1, tol=0.0, **ON)
    assert "(!)" in repr(found) and not found.table["converged"][0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"k": []}, "k is empty"),
        ({"k": 0}, "k is 0"),
        ({"k": [1, 2.5]}, "k is 2.5"),
        ({"k": [True]}, "k is True"),
        ({"k": "1..10"}, r"k is '1..10': it must be an integer or an iterable of integers, such as range\(1, 11\)"),
        ({"k": None}, "k is None"),
        ({"k": itertools.count(1)}, "more than 10000"),
        ({"covariance_type": "round"}, "unknown covariance_type 'round': choose from full, tied, diag, spherical"),
        ({"covariance_type": ()}, "covariance_type is empty"),
        ({"covariance_type": 3}, "covariance_type is 3"),
        ({"criterion": "dic"}, "unknown criterion 'dic': choose one of bic, aic, icl"),
        ({"init_params": "better"}, "init_params"),
        ({"tol": -1.0}, "tol"),
        ({"n_init": 0}, "n_init"),
        ({"device": "tpu"}, "tpu"),
        ({"precision": "f16"}, "precision"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_is_told(rows, options, words):
    with pytest.raises(ValueError, match=words):
        select(rows, **{"k": 2, **ON, **options})


def test_numbers_and_kinds_count_once_and_in_their_order(rows):
    found = select(rows, iter([3, np.int64(2), 3]), covariance_type=["diag", "diag"], **ON)
    assert found.table["k"].tolist() == [3, 2]
    assert set(found.table["covariance_type"]) == {"diag"}


def test_rows_that_cannot_be_are_told_as_in_a_fit(rows):
    with pytest.raises(ValueError, match="row 2, column 0"):
        select([[1.0], [2.0], [np.nan]], 1, **ON)
    with pytest.raises(ValueError, match="2D array"):
        select(rows[:, 0], 1, **ON)


def test_progress_goes_to_standard_error(rows, capfd):
    select(rows, range(1, 4), progress=True, **ON)
    out, err = capfd.readouterr()
    assert not out and "3 of 3 fits" in err and err.endswith("\n")


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent otherwise there")
def test_ctrl_c_stops_within_a_second():
    program = """
        import time
        import numpy as np
        from gmm_rs import select

        X = np.random.default_rng(0).normal(size=(20_000, 8))
        print("begun", flush=True)
        try:
            select(X, range(1, 500), device="cpu", tol=0.0, max_iter=10**6)
        except KeyboardInterrupt:
            print("stopped", time.time(), flush=True)
        print(select(X[:200], 2, device="cpu", random_state=0).best_params_["n_components"], flush=True)
    """
    assert stopped_within_a_second(program, after=1.5) == "2\n"


def test_a_selection_finds_components_that_were_there():
    X, _ = make_gmm(600, 2, 4, separation=6.0, random_state=1)
    assert select(X, range(1, 8), n_init=3, **ON).best_params_["n_components"] == 4
