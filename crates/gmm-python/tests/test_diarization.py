"""The example of diarization: its error on conversations with known turns, and the parts that decide it."""

import itertools
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[3] / "examples/diarization"
sys.path.insert(0, str(FOLDER))

score = pytest.importorskip("score", reason="scipy")


@pytest.fixture(scope="module")
def program():
    import diarize

    return diarize


def drawn(n_speakers, n_turns, seed):
    """Rows of turns of 3 to 12 s, each from the mixture of its speaker, and the turns."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(0.0, 1.0, (n_speakers, 4, 19))
    parts, turns, at = [], [], 0
    for turn in range(n_turns):
        speaker, frames = turn % n_speakers, int(rng.integers(150, 600))
        sounds = rng.integers(0, 4, -(-frames // 5)).repeat(5)[:frames]
        parts.append(centres[speaker][sounds] + rng.normal(0.0, 1.0, (frames, 19)))
        turns.append((at * 0.02, (at + frames) * 0.02, f"known{speaker}"))
        at += frames
    return np.concatenate(parts).astype(np.float32), turns


@pytest.mark.parametrize("n_speakers", [1, 2, 3, 4])
def test_turns_drawn_from_mixtures_are_found(program, n_speakers):
    rows, known = drawn(n_speakers, 24, n_speakers)
    speech = np.ones(len(rows), bool)
    found = program.turns(program.clusters(rows, speech), speech)
    assert score.error_rate(known, found) <= 0.15
    assert len({speaker for _, _, speaker in found}) == n_speakers


@pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="espeak-ng is not installed")
@pytest.mark.parametrize("voices", [2, 3, 4])
def test_a_synthetic_conversation_has_at_most_15_percent_of_error(program, voices):
    pytest.importorskip("librosa", reason="librosa computes the MFCC of the example")
    import conversation

    # Among the conversations on which the penalties were chosen; README.md of the example says how others did.
    samples, known = conversation.conversation(voices, 5.0, 1)
    assert score.error_rate(known, program.diarize(samples, conversation.RATE)) <= 0.15


@pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="espeak-ng is not installed")
def test_every_accent_and_variant_is_another_voice():
    import conversation

    voices = [f"{accent}+{variant}" for accent in conversation.ACCENTS for variant in conversation.VARIANTS]
    said = {conversation.speech("Good.", voice, 50, 160).tobytes() for voice in voices}
    assert len(said) == len(voices)


def test_viterbi_finds_the_best_of_all_segmentations(program):
    def cost(labels, scores, shortest):
        runs = [len(list(run)) for _, run in itertools.groupby(labels)]
        return scores[np.arange(len(labels)), labels].sum() if min(runs) >= shortest else -np.inf

    for seed in range(20):
        scores = np.random.default_rng(seed).normal(size=(8, 3))
        best = max(cost(np.array(of), scores, 3) for of in itertools.product(range(3), repeat=8))
        assert cost(program.viterbi(scores, 3), scores, 3) == pytest.approx(best)


def test_the_error_counts_what_it_says():
    known = [(0.0, 10.0, "a"), (10.0, 20.0, "b")]
    assert score.error_rate(known, [(0.0, 10.0, "x"), (10.0, 20.0, "y")], 0.0) == 0.0
    assert score.error_rate(known, [(0.0, 20.0, "x")], 0.0) == pytest.approx(0.5)
    assert score.error_rate(known, [(0.0, 10.0, "x")], 0.0) == pytest.approx(0.5)
    assert score.error_rate(known, [(0.0, 10.0, "x"), (10.0, 22.0, "y")], 0.0) == pytest.approx(0.1)
    assert score.error_rate(known, [(0.0, 10.2, "x"), (10.2, 20.0, "y")], 0.25) == 0.0
