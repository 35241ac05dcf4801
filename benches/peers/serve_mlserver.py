"""scikit-learn's GaussianMixture behind MLServer, with the outputs of `gmm serve`: see `benches/serve.sh`.

MLServer's own runtime for scikit-learn has no log density, so this is a runtime of twenty lines. The model is fitted to random
rows of the same shape, 8 components with full covariances in 13 columns: a prediction takes as long for any of them.
"""

import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse
from sklearn.mixture import GaussianMixture


class Mixture(MLModel):
    async def load(self):
        rows = np.random.default_rng(0).normal(size=(10_000, 13)) + 4.0 * np.arange(8).repeat(1250)[:, None]
        self.mixture = GaussianMixture(8, random_state=0).fit(rows)
        return True

    async def predict(self, payload):
        rows = NumpyCodec.decode_input(payload.inputs[0])
        outputs = [
            NumpyCodec.encode_output("label", self.mixture.predict(rows)),
            NumpyCodec.encode_output("log_density", self.mixture.score_samples(rows)),
        ]
        return InferenceResponse(model_name=self.name, outputs=outputs)
