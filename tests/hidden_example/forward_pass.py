"""Hidden cases of chapter 04, as an instructor might keep them outside the repository."""

import numpy as np
import torch

from course.cases import case, expect_tensor, randn


@case("4.1")
def scaling_the_input_changes_nothing(learner, rng):
    """RMSNorm of a vector and of a multiple of it are the same, where eps is small beside both."""
    x, weight = 4 + randn(rng, 3, 32), randn(rng, 32)
    once = learner.rms_norm(x, weight, 1e-9)
    many = learner.rms_norm(x * rng.randint(2, 9), weight, 1e-9)
    expect_tensor(many, once, atol=2e-5, what="the norm of the multiple")


@case("4.4")
def without_a_gate_nothing_passes(learner, rng):
    """Where the gate's weights are zero the feed-forward gives exact zeros, whatever it is fed."""
    x, up, down = randn(rng, 2, 8), randn(rng, 16, 8), randn(rng, 8, 16)
    got = learner.feed_forward(x, torch.zeros(16, 8), up, down)
    expect_tensor(got, torch.from_numpy(np.zeros((2, 8), dtype=np.float32)), atol=0.0)
