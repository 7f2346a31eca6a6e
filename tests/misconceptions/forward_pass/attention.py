"""Wrong versions of 4.3 attention."""

import torch

from course.misconceptions import misconception


@misconception("4.3", "attention")
def scaling_forgotten(q, k, v, q_positions, k_positions):
    """You do not divide the scores by sqrt(D). Dot products grow with the size of a head, and the
    softmax of large scores looks at one key only.
    """
    if q.shape[1] % k.shape[1]:
        raise ValueError("heads")
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], dim=1) for t in (k, v))
    scores = (q @ k.transpose(-1, -2)).float()
    hidden = (k_positions[:, None] > q_positions[..., None]) | (k_positions[:, None] < 0)
    weights = scores.masked_fill(hidden[:, None], float("-inf")).softmax(-1)
    return weights.masked_fill(hidden[:, None], 0.0).to(v.dtype) @ v


@misconception("4.3", "attention")
def scaled_by_d(q, k, v, q_positions, k_positions):
    """You divide the scores by D. It is by its square root: a dot product of D random numbers has a
    size of about sqrt(D).
    """
    if q.shape[1] % k.shape[1]:
        raise ValueError("heads")
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], dim=1) for t in (k, v))
    scores = (q @ k.transpose(-1, -2)).float() / q.shape[-1]
    hidden = (k_positions[:, None] > q_positions[..., None]) | (k_positions[:, None] < 0)
    weights = scores.masked_fill(hidden[:, None], float("-inf")).softmax(-1)
    return weights.masked_fill(hidden[:, None], 0.0).to(v.dtype) @ v


@misconception("4.3", "attention")
def scaled_by_hidden_size(q, k, v, q_positions, k_positions):
    """You divide the scores by the square root of H times D, the hidden size. Each head has its own
    dot products of D numbers: it is sqrt(D).
    """
    if q.shape[1] % k.shape[1]:
        raise ValueError("heads")
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], dim=1) for t in (k, v))
    scores = (q @ k.transpose(-1, -2)).float() / (q.shape[1] * q.shape[-1]) ** 0.5
    hidden = (k_positions[:, None] > q_positions[..., None]) | (k_positions[:, None] < 0)
    weights = scores.masked_fill(hidden[:, None], float("-inf")).softmax(-1)
    return weights.masked_fill(hidden[:, None], 0.0).to(v.dtype) @ v


@misconception("4.3", "attention")
def blind_to_itself(q, k, v, q_positions, k_positions):
    """Your mask hides a token from itself: it is strict where it should not be. A query sees the
    keys at its own position and before.
    """
    if q.shape[1] % k.shape[1]:
        raise ValueError("heads")
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], dim=1) for t in (k, v))
    scores = (q @ k.transpose(-1, -2)).float() / q.shape[-1] ** 0.5
    hidden = (k_positions[:, None] >= q_positions[..., None]) | (k_positions[:, None] < 0)
    weights = scores.masked_fill(hidden[:, None], float("-inf")).softmax(-1)
    return weights.masked_fill(hidden[:, None], 0.0).to(v.dtype) @ v


@misconception("4.3", "attention")
def sees_the_future(q, k, v, q_positions, k_positions):
    """You hide padding but not the future: a query sees keys after its own position. It would be
    predicting a token that it is shown.
    """
    if q.shape[1] % k.shape[1]:
        raise ValueError("heads")
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], dim=1) for t in (k, v))
    scores = (q @ k.transpose(-1, -2)).float() / q.shape[-1] ** 0.5
    hidden = (k_positions[:, None] < 0) | (q_positions[..., None] < 0)
    weights = scores.masked_fill(hidden[:, None], float("-inf")).softmax(-1)
    return weights.masked_fill(hidden[:, None], 0.0).to(v.dtype) @ v


@misconception("4.3", "attention")
def nothing_hidden(q, k, v, q_positions, k_positions):
    """You hide no key at all. A query may see the keys whose position is 0 or more and not after
    its own: the scores of all others become minus infinity before the softmax.
    """
    if q.shape[1] % k.shape[1]:
        raise ValueError("heads")
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], dim=1) for t in (k, v))
    scores = (q @ k.transpose(-1, -2)).float() / q.shape[-1] ** 0.5
    return scores.softmax(-1).to(v.dtype) @ v


@misconception("4.3", "attention")
def masked_by_column(q, k, v, q_positions, k_positions):
    """Your mask is a triangle over columns. That fits a plain prompt only: with a cache, a chunk or
    padding, the column of a token is not its position. Compare q_positions with k_positions.
    """
    if q.shape[1] % k.shape[1]:
        raise ValueError("heads")
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], dim=1) for t in (k, v))
    scores = (q @ k.transpose(-1, -2)).float() / q.shape[-1] ** 0.5
    future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    hidden = future | (k_positions[:, None] < 0) | (q_positions[..., None] < 0)
    weights = scores.masked_fill(hidden[:, None], float("-inf")).softmax(-1)
    return weights.masked_fill(hidden[:, None], 0.0).to(v.dtype) @ v


