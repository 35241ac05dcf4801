"""Tables with Arrow's PyCapsule interface; rows are copied only if they are not contiguous."""

import gc

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from conftest import model

from gmm_rs import _inputs, exceptions


class Stream:
    """A table with only this interface, which can be read once."""

    def __init__(self, table):
        self._reader = pa.table(table).to_reader(max_chunksize=7)

    def __arrow_c_stream__(self, requested_schema=None):
        return self._reader.__arrow_c_stream__(requested_schema)


def columns(rows):
    return {name: rows[:, i] for i, name in enumerate("abc")}


@pytest.mark.parametrize("make", [pl.DataFrame, pa.table, Stream], ids=["polars", "pyarrow", "stream"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rows_of_a_table_are_those_of_the_array(rows, make, dtype):
    X = rows.astype(dtype)
    found = _inputs.array(make(columns(X)))
    assert found.dtype == dtype and found.flags.c_contiguous
    np.testing.assert_array_equal(found, X)


def test_chunks_and_slices_of_a_table_are_its_rows(rows):
    chunked = pa.concat_tables([pa.table(columns(part)) for part in (rows[:100], rows[100:101], rows[101:])])
    np.testing.assert_array_equal(_inputs.array(chunked), rows)
    np.testing.assert_array_equal(_inputs.array(chunked.slice(50, 170)), rows[50:220])
    np.testing.assert_array_equal(_inputs.array(pl.DataFrame(columns(rows))[7:90]), rows[7:90])


def test_columns_of_several_types_become_float64():
    table = {"a": np.arange(4, dtype=np.int8), "b": np.arange(4, dtype=np.float32), "c": [True, False, True, True]}
    want = np.column_stack([np.arange(4.0), np.arange(4.0), [1.0, 0.0, 1.0, 1.0]])
    for make in (pl.DataFrame, pa.table):
        found = _inputs.array(make(table))
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("make", [pl.DataFrame, pa.table], ids=["polars", "pyarrow"])
def test_a_fit_keeps_the_names_and_a_prediction_asks_for_them(rows, make):
    one = model(random_state=0).fit(make(columns(rows)))
    assert one.feature_names_in_.tolist() == ["a", "b", "c"] and one.n_features_in_ == 3
    np.testing.assert_array_equal(one.predict(make(columns(rows))), one.predict(pd.DataFrame(columns(rows))))
    with pytest.raises(ValueError, match="same order"):
        one.predict(make(columns(rows)).select(["c", "b", "a"]))
    # Row 50.
    with pytest.raises(ValueError, match="seen at fit time, yet now missing"):
        one.predict(make(columns(rows)).select(["a", "b"]))


class Record:
    """A table with only this interface, which returns a new stream each time."""

    def __init__(self, columns):
        self._table = pa.table(columns)

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


def reader(columns):
    return pa.table(columns).to_reader(max_chunksize=7)


ARROW = {"batch": pa.record_batch, "reader": reader, "stream": Record, "table": pa.table, "polars": pl.DataFrame}


@pytest.mark.parametrize("make", ARROW.values(), ids=ARROW)
def test_row_89_whatever_has_an_arrow_stream_keeps_its_names(rows, make):
    named = columns(rows)
    one = model(random_state=0).fit(make(named))
    assert one.feature_names_in_.tolist() == ["a", "b", "c"] and one.feature_names_in_.dtype == object
    np.testing.assert_array_equal(one.predict(make(named)), one.predict(pd.DataFrame(named)))
    with pytest.raises(ValueError, match="must be in the same order"):
        one.predict(make({name: named[name] for name in "cba"}))
    with pytest.raises(ValueError, match="unseen at fit time:\n- d\nFeature names seen at fit time, yet now missing:\n- c"):
        one.score(make({"a": rows[:, 0], "b": rows[:, 1], "d": rows[:, 2]}))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        one.predict(rows)
    plain = model(random_state=0).fit(rows)
    with pytest.warns(UserWarning, match="was fitted without feature names"):
        plain.predict(make(named))
    # Names are those of the latest fit.
    assert not hasattr(one.fit(rows), "feature_names_in_")
    # A single column also has a name.
    alone = model(1).fit(make({"a": rows[:, 0]}))
    assert alone.feature_names_in_.tolist() == ["a"]
    with pytest.raises(ValueError, match="unseen at fit time"):
        alone.predict(make({"b": rows[:, 0]}))


WIDE = {**ARROW, "pandas": pd.DataFrame}


@pytest.mark.parametrize("make", WIDE.values(), ids=WIDE)
def test_row_92_a_wider_table_is_taken_by_the_names_of_the_model(rows, make):
    named = columns(rows)
    one = model(random_state=0).fit(make(named))
    wide = {"who": ["x"] * 300, "c": named["c"], "a": named["a"], "more": np.arange(300), "b": named["b"]}
    for method in ("predict", "predict_proba", "score_samples", "score", "bic", "aic"):
        np.testing.assert_array_equal(getattr(one, method)(make(wide)), getattr(one, method)(rows_named(make, named)))
    # If one is missing, no other column is used instead.
    with pytest.raises(ValueError, match="yet now missing:\n- b|columns that do: c,a,more"):
        one.predict(make({name: wide[name] for name in ("c", "a", "more")} | {"d": named["b"]}))
    # A fit uses all columns.
    assert model(1).fit(make({name: wide[name] for name in "cab"} | {"more": wide["more"]})).n_features_in_ == 4


def rows_named(make, named):
    return make(named)


def test_a_stream_that_can_be_read_once_is_enough(rows):
    want = model(random_state=0).fit(rows)
    np.testing.assert_array_equal(model(random_state=0).fit_predict(Stream(columns(rows))), want.predict(rows))
    assert want.bic(Stream(columns(rows))) == want.bic(rows)
    weighted = model(random_state=0).fit(Stream(columns(rows)), sample_weight=np.ones(len(rows)))
    np.testing.assert_allclose(weighted.means_, want.means_, rtol=1e-9)


def shares(array, column):
    """Whether an array views the memory of a pyarrow array."""
    return array.__array_interface__["data"][0] == column.buffers()[-1].address


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_one_column_of_floats_is_read_in_place(rows, dtype):
    column = pa.array(rows[:, 0].astype(dtype))
    found = _inputs.array(pa.table({"a": column}))
    assert found.shape == (300, 1) and shares(found, column) and not found.flags.writeable


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_one_column_of_lists_is_read_in_place(rows, dtype):
    X = rows.astype(dtype)
    column = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), 3)
    found = _inputs.array(pa.table({"x": column}))
    assert shares(found, column) and not found.flags.writeable
    np.testing.assert_array_equal(found, X)
    part = _inputs.array(pa.table({"x": column}).slice(10, 20))
    np.testing.assert_array_equal(part, X[10:30])
    frame = pl.DataFrame({"x": X})
    np.testing.assert_array_equal(model(random_state=0).fit(frame).predict(frame), model(random_state=0).fit_predict(X))


