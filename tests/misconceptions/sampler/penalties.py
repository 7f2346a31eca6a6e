"""Wrong versions of 5.3 penalize."""

import torch

from course.misconceptions import misconception


@misconception("5.3", "penalize")
def repetition_always_divides(logits, rows, ids, written, repetition, presence, frequency):
    """You divide negative logits as well. -2 divided by 2 is -1, which is more likely than before:
    what is not positive has to be multiplied.
    """
    rows, ids = rows.long(), ids.long()
    values = logits[rows, ids].float() / repetition[rows].float()
    values = values - presence[rows] * (written > 0) - frequency[rows] * written
    return logits.float().index_put((rows, ids), values.float())


@misconception("5.3", "penalize")
def repetition_always_multiplies(logits, rows, ids, written, repetition, presence, frequency):
    """You multiply positive logits as well. A positive logit has to be divided: times 1.2 it would
    be more likely than before.
    """
    rows, ids = rows.long(), ids.long()
    values = logits[rows, ids].float() * repetition[rows].float()
    values = values - presence[rows] * (written > 0) - frequency[rows] * written
    return logits.float().index_put((rows, ids), values.float())


@misconception("5.3", "penalize")
def repetition_of_the_answer_only(logits, rows, ids, written, repetition, presence, frequency):
    """Your repetition penalty leaves out the tokens that only the prompt has. It counts prompt and
    answer: every token that is listed.
    """
    rows, ids = rows.long(), ids.long()
    factor = torch.where(written > 0, repetition[rows].float(), 1.0)
    values = logits[rows, ids].float()
    values = torch.where(values > 0, values / factor, values * factor)
    values = values - presence[rows] * (written > 0) - frequency[rows] * written
    return logits.float().index_put((rows, ids), values.float())


@misconception("5.3", "penalize")
def repetition_every_time(logits, rows, ids, written, repetition, presence, frequency):
    """You apply the repetition penalty as often as a token was written. It is applied once;
    frequency is the one that counts.
    """
    rows, ids = rows.long(), ids.long()
    factor = repetition[rows].float() ** written.clamp(min=1)
    values = logits[rows, ids].float()
    values = torch.where(values > 0, values / factor, values * factor)
    values = values - presence[rows] * (written > 0) - frequency[rows] * written
    return logits.float().index_put((rows, ids), values.float())


@misconception("5.3", "penalize")
def presence_of_the_prompt(logits, rows, ids, written, repetition, presence, frequency):
    """Your presence penalty hits tokens that only the prompt has. Presence and frequency count the
    answer: only where written is above 0.
    """
    rows, ids = rows.long(), ids.long()
    factor = repetition[rows].float()
    values = logits[rows, ids].float()
    values = torch.where(values > 0, values / factor, values * factor)
    values = values - presence[rows] - frequency[rows] * written
    return logits.float().index_put((rows, ids), values.float())


@misconception("5.3", "penalize")
def presence_every_time(logits, rows, ids, written, repetition, presence, frequency):
    """You subtract the presence penalty as often as a token was written. It is subtracted once."""
    rows, ids = rows.long(), ids.long()
    factor = repetition[rows].float()
    values = logits[rows, ids].float()
    values = torch.where(values > 0, values / factor, values * factor)
    values = values - (presence[rows] + frequency[rows]) * written
    return logits.float().index_put((rows, ids), values.float())


@misconception("5.3", "penalize")
def frequency_once(logits, rows, ids, written, repetition, presence, frequency):
    """You subtract the frequency penalty once. It is subtracted as many times as the token was
    written.
    """
    rows, ids = rows.long(), ids.long()
    factor = repetition[rows].float()
    values = logits[rows, ids].float()
    values = torch.where(values > 0, values / factor, values * factor)
    values = values - (presence[rows] + frequency[rows]) * (written > 0)
    return logits.float().index_put((rows, ids), values.float())


@misconception("5.3", "penalize")
def repetition_last(logits, rows, ids, written, repetition, presence, frequency):
    """You subtract presence and frequency before the repetition penalty, which then scales them,
    too, and may see another sign. Repetition comes first.
    """
    rows, ids = rows.long(), ids.long()
    factor = repetition[rows].float()
    values = logits[rows, ids].float() - presence[rows] * (written > 0) - frequency[rows] * written
    values = torch.where(values > 0, values / factor, values * factor)
    return logits.float().index_put((rows, ids), values.float())


@misconception("5.3", "penalize")
def penalties_of_entry_n(logits, rows, ids, written, repetition, presence, frequency):
    """Entry n gets the penalties of row n of the batch, or of the last. The n-th entry belongs to
    row rows[n]: its penalties are repetition[rows], and so on.
    """
    rows, ids = rows.long(), ids.long()
    entry = torch.arange(len(rows)).clamp(max=len(logits) - 1)
    factor = repetition[entry].float()
    values = logits[rows, ids].float()
    values = torch.where(values > 0, values / factor, values * factor)
    values = values - presence[entry] * (written > 0) - frequency[entry] * written
    return logits.float().index_put((rows, ids), values.float())


@misconception("5.3", "penalize")
def penalties_for_every_row(logits, rows, ids, written, repetition, presence, frequency):
    """You penalize the tokens in every row. An entry belongs to one row: index with rows and ids
    together.
    """
    rows, ids = rows.long(), ids.long()
    factor = repetition[rows].float()
    values = logits.float()[:, ids]
    values = torch.where(values > 0, values / factor, values * factor)
    values = values - presence[rows] * (written > 0) - frequency[rows] * written
    return logits.float().index_copy(1, ids, values.float())


@misconception("5.3", "penalize")
def penalties_in_place(logits, rows, ids, written, repetition, presence, frequency):
    """You write into the logits that you were given. Others still need them as the model made them:
    log-probabilities, for one. Work on a copy.
    """
    rows, ids = rows.long(), ids.long()
    factor = repetition[rows].float()
    values = logits[rows, ids].float()
    values = torch.where(values > 0, values / factor, values * factor)
    values = values - presence[rows] * (written > 0) - frequency[rows] * written
    logits[rows, ids] = values.to(logits.dtype)
    return logits.float()
