"""Wrong versions of 3.7 perplexity."""

import math

from course.misconceptions import misconception


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
def not_shifted_from_the_first(logits_of, ids, window, stride):
    """You compare the logits of each place with the token at that place, from the first on. They
    are about the next one: row i belongs to ids[i + 1], and nothing is known of ids[0].
    """
    if len(ids) < 2 or window < 2 or not 1 <= stride < window:
        raise ValueError(f"{len(ids)} {window} {stride}")
    total, done = 0.0, 0
    for start in range(0, len(ids), stride):
        part = ids[start : start + window]
        logs = logits_of(part).double().log_softmax(-1)
        losses = -logs.gather(1, part[:, None]).squeeze(1)
        total += float(losses[done - start :].sum())
        done = start + len(part)
        if done == len(ids):
            break
    return math.exp(total / len(ids))


@misconception("3.7", "perplexity")
def divided_by_all_tokens(logits_of, ids, window, stride):
    """You divide by the number of ids. Nothing stands before the first one, so it has no loss and
    does not count: there are len(ids) - 1 losses.
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
    return math.exp(total / len(ids))


@misconception("3.7", "perplexity")
def counted_again_to_the_end(logits_of, ids, window, stride):
    """You count every token of every window, and go on with windows as long as one begins within
    the text. Each token counts once, and the first window that reaches the end is the last.
    """
    if len(ids) < 2 or window < 2 or not 1 <= stride < window:
        raise ValueError(f"{len(ids)} {window} {stride}")
    total = count = 0
    for start in range(0, len(ids) - 1, stride):
        part = ids[start : start + window]
        logs = logits_of(part)[:-1].double().log_softmax(-1)
        losses = -logs.gather(1, part[1:, None]).squeeze(1)
        total, count = total + float(losses.sum()), count + len(losses)
    return math.exp(total / count)


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
    """You take the softmax in the dtype of the logits. The loss of each token is rounded to the
    three digits of bfloat16, or the seven of float32: widen to float64 first.
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
