"""EM on Spark: rows stay in a cached RDD, sums come to the driver.

Needs gmm_rs and NumPy on every worker. `vectors` is an RDD of rows as lists of numbers.

    spark-submit spark.py
"""

import numpy as np

from gmm_rs import Statistics
from gmm_rs.mixture import GaussianMixture
from gmm_rs.steps import PassRows, m_step


def fit(spark, vectors, k, max_iter=100, tol=1e-3, seed=0):
    """Weights, means and covariances of a mixture of `k` components."""
    # One array per partition, with its index, so that sums can be added in the same order every time.
    blocks = vectors.mapPartitionsWithIndex(lambda i, rows: [(i, np.array(list(rows)))]).cache()
    sample = np.array(vectors.takeSample(False, 20_000, seed=seed))
    start = GaussianMixture(k, random_state=seed, max_iter=0).fit(sample)
    parameters = (start.weights_, start.means_, start.covariances_)
    shift = np.median(sample, axis=0)
    last = -np.inf
    for _ in range(max_iter):
        given = spark.sparkContext.broadcast(parameters)

        def sums(block, given=given):
            index, rows = block
            return index, PassRows(rows, shift, n_jobs=1).e_step(given.value).to_bytes()

        found = blocks.filter(lambda block: len(block[1]) > 0).map(sums).collect()
        total = sum(Statistics.from_bytes(data) for _, data in sorted(found))
        parameters = m_step(total, parameters)
        if abs(total.mean_log_likelihood - last) < tol:
            break
        last = total.mean_log_likelihood
    return parameters
