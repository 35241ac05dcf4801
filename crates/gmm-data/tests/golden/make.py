"""Writes the files of this folder with NumPy, pandas, pyarrow, scikit-learn and safetensors.

Run `python make.py`. The tests compare the files with the same formula: value (i, j) = i * 3 + j - 4, and that / 8 for
floats.
"""

import json
import os

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet as pq
import safetensors.numpy

os.chdir(os.path.dirname(os.path.abspath(__file__)))
base = np.arange(15).reshape(5, 3)

for name in ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"]:
    a = base % 2 if name == "b1" else base + 1 if name[0] == "u" else base - 4
    a = a / 8 if name[0] == "f" else a
    np.save(f"{name}.npy", a.astype("<" + name))
    np.save(f"{name}_be.npy", a.astype(">" + name))
    np.save(f"{name}_fortran.npy", np.asfortranarray(a.astype("<" + name)))
np.save("strided.npy", ((base - 4) / 8).repeat(2, axis=0)[::2])

np.save("one_dimensional.npy", np.arange(4.0))
np.save("three_dimensional.npy", np.zeros((2, 2, 2)))
np.save("complex.npy", np.zeros((2, 2), complex))
np.save("object.npy", np.array([[1, "a"], [2, None]], dtype=object), allow_pickle=True)
np.save("text.npy", np.array([["a", "b"]]))
np.save("record.npy", np.zeros(3, dtype=[("a", "f8"), ("b", "i4")]))
np.save("long_double.npy", np.zeros((2, 2), np.longdouble))
np.save("date.npy", np.zeros((2, 2), "datetime64[s]"))
np.save("zero_rows.npy", np.zeros((0, 3)))
np.save("zero_columns.npy", np.zeros((3, 0)))

x = (base - 4) / 8
np.savez("one.npz", anything=x)
np.savez_compressed("several.npz", x=x, weights=np.arange(5, dtype="f4"), covariances=np.arange(18.0).reshape(2, 3, 3))
np.savez("ambiguous.npz", a=x, b=x)
np.savetxt("savetxt.txt", x)

frame = pd.DataFrame({"a": x[:, 0], "text": list("vwxyz"), "b": base[:, 1] - 4, "c": x[:, 2].astype("f4")})
frame.to_csv("pandas.csv", index=False)
frame.to_csv("pandas_semicolon.csv", index=False, sep=";")
frame.to_parquet("pandas.parquet")
frame.to_parquet("pandas_zstd.parquet", compression="zstd")
frame.to_feather("pandas.feather")
single = pa.table({"p": pa.array([0.5, 1.5], pa.float32()), "q": pa.array([2.5, 3.5], pa.float16())})
pq.write_table(single, "single.parquet")
with pa.ipc.new_stream("single.arrows", single.schema) as out:
    out.write_table(single)
nulls = pa.table({"a": pa.array([1.0, 2.0, 3.0]), "b": pa.array([1.0, None, 3.0])})
pq.write_table(nulls, "nulls.parquet")
pa.feather.write_feather(nulls, "nulls.feather", compression="uncompressed")
ints = pa.table({f"{t}": pa.array([1, 0, 1], t) for t in
                 [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]}
                | {"bool": pa.array([True, False, True])})
pq.write_table(ints, "ints.parquet")

model = {"format": "gmm-model", "version": 1, "covariance_type": "diag", "n_components": 2, "n_features": 3,
         "feature_names": ["a", "b", "c"]}
numbers = {"weights": np.array([0.25, 0.75]), "means": (np.arange(6.0) / 8).reshape(2, 3),
           "covariances": (np.arange(6.0) + 1).reshape(2, 3)}
json.dump(model | {k: v.tolist() for k, v in numbers.items()} | {"unknown": [1, {"x": None}]}, open("model.json", "w"))
safetensors.numpy.save_file(numbers, "model.safetensors", {"gmm-model": json.dumps(model)})
