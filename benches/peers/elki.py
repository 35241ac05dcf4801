"""ELKI's EM, over all rows and over a k-d tree, against gmm_rs on the CPU; log-likelihoods are compared before times are.

Usage: python benches/peers/elki.py CLASSPATH [--turns 3] [--patience 300] [--out FOLDER]

CLASSPATH names the jars of ELKI 0.8 and of fastutil, on which it depends. ELKI computes with one thread, gmm_rs with all cores. Both
start from the same mixture. ELKI's driver, Elki.java beside this file, needs a JDK. It needs this package.
"""

import argparse
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import record

from gmm_rs.mixture import GaussianMixture

COLUMNS = "engine,covariance,precision,n,d,k,status,ms,ratio,difference"

# Rows, columns and components. Few columns and components are what a tree is for.
PROBLEMS = [(800_000, 2, 20), (80_000, 3, 100), (800_000, 3, 1000)]

# Iterations of gmm_rs. ELKI makes three; the first, in which the program is compiled, is not counted.
ITERATIONS = 20

# Relative, of the mean log-likelihood of the second mixture: sums of squares about the origin cancel.
TOLERANCE = 1e-9

# Smallest leaf as a share of the range, allowed error of a weight, and the same for dropping a component: ELKI's defaults, and ten
# times finer leaves without any dropping.
TREES = {"elki tree": (0.01, 0.01, 0.01), "elki tree without dropping": (0.001, 0.0, 0.0)}


def problem(n, d, k, seed=0):
    """Rows about centres in the unit cube, means near them, and the variance of every component at the start."""
    rng = np.random.default_rng(seed)
    centres, deviation = rng.random((k, d)), 0.1 * k ** (-1 / d)
    X = centres[rng.integers(k, size=n)] + deviation * rng.normal(size=(n, d))
    return X, centres + deviation / 3 * rng.normal(size=(k, d)), 1.5 * deviation**2


def ours(X, means, variance):
    """Milliseconds of an iteration, and the mean log-likelihood after one."""
    k, d = means.shape

    def run(iterations):
        start = {"weights_init": np.full(k, 1 / k), "means_init": means, "precisions_init": np.tile(np.eye(d) / variance, (k, 1, 1))}
        return GaussianMixture(k, device="cpu", tol=0.0, max_iter=iterations, reg_covar=0.0, **start).fit(X)

    one, *_ = record.timed(lambda: run(1))
    more, *_ = record.timed(lambda: run(1 + ITERATIONS))
    return (more - one) / ITERATIONS, run(1).score(X)


def theirs(command, patience):
    """The same of ELKI, or why there is nothing."""
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=patience)
    except subprocess.TimeoutExpired:
        return f"more than {patience} s"
    lines = [[float(v) for v in line.split()] for line in ran.stdout.splitlines()]
    if len(lines) < 3:
        return next((line for line in ran.stderr.splitlines() if "Exception" in line), "failed").split(":")[0].split(".")[-1]
    return np.mean([ms for _, ms in lines[1:]]), lines[1][0]


def contest(asked, folder):
    classpath = f"{folder}:{asked.classpath}"
    subprocess.run(["javac", "-nowarn", "-cp", classpath, "-d", folder, Path(__file__).with_name("Elki.java")], check=True)
    for n, d, k in PROBLEMS:
        X, means, variance = problem(n, d, k)
        files = [str(folder / name) for name in ("rows", "means")]
        X.tofile(files[0])
        means.tofile(files[1])
        sizes = [str(v) for v in (n, d, k, variance, 3)]
        programs = {"elki": ["em", *files, *sizes]}
        programs |= {name: ["tree", *files, *sizes, *map(str, tree)] for name, tree in TREES.items()}
        times, failed, error = {name: [] for name in ("gmm_rs", *programs)}, {}, {"gmm_rs": 0.0}
        for _ in range(asked.turns):
            ms, wanted = ours(X, means, variance)
            times["gmm_rs"].append(ms)
            for name, arguments in programs.items():
                if name in failed:
                    continue
                found = theirs(["java", "-Xmx12g", "-cp", classpath, "Elki", *arguments], asked.patience)
                if isinstance(found, str):
                    failed[name] = found
                    continue
                times[name].append(found[0])
                error[name] = abs(found[1] - wanted) / abs(wanted)
        for name, taken in times.items():
            if name in failed:
                line = f"{name},full,f64,{n},{d},{k},{failed[name]},,,"
            else:
                ratio = min(taken) / min(times["gmm_rs"])
                status = "ok" if error[name] < TOLERANCE else "another answer"
                line = f"{name},full,f64,{n},{d},{k},{status},{min(taken):.2f},{ratio:.1f},{error[name]:.1e}"
            print(line, file=sys.stderr, flush=True)
            yield line


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("classpath", help="jars of ELKI and fastutil")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--patience", type=int, default=300, help="seconds for a run of ELKI")
    parser.add_argument("--out", type=Path, help="folder for MACHINE/DATE-elki.csv; default: standard output")
    parser.add_argument("--commit", default="unknown", help="for the head of the record")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")  # So few iterations do not converge.
    with tempfile.TemporaryDirectory() as folder:
        lines = list(contest(asked, Path(folder)))
    what = "milliseconds per EM iteration of ELKI and of gmm_rs on the same CPU"
    notes = ["ELKI 0.8.1-SNAPSHOT, built from commit 92fdb1bd33 of its repository; one thread"]
    record.write("elki", what, f"elki.py CLASSPATH --turns {asked.turns}", asked, ["numpy"], notes, COLUMNS, lines)


if __name__ == "__main__":
    main()
