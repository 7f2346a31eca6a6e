"""4.3 attention."""

import math

import torch

from course.cases import case, expect_raises, randn
from tests.grading.forward_pass.driving import drive
from tests.grading.forward_pass.tolerances import BF16, F16, F32, close, places
from tests.oracles import forward_pass as oracle
from tests.reference.arrays import tiny, tiny_config


def inputs(rng, batch, heads, kv_heads, length, keys, head_dim, dtype=F32):
    """Random q, k, v."""
    q = randn(rng, batch, heads, length, head_dim, dtype=dtype)
    k, v = (randn(rng, batch, kv_heads, keys, head_dim, dtype=dtype) for _ in range(2))
    return q, k, v


def attended(learner, q, k, v, q_positions, k_positions, function="attention", what="it"):
    """attention, compared with the oracle."""
    got = learner.attention(q, k, v, q_positions, k_positions)
    expected = oracle.attention(q, k, v, q_positions, k_positions)
    close(got, expected, function, v.dtype, what)


def counting(batch: int, first: int, length: int) -> torch.Tensor:
    """Positions first, first + 1, ... [B, length]."""
    return torch.arange(first, first + length).repeat(batch, 1)


@case("4.3")
def attention_by_hand(learner, rng):
    """Scores 0 and ln 3 (after division by sqrt(4)) weigh the values 4 and 8 with 1/4, 3/4: 7."""
    q = torch.tensor([2 * math.log(3), 0, 0, 0]).view(1, 1, 1, 4)
    k = torch.tensor([[0.0, 5, 0, 0], [1, 0, 5, 0]]).view(1, 1, 2, 4)
    v = torch.tensor([[4.0, 0, 4, 1], [8, 0, 4, 1]]).view(1, 1, 2, 4)
    got = learner.attention(q, k, v, torch.tensor([[1]]), torch.tensor([[0, 1]]))
    close(got, [[[[7.0, 0.0, 4.0, 1.0]]]], "attention")


@case("4.3")
def attention_as_in_transformers(learner, rng):
    """Real queries, keys and values come out as from Hugging Face's Llama."""
    for name in ("tied", "untied"):
        arrays, config = tiny(name), tiny_config(name)
        q, k = arrays["whole.q_rotated"], arrays["whole.k_rotated"]
        batch, heads, length, head_dim = q.shape
        split = (batch, length, config["num_key_value_heads"], head_dim)
        v = arrays["whole.v_proj.out"].view(split).transpose(1, 2)
        expected = arrays["whole.o_proj.in"].view(batch, length, heads, head_dim).transpose(1, 2)
        both = counting(batch, 0, length)
        got = learner.attention(q.float(), k.float(), v.float().contiguous(), both, both)
        close(got, expected, "attention")


@case("4.3")
def attention_sees_itself_and_before(learner, rng):
    """A query sees the keys up to its own position, its own included, and none after it."""
    q, k, v = inputs(rng, 2, 1, 1, 6, 6, 8)
    attended(learner, q, k, v, counting(2, 0, 6), counting(2, 0, 6))


@case("4.3")
def attention_with_shared_heads(learner, rng):
    """Query head h uses key/value head h // (H / KV), for H equal to KV and for KV of 1 too."""
    for heads, kv_heads in ((6, 2), (4, 4), (5, 1), (9, 3)):
        q, k, v = inputs(rng, 2, heads, kv_heads, 4, 4, 6)
        both = counting(2, 0, 4)
        attended(learner, q, k, v, both, both, what=f"with H = {heads} and KV = {kv_heads} it")


@case("4.3")
def attention_of_a_chunk(learner, rng):
    """New tokens against older keys: a chunk in the middle of a prompt, and one token alone."""
    for first, length in ((5, 4), (8, 1), (0, 1)):
        q, k, v = inputs(rng, 2, 4, 2, length, first + length, 8)
        attended(learner, q, k, v, counting(2, first, length), counting(2, 0, first + length))


@case("4.3")
def attention_goes_by_position(learner, rng):
    """Positions decide what is visible, not columns: here the keys stand in any order."""
    for length, keys in ((5, 7), (6, 6)):
        q, k, v = inputs(rng, 3, 4, 2, length, keys, 8)
        q_positions = torch.tensor([rng.sample(range(keys), length) for _ in range(3)])
        k_positions = torch.tensor([rng.sample(range(keys), keys) for _ in range(3)])
        attended(learner, q, k, v, q_positions, k_positions)


@case("4.3")
def attention_of_one_token_each(learner, rng):
    """One new token a sequence, and sequences of different lengths: some keys are padding, some
    come later.
    """
    q, k, v = inputs(rng, 3, 4, 2, 1, 6, 8)
    k_positions = torch.tensor([[0, 1, 2, 3, 4, 5], [0, 1, 2, -1, -1, -1], [2, -1, 0, 3, 4, 1]])
    attended(learner, q, k, v, torch.tensor([[5], [2], [3]]), k_positions)


@case("4.3")
def attention_of_one_sequence(learner, rng):
    """A single sequence can have padding too."""
    q, k, v = inputs(rng, 1, 4, 2, 6, 6, 8)
    both = places(rng, [4], 6)
    attended(learner, q, k, v, both, both)


