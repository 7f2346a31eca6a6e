"""Chapter 05's oracle, held against programs that others wrote."""

import codecs
import math
import random

import numpy as np
import pytest
from safetensors.torch import load_file

from tests.oracles import sampler as oracle
from tests.reference.arrays import read_json
from tests.reference.record import FOLDER

SETTINGS = read_json("sampler.json")["settings"]


@pytest.mark.parametrize("row", range(len(SETTINGS)), ids=lambda row: str(SETTINGS[row]))
def test_distributions_are_those_of_transformers(row):
    """Temperature, top-k, top-p, min-p and repetition, alone and in this order."""
    arrays = load_file(FOLDER / "sampler.safetensors")
    logits, seen = arrays["logits"][row].tolist(), arrays["seen"][row].tolist()
    theirs = arrays["hidden"][row].softmax(-1).tolist()
    for prompt in (seen, seen[:5]):
        ours = oracle.distribution(logits, prompt, seen[len(prompt) :], SETTINGS[row])
        assert ours == pytest.approx(theirs, rel=1e-9, abs=0)


def test_presence_and_frequency_as_openai_writes_them():
    """mu[j] - c[j] * frequency - float(c[j] > 0) * presence, and the prompt does not count."""
    rng = np.random.default_rng(5)
    mu, output = rng.normal(size=20), rng.integers(0, 20, 15)
    c = np.bincount(output, minlength=20)
    theirs = mu - c * 0.4 - (c > 0).astype(float) * 0.9
    ours = oracle.penalize(mu.tolist(), [3, 4, 5], output.tolist(), 1.0, 0.9, 0.4)
    assert ours == pytest.approx(theirs.tolist())


def test_picks_are_those_of_numpy():
    rng = np.random.default_rng(6)
    shares = rng.dirichlet(np.ones(30))
    for uniform in rng.random(500):
        assert oracle.pick(shares.tolist(), uniform) == np.searchsorted(shares.cumsum(), uniform)


@pytest.mark.parametrize("degrees", oracle.LIMITS)
def test_the_limits_are_passed_once_in_a_million(degrees):
    """The upper tail of chi-square, integrated numerically."""
    x = np.linspace(oracle.LIMITS[degrees], 200, 2_000_001)
    half = degrees / 2
    density = x ** (half - 1) * np.exp(-x / 2) / (2**half * math.gamma(half))
    assert np.trapezoid(density, x) == pytest.approx(1e-6, rel=0.01)


def test_what_is_shown_of_bytes_is_what_codecs_shows():
    """But for half a surrogate (ED A0 to ED BF), which codecs holds back for "surrogatepass"."""
    rng, others = random.Random(7), [byte for byte in range(256) if byte != 0xED]
    for _ in range(3000):
        letters = [bytes([rng.choice(others)]), "é".encode(), "漢".encode(), "🌿".encode(), b"a"]
        data = b"".join(rng.choice(letters) for _ in range(rng.randrange(6)))
        data = data[: rng.randrange(len(data) + 1)]
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        assert oracle.readable(data) == decoder.decode(data), data
