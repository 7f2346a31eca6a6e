"""Chapter 05: from logits to a distribution worth drawing from.

Each function takes a whole batch, and every row of it has parameters of its own.

Shapes: B rows, V the vocabulary. Logits are finite or -inf, in float32, float16 or bfloat16, at
least one of each row finite; -inf is a token that cannot come.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

HIDDEN = float("-inf")  # the logit of a token that cannot come


def apply_temperature(logits: Tensor, temperature: Tensor) -> Tensor:
    """Make the differences between logits larger (temperature below 1) or smaller (above 1).

    (logits - the row's largest) / temperature. The largest goes away first, so that nothing
    overflows: the largest of the result is 0, however small the temperature. At temperature 0 only
    one token is left: 0 at the largest logit (of equals the lowest id), -inf everywhere else.

    Args:
        logits: [B, V].
        temperature: [B] floats, 0 or more, finite.

    Returns:
        [B, V] float32, whatever the dtype of logits, which is not changed. What was -inf stays.
    """
    # exercise 5.1
    wide = logits.float()
    shifted = wide - wide.amax(-1, keepdim=True)
    heat = temperature.float()[:, None]
    scaled = shifted / heat.where(heat > 0, 1.0)
    greedy = (heat[:, 0] == 0).nonzero()[:, 0]
    if len(greedy):
        scaled[greedy] = HIDDEN
        scaled[greedy, wide[greedy].argmax(-1)] = 0.0
    return scaled


def softmax(logits: Tensor) -> Tensor:
    """Logits to probabilities: exp of each over the sum of all.

    exp(89) is already infinite in float32. Taking the row's largest logit from all of them changes
    nothing in the quotient and keeps every exp at 1 or below.

    Args:
        logits: [B, V].

    Returns:
        [B, V] float32, whatever the dtype of logits: 0 or more, exactly 0 where the logit is
        -inf, with a sum of 1 in each row. Never NaN.
    """
    # exercise 5.1
    wide = logits.float()
    powers = (wide - wide.amax(-1, keepdim=True)).exp()
    return powers / powers.sum(-1, keepdim=True)


def keep_top_k(logits: Tensor, k: Tensor) -> Tensor:
    """Hide all but the k most probable tokens of each row.

    Args:
        logits: [B, V].
        k: [B] integers. 0 and -1 are off; so is a k of V or more.

    Returns:
        [B, V] in the dtype of logits: kept logits as they are, -inf for the others. All tokens
        that are equal to the k-th stay, so there may be more than k.
    """
    # exercise 5.2
    on = (k > 0) & (k < logits.shape[-1])
    if not bool(on.any()):
        return logits
    rank = k.where(on, 1).long()[:, None]  # [B, 1]
    best = logits.topk(int(rank.max())).values  # [B, the largest k], descending
    smallest_kept = best.gather(-1, rank - 1)
    return logits.masked_fill((logits < smallest_kept) & on[:, None], HIDDEN)


def sort_marked(values: Tensor, marked: Tensor) -> tuple[Tensor, Tensor]:
    """Sort the marked values of each row. Sorting all 49,152 logits of a row takes milliseconds,
    and only a few of them ever matter.

    Args:
        values: [B, V] floats.
        marked: [B, V] bool, at least one in each row.

    Returns:
        (ordered, ids), each [B, W], where W is the largest number of marks in a row: the values in
        descending order, of equals the lower id first, and their ids. A row with fewer marks is
        filled up with -inf and the id V.
    """
    rows, ids = marked.nonzero(as_tuple=True)  # in the order of rows, then ids
    sizes = marked.sum(-1)
    columns = torch.arange(len(rows), device=rows.device) - (sizes.cumsum(0) - sizes)[rows]
    shape = len(values), int(sizes.max())
    packed = values.new_full(shape, HIDDEN).index_put((rows, columns), values[rows, ids])
    names = ids.new_full(shape, values.shape[-1]).index_put((rows, columns), ids)
    ordered, order = packed.sort(dim=-1, descending=True, stable=True)
    return ordered, names.gather(-1, order)


def keep_top_p(logits: Tensor, p: Tensor) -> Tensor:
    """Hide all but the fewest most probable tokens whose probabilities add up to p (nucleus).

    Go from the most probable token down, of equals the lower id first: a token stays while the
    sum of those before it is below p. So the one that crosses p stays, and the most probable one
    always does. The probabilities are the softmax of these logits: what is -inf already has none,
    and the others share its part.

    Args:
        logits: [B, V], with the temperature applied.
        p: [B] floats, 0 to 1. 1 is off: every token stays. 0, as which float32 has a tiny p,
            keeps the most probable one.

    Returns:
        [B, V] in the dtype of logits: kept logits as they are, -inf for the others.

    Source: Holtzman et al. 2020, section 3.1.
    """
    # exercise 5.2
    vocabulary, probabilities = logits.shape[-1], softmax(logits)
    # What has less than (1 - p) / V is never among them: all such tokens together have less than
    # 1 - p, so the others reach p without them. Only the others need to be sorted.
    likely = probabilities >= ((1 - p) / vocabulary)[:, None]
    ordered, ids = sort_marked(probabilities, likely)
    stays = ordered.double().cumsum(-1) - ordered < p[:, None]
    stays[:, 0] = True  # though p be tiny
    kept = stays.new_zeros(len(logits), vocabulary + 1).scatter_(-1, ids, stays)[:, :-1]
    return logits.masked_fill(~kept & (p < 1)[:, None], HIDDEN)


def keep_min_p(logits: Tensor, p: Tensor) -> Tensor:
    """Hide every token that is less than p times as probable as the most probable one.

    Unlike top-p it keeps many tokens where the model is unsure, and one where it is sure.

    Args:
        logits: [B, V], with the temperature applied.
        p: [B] floats, 0 to 1. 0 is off; 1 keeps the most probable token and its equals.

    Returns:
        [B, V] in the dtype of logits: kept logits as they are, -inf for the others.

    Source: Nguyen et al. 2024, "Turning Up the Heat", equation 2.
    """
    # exercise 5.2
    wide = logits.float()
    least = wide.amax(-1, keepdim=True) + p.float().log()[:, None]  # log of p times the largest
    return logits.masked_fill(wide < least, HIDDEN)


def penalize(
    logits: Tensor,
    rows: Tensor,
    ids: Tensor,
    written: Tensor,
    repetition: Tensor,
    presence: Tensor,
    frequency: Tensor,
) -> Tensor:
    """Make tokens that were there before less likely (or more, by penalties the other way).

    Only the tokens listed change. First the repetition penalty, which counts prompt and answer: a
    positive logit is divided by it, any other multiplied, so both go down when it is above 1. Then
    the other two, which count the answer only: presence is subtracted once from a token that was
    written, frequency as many times as it was written.

    Args:
        logits: [B, V].
        rows, ids, written: [N] integers, of any integer dtype; N may be 0. Entry n says: in row
            rows[n], token ids[n] stands in the prompt or the answer, and the answer has it
            written[n] times (0: only the prompt has it). No pair of row and id comes twice.
        repetition, presence, frequency: [B] floats; 1, 0 and 0 are off.

    Returns:
        [B, V] float32; logits is not changed.

    Source: Keskar et al. 2019 (CTRL), section 4.1, in the form that serves negative logits;
    OpenAI's API reference for presence and frequency.
    """
    # exercise 5.3
    rows, ids = rows.long(), ids.long()
    factor = repetition[rows].float()
    values = logits[rows, ids].float()
    values = torch.where(values > 0, values / factor, values * factor)
    values -= presence[rows] * (written > 0) + frequency[rows] * written
    return logits.float().index_put((rows, ids), values.float())


class TokenCounts:
    """The tokens of one request, each once, with how often its answer has them.

    A penalty needs them at every step. Counting a history anew for each token would cost more and
    more as it grows; this costs the same for each token.

    Args:
        prompt: token ids.
    """

    def __init__(self, prompt: Iterable[int]):
        known = list(dict.fromkeys(prompt))
        self._place = {token: place for place, token in enumerate(known)}
        # [2, room]: ids, and how often each was written; numpy, where one number is set faster
        self._table = np.zeros((2, len(known) + 64), dtype=np.int64)
        self._table[0, : len(known)] = known

    def __len__(self) -> int:
        """N: how many different tokens there are."""
        return len(self._place)

    @property
    def ids(self) -> Tensor:
        """[N] int64: the tokens of prompt and answer, each once."""
        return torch.from_numpy(self._table[0, : len(self)])

    @property
    def written(self) -> Tensor:
        """[N] int64: how often the answer has each of them."""
        return torch.from_numpy(self._table[1, : len(self)])

    def add(self, token: int) -> None:
        """The answer has one more token."""
        place = self._place.setdefault(token, len(self._place))
        if place == self._table.shape[1]:
            self._table = np.pad(self._table, ((0, 0), (0, place)))  # twice the room
        self._table[0, place] = token
        self._table[1, place] += 1


def seen_tokens(counts: Sequence[TokenCounts | None]) -> tuple[Tensor, Tensor, Tensor]:
    """The counts of all rows as `penalize` takes them; None is a row that has no penalties.

    Returns:
        (rows, ids, written), each [N] int64.
    """
    known = [(row, count) for row, count in enumerate(counts) if count is not None]
    if not known:
        return tuple(torch.zeros((3, 0), dtype=torch.long))
    sizes = torch.tensor([len(count) for _, count in known])
    rows = torch.tensor([row for row, _ in known]).repeat_interleave(sizes)
    ids, written = (torch.cat([getattr(c, name) for _, c in known]) for name in ("ids", "written"))
    return rows, ids, written