@misconception("4.3", "attention")
def heads_tiled(q, k, v, q_positions, k_positions):
    """You hand out the key heads in turn: query head h gets h % KV. Neighbours share: it is h // (H
    / KV), which repeat_interleave gives and repeat does not.
    """
    if q.shape[1] % k.shape[1]:
        raise ValueError("heads")
    k, v = (t.repeat(1, q.shape[1] // t.shape[1], 1, 1) for t in (k, v))
    scores = (q @ k.transpose(-1, -2)).float() / q.shape[-1] ** 0.5
    hidden = (k_positions[:, None] > q_positions[..., None]) | (k_positions[:, None] < 0)
    weights = scores.masked_fill(hidden[:, None], float("-inf")).softmax(-1)
    return weights.masked_fill(hidden[:, None], 0.0).to(v.dtype) @ v


@misconception("4.3", "attention")
def nan_where_nothing_is_visible(q, k, v, q_positions, k_positions):
    """The softmax of a row in which every score is minus infinity is NaN, and yours goes on like
    that. A query that may see nothing gets zeros.
    """
    if q.shape[1] % k.shape[1]:
        raise ValueError("heads")
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], dim=1) for t in (k, v))
    scores = (q @ k.transpose(-1, -2)).float() / q.shape[-1] ** 0.5
    hidden = (k_positions[:, None] > q_positions[..., None]) | (k_positions[:, None] < 0)
    weights = scores.masked_fill(hidden[:, None], float("-inf")).softmax(-1)
    return weights.to(v.dtype) @ v


@misconception("4.3", "attention")
def average_where_nothing_is_visible(q, k, v, q_positions, k_positions):
    """A query that may see nothing spreads evenly over all the hidden keys, as it does when they
    are hidden by a large negative score, or when NaN is replaced too late. It should get zeros.
    """
    if q.shape[1] % k.shape[1]:
        raise ValueError("heads")
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], dim=1) for t in (k, v))
    scores = (q @ k.transpose(-1, -2)).float() / q.shape[-1] ** 0.5
    hidden = (k_positions[:, None] > q_positions[..., None]) | (k_positions[:, None] < 0)
    weights = scores.masked_fill(hidden[:, None], torch.finfo(torch.float32).min).softmax(-1)
    return weights.to(v.dtype) @ v


@misconception("4.3", "attention")
def padding_visible(q, k, v, q_positions, k_positions):
    """Your mask hides the future but not the padding: -1 is not after any position, so it slips
    through. Keys at a position below 0 have to be hidden as well.
    """
    if q.shape[1] % k.shape[1]:
        raise ValueError("heads")
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], dim=1) for t in (k, v))
    scores = (q @ k.transpose(-1, -2)).float() / q.shape[-1] ** 0.5
    hidden = k_positions[:, None] > q_positions[..., None]
    weights = scores.masked_fill(hidden[:, None], float("-inf")).softmax(-1)
    return weights.masked_fill(hidden[:, None], 0.0).to(v.dtype) @ v


@misconception("4.3", "attention")
def no_mask_for_one_token(q, k, v, q_positions, k_positions):
    """You leave the mask out when there is one new token, as if everything in the cache came before
    it. In a batch of different lengths the shorter rows end in padding: -1 is hidden there too.
    """
    if q.shape[1] % k.shape[1]:
        raise ValueError("heads")
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], dim=1) for t in (k, v))
    scores = (q @ k.transpose(-1, -2)).float() / q.shape[-1] ** 0.5
    hidden = (k_positions[:, None] > q_positions[..., None]) | (k_positions[:, None] < 0)
    if q.shape[2] == 1:
        hidden = torch.zeros_like(hidden)
    weights = scores.masked_fill(hidden[:, None], float("-inf")).softmax(-1)
    return weights.masked_fill(hidden[:, None], 0.0).to(v.dtype) @ v


@misconception("4.3", "attention")
def softmax_over_queries(q, k, v, q_positions, k_positions):
    """Your softmax runs over the queries. The weights of one query, over all its keys, have to sum
    to 1: it is the last dimension of the scores.
    """
    if q.shape[1] % k.shape[1]:
        raise ValueError("heads")
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], dim=1) for t in (k, v))
    scores = (q @ k.transpose(-1, -2)).float() / q.shape[-1] ** 0.5
    hidden = (k_positions[:, None] > q_positions[..., None]) | (k_positions[:, None] < 0)
    weights = scores.masked_fill(hidden[:, None], float("-inf")).softmax(-2)
    return weights.masked_fill(hidden[:, None], 0.0).to(v.dtype) @ v


@misconception("4.3", "attention")
def masked_after_softmax(q, k, v, q_positions, k_positions):
    """You mask after the softmax, so the hidden keys have already taken their share and the rest no
    longer sums to 1. Hide the scores before it.
    """
    if q.shape[1] % k.shape[1]:
        raise ValueError("heads")
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], dim=1) for t in (k, v))
    scores = (q @ k.transpose(-1, -2)).float() / q.shape[-1] ** 0.5
    hidden = (k_positions[:, None] > q_positions[..., None]) | (k_positions[:, None] < 0)
    return scores.softmax(-1).masked_fill(hidden[:, None], 0.0).to(v.dtype) @ v


@misconception("4.3", "attention")
def uneven_heads_accepted(q, k, v, q_positions, k_positions):
    """You do not check that H is a multiple of KV. It then fails with a sentence about tensor
    sizes, or not at all: raise ValueError and say which heads do not fit.
    """
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], dim=1) for t in (k, v))
    scores = (q @ k.transpose(-1, -2)).float() / q.shape[-1] ** 0.5
    hidden = (k_positions[:, None] > q_positions[..., None]) | (k_positions[:, None] < 0)
    weights = scores.masked_fill(hidden[:, None], float("-inf")).softmax(-1)
    return weights.masked_fill(hidden[:, None], 0.0).to(v.dtype) @ v
