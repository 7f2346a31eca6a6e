"""Wrong versions of 3.7 relative_error, perplexity and agreement."""

import math

from course.misconceptions import misconception


@misconception("3.7", "relative_error")
def mean_of_quotients(reference, other):
    """You divide number by number and average. Numbers close to zero then decide everything, and
    zeros make it infinite: one root of squares is divided by another.
    """
    if reference.shape != other.shape:
        raise ValueError(f"{list(reference.shape)} and {list(other.shape)}")
    quotient = (other.double() - reference.double()).abs() / reference.double().abs()
    return float(quotient.mean())


@misconception("3.7", "relative_error")
def sum_of_differences(reference, other):
    """You compare sums of absolute values. The documented error is of squares: large errors weigh
    more, and that is how errors add up in a product.
    """
    if reference.shape != other.shape:
        raise ValueError(f"{list(reference.shape)} and {list(other.shape)}")
    size = float(reference.double().abs().sum())
    error = float((other.double() - reference.double()).abs().sum())
    return error / size if size else (math.inf if error else 0.0)


@misconception("3.7", "relative_error")
def never_rooted(reference, other):
    """You divide the squares and take no root. An error of a tenth is then reported as a
    hundredth.
    """
    if reference.shape != other.shape:
        raise ValueError(f"{list(reference.shape)} and {list(other.shape)}")
    size = float(reference.double().square().sum())
    error = float((other.double() - reference.double()).square().sum())
    return error / size if size else (math.inf if error else 0.0)


@misconception("3.7", "relative_error")
def by_the_other(reference, other):
    """You divide by the size of the wrong tensor. The reference is the measure: otherwise a
    result that is far too large looks better than it is.
    """
    if reference.shape != other.shape:
        raise ValueError(f"{list(reference.shape)} and {list(other.shape)}")
    size = float(other.double().square().sum().sqrt())
    error = float((other.double() - reference.double()).square().sum().sqrt())
    return error / size if size else (math.inf if error else 0.0)


@misconception("3.7", "relative_error")
def sums_in_their_dtype(reference, other):
    """You square in the dtype of the tensors. In float16 squares above 255 are infinite and small
    ones vanish, and float32 has such limits too: go to float64 first.
    """
    if reference.shape != other.shape:
        raise ValueError(f"{list(reference.shape)} and {list(other.shape)}")
    size = float(reference.square().sum().sqrt())
    error = float((other - reference).square().sum().sqrt())
    return error / size if size else (math.inf if error else 0.0)


@misconception("3.7", "relative_error")
def broadcast(reference, other):
    """You let torch broadcast. Two tensors of different shapes are not the same thing
    measured twice, and [3, 1] against [3, 4] should be an error, not a number.
    """
    size = float(reference.double().square().sum().sqrt())
    error = float((other.double() - reference.double()).square().sum().sqrt())
    return error / size if size else (math.inf if error else 0.0)


@misconception("3.7", "perplexity")
def not_shifted(logits_of, ids, window, stride):
    """You compare the logits of a place with the token at that place. They are about the next one:
    row i belongs to ids[i + 1], and the last row to nobody.
    """
    if len(ids) < 2 or window < 2 or not 1 <= stride < window:
        raise ValueError(f"{len(ids)} {window} {stride}")
    total, done = 0.0, 1
    for start in range(0, len(ids), stride):
        part = ids[start : start + window]
        logs = logits_of(part)[1:].double().log_softmax(-1)
        losses = -logs.gather(1, part[1:, None]).squeeze(1)
        total += float(losses[done - start - 1 :].sum())
        done = start + len(part)
        if done == len(ids):
            break
    return math.exp(total / (len(ids) - 1))


@misconception("3.7", "perplexity")
def counted_in_every_window(logits_of, ids, window, stride):
    """You count tokens again in every window that holds them. Those with little before them, at
    the beginning of a window, then count as much as the rest, which is what the overlap is against.
    """
    if len(ids) < 2 or window < 2 or not 1 <= stride < window:
        raise ValueError(f"{len(ids)} {window} {stride}")
    total = count = 0
    for start in range(0, len(ids), stride):
        part = ids[start : start + window]
        logs = logits_of(part)[:-1].double().log_softmax(-1)
        losses = -logs.gather(1, part[1:, None]).squeeze(1)
        total, count = total + float(losses.sum()), count + len(losses)
        if start + len(part) == len(ids):
            break
    return math.exp(total / count)


@misconception("3.7", "perplexity")
def mean_of_the_windows(logits_of, ids, window, stride):
    """You take the perplexity of each window and average those. A short last window then counts as
    much as a long one, and a mean of exponentials is not the exponential of a mean.
    """
    if len(ids) < 2 or window < 2 or not 1 <= stride < window:
        raise ValueError(f"{len(ids)} {window} {stride}")
    found, done = [], 1
    for start in range(0, len(ids), stride):
        part = ids[start : start + window]
        logs = logits_of(part)[:-1].double().log_softmax(-1)
        losses = -logs.gather(1, part[1:, None]).squeeze(1)
        found.append(math.exp(float(losses[done - start - 1 :].mean())))
        done = start + len(part)
        if done == len(ids):
            break
    return sum(found) / len(found)


