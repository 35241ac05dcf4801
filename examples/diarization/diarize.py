"""Who spoke when: `python diarize.py talk.wav` prints turns in NIST's RTTM form.

Segments are merged by ΔBIC (Chen and Gopalakrishnan 1998), then each cluster gets a mixture and a histogram of
pitch and Viterbi finds the turns, in turn until nothing merges. README.md explains the steps.
"""

import argparse
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from gmm_rs import Likelihood
from gmm_rs.mixture import GaussianMixture
from gmm_rs.steps import PassRows, e_step, m_step
from scipy.fft import irfft, next_fast_len, rfft
from scipy.io import wavfile
from scipy.ndimage import gaussian_filter1d, maximum_filter1d
from sklearn.exceptions import ConvergenceWarning

HOP = 0.02  # seconds per frame
N_MFCC = 19
SEGMENT = 3.0  # seconds of speech of a first segment
PENALTY = 0.7  # λ of ΔBIC: below 1, so that clusters of segments are pure
# Log-likelihood per frame of the recording that merging two clusters of one speaker may cost. BIC has no such term, but
# the segmentation gives each cluster the sounds that it explains best, so that they differ in proportion to the frames.
ALLOWANCE = 0.2
PITCH_WEIGHT = 10.0  # of its log-likelihood in that, since a speaker's clusters hardly differ in pitch
N_PITCHES = 36  # twelfths of octaves above 64 Hz
VOICED = 0.6  # least autocorrelation at the period, of 1
OCTAVE_COST = 0.1  # of autocorrelation, since two periods correlate like one
N_COMPONENTS = 8  # of a speaker's mixture
MIN_DURATION = 2.5  # seconds of a turn, as in the papers
BLOCK = 0.1  # seconds: turns begin and end at multiples of it, before silence is trimmed
N_ITER = 3  # EM iterations after a change
N_SEGMENTATIONS = 2  # between merges
RELATIVE_SPEECH_LEVEL = -30.0  # dB below loud frames
POOL = ThreadPoolExecutor(2)