def test_lists_in_chunks_are_rows_as_well(rows):
    parts = [pa.FixedSizeListArray.from_arrays(pa.array(part.ravel()), 3) for part in (rows[:9], rows[9:])]
    np.testing.assert_array_equal(_inputs.array(pa.table({"x": pa.chunked_array(parts)})), rows)


def test_memory_in_place_outlives_its_table(rows):
    found = _inputs.array(pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 3)}))
    gc.collect()
    others = [rows.copy() for _ in range(20)]
    np.testing.assert_array_equal(found, rows)
    assert len(others) == 20


def test_row_09_a_missing_value_names_row_and_column(rows):
    values = rows[:, 1].tolist()
    values[7] = None
    for make in (pl.DataFrame, pa.table, Stream):
        with pytest.raises(exceptions.DataError, match=r"row 7, column 1 \('b'\): missing value"):
            model().fit(make({**columns(rows), "b": values}))
    lists = [None if i == 4 else row for i, row in enumerate(rows.tolist())]
    with pytest.raises(exceptions.DataError, match=r"column 0 \('x'\).*without missing values"):
        model().fit(pa.table({"x": pa.array(lists, pa.list_(pa.float64(), 3))}))


def test_row_11_a_column_of_text_is_named_with_those_that_hold_numbers(rows):
    for make in (pl.DataFrame, pa.table):
        with pytest.raises(exceptions.DataError, match=r"column 1 \('t'\).*columns that do: a,b,c"):
            model().fit(make({"a": rows[:, 0], "t": ["x"] * 300, "b": rows[:, 1], "c": rows[:, 2]}))


def test_rows_01_and_02_a_table_without_rows_or_columns():
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        model().fit(pa.table({"a": pa.array([], pa.float64()), "b": pa.array([], pa.float64())}))
    with pytest.raises(ValueError, match="sample|feature"):
        model().fit(pl.DataFrame())


def test_what_the_owner_of_a_stream_raises_is_told(rows):
    def batches():
        yield pa.record_batch(columns(rows[:5]))
        raise RuntimeError("the source is gone")

    schema = pa.record_batch(columns(rows[:5])).schema
    with pytest.raises(exceptions.DataError, match="the source is gone"):
        _inputs.array(pa.RecordBatchReader.from_batches(schema, batches()))


class OnlyDlpack:
    """An array of another library, which NumPy can read only through DLPack."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


def test_an_array_by_dlpack_is_read_in_place(rows):
    found = _inputs.array(OnlyDlpack(rows))
    assert np.shares_memory(found, rows)
    np.testing.assert_array_equal(
        model(random_state=0).fit_predict(OnlyDlpack(rows)), model(random_state=0).fit_predict(rows)
    )
