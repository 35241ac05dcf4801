"""Runs a scikit-learn program unchanged, then again with `python -m gmm_rs.accel`, and compares the results.

Run it with `python examples/python/04_accelerate.py`. The program is 04_program.py.
"""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).resolve().with_name("04_program.py")


def run(*arguments):
    """Runs Python; returns the values that it prints, by name, and its standard error."""
    environment = {**os.environ, "GMM_ACCEL_LOG": "info"}
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return dict(line.split(": ") for line in done.stdout.splitlines()), done.stderr


theirs, _ = run(PROGRAM)
ours, log = run("-m", "gmm_rs.accel", PROGRAM)

print(f"{'':<28}{'scikit-learn':>34}{'gmm_rs.accel':>26}")
for name, value in theirs.items():
    print(f"{name:<28}{value:>34}{ours[name]:>26}")
# With GMM_ACCEL_LOG=info the log says what ran where, and what was left to scikit-learn.
print(log.strip())

assert theirs["class"] == "sklearn.mixture._gaussian_mixture" and ours["class"] == "gmm_rs.accel._estimator"
assert "rows ran on" in log and "left to scikit-learn" not in log
tolerances = {"mean log-likelihood": 1e-4, "weight of short eruptions": 1e-4, "rows of short eruptions": 3.0}
for name, tolerance in tolerances.items():
    assert abs(float(ours[name]) - float(theirs[name])) <= tolerance, name
