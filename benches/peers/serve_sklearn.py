"""scikit-learn's GaussianMixture behind FastAPI, for `cargo bench -p gmm-serve -- 127.0.0.1:8000`.

Run: `pip install fastapi uvicorn[standard] orjson scikit-learn`, then
`uvicorn --workers 2 --no-access-log --app-dir benches/peers serve_sklearn:app`.

The model is fitted to random rows of the same shape, 8 components with full covariances in 13 columns: a prediction takes as
long for any of them.
"""

import numpy as np
from fastapi import FastAPI, Request
from fastapi.responses import ORJSONResponse
from sklearn.mixture import GaussianMixture

rows = np.random.default_rng(0).normal(size=(10_000, 13)) + 4.0 * np.arange(8).repeat(1250)[:, None]
model = GaussianMixture(8, random_state=0).fit(rows)
app = FastAPI()


@app.post("/v2/models/load/infer")
async def infer(request: Request):
    import orjson

    tensor = orjson.loads(await request.body())["inputs"][0]
    x = np.asarray(tensor["data"]).reshape(tensor["shape"])
    outputs = [
        {"name": "label", "datatype": "INT32", "shape": [len(x)], "data": model.predict(x).tolist()},
        {"name": "log_density", "datatype": "FP64", "shape": [len(x)], "data": model.score_samples(x).tolist()},
    ]
    return ORJSONResponse({"model_name": "load", "model_version": "1", "outputs": outputs})
