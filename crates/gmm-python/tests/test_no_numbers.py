"""Input that NumPy would convert to meaningless numbers is an error that names type and position."""

import datetime
import decimal
import fractions

import numpy as np
import pandas as pd
import polars as pl
import pytest
from conftest import model

from gmm_rs import Likelihood, accel, exceptions
from gmm_rs.mixture import GaussianMixture

X = np.random.default_rng(0).normal(size=(20, 2))
TIMES = (X * 1e6).astype("datetime64[s]")


def refused(rows, *parts):
    """Check that fit, prediction and likelihood raise an error for these rows, with all these parts."""
    fitted = model(2, random_state=0).fit(X)
    for call in (model(2).fit, model(2).fit_predict, fitted.predict, fitted.score, fitted.bic, Likelihood):
        with pytest.raises(exceptions.DataError) as seen:
            call(rows)
        for part in parts:
            assert part in str(seen.value), seen.value


@pytest.mark.parametrize("unit", ["s", "ns", "D"])
def test_arrays_of_dates_and_durations(unit):
    refused(TIMES.astype(f"datetime64[{unit}]"), f"datetime64[{unit}]", "not numbers")
    refused((X * 1e6).astype(f"timedelta64[{unit}]"), f"timedelta64[{unit}]", "not numbers")


def test_arrays_of_not_a_time():
    refused(np.full((20, 2), np.datetime64("NaT", "ns")), "datetime64[ns]")
    refused(np.full((20, 2), np.timedelta64("NaT")), "timedelta64")


def test_lists_of_dates():
    refused(list(TIMES), "datetime64[s]")
    refused([[np.datetime64("2020-01-01"), np.datetime64("2020-01-02")]] * 20, "datetime64[D]")
    refused([[datetime.date(2020, 1, 1), 1.0]] * 20, "row 0, column 0", "date")


@pytest.mark.parametrize(
    "value",
    [
        np.datetime64("2020-01-01T00:00:00", "ns"),
        np.datetime64("NaT", "ns"),
        np.timedelta64(5, "ns"),
        datetime.datetime(2020, 1, 1),
        datetime.date(2020, 1, 1),
        datetime.timedelta(days=1),
        datetime.time(12),
        pd.Timestamp("2020"),
        pd.Timedelta("1D"),
        pd.NaT,
    ],
    ids=lambda value: type(value).__name__,
)
def test_objects_that_are_dates_or_durations(value):
    rows = X.astype(object)
    rows[7, 1] = value
    refused(rows, "row 7, column 1", type(value).__name__, "not numbers")
    refused(rows.tolist(), "row 7, column 1")


@pytest.mark.parametrize("value", ["1.5", b"1.5", np.str_("1.5"), 1j, np.complex64(1), {}, pd.Period("2020"), pd.NA])
def test_objects_that_are_no_numbers(value):
    rows = X.astype(object)
    rows[7, 1] = value
    refused(rows, "row 7, column 1", type(value).__name__)


def test_objects_that_are_numbers_are_fitted():
    want = model(2, random_state=0).fit(X)
    for convert in (float, np.float32, decimal.Decimal, fractions.Fraction):
        rows = np.array([[convert(float(value)) for value in row] for row in X], dtype=object)
        np.testing.assert_allclose(model(2, random_state=0).fit(rows).means_, want.means_, rtol=1e-6)
    whole = np.round(X * 9)
    rows = whole.astype(int).astype(object)
    np.testing.assert_array_equal(model(2, random_state=0).fit(rows).means_, model(2, random_state=0).fit(whole).means_)


def test_a_missing_object_names_row_and_column():
    rows = X.astype(object)
    rows[7, 1] = None
    refused(rows, "row 7, column 1")


@pytest.mark.parametrize("kind", ["U", "S", "U0"])
def test_arrays_of_numbers_as_text(kind):
    refused(X.astype(kind[0]), "dtype='numeric' is not compatible with arrays of bytes/strings")
    refused(X.astype(kind[0]).astype(object), "row 0, column 0", "bytes/strings")
    refused(X.astype(kind[0]).tolist(), "bytes/strings")


