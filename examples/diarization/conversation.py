"""Conversations of 2 to 4 voices of the speech synthesizer eSpeak NG, with known turns.

`python conversation.py talk --voices 3 --minutes 5 --seed 0` writes talk.wav and talk.rttm. eSpeak NG is the package
espeak-ng of Debian.
"""

import argparse
import subprocess
from pathlib import Path

import numpy as np
from scipy.io import wavfile
from scipy.signal import resample_poly

RATE = 16000

# Voices: accent and variant. eSpeak NG ignores the variant of "en-gb", whose file is "en", without a word. Each speaker of a
# conversation also has a pitch and a speed of its own.
ACCENTS = ["en-us", "en", "en-gb-scotland", "en-gb-x-rp", "en-gb-x-gbcwmd"]
VARIANTS = ["m1", "m2", "m3", "m4", "m5", "m6", "m7", "f1", "f2", "f3", "f4", "f5"]

SENTENCES = """The river is higher than last year, and nobody in the village knows why.
We should ask the people who measured it before we decide anything.
I walked along the bank this morning and the bridge was already wet.
That is what my neighbour told me too, although he likes to exaggerate.
How long would it take to move the boats to the other side?
Two hours, perhaps three, if everyone helps and the wind stays low.
My brother has a tractor, but it has been broken since the harvest.
Then let us begin with the small ones and leave the large ones for later.
Did you hear the forecast on the radio, or only read about it?
They said that heavy rain is likely on Thursday, with some thunder.
The old mill used to have a gauge, painted in red and white.
Good. I will bring ropes, lamps and a jug of hot coffee.
Nobody can carry all of that alone, so please wait for me at the corner.
The school is dry, and the gymnasium has room for sixty beds.
Which of the roads is still open for cars from the north?
Only the upper one, past the orchard and the yellow house.
I would rather take the train, because it has never been late this spring.
You could also stay with us; the children would be very happy.
Thank you, that is kind, but the animals have to be fed every evening.
Yes, of course, I had forgotten about the goats and the young horse.
What does the mayor think about a second wall near the market?
She thinks that it is expensive, and that a wider channel would do more.
An engineer explained it with a jar of sand and a piece of glass.
It sounds simple, yet the last plan needed eleven years of paper.""".splitlines()


def speakers(n, rng):
    """Voice, pitch and speed of `n` speakers, whose variants differ and whose pitches lie apart."""
    variants = rng.choice(VARIANTS, n, replace=False)
    pitches = rng.permutation(np.linspace(25, 75, n)) + rng.integers(-2, 3, n)
    return [
        {"voice": f"{rng.choice(ACCENTS)}+{variant}", "pitch": int(pitch), "speed": int(rng.integers(145, 185))}
        for variant, pitch in zip(variants, pitches, strict=True)
    ]


def speech(text, voice, pitch, speed):
    """The samples of a text at 16 kHz, float32 within ±1, without the silence around it."""
    command = ["espeak-ng", "-v", voice, "-p", str(pitch), "-s", str(speed), "--stdout", text]
    raw = subprocess.run(command, check=True, capture_output=True).stdout
    # Written to a pipe, the header does not know the length.
    samples = np.frombuffer(raw[44:], "<i2")
    samples = resample_poly(samples.astype(np.float32) / 32768, 320, 441)
    loud = np.flatnonzero(np.abs(samples) > 0.005)
    return samples[loud[0] : loud[-1] + 1].astype(np.float32)


def conversation(n, minutes, seed):
    """Samples at 16 kHz, and turns ``(begin, end, speaker)`` in seconds.

    A turn has one to five sentences of one speaker, and the next is another speaker's. Pauses between turns have 0.1 to
    0.6 s, those between sentences are part of the turn. White noise lies 45 dB below the speech.
    """
    rng = np.random.default_rng(seed)
    voices = speakers(n, rng)
    level = rng.uniform(0.06, 0.12, n)
    pieces, turns, at, speaker = [], [], 0, -1
    while at < minutes * 60 * RATE:
        speaker = int(rng.choice([other for other in range(n) if other != speaker]))
        text = " ".join(rng.choice(SENTENCES, rng.integers(1, 6), replace=False))
        said = speech(text, **voices[speaker])
        said *= level[speaker] / np.sqrt(np.mean(said**2))
        pause = np.zeros(int(rng.uniform(0.1, 0.6) * RATE), np.float32)
        turns.append((at / RATE, (at + len(said)) / RATE, f"speaker{speaker}"))
        pieces += [said, pause]
        at += len(said) + len(pause)
    samples = np.concatenate(pieces)
    samples += rng.normal(0, 0.09 * 10 ** (-45 / 20), len(samples)).astype(np.float32)
    return np.clip(samples, -1, 1), turns


def write_rttm(path, turns, name):
    """Write turns in the form of NIST's Rich Transcription evaluations."""
    line = "SPEAKER {} 1 {:.3f} {:.3f} <NA> <NA> {} <NA> <NA>\n"
    text = "".join(line.format(name, begin, end - begin, speaker) for begin, end, speaker in turns)
    Path(path).write_text(text)


def read_rttm(path):
    """Turns ``(begin, end, speaker)`` in seconds."""
    lines = [line.split() for line in Path(path).read_text().splitlines() if line.startswith("SPEAKER")]
    return [(float(line[3]), float(line[3]) + float(line[4]), line[7]) for line in lines]


def main():
    parser = argparse.ArgumentParser(description="Make a conversation with known turns.")
    parser.add_argument("name", help="NAME.wav and NAME.rttm are written")
    parser.add_argument("--voices", type=int, default=3, choices=range(2, 5))
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    samples, turns = conversation(given.voices, given.minutes, given.seed)
    wavfile.write(f"{given.name}.wav", RATE, np.round(samples * 32767).astype(np.int16))
    write_rttm(f"{given.name}.rttm", turns, Path(given.name).name)
    print(f"{given.name}.wav: {len(samples) / RATE:.1f} s, {given.voices} voices, {len(turns)} turns")


if __name__ == "__main__":
    main()
