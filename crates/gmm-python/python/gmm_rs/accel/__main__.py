"""``python -m gmm_rs.accel script.py [ARGUMENT]...``: runs a script or, with ``-m``, a module."""

import argparse
import os
import runpy
import sys

from gmm_rs.accel import install


def main():
    """Install the acceleration, then run the script or module as Python itself would."""
    parser = argparse.ArgumentParser(
        prog="python -m gmm_rs.accel",
        description="Run a program with sklearn.mixture.GaussianMixture accelerated by gmm_rs.",
        usage="python -m gmm_rs.accel (SCRIPT | -m MODULE) [ARGUMENT]...",
    )
    parser.add_argument("-m", action="store_true", dest="is_module", help="run a module instead of a script")
    parser.add_argument("program", help="script or module to run")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the program")
    asked = parser.parse_args()
    install()
    sys.argv = [asked.program, *asked.arguments]
    if asked.is_module:
        sys.path[0] = os.getcwd()
        runpy.run_module(asked.program, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(asked.program))
        runpy.run_path(asked.program, run_name="__main__")


if __name__ == "__main__":
    main()
