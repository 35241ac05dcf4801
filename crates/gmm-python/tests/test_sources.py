"""Rows of several files, and rows larger than the memory that they may take."""

import subprocess
import sys

import numpy as np
import pytest

from gmm_rs import exceptions, files
from gmm_rs.mixture import GaussianMixture


def parts(folder, rows):
    """Files of several formats with these rows."""
    np.save(folder / "part-0.npy", rows[:1000])
    np.savetxt(folder / "part-1.csv", rows[1000:1001], delimiter=",", fmt="%.17g")
    np.savez(folder / "part-2.npz", np.asfortranarray(rows[1001:]))
    return sorted(folder.iterdir())


@pytest.fixture
def many():
    return np.random.default_rng(0).normal(size=(5003, 3))


@pytest.mark.parametrize("memory", [None, 1, "10K", 5003 * 3 * 8, "1GiB"])
def test_files_are_read_as_one_array(many, memory, tmp_path):
    paths = parts(tmp_path, many)
    for given in (paths, tmp_path, str(tmp_path / "part-*")):
        read = files.read(given, memory=memory)
        assert type(read) is np.ndarray and read.flags.c_contiguous
        np.testing.assert_array_equal(read, many)
        assert read.flags.writeable == (memory not in (1, "10K"))


def test_arrays_are_gathered_and_fitted_to_the_same_bits(many):
    pieces = [many[i : i + 700] for i in range(0, len(many), 700)]
    spilled = files.gather(iter(pieces), memory="20K")
    kept = files.gather(pieces)
    assert not spilled.flags.writeable and kept.flags.writeable
    np.testing.assert_array_equal(spilled, many)
    np.testing.assert_array_equal(kept, many)
    fits = [GaussianMixture(2, random_state=0, device="cpu").fit(rows) for rows in (many, spilled, kept)]
    for fit in fits[1:]:
        np.testing.assert_array_equal(fit.means_, fits[0].means_)
        np.testing.assert_array_equal(fit.predict_proba(spilled), fits[0].predict_proba(many))


def test_the_type_is_float32_only_if_all_arrays_are():
    single, double = np.ones((4, 2), np.float32), np.zeros((3, 2))
    assert files.gather([single, single]).dtype == np.float32
    both = files.gather([single, [[2, 3]], double], memory=1)
    assert both.dtype == np.float64 and both.tolist() == [[1, 1]] * 4 + [[2, 3]] + [[0, 0]] * 3


def test_columns_are_matched_and_chosen_by_name(tmp_path):
    (tmp_path / "1.csv").write_text("a,b\n1,2\n")
    (tmp_path / "2.csv").write_text("b,a\n4,3\n")
    read, names = files.read(tmp_path, return_names=True)
    assert read.tolist() == [[1, 2], [3, 4]] and names == ["a", "b"]
    assert files.read(tmp_path, columns=["b"]).tolist() == [[2], [4]]
    (tmp_path / "3.csv").write_text("b,c\n4,3\n")
    with pytest.raises(exceptions.FileError, match=r"3\.csv: no column 'a'"):
        files.read(tmp_path)
    with pytest.raises(OSError, match="no file matches"):
        files.read(tmp_path / "x-*.csv")


@pytest.mark.parametrize("memory", [0, -1, 1.5, True, "lots", "0"])
def test_a_wrong_size_is_named(memory):
    with pytest.raises(exceptions.ParameterError, match="memory is"):
        files.gather([[[1.0]]], memory=memory)


def test_arrays_that_differ_or_are_missing_are_errors():
    with pytest.raises(exceptions.ParameterError, match="3 columns, but those before have 2"):
        files.gather([np.ones((2, 2)), np.ones((2, 3))])
    with pytest.raises(exceptions.ParameterError, match="no arrays"):
        files.gather(iter([]))
    with pytest.raises(exceptions.ParameterError, match="paths is empty"):
        files.read([])


CHILD = """
import resource, sys
import numpy as np
from gmm_rs import files
from gmm_rs.mixture import GaussianMixture

def batches():
    for i in range(20):
        yield np.random.default_rng(i).normal(size=(60_000, 32)).astype(np.float32) + i % 2 * 5

model = GaussianMixture(2, covariance_type="diag", init_params="random_from_data", max_iter=2, tol=0, device="cpu")
model.set_params(n_jobs=1, random_state=0).fit(files.gather(batches(), memory="1M")[:1000])

def anonymous():
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line for line in lines if line.startswith("VmData")).split()[1]) << 10

resource.setrlimit(resource.RLIMIT_DATA, (anonymous() + (100 << 20),) * 2)
rows = files.gather(batches(), memory="1M")
assert rows.nbytes > 140 << 20
try:
    np.copy(rows)
except MemoryError:
    model.fit(rows)
    model.score(rows)
    print("a copy does not fit")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA counts allocated memory on Linux")
def test_gathered_rows_take_no_memory():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", CHILD], capture_output=True, text=True)
    assert done.stdout.strip() == "a copy does not fit", done.stderr[-2000:]
