"""4.3 attention."""

import torch

from tests.parts import part


def masked(q, k, v, hidden, fill=float("-inf")):
    """Attention with a given mask [B, T, S]; the zeros of queries that see nothing included."""
    if not k.shape[1] or q.shape[1] % k.shape[1]:
        raise ValueError("heads")
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], dim=1) for t in (k, v))
    scores, hidden = (q.float() @ k.float().mT) / q.shape[-1] ** 0.5, hidden[:, None]
    weights = scores.masked_fill(hidden, fill).softmax(-1)
    weights = weights.masked_fill(hidden.all(-1, keepdim=True), 0.0)
    return (weights @ v.float()).to(v.dtype)


def right_mask(q_positions, k_positions):
    """What a query may not see."""
    return (k_positions[:, None] > q_positions[..., None]) | (k_positions[:, None] < 0)


@part("4.3")
def columns_when_square(m):
    """As many queries as keys are taken as a whole prompt: a triangle over columns."""

    def attention(q, k, v, q_positions, k_positions):
        hidden = right_mask(q_positions, k_positions)
        if q.shape[2] == k.shape[2] > 1:
            future = torch.ones(hidden.shape[1:], dtype=torch.bool).triu(1)
            hidden = future | (k_positions[:, None] < 0) | (q_positions[..., None] < 0)
        return masked(q, k, v, hidden)

    m.attention = attention


@part("4.3")
def padding_seen_in_one_sequence(m):
    """A single sequence is taken as free of padding."""

    def attention(q, k, v, q_positions, k_positions):
        hidden = right_mask(q_positions, k_positions)
        if len(q) == 1:
            hidden = k_positions[:, None] > q_positions[..., None]
        return masked(q, k, v, hidden)

    m.attention = attention


@part("4.3")
def hidden_by_minus_10000(m):
    """A hidden score is -10,000, which is more than a very low visible one."""

    def attention(q, k, v, q_positions, k_positions):
        return masked(q, k, v, right_mask(q_positions, k_positions), fill=-10000.0)

    m.attention = attention


@part("4.3")
def mask_of_64_positions(m):
    """The mask is looked up in a triangle of 64 x 64: it fails beyond position 63."""
    visible = torch.ones(64, 64, dtype=torch.bool).tril()

    def attention(q, k, v, q_positions, k_positions):
        seen = visible[q_positions.clamp(min=0)[..., None], k_positions.clamp(min=0)[:, None]]
        return masked(q, k, v, ~seen | right_mask(q_positions, k_positions))

    m.attention = attention


@part("4.3")
def window_of_16(m):
    """Keys 16 or more positions back are not seen."""

    def attention(q, k, v, q_positions, k_positions):
        far = q_positions[..., None] - k_positions[:, None] >= 16
        return masked(q, k, v, far | right_mask(q_positions, k_positions))

    m.attention = attention


@part("4.3")
def nan_for_one_token_that_sees_nothing(m):
    """Zeros are set for chunks only: an idle sequence in a decode step gets NaN."""
    right = m.attention

    def attention(q, k, v, q_positions, k_positions):
        out = right(q, k, v, q_positions, k_positions)
        blind = right_mask(q_positions, k_positions).all(-1)[:, None, :, None]
        return out.masked_fill(blind, float("nan")) if q.shape[2] == 1 and k.shape[2] else out

    m.attention = attention


@part("4.3")
def positions_compared_in_16_bits(m):
    """Positions become the dtype of q, in which 9001 and 9002 are the same number."""
    right = m.attention
    m.attention = lambda q, k, v, *positions: right(q, k, v, *(p.to(q.dtype) for p in positions))


@part("4.3")
def more_key_heads_than_query_heads(m):
    """Two query heads with four key heads are accepted."""
    right = m.attention

    def attention(q, k, v, q_positions, k_positions):
        if q.shape[1] < k.shape[1]:
            k, v = k[:, : q.shape[1]], v[:, : q.shape[1]]
        return right(q, k, v, q_positions, k_positions)

    m.attention = attention


@part("4.3")
def fails_without_keys(m):
    """The maximum of no scores is an error, where the result should be zeros."""
    right = m.attention

    def attention(q, k, v, q_positions, k_positions):
        (q[:, :1] @ k[:, :1].mT).amax(-1)
        return right(q, k, v, q_positions, k_positions)

    m.attention = attention


@part("4.3")
def softmax_without_maximum_in_16_bits(m):
    """In 16 bits the exponentials are taken as they are, and overflow."""
    right = m.attention

    def attention(q, k, v, q_positions, k_positions):
        if v.dtype == torch.float32:
            return right(q, k, v, q_positions, k_positions)
        k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], dim=1) for t in (k, v))
        powers = ((q.float() @ k.float().mT) / q.shape[-1] ** 0.5).exp()
        powers = powers.masked_fill(right_mask(q_positions, k_positions)[:, None], 0.0)
        weights = powers / powers.sum(-1, keepdim=True).clamp(min=1e-9)
        return (weights @ v.float()).to(v.dtype)

    m.attention = attention
