"""Fits of the Python package beside other programs, on a machine with an NVIDIA GPU that need have nothing but Python.

    python3 benches/peers/fits_on_gpu.py --out benches/record --commit "$COMMIT"

Every program fits the same rows from the same parameters by as many iterations of EM. Where the rows lie is the column
`way`: a fit of NumPy's has them on the host, and takes them to the GPU as part of the call. First each answer is judged:
the mean log-likelihood of some rows under the parameters that the program found, in float64 by NumPy, beside the same of
our CPU engine's fit in float64. What is farther off than the tolerance is `wrong` and not timed. Then all take turns; a
time is the wall clock from the call to its result. Without a GPU, `--device cpu --quick` tries the program itself.
"""

import argparse
import datetime
import importlib.metadata
import os
import platform
import re
import statistics
import subprocess
import sys
import time
import warnings

# First, for what it says before anything imports SciPy or JAX.
from programs_on_gpu import OnHost, Start, as_float64, here

import numpy as np

from gmm_rs import _core
from gmm_rs.datasets import make_gmm

# Rows, components, columns, kind, type.
SIZES = [
    (1_000_000, 8, 13, "full", "float64"),
    (1_000_000, 8, 13, "full", "float32"),
    (1_000_000, 8, 13, "diag", "float64"),
    (1_000_000, 8, 13, "diag", "float32"),
    (100_000, 30, 30, "full", "float64"),
    (100_000, 30, 30, "full", "float32"),
    (1_000_000, 64, 32, "full", "float32"),
]
QUICK = [(5_000, 4, 5, kind, dtype) for kind in ("full", "diag") for dtype in ("float64", "float32")]

SEED = 20
# Rows by which an answer is judged.
JUDGED = 20_000
# How far a mean log-likelihood may be from the float64 fit's, in nats: after twenty iterations EM still moves by more.
TOLERANCE = {"float64": 1e-7, "float32": 1e-3}

COLUMNS = "what,way,precision,covariance,n,k,d,iterations,status,ms,ms_q1,ms_q3,ms_an_iteration,first_ms,error,turns,note"


def mean_log_likelihood(X, kind, parameters):
    """Of some rows, in float64, by the definition."""
    weights, means, covariances = (as_float64(array) for array in parameters)
    means = means.reshape(len(weights), -1)
    d = means.shape[1]
    joint = np.empty((len(X), len(weights)))
    for c, (weight, mean) in enumerate(zip(weights, means)):
        if kind == "full":
            factor = np.linalg.cholesky(covariances.reshape(-1, d, d)[c])
            z, half = np.linalg.solve(factor, (X - mean).T).T, np.log(np.diagonal(factor)).sum()
        else:
            deviations = np.sqrt(covariances.reshape(-1, d)[c])
            z, half = (X - mean) / deviations, np.log(deviations).sum()
        joint[:, c] = np.log(weight) - 0.5 * d * np.log(2 * np.pi) - half - 0.5 * (z * z).sum(1)
    top = joint.max(1)
    return float(np.mean(top + np.log(np.exp(joint - top[:, None]).sum(1))))


def timed(program):
    begin = time.perf_counter()
    program.fit()
    return 1e3 * (time.perf_counter() - begin)