def test_records():
    rows = np.zeros((20, 2), dtype=[("a", float), ("b", float)])
    refused(rows, "structured_to_unstructured", "('a', '<f8')")


def test_booleans_are_numbers():
    found = model(2, random_state=0).fit(X > 0)
    np.testing.assert_array_equal(found.means_, model(2, random_state=0).fit((X > 0).astype(float)).means_)


def test_row_90_a_column_of_pandas_that_holds_dates_or_text():
    good = pd.DataFrame(X, columns=["a", "b"])
    dates = pd.date_range("2020", periods=20)
    columns = {
        "datetime64": dates,
        "UTC": dates.tz_localize("UTC"),
        "timedelta64": dates - dates[0],
        "period": dates.to_period("D"),
        "object": pd.Series(["x"] * 20, dtype=object),
        "str": pd.Series(["1.5"] * 20, dtype="string"),
        "category": pd.Categorical(["x", "y"] * 10),
    }
    for kind, column in columns.items():
        refused(good.assign(when=column), "column 2 ('when')", kind)
    refused(good.assign(when=pd.Series([1.0] * 19 + ["x"], dtype=object)), "column 2 ('when')", "row 19 is 'x'")
    # A frame with only dates has a common dtype, which NumPy would convert to counts.
    refused(pd.DataFrame({"a": dates, "b": dates}), "column 0 ('a')", "datetime64")


def test_columns_of_pandas_that_hold_numbers_are_fitted():
    frame = pd.DataFrame(np.round(X * 9), columns=["a", "b"])
    want = model(2, random_state=0).fit(frame.to_numpy())
    for kind in ("Int64", "float32", "category", "object"):
        other = frame.astype({"b": kind})
        np.testing.assert_allclose(model(2, random_state=0).fit(other).means_, want.means_, rtol=1e-6, err_msg=kind)


def test_row_90_columns_of_polars_and_its_lazy_frames():
    frame = pl.DataFrame({"a": X[:, 0], "b": X[:, 1]})
    for column in (
        pl.Series("when", [datetime.datetime(2020, 1, 1)] * 20),
        pl.Series("when", [datetime.date(2020, 1, 1)] * 20),
        pl.Series("when", [datetime.timedelta(1)] * 20),
        pl.Series("when", ["x"] * 20),
        pl.Series("when", ["x"] * 20, dtype=pl.Categorical),
    ):
        refused(frame.with_columns(column), "column 2 ('when')")
    refused(frame.lazy(), "LazyFrame", ".collect()")


def test_row_91_a_masked_array():
    mask = np.zeros(X.shape, dtype=bool)
    mask[7, 1] = mask[9, 0] = True
    refused(np.ma.array(X, mask=mask), "2 masked entries", "row 7, column 1")
    refused(list(np.ma.array(X, mask=mask)), "row 7 has masked entries")
    # An empty mask hides nothing.
    found = model(2, random_state=0).fit(np.ma.array(X, mask=False))
    np.testing.assert_array_equal(found.means_, model(2, random_state=0).fit(X).means_)


def test_weights_and_starts_that_are_no_numbers():
    for weights in (TIMES[:, 0], ["1"] * 20, pd.Series(["1"] * 20), np.ma.array(np.ones(20), mask=[True] + [False] * 19)):
        with pytest.raises(exceptions.DataError, match="sample_weight"):
            model(2).fit(X, sample_weight=weights)
    for means in (TIMES[:2], X[:2].astype(str), np.ma.array(X[:2], mask=X[:2] == X[1, 1])):
        with pytest.raises(exceptions.ParameterError, match="means"):
            model(2, means_init=means).fit(X)


def test_dates_and_text_are_refused_under_accel_as_well():
    accel.install()
    try:
        from sklearn.mixture import GaussianMixture as Accelerated

        for rows in (TIMES, X.astype(str), pd.DataFrame({"a": X[:, 0], "b": "x"})):
            with pytest.raises(exceptions.DataError):
                Accelerated(2).fit(rows)
    finally:
        accel.uninstall()
    assert issubclass(exceptions.DataError, ValueError) and GaussianMixture is not Accelerated
