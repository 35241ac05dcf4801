"""Fits can be converted for packages that only support scikit-learn's class."""

import numpy as np
import onnxruntime
import pytest
import skl2onnx
import skops.io
from conftest import KINDS, model

from gmm_rs.mixture import GaussianMixture


@pytest.mark.parametrize("kind", KINDS)
def test_skops_stores_what_comes_back_the_same(rows, kind, tmp_path):
    before = model(3, kind, random_state=0).fit(rows)
    skops.io.dump(before.to_sklearn(), tmp_path / "model.skops")
    # The file has only types that skops trusts by default.
    assert skops.io.get_untrusted_types(file=tmp_path / "model.skops") == []
    after = GaussianMixture.from_sklearn(skops.io.load(tmp_path / "model.skops"), device="cpu")
    np.testing.assert_array_equal(after.score_samples(rows), before.score_samples(rows))
    assert after.get_params() == before.get_params()


@pytest.mark.parametrize("kind", KINDS)
def test_onnx_predicts_alike(rows, kind):
    one = model(3, kind, random_state=0).fit(rows)
    X = rows.astype(np.float32)
    options = {"score_samples": True}
    onnx = skl2onnx.to_onnx(one.to_sklearn(), X[:1], options=options, target_opset=18)
    session = onnxruntime.InferenceSession(onnx.SerializeToString(), providers=["CPUExecutionProvider"])
    labels, responsibilities, densities = session.run(None, {"X": X})
    np.testing.assert_array_equal(labels.ravel(), one.predict(X))
    np.testing.assert_allclose(responsibilities, one.predict_proba(X), atol=2e-4)
    np.testing.assert_allclose(densities.ravel(), one.score_samples(X), rtol=1e-3, atol=1e-3)