def contest(size, programs, turns):
    """The lines of one size."""
    n, k, d, kind, dtype = size
    rows, _, mixture = make_gmm(n, d, k, separation=1.0, random_state=SEED, return_mixture=True)
    start, X = Start(mixture, kind, SEED), rows.astype(dtype)
    judged = rows[: min(n, JUDGED)].astype(dtype).astype(np.float64)
    wanted = {}
    for iterations in {program.iterations for program in programs}:
        judge = OnHost()
        judge.iterations = iterations
        judge.load(X, start)
        judge.fit()
        wanted[iterations] = mean_log_likelihood(judged, kind, judge.found())
    lines, right = {}, []
    for program in programs:
        line = {"what": program.what, "way": program.way, "precision": dtype.replace("float", "f")}
        line.update(covariance=kind, n=n, k=k, d=d, iterations=program.iterations, note=program.note)
        lines[program] = line
        try:
            program.load(X, start)
            line["first_ms"] = f"{timed(program):.3f}"
            error = abs(mean_log_likelihood(judged, kind, program.found()) - wanted[program.iterations])
        except Exception as failure:  # what a program cannot do, or has no memory for, is told
            line.update(status="failed", note=re.sub(r"[\s,]+", " ", f"{type(failure).__name__}: {failure}")[:120])
            program.X = None
            continue
        # A NaN is wrong.
        line.update(error=f"{error:.1e}", status="ok" if error <= TOLERANCE[dtype] else "wrong")
        if line["status"] == "ok":
            right.append(program)
    times = {program: [] for program in right}
    for turn in range(turns):
        # Nobody always goes first.
        for program in right[turn % len(right) :] + right[: turn % len(right)]:
            if turn == 0 or not getattr(program, "only_one_turn", False):
                times[program].append(timed(program))
    for program, found in times.items():
        quartiles = statistics.quantiles(found, n=4, method="inclusive") if len(found) > 1 else found * 3
        names = ("ms_q1", "ms", "ms_q3")
        lines[program].update({name: f"{value:.4f}" for name, value in zip(names, quartiles)}, turns=len(found))
        lines[program]["ms_an_iteration"] = f"{quartiles[1] / program.iterations:.4f}"
    for program in programs:
        program.X = None
    return [",".join(str(line.get(name, "")) for name in COLUMNS.split(",")) for line in lines.values()]


def output(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def heading(arguments, engine):
    """Name of the machine, and what the record says first."""
    with open("/proc/cpuinfo") as file:
        processor = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "unknown")
    query = "--query-gpu=name,driver_version,clocks.sm,clocks.mem,power.limit,ecc.mode.current"
    facts = {
        "what": "milliseconds per fit by the Python package and by other programs in turns; see benches/README.md",
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "commit": arguments.commit,
        "command": " ".join(["fits_on_gpu.py", *sys.argv[1:]]),
        "gpu": engine[1],
        "nvidia-smi": output("nvidia-smi", query, "--format=csv,noheader"),
        "processor": f"{processor}, {len(os.sched_getaffinity(0))} cores",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}, load {os.getloadavg()}",
        "ours": f"gmm_rs {importlib.metadata.version('gmm_rs')}, python {platform.python_version()}",
    }
    for name in ("numpy", "scikit-learn", "torch", "cupy-cuda13x", "jax", "gmmx"):
        try:
            facts[f"peer {name}"] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            facts[f"peer {name}"] = "is not here"
    name = engine[1].split(",")[0] if engine[0].startswith("cuda") else processor
    machine = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return machine, [f"# {name}: {value}" for name, value in facts.items()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", required=True, help="folder below which MACHINE/DATE-python-peers.csv goes")
    parser.add_argument("--commit", default="unknown", help="to be named in the record")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="small data")
    parser.add_argument("--only", nargs="*", help="programs, as the notes name them")
    arguments = parser.parse_args()
    # Every fit here stops at max_iter.
    warnings.simplefilter("ignore")
    engine = _core.engine({"device": arguments.device, "threads": 0, "precision": None})
    machine, facts = heading(arguments, engine)
    programs = here(arguments.device, arguments.only)
    lines = [*facts, COLUMNS]
    print("\n".join(lines), flush=True)
    for size in QUICK if arguments.quick else SIZES:
        found = contest(size, programs, arguments.turns)
        print("\n".join(found), flush=True)
        lines += found
    folder = os.path.join(arguments.out, machine)
    os.makedirs(folder, exist_ok=True)
    stem, number = f"{datetime.datetime.now(datetime.timezone.utc).date().isoformat()}-python-peers", 1
    while os.path.exists(path := os.path.join(folder, f"{stem}{'' if number == 1 else f'-{number}'}.csv")):
        number += 1
    with open(path, "x") as file:
        file.write("\n".join(lines) + "\n")
    print(f"recorded in {path}", file=sys.stderr)
    if any(",wrong," in line and line.startswith("gmm_rs") for line in lines):
        sys.exit("an answer of ours was wrong")


if __name__ == "__main__":
    main()
