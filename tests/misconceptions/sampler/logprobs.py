"""Wrong versions of 5.5 log_probabilities."""

import torch

from course.misconceptions import misconception


def sorted_logs(logs, chosen, top):
    """The three results from logarithms [B, V]."""
    tops, ids = logs.sort(dim=-1, descending=True, stable=True)
    return logs.gather(-1, chosen.long()[:, None])[:, 0], ids[:, :top], tops[:, :top]


@misconception("5.5", "log_probabilities")
def log_of_the_softmax(logits, chosen, top):
    """You take the logarithm of the softmax. A probability too small for a float32 is 0 there, and
    its logarithm -inf: subtract the log of the sum of the exps instead.
    """
    from tests.misconceptions.sampler.logprobs import sorted_logs

    wide = logits.float()
    powers = (wide - wide.amax(-1, keepdim=True)).exp()
    return sorted_logs((powers / powers.sum(-1, keepdim=True)).log(), chosen, top)


@misconception("5.5", "log_probabilities")
def log_that_overflows(logits, chosen, top):
    """You take exp of the logits as they are: infinite from 89 on. Subtract the row's largest
    first.
    """
    from tests.misconceptions.sampler.logprobs import sorted_logs

    wide = logits.float()
    return sorted_logs(wide - wide.exp().sum(-1, keepdim=True).log(), chosen, top)


@misconception("5.5", "log_probabilities")
def log_to_base_two(logits, chosen, top):
    """Your logarithms are to the base 2. The natural logarithm is what everybody reports: exp
    brings the probability back.
    """
    from tests.misconceptions.sampler.logprobs import sorted_logs

    return sorted_logs(logits.float().log_softmax(-1) / 0.6931471805599453, chosen, top)


@misconception("5.5", "log_probabilities")
def log_left_out(logits, chosen, top):
    """You return probabilities. Their natural logarithms are asked for: sums of them stay exact."""
    from tests.misconceptions.sampler.logprobs import sorted_logs

    return sorted_logs(logits.float().softmax(-1), chosen, top)


@misconception("5.5", "log_probabilities")
def log_with_the_higher_id_first(logits, chosen, top):
    """Of equally probable tokens yours come with the higher id first. The lower id comes first: a
    stable sort in descending order.
    """
    logs = logits.float().log_softmax(-1)
    tops, ids = logs.sort(dim=-1, stable=True)
    values = logs.gather(-1, chosen.long()[:, None])[:, 0]
    return values, ids.flip(-1)[:, :top], tops.flip(-1)[:, :top]


@misconception("5.5", "log_probabilities")
def log_favourites_by_topk(logits, chosen, top):
    """You take the favourites with topk, which puts equals in any order. The lower id comes first:
    sort(dim=-1, descending=True, stable=True) keeps the order of equals.
    """
    logs = logits.float().log_softmax(-1)
    tops, ids = logs.topk(min(top, logits.shape[-1]))
    return logs.gather(-1, chosen.long()[:, None])[:, 0], ids, tops


@misconception("5.5", "log_probabilities")
def log_of_more_than_there_are_fails(logits, chosen, top):
    """A top beyond the vocabulary is an error in your code. At most V tokens can be reported: all
    of them then.
    """
    from tests.misconceptions.sampler.logprobs import sorted_logs

    logits.topk(top)
    return sorted_logs(logits.float().log_softmax(-1), chosen, top)


@misconception("5.5", "log_probabilities")
def log_with_the_chosen_among_the_favourites(logits, chosen, top):
    """You put the chosen token in front of the favourites. They are the `top` most probable tokens;
    the chosen one has a value of its own.
    """
    logs = logits.float().log_softmax(-1)
    tops, ids = logs.sort(dim=-1, descending=True, stable=True)
    values = logs.gather(-1, chosen.long()[:, None])
    ids = torch.cat((chosen.long()[:, None], ids), -1)[:, :top]
    return values[:, 0], ids, torch.cat((values, tops), -1)[:, :top]
