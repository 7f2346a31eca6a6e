"""Wrong versions of 5.2 keep_top_k, keep_top_p and keep_min_p."""

import torch

from course.misconceptions import misconception
from solutions.sampling import HIDDEN, softmax


@misconception("5.2", "keep_top_k")
def k_that_splits_equals(logits, k):
    """You keep exactly k tokens, so that of several equal ones some stay and some go by chance.
    Compare with the k-th largest logit: all that are equal to it stay.
    """
    on = (k > 0) & (k < logits.shape[-1])
    ids = logits.argsort(dim=-1, descending=True, stable=True)
    rank = torch.empty_like(ids).scatter_(-1, ids, torch.arange(logits.shape[-1]).expand_as(ids))
    return logits.masked_fill((rank >= k[:, None]) & on[:, None], HIDDEN)


@misconception("5.2", "keep_top_k")
def k_of_the_largest_row(logits, k):
    """You use one k for all rows, the largest. Each row has its own: gather the k[i]-th value of
    row i.
    """
    count = min(int(k.max()), logits.shape[-1])
    if count < 1:
        return logits
    edge = logits.topk(count).values[:, -1:]
    return logits.masked_fill(logits < edge, HIDDEN)


@misconception("5.2", "keep_top_k")
def k_never_off(logits, k):
    """A k of 0 or -1 hides nearly everything in your rows. It means off: every token stays."""
    rank = k.clamp(1, logits.shape[-1]).long()[:, None]
    best = logits.topk(int(rank.max())).values
    return logits.masked_fill(logits < best.gather(-1, rank - 1), HIDDEN)


@misconception("5.2", "keep_top_k")
def k_beyond_the_vocabulary_fails(logits, k):
    """A k larger than the vocabulary is an error in your code. It keeps every token: there are no
    more.
    """
    on = k > 0
    rank = k.where(on, 1).long()[:, None]
    best = logits.topk(int(rank.max())).values
    return logits.masked_fill((logits < best.gather(-1, rank - 1)) & on[:, None], HIDDEN)


@misconception("5.2", "keep_top_k")
def k_hides_with_zero(logits, k):
    """You set hidden logits to 0. That is no small logit: exp(0) is 1. Hidden is -inf."""
    on = (k > 0) & (k < logits.shape[-1])
    if not bool(on.any()):
        return logits
    rank = k.where(on, 1).long()[:, None]
    best = logits.topk(int(rank.max())).values
    return logits.masked_fill((logits < best.gather(-1, rank - 1)) & on[:, None], 0.0)


@misconception("5.2", "keep_top_p")
def p_without_the_one_that_crosses(logits, p):
    """You hide the token with which the sum reaches p. It stays: the set has to hold p, so a token
    is hidden only when the sum of those before it has reached p already. With a small p you hide
    all.
    """
    ordered, ids = softmax(logits).sort(dim=-1, descending=True, stable=True)
    hidden = (ordered.double().cumsum(-1) > p[:, None]) & (p < 1)[:, None]
    return logits.masked_fill(hidden.scatter(-1, ids, hidden), HIDDEN)


@misconception("5.2", "keep_top_p")
def p_without_the_one_that_crosses_but_the_first(logits, p):
    """You hide the token with which the sum reaches p, unless it is the first. It stays: a token is
    hidden only when the sum of those before it has reached p already.
    """
    ordered, ids = softmax(logits).sort(dim=-1, descending=True, stable=True)
    hidden = (ordered.double().cumsum(-1) > p[:, None]) & (p < 1)[:, None]
    hidden[:, 0] = False
    return logits.masked_fill(hidden.scatter(-1, ids, hidden), HIDDEN)


@misconception("5.2", "keep_top_p")
def p_with_one_more(logits, p):
    """When the sum is exactly p you keep one token more. p is reached then: a token stays while the
    sum before it is below p, not when it equals p.
    """
    ordered, ids = softmax(logits).sort(dim=-1, descending=True, stable=True)
    before = ordered.double().cumsum(-1) - ordered
    hidden = (before > p[:, None]) & (p < 1)[:, None]
    return logits.masked_fill(hidden.scatter(-1, ids, hidden), HIDDEN)


@misconception("5.2", "keep_top_p")
def p_hides_ranks_as_ids(logits, p):
    """You found out which ranks are hidden and hid the ids with the same numbers. The order of the
    sort has to be undone: scatter the answer to the ids.
    """
    ordered, _ = softmax(logits).sort(dim=-1, descending=True, stable=True)
    hidden = (ordered.double().cumsum(-1) - ordered >= p[:, None]) & (p < 1)[:, None]
    return logits.masked_fill(hidden, HIDDEN)


@misconception("5.2", "keep_top_p")
def p_with_the_higher_id_first(logits, p):
    """Of equally probable tokens you keep those with the higher ids. The lower id comes first: a
    stable sort in descending order, not a reversed ascending one.
    """
    ordered, ids = softmax(logits).sort(dim=-1, stable=True)
    ordered, ids = ordered.flip(-1), ids.flip(-1)
    hidden = (ordered.double().cumsum(-1) - ordered >= p[:, None]) & (p < 1)[:, None]
    hidden[:, 0] = False
    return logits.masked_fill(hidden.scatter(-1, ids, hidden), HIDDEN)


@misconception("5.2", "keep_top_p")
def p_keeps_all_equals(logits, p):
    """You keep every token that is as probable as the last one that is needed. Top-p keeps the
    fewest: of equals only as many as are needed, those with the lower ids.
    """
    probabilities = softmax(logits)
    ordered, _ = probabilities.sort(dim=-1, descending=True, stable=True)
    stays = ordered.double().cumsum(-1) - ordered < p[:, None]
    stays[:, 0] = True
    edge = ordered.masked_fill(~stays, 2.0).amin(-1, keepdim=True)
    return logits.masked_fill((probabilities < edge) & (p < 1)[:, None], HIDDEN)


@misconception("5.2", "keep_top_p")
def p_one_is_not_off(logits, p):
    """With p = 1 you hide tokens: rounding brings the sum to 1 before the last one, and very
    improbable tokens add nothing to it. 1 is off: leave those rows alone.
    """
    ordered, ids = softmax(logits).sort(dim=-1, descending=True, stable=True)
    hidden = ordered.cumsum(-1) - ordered >= p[:, None].float()
    hidden[:, 0] = False
    return logits.masked_fill(hidden.scatter(-1, ids, hidden), HIDDEN)


@misconception("5.2", "keep_min_p")
def min_p_as_it_is(logits, p):
    """You compare the probabilities with p itself. min-p is a share of the largest probability:
    where the model is unsure, much smaller ones stay.
    """
    return logits.masked_fill(softmax(logits) < p.float()[:, None], HIDDEN)


@misconception("5.2", "keep_min_p")
def min_p_of_logits(logits, p):
    """You compare logits with p times the largest logit. The share is one of probabilities: in
    logits it is the largest plus log p.
    """
    wide = logits.float()
    return logits.masked_fill(wide < wide.amax(-1, keepdim=True) * p.float()[:, None], HIDDEN)


@misconception("5.2", "keep_min_p")
def min_p_hides_the_edge(logits, p):
    """A token with exactly p times the largest probability is hidden in your code, so that with p =
    1 nothing is left. At least p times as probable is enough.
    """
    wide = logits.float()
    least = wide.amax(-1, keepdim=True) + p.float().log()[:, None]
    return logits.masked_fill(wide <= least, HIDDEN)
