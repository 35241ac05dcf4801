"""Who spoke when: `python diarize.py talk.wav` prints turns in NIST's RTTM form.

The method is that of ICSI (Ajmera and Wooters 2003; Gonina, Friedland, Cook and Keutzer 2011): cut the audio into many
clusters, fit a mixture to each, and in turn segment by Viterbi and merge the pair of the largest ΔBIC, while there is a
positive one. The merged mixture has the components of both, so that ΔBIC needs no penalty.
"""

import argparse
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations

import librosa
import numpy as np
from gmm_rs import Likelihood
from gmm_rs.mixture import GaussianMixture
from gmm_rs.steps import PassRows, m_step
from scipy.io import wavfile
from scipy.ndimage import maximum_filter1d

HOP = 0.02  # seconds per frame
N_MFCC = 19
SECONDS_PER_CLUSTER = 15.0  # of the first cut: long enough for a mixture, and about as long as a turn
MAX_CLUSTERS = 24
COVARIANCE = "diag"
N_COMPONENTS = 3  # of a first cluster
MIN_DURATION = 2.5  # seconds of a turn, as in the papers
BLOCK = 0.1  # seconds: turns begin and end at multiples of it, before silence is trimmed
N_ITER = 3  # EM iterations after a change
N_PAIRS = 3  # pairs whose merged mixture is fitted before others are
RELATIVE_SPEECH_LEVEL = -30.0  # dB below loud frames
POOL = ThreadPoolExecutor(2)