@case("4.3")
def attention_far_back(learner, rng):
    """A query sees every key before it, however far back, and positions may be large: they are
    compared as integers, which 16 bits could not tell apart.
    """
    stretches = torch.arange(70), torch.arange(5000, 12000, 100), torch.arange(9000, 9070)
    k_positions = torch.stack(stretches)
    q_positions = torch.tensor([[69, 40, 68], [11900, 9000, 12500], [9001, 9031, 9060]])
    for dtype in (F32, F16, BF16):
        q, k, v = inputs(rng, 3, 2, 1, 3, 70, 8, dtype)
        attended(learner, q, k, v, q_positions, k_positions)


@case("4.3")
def attention_ignores_padding(learner, rng):
    """Keys at position -1 are invisible wherever they stand; queries there get zeros."""
    for dtype in (F32, F16, BF16):
        q, k, v = inputs(rng, 3, 4, 2, 6, 6, 8, dtype)
        both = places(rng, [6, 1, 4], 6)
        k, v = (t.masked_fill((both < 0)[:, None, :, None], 50.0) for t in (k, v))
        attended(learner, q, k, v, both, both)


@case("4.3")
def attention_of_nothing(learner, rng):
    """A query that may see no key, or that meets none at all, gets zeros, never NaN; its
    neighbours are as always.
    """
    q, k, v = inputs(rng, 2, 2, 1, 3, 4, 4)
    q_positions, k_positions = torch.tensor([[2, 5, 7]] * 2), torch.tensor([[5, 6, -1, -1]] * 2)
    attended(learner, q, k, v, q_positions, k_positions)
    none = torch.zeros(2, 0, dtype=torch.long)
    attended(learner, q, k[:, :, :0], v[:, :, :0], q_positions, none, what="with S = 0 it")
    idle, k_positions = torch.tensor([[-1], [6]]), torch.tensor([[0, 1, -1, -1], [5, 6, 7, -1]])
    attended(learner, q[:, :, :1], k, v, idle, k_positions, what="with T = 1 it")


@case("4.3")
def attention_with_large_scores(learner, rng):
    """Scores in the hundreds do not overflow: the softmax has to stand them."""
    q, k, v = inputs(rng, 2, 4, 2, 5, 5, 16)
    both = counting(2, 0, 5)
    attended(learner, 30 * q, 30 * k, v, both, both, "attention large")


@case("4.3")
def attention_with_large_scores_in_16_bits(learner, rng):
    """A score of 128 overflows in no dtype: one key has all the weight, two of them half each."""
    for dtype in (F16, BF16):
        q = torch.tensor([[32.0, 0], [0, 32.0]], dtype=dtype).repeat(1, 8).view(1, 1, 2, 16)
        k = torch.zeros(1, 1, 3, 16, dtype=dtype)
        k[..., 0, 0], k[..., 1, 1], k[..., 2, 1] = 16, 16, 16  # 32 * 16 / sqrt(16) = 128
        v = randn(rng, 1, 1, 3, 16, dtype=dtype)
        attended(learner, q, k, v, counting(1, 2, 2), counting(1, 0, 3))


@case("4.3")
def attention_with_low_scores(learner, rng):
    """A key that a query may not see gets nothing, even where all it may see score -20,000."""
    q = torch.tensor([200.0, 0, 0, 0]).repeat(1, 1, 2, 1)
    k = torch.tensor([[-200.0, 1, 1, 1], [0, 0, 0, 0], [200, 1, 1, 1]]).view(1, 1, 3, 4)
    v = torch.tensor([[1.0, 2, 3, 4], [5, 6, 7, 8], [9, 9, 9, 9]]).view(1, 1, 3, 4)
    got = learner.attention(q, k, v, torch.tensor([[2, 3]]), torch.tensor([[0, -1, 4]]))
    close(got, [[[[1.0, 2, 3, 4]] * 2]], "attention")


@case("4.3")
def attention_of_views(learner, rng):
    """It does not matter how q, k and v lie in memory: a cache gives views of itself."""
    q, k, v = inputs(rng, 2, 4, 2, 5, 5, 8)
    both = counting(2, 0, 5)
    got = drive(learner, "on_views", "attention", q, k, v, both, both)
    close(got, oracle.attention(q, k, v, both, both), "attention")


@case("4.3")
def attention_in_16_bits(learner, rng):
    """The result has the dtype of v."""
    for dtype in (F16, BF16):
        q, k, v = inputs(rng, 2, 4, 2, 5, 8, 16, dtype)
        attended(learner, q, k, v, counting(2, 3, 5), counting(2, 0, 8))


@case("4.3")
def attention_heads_that_do_not_divide(learner, rng):
    """H must be a multiple of KV: ValueError otherwise."""
    both = counting(1, 0, 2)
    for heads, kv_heads in ((5, 3), (2, 4)):
        q, k, v = inputs(rng, 1, heads, kv_heads, 2, 2, 4)
        with expect_raises("ValueError"):
            learner.attention(q, k, v, both, both)
