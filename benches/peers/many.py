"""Many small fits in one call, against scikit-learn one by one and gmm-gpu; answers are compared before they are timed.

    python benches/peers/many.py --device cuda --out benches/record --commit "$(git rev-parse --short HEAD)"
    python benches/peers/many.py --quick             # few fits, and the record only on standard output

All programs start from k-means and make the same number of iterations (`tol=0`). Answers: from the same given parameters
the fits of the first groups are scikit-learn's; the mean log-likelihoods that the first hundred fits reach are listed, for
gmm-gpu over those of its fits whose covariances are positive definite. scikit-learn is timed on the first hundred groups, and its time scaled to all. gmm-gpu runs
where torch has a GPU; its iterations are in float32 unless its rows are float64.
"""

import argparse
import datetime
import importlib.metadata
import platform
import statistics
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.mixture import GaussianMixture as Peer

from gmm_rs.many import fit_many

SEED = 17
COLUMNS = "what,n,d,k,iterations,status,ms,ms_min,peer_ms,ratio,error,likelihood,peer_likelihood"
# Differences of parameters from scikit-learn's after the same iterations, relative to the largest of their array.
TOLERANCE = 1e-8
CHECKED = 100


def rows(b, n, d, k, dtype):
    rng = np.random.default_rng(SEED)
    means = rng.normal(0, 4, (b, k, d))
    component = rng.integers(0, k, (b, n))
    return (means[np.arange(b)[:, None], component] + rng.normal(size=(b, n, d))).astype(dtype)


def error(X, k, iterations, device):
    """The largest difference from scikit-learn's parameters, from the same start."""
    given = {
        "weights_init": np.full(k, 1 / k),
        "means_init": X[0, :k].astype(np.float64) + 0.5,
        "precisions_init": np.stack([np.eye(X.shape[2])] * k),
    }
    some = X[: min(20, len(X))].astype(np.float64)
    ours = fit_many(some, k, tol=0.0, max_iter=iterations, device=device, **given)
    worst = 0.0
    for i, group in enumerate(some):
        peer = Peer(k, tol=0.0, max_iter=iterations, **given).fit(group)
        for name in ("weights_", "means_", "covariances_"):
            a, b = getattr(ours, name)[i], getattr(peer, name)
            worst = max(worst, np.abs(a - b).max() / np.abs(b).max())
    return worst


def timed(run, turns):
    run()
    times = []
    for _ in range(turns):
        start = time.perf_counter()
        found = run()
        times.append(1e3 * (time.perf_counter() - start))
    return times, found


def sklearn_fits(X, k, iterations):
    some = X[:CHECKED]
    start = time.perf_counter()
    bounds = [Peer(k, tol=0.0, max_iter=iterations, random_state=0).fit(group).lower_bound_ for group in some]
    return 1e3 * (time.perf_counter() - start) * len(X) / len(some), np.mean(bounds)


def gpu_fits(X, k, iterations):
    try:
        import torch
        from gmm_gpu.gmm import GMM
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    dtype = torch.float64 if X.dtype == np.float64 else torch.float32

    def run():
        model = GMM(k, max_iter=iterations, tol=0.0, device="cuda", dtype=dtype, random_seed=1)
        model.fit(torch.from_numpy(X))
        torch.cuda.synchronize()
        return model

    try:
        times, model = timed(run, 3)
    except RuntimeError:
        # Version 0.2.8 cannot start from k-means in float64.
        return None
    some = X[:CHECKED].astype(np.float64)
    likelihoods = []
    for i, group in enumerate(some):
        parts = []
        for c in range(k):
            z = group - model.means[c][i].cpu().numpy().astype(np.float64)
            covariance = model.covs[c][i].cpu().numpy().astype(np.float64)
            sign, log_determinant = np.linalg.slogdet(2 * np.pi * covariance)
            if sign <= 0:
                # A fit without a likelihood.
                parts = None
                break
            square = np.einsum("ni,ij,nj->n", z, np.linalg.inv(covariance), z)
            parts.append(np.log(model._pi[c][i].item()) - 0.5 * (log_determinant + square))
        likelihoods.append(np.nan if parts is None else np.logaddexp.reduce(parts, axis=0).mean())
    return statistics.median(times), np.nanmean(likelihoods)


def contest(b, n, d, k, iterations, device, turns):
    for dtype in (np.float32, np.float64):
        X = rows(b, n, d, k, dtype)
        found = error(X, k, iterations, device)
        options = {"tol": 0.0, "max_iter": iterations, "device": device, "random_state": 0}
        times, ours = timed(lambda X=X, options=options: fit_many(X, k, **options), turns)
        own = np.mean(ours.lower_bound_[:CHECKED])
        peers = {"scikit-learn": sklearn_fits(X, k, iterations), "gmm-gpu": gpu_fits(X, k, iterations)}
        for peer, result in peers.items():
            if result is None:
                continue
            ms, likelihood = result
            status = "ok" if found < TOLERANCE else "wrong"
            numbers = [statistics.median(times), min(times), ms, ms / statistics.median(times)]
            what = f"{b} fits in {np.dtype(dtype).name} beside {peer}"
            line = [what, *map(str, (n, d, k, iterations)), status, *(f"{v:.2f}" for v in numbers)]
            yield ",".join([*line, f"{found:.1e}", f"{own:.5f}", f"{likelihood:.5f}"])


def machine(device):
    if device != "cpu":
        import torch

        return torch.cuda.get_device_name().lower().replace(" ", "-")
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--out", type=Path, help="folder for MACHINE/DATE-many.csv; default: standard output")
    parser.add_argument("--commit", default="unknown", help="for the head of the record")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    # Fits, rows, columns, components, iterations.
    cases = [(10_000, 300, 4, 3, 20), (100_000, 100, 1, 3, 20), (1_000, 1000, 2, 5, 20)]
    if arguments.quick:
        cases = [(b // 100, n, d, k, iterations) for b, n, d, k, iterations in cases]
    name = machine(arguments.device)
    versions = [f"{p} {importlib.metadata.version(p)}" for p in ("numpy", "scikit-learn")]
    head = [
        "# what: many small fits in one call; milliseconds, the median of some turns; scikit-learn has its default threads",
        f"# date: {datetime.date.today()}",
        f"# commit: {arguments.commit}",
        f"# machine: {name}, device {arguments.device}, {', '.join(versions)}",
        COLUMNS,
    ]
    lines = []
    for case in cases:
        for line in contest(*case, arguments.device, arguments.turns):
            print(line, file=sys.stderr, flush=True)
            lines.append(line)
    text = "\n".join([*head, *lines, ""])
    if arguments.out is None:
        print(text, end="")
        return
    folder = arguments.out / "".join(c if c.isalnum() else "-" for c in name.lower()).strip("-")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{datetime.date.today()}-many.csv").write_text(text)


if __name__ == "__main__":
    main()