def features(samples, rate):
    """MFCC of shape (n, 19), without the 0th, which is the loudness, in standard deviations; and which are speech."""
    hop = round(HOP * rate)
    mfcc = librosa.feature.mfcc(
        y=samples, sr=rate, n_mfcc=N_MFCC + 1, n_fft=512, win_length=round(0.025 * rate), hop_length=hop, n_mels=24
    )
    rows = np.ascontiguousarray(mfcc[1:, : len(samples) // hop].T)
    energy = np.square(samples[: len(rows) * hop]).reshape(-1, hop).mean(axis=1)
    level = 10 * np.log10(energy + 1e-10)
    speech = maximum_filter1d(level, 5) > np.percentile(level, 95) + RELATIVE_SPEECH_LEVEL
    return (rows - rows[speech].mean(axis=0)) / rows[speech].std(axis=0), speech


def fitted(rows):
    """A mixture ``(weights, means, variances)`` of a first cluster."""
    model = GaussianMixture(N_COMPONENTS, covariance_type=COVARIANCE, max_iter=5, tol=0.05, reg_covar=1e-3, n_jobs=1)
    model.set_params(random_state=0).fit(rows)
    return model.weights_, model.means_, model.covariances_


def trained(rows, model):
    """The mixture after `N_ITER` iterations of EM, and the log-likelihood at the last E-step."""
    shift = np.zeros(rows.shape[1])
    loaded = PassRows(rows, shift, n_jobs=1)
    for _ in range(N_ITER):
        statistics = loaded.e_step(model, COVARIANCE)
        model = m_step(statistics, model, reg_covar=1e-3)
    return model, loaded.e_step(model, COVARIANCE).log_likelihood


def union(a, b, share):
    """The mixture of two mixtures, of weights `share` and ``1 - share``."""
    weights = np.concatenate([share * a[0], (1 - share) * b[0]])
    return weights, np.concatenate([a[1], b[1]]), np.concatenate([a[2], b[2]])


def viterbi(scores, shortest):
    """The most likely cluster of each block, of scores of shape (blocks, k), if a turn has at least `shortest` blocks.

    With ``E[t]`` the best score of blocks before t whose last turn is long enough, by cluster: the turn of block t goes
    on, or one of exactly `shortest` blocks ends with it.
    """
    n, k = scores.shape
    shortest = min(shortest, n)
    sums = np.vstack([np.zeros(k), np.cumsum(scores, axis=0)])
    # Relative to `sums`, a turn that goes on costs nothing.
    best = np.full((n + 1, k), -np.inf)
    begins = np.zeros((n + 1, k), bool)
    before = np.zeros(n + 1, int)
    total = np.full(n + 1, -np.inf)
    total[0] = 0.0
    for t in range(shortest, n + 1):
        new = total[t - shortest] - sums[t - shortest]
        np.greater(new, best[t - 1], out=begins[t])
        np.maximum(new, best[t - 1], out=best[t])
        ends = best[t] + sums[t]
        before[t] = ends.argmax()
        total[t] = ends[before[t]]
    labels, t = np.empty(n, int), n
    while t > 0:
        cluster, end = before[t], t
        while not begins[t, cluster]:
            t -= 1
        labels[t - shortest : end] = cluster
        t -= shortest
    return labels


def segmented(likelihood, models, speech):
    """The log density of each frame of speech under each mixture, and its cluster."""
    density = np.stack([likelihood.log_densities(*model) for model in models], axis=1)
    frames = round(BLOCK / HOP)
    block = np.flatnonzero(speech) // frames
    scores = np.zeros((-(-len(speech) // frames), len(models)))
    starts = np.flatnonzero(np.diff(block, prepend=-1))
    scores[block[starts]] = np.add.reduceat(density, starts, axis=0)
    labels = viterbi(scores, round(MIN_DURATION / BLOCK))
    return density, labels[block], labels


def merged(rows, models, own, density, labels):
    """The pair of the largest ΔBIC and its mixture, or None if no ΔBIC is positive.

    `own` has the log-likelihood of each cluster's frames under its mixture. Pairs are tried in the order of their cross
    likelihood ratio (Reynolds and others 1998), which the densities give at once: the first few, and the others if none
    of those is positive.
    """
    of = [labels == c for c in range(len(models))]
    cross = np.array([density[mask].mean(axis=0) for mask in of])
    loss = np.diag(cross)[:, None] - cross
    pairs = sorted(combinations(range(len(models)), 2), key=lambda pair: loss[pair] + loss[pair[::-1]])

    def tried(pair):
        a, b = pair
        start = union(models[a], models[b], of[a].sum() / (of[a].sum() + of[b].sum()))
        model, log_likelihood = trained(rows[of[a] | of[b]], start)
        return log_likelihood - own[a] - own[b], pair, model

    for some in (pairs[:N_PAIRS], pairs[N_PAIRS:]):
        found = max(POOL.map(tried, some), key=lambda of: of[0], default=(0.0,))
        if found[0] > 0:
            return found[1:]
    return None


def clusters(rows, speech):
    """The cluster of each block."""
    rows = np.ascontiguousarray(rows[speech])
    k = max(2, min(round(len(rows) * HOP / SECONDS_PER_CLUSTER), MAX_CLUSTERS))
    models = list(POOL.map(fitted, np.array_split(rows, k)))
    likelihood = Likelihood(rows, COVARIANCE, device="cpu")
    while True:
        density, labels, blocks = segmented(likelihood, models, speech)
        # A cluster that got no turn is gone.
        left = np.unique(labels)
        models, density = [models[c] for c in left], density[:, left]
        labels = np.searchsorted(left, labels)
        parts = [rows[labels == c] for c in range(len(models))]
        models, own = zip(*POOL.map(trained, parts, models), strict=True)
        found = merged(rows, models, own, density, labels)
        if found is None:
            return segmented(likelihood, models, speech)[2]
        pair, model = found
        models = [models[c] for c in range(len(models)) if c not in pair] + [model]


def turns(blocks, speech):
    """Turns ``(begin, end, speaker)`` in seconds, without the silence at their ends."""
    frames = round(BLOCK / HOP)
    labels = np.repeat(blocks, frames)[: len(speech)]
    starts = np.flatnonzero(np.diff(labels, prepend=-1))
    found = []
    for begin, end in zip(starts, [*starts[1:], len(labels)], strict=True):
        inside = np.flatnonzero(speech[begin:end])
        if len(inside):
            found.append(((begin + inside[0]) * HOP, (begin + inside[-1] + 1) * HOP, f"speaker{labels[begin]}"))
    return found


def diarize(samples, rate):
    """Who spoke when: turns ``(begin, end, speaker)`` in seconds of samples of shape (n,)."""
    rows, speech = features(samples, rate)
    return turns(clusters(rows, speech), speech)


def main():
    parser = argparse.ArgumentParser(description="Print who spoke when, in NIST's RTTM form.")
    parser.add_argument("wav", help="audio of one channel, 16-bit")
    given = parser.parse_args()
    rate, samples = wavfile.read(given.wav)
    for begin, end, speaker in diarize(samples.astype(np.float32) / 32768, rate):
        print(f"SPEAKER audio 1 {begin:.3f} {end - begin:.3f} <NA> <NA> {speaker} <NA> <NA>")


if __name__ == "__main__":
    main()