@misconception("3.7", "perplexity")
def windows_side_by_side(logits_of, ids, window, stride):
    """Your windows do not overlap: each begins where the last one ended. The first tokens of each
    are then read without what stands before them, and the text looks more surprising than it is.
    """
    if len(ids) < 2 or window < 2 or not 1 <= stride < window:
        raise ValueError(f"{len(ids)} {window} {stride}")
    total = count = 0
    for start in range(0, len(ids) - 1, window):
        part = ids[start : start + window]
        logs = logits_of(part)[:-1].double().log_softmax(-1)
        losses = -logs.gather(1, part[1:, None]).squeeze(1)
        total, count = total + float(losses.sum()), count + len(losses)
    return math.exp(total / max(count, 1))


@misconception("3.7", "perplexity")
def only_the_loss(logits_of, ids, window, stride):
    """You return the mean loss. Perplexity is its exponential: between how many tokens, all equally
    likely, the model might as well be guessing.
    """
    if len(ids) < 2 or window < 2 or not 1 <= stride < window:
        raise ValueError(f"{len(ids)} {window} {stride}")
    total, done = 0.0, 1
    for start in range(0, len(ids), stride):
        part = ids[start : start + window]
        logs = logits_of(part)[:-1].double().log_softmax(-1)
        losses = -logs.gather(1, part[1:, None]).squeeze(1)
        total += float(losses[done - start - 1 :].sum())
        done = start + len(part)
        if done == len(ids):
            break
    return total / (len(ids) - 1)


@misconception("3.7", "perplexity")
def logarithm_to_base_two(logits_of, ids, window, stride):
    """You take the logarithm to the base 2 and undo it with e. Both ends need the same base: the
    natural logarithm and exp.
    """
    if len(ids) < 2 or window < 2 or not 1 <= stride < window:
        raise ValueError(f"{len(ids)} {window} {stride}")
    total, done = 0.0, 1
    for start in range(0, len(ids), stride):
        part = ids[start : start + window]
        logs = logits_of(part)[:-1].double().softmax(-1).log2()
        losses = -logs.gather(1, part[1:, None]).squeeze(1)
        total += float(losses[done - start - 1 :].sum())
        done = start + len(part)
        if done == len(ids):
            break
    return math.exp(total / (len(ids) - 1))


@misconception("3.7", "perplexity")
def softmax_in_half_precision(logits_of, ids, window, stride):
    """You take the softmax in the dtype of the logits. bfloat16 has three digits, and the loss of
    each token is rounded to them: widen to float64 first.
    """
    if len(ids) < 2 or window < 2 or not 1 <= stride < window:
        raise ValueError(f"{len(ids)} {window} {stride}")
    total, done = 0.0, 1
    for start in range(0, len(ids), stride):
        part = ids[start : start + window]
        logs = logits_of(part)[:-1].log_softmax(-1)
        losses = -logs.gather(1, part[1:, None]).squeeze(1)
        total += float(losses[done - start - 1 :].double().sum())
        done = start + len(part)
        if done == len(ids):
            break
    return math.exp(total / (len(ids) - 1))


@misconception("3.7", "perplexity")
def beyond_the_end(logits_of, ids, window, stride):
    """You go on with windows after one has reached the end of the text. They hold nothing that has
    not been counted, and cost a forward each: stop there.
    """
    if len(ids) < 2 or window < 2 or not 1 <= stride < window:
        raise ValueError(f"{len(ids)} {window} {stride}")
    total, done = 0.0, 1
    for start in range(0, len(ids), stride):
        part = ids[start : start + window]
        logs = logits_of(part)[:-1].double().log_softmax(-1)
        losses = -logs.gather(1, part[1:, None]).squeeze(1)
        total += float(losses[max(done - start - 1, 0) :].sum())
        done = start + len(part)
    return math.exp(total / (len(ids) - 1))


@misconception("3.7", "agreement")
def logits_compared(reference, other):
    """You compare the logits themselves. Those of two formats hardly ever agree to the last bit:
    compare which of them is the largest.
    """
    if reference.shape != other.shape or not reference.numel():
        raise ValueError(f"{reference.shape} {other.shape}")
    return float((reference == other).double().mean())


@misconception("3.7", "agreement")
def along_the_tokens(reference, other):
    """You look for the largest logit along the tokens. Each position chooses among the vocabulary:
    argmax over the last dimension.
    """
    if reference.shape != other.shape or not reference.numel():
        raise ValueError(f"{reference.shape} {other.shape}")
    return float((reference.argmax(0) == other.argmax(0)).double().mean())


@misconception("3.7", "agreement")
def until_they_part(reference, other):
    """You count the positions up to the first difference. Both read the same text, so that every
    position is a comparison of its own, also those after a difference.
    """
    if reference.shape != other.shape or not reference.numel():
        raise ValueError(f"{reference.shape} {other.shape}")
    same = (reference.argmax(-1) == other.argmax(-1)).double()
    return float(same.cumprod(0).mean())