def features(samples, rate):
    """MFCC of shape (n, 19), without the 0th, which is the loudness, in standard deviations; and which are speech."""
    # Here, since the other steps work on any features.
    import librosa

    hop = round(HOP * rate)
    mfcc = librosa.feature.mfcc(
        y=samples, sr=rate, n_mfcc=N_MFCC + 1, n_fft=512, win_length=round(0.025 * rate), hop_length=hop, n_mels=24
    )
    rows = np.ascontiguousarray(mfcc[1:, : len(samples) // hop].T)
    energy = np.square(samples[: len(rows) * hop]).reshape(-1, hop).mean(axis=1)
    level = 10 * np.log10(energy + 1e-10)
    speech = maximum_filter1d(level, 5) > np.percentile(level, 95) + RELATIVE_SPEECH_LEVEL
    return (rows - rows[speech].mean(axis=0)) / rows[speech].std(axis=0), speech


def pitches(samples, rate, speech):
    """The pitch of each frame in twelfths of octaves above 64 Hz, `N_PITCHES` without voice: the lag of the largest
    autocorrelation, divided by the window's (Boersma 1993), at about 4 kHz.
    """
    hop, step = round(HOP * rate), max(1, rate // 4000)
    low = samples[: len(samples) // step * step].reshape(-1, step).mean(axis=1)
    rate = rate / step
    width, lags = round(0.06 * rate), np.arange(int(rate / 60) + 2)
    low = np.pad(low, (width // 2, width))
    window, shortest = np.hanning(width).astype(np.float32), int(rate / 500)
    n = next_fast_len(width + len(lags))
    cost = OCTAVE_COST * np.log2(lags[shortest:-1])

    def correlation(frames):
        return irfft(np.square(np.abs(rfft(frames, n))), n)[..., : len(lags)]

    def bins(starts):
        frames = low[starts[:, None] + np.arange(width)]
        found = correlation((frames - frames.mean(axis=1, keepdims=True)) * window)
        found *= correlation(window)[0] / correlation(window) / (found[:, :1] + 1e-9)
        lag = (found[:, shortest:-1] - cost).argmax(axis=1) + shortest
        before, at, after = (found[np.arange(len(lag)), lag + offset] for offset in (-1, 0, 1))
        # The top of the parabola through the three.
        lag = lag + np.clip((before - after) / 2 / (before - 2 * at + after - 1e-12), -0.5, 0.5)
        return np.where(at > VOICED, np.clip(12 * np.log2(rate / lag / 64), 0, N_PITCHES - 1), N_PITCHES).astype(int)

    found, frames = np.full(len(speech), N_PITCHES), np.flatnonzero(speech)
    parts = np.array_split(frames * hop // step, -(-len(frames) // 2000))
    found[frames] = np.concatenate(list(POOL.map(bins, parts)))
    return found


def histograms(parts):
    """Numbers of voiced frames at each pitch, of each part, smooth since neighbouring pitches are alike."""
    counts = np.array([np.bincount(part, minlength=N_PITCHES + 1)[:N_PITCHES] for part in parts], float)
    return gaussian_filter1d(counts, 1.0, axis=1, mode="constant")


def pitch_cost(counts):
    """Minus the log-likelihood of histograms."""
    return -(counts * np.log((counts + 1e-9) / (counts.sum(axis=1, keepdims=True) + 1e-9))).sum(axis=1)


def fitted(rows):
    """A mixture ``(weights, means, variances)`` of the rows of a speaker."""
    model = GaussianMixture(N_COMPONENTS, covariance_type="diag", max_iter=N_ITER, tol=0.0, reg_covar=1e-3, n_jobs=1)
    model.set_params(random_state=0).fit(rows)
    return model.weights_, model.means_, model.covariances_


def trained(rows, model):
    """The mixture after `N_ITER` iterations of EM."""
    loaded = PassRows(rows, np.zeros(rows.shape[1]), n_jobs=1)
    for _ in range(N_ITER):
        model = m_step(loaded.e_step(model, "diag"), model, reg_covar=1e-3)
    return model


def moments(rows):
    """Number, sum and sum of outer products of the rows: the statistics of a mixture of one component."""
    d = rows.shape[1]
    found = e_step(rows, ([1.0], np.zeros((1, d)), np.eye(d)[None]), n_jobs=1)
    return found.weight, found.first, found.second


def half_log_determinants(weight, first, second):
    """Of each cluster ``n / 2 log|covariance|``, which is minus the log-likelihood of its Gaussian, but for constants."""
    mean = first / weight[:, None]
    covariance = second / weight[:, None, None] - mean[:, :, None] * mean[:, None, :]
    factor = np.linalg.cholesky(covariance + 1e-3 * np.eye(first.shape[1]))
    return weight * np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(axis=1)


def agglomerated(segments, heard, allowance=0.0):
    """The cluster of each segment, by merging the pair of the largest ΔBIC while that is positive.

    The ΔBIC of two Gaussians against one (Chen and Gopalakrishnan 1998, equation 7), and `allowance` for each frame.
    From that, `PITCH_WEIGHT` times the log-likelihood that the histograms of pitch, `heard`, lose by merging, is taken.
    """
    weight, first, second = (np.concatenate(part) for part in zip(*POOL.map(moments, segments), strict=True))
    n, d = first.shape
    penalty, allowed = PENALTY * 0.5 * (d + d * (d + 1) / 2), allowance * weight.sum()
    own, own_pitch = half_log_determinants(weight, first, second), pitch_cost(heard)
    labels = np.arange(n)
    gain = np.full((n, n), -np.inf)
    alive = np.ones(n, bool)

    def update(a, others):
        both = half_log_determinants(weight[a] + weight[others], first[a] + first[others], second[a] + second[others])
        found = own[a] + own[others] - both + penalty * np.log(weight[a] + weight[others]) + allowed
        differ = pitch_cost(heard[a] + heard[others]) - own_pitch[a] - own_pitch[others]
        gain[a, others] = gain[others, a] = found - PITCH_WEIGHT * differ

    for a in range(1, n):
        update(a, np.arange(a))
    while True:
        a, b = np.unravel_index(gain.argmax(), gain.shape)
        if not gain[a, b] > 0:
            return np.unique(labels, return_inverse=True)[1]
        weight[a] += weight[b]
        first[a] += first[b]
        second[a] += second[b]
        heard[a] += heard[b]
        own[a] = half_log_determinants(weight[[a]], first[[a]], second[[a]])[0]
        own_pitch[a] = pitch_cost(heard[[a]])[0]
        labels[labels == b] = a
        alive[b] = False
        gain[b] = gain[:, b] = -np.inf
        update(a, np.flatnonzero(alive & (np.arange(n) != a)))


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


def segmented(likelihood, models, pitch, labels, speech):
    """The cluster of each frame of speech, and of each block. Models and histograms of pitch are those of `labels`."""
    density = np.stack([likelihood.log_densities(*model) for model in models], axis=1)
    heard = histograms(split(pitch, labels)) + 0.5
    voice = np.log(heard / heard.sum(axis=1, keepdims=True))
    density += np.pad(voice, ((0, 0), (0, 1)))[:, pitch].T
    frames = round(BLOCK / HOP)
    block = np.flatnonzero(speech) // frames
    scores = np.zeros((-(-len(speech) // frames), len(models)))
    starts = np.flatnonzero(np.diff(block, prepend=-1))
    scores[block[starts]] = np.add.reduceat(density, starts, axis=0)
    labels = viterbi(scores, round(MIN_DURATION / BLOCK))
    return labels[block], labels


def clusters(rows, speech, pitch=None):
    """The cluster of each block: from short segments to pure clusters, and from those to speakers."""
    rows = np.ascontiguousarray(rows[speech])
    pitch = np.full(len(rows), N_PITCHES) if pitch is None else pitch[speech]
    likelihood = Likelihood(rows, "diag", device="cpu")
    segments = np.array_split(rows, max(1, round(len(rows) * HOP / SEGMENT)))
    # Three seconds are too short for a histogram of pitch.
    labels = np.repeat(agglomerated(segments, np.zeros((len(segments), N_PITCHES))), [len(segment) for segment in segments])
    while True:
        with warnings.catch_warnings():
            # A few iterations are enough, so EM does not converge.
            warnings.simplefilter("ignore", ConvergenceWarning)
            models = list(POOL.map(fitted, split(rows, labels)))
        for _ in range(N_SEGMENTATIONS):
            labels, _ = segmented(likelihood, models, pitch, labels, speech)
            left, labels = np.unique(labels, return_inverse=True)
            models = list(POOL.map(trained, split(rows, labels), [models[c] for c in left]))
        speaker = agglomerated(split(rows, labels), histograms(split(pitch, labels)), ALLOWANCE)
        if speaker.max() + 1 == len(models):
            return segmented(likelihood, models, pitch, labels, speech)[1]
        labels = speaker[labels]


def split(rows, labels):
    """The rows of each cluster."""
    return [rows[labels == c] for c in range(labels.max() + 1)]


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
    if samples.ndim != 1 or len(samples) < 5 * rate or not np.ptp(samples) > 0:
        raise ValueError(f"samples of shape {samples.shape}: one channel, at least 5 s and some sound are needed")
    rows, speech = features(samples, rate)
    return turns(clusters(rows, speech, pitches(samples, rate, speech)), speech)


def main():
    parser = argparse.ArgumentParser(description="Print who spoke when, in NIST's RTTM form.")
    parser.add_argument("wav", help="audio of one channel, 16-bit")
    given = parser.parse_args()
    try:
        rate, samples = wavfile.read(given.wav)
        found = diarize(samples.astype(np.float32) / 32768, rate)
    except (OSError, ValueError) as error:
        parser.error(f"{given.wav}: {error}")
    for begin, end, speaker in found:
        print(f"SPEAKER audio 1 {begin:.3f} {end - begin:.3f} <NA> <NA> {speaker} <NA> <NA>")


if __name__ == "__main__":
    main()
