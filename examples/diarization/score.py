"""The diarization error of turns against known ones: `python score.py known.rttm found.rttm`."""

import argparse

import numpy as np
from conversation import read_rttm
from scipy.optimize import linear_sum_assignment

STEP = 0.01  # seconds


def activity(turns, n):
    """Who speaks in each step: boolean, of shape (speakers, n)."""
    names = sorted({name for _, _, name in turns})
    active = np.zeros((len(names), n), bool)
    for begin, end, name in turns:
        active[names.index(name), round(begin / STEP) : round(end / STEP)] = True
    return active


def error_rate(known, found, collar=0.25):
    """Missed speech, false alarms and wrong speakers, as a share of the known speech (NIST 2009, md-eval).

    Speakers are mapped one to one so that the error is smallest. Time within `collar` seconds of the begin or end of a
    known turn does not count. Turns are ``(begin, end, speaker)`` in seconds.
    """
    n = round(max(end for _, end, _ in [*known, *found]) / STEP)
    counts = np.ones(n, bool)
    for edge in (edge for begin, end, _ in known for edge in (begin, end)):
        counts[max(round((edge - collar) / STEP), 0) : max(round((edge + collar) / STEP), 0)] = False
    a, b = activity(known, n)[:, counts], activity(found, n)[:, counts]
    together = a.astype(int) @ b.astype(int).T
    right = together[linear_sum_assignment(together, maximize=True)].sum()
    # Per step: the larger number of speakers, less those that are right.
    return float((np.maximum(a.sum(axis=0), b.sum(axis=0)).sum() - right) / a.sum())


def main():
    parser = argparse.ArgumentParser(description="Print the diarization error, with NIST's collar and without.")
    parser.add_argument("known")
    parser.add_argument("found")
    given = parser.parse_args()
    known, found = read_rttm(given.known), read_rttm(given.found)
    for collar in (0.25, 0.0):
        print(f"diarization error, collar {collar} s: {100 * error_rate(known, found, collar):.1f} %")


if __name__ == "__main__":
    main()
