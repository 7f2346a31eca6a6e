"""Chapter 05: the next token of every row, each by the wishes of its own request.

Shapes: B rows, V the vocabulary.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from solutions.sampling import (
    TokenCounts,
    apply_temperature,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    penalize,
    seen_tokens,
    softmax,
    sort_marked,
)
from solutions.sampling_params import SamplingParams


def new_generator(seed: int | None) -> torch.Generator:
    """A source of random numbers for one request.

    Of its own, so that neither its neighbours in the batch nor anybody who calls torch.rand moves
    its draws; and no call of it moves torch's global generator.

    Args:
        seed: any integer of 64 bits: the same seed, the same numbers; of the CPU's generator only
            the lower 32 bits count. None: numbers that differ from request to request and from one
            start of the program to the next, whatever seeds the program has set. A new
            torch.Generator() does not do that: it begins with the same seed every time.

    Returns:
        a torch.Generator on the CPU.
    """
    # exercise 5.4
    generator = torch.Generator()
    if seed is None:
        generator.seed()  # from the operating system
    else:
        generator.manual_seed(seed)
    return generator


class SamplingState:
    """What the sampler remembers of one request, from token to token.

    One object a request: it stays with the request when rows change places or are preempted, so
    that its draws and its penalties go on as if nothing had happened.

    Args:
        params: the wishes of the request.
        prompt: its token ids.
    """

    def __init__(self, params: SamplingParams, prompt: Iterable[int] = ()):
        self.params = params
        self.generator = new_generator(params.seed)
        self.counts = TokenCounts(prompt) if params.has_penalties else None

    def add(self, token: int) -> None:
        """The answer has one more token. Call it for each; it costs the same for each."""
        if self.counts is not None:
            self.counts.add(token)


def distributions(logits: Tensor, states: Sequence[SamplingState]) -> Tensor:
    """The probabilities that the next token of each row is drawn with.

    In the order of the peers: penalties, temperature, top-k, then top-p on what is left,
    renormalised, then min-p, then softmax. A row that asks for neither top-k nor top-p is not
    sorted, whatever the others ask for: that would cost more than all the rest.

    Args:
        logits: [B, V] as the model gave them.
        states: of the B rows.

    Returns:
        [B, V] float32: in each row a sum of 1, and 0 for what cannot come. At temperature 0 it is
        1 at the largest penalized logit (of equals the lowest id), whatever the filters say.
    """
    # exercise 5.4
    kept = apply_temperature(_penalized(logits, states), _column(states, "temperature", logits))
    wants = [state.params for state in states]
    kept = _keep(keep_top_k, kept, [w.top_k for w in wants], lambda k: k > 0)
    kept = _keep(keep_top_p, kept, [w.top_p for w in wants], lambda p: p < 1)
    kept = _keep(keep_min_p, kept, [w.min_p for w in wants], lambda p: p > 0)
    return softmax(kept)


def pick(probabilities: Tensor, uniform: Tensor) -> Tensor:
    """Turn one random number a row into a token: the inverse of the cumulative distribution.

    Lay the probabilities end to end, in the order of the ids. Token i is picked when the number
    lies in its stretch: from the sum of those before it (included) to that sum plus its own
    probability (excluded).

    Args:
        probabilities: [B, V] float32, 0 or more, each row with a sum of about 1: rounding may
            leave it a little off, and the number then counts as a share of what the sum is.
        uniform: [B] float64, from 0 (included) to 1 (excluded).

    Returns:
        [B] int64. Never a token of probability 0, not even at 0 or just below 1.
    """
    # exercise 5.4
    ends = probabilities.double().cumsum(-1)
    total = ends[:, -1:].contiguous()
    ids = torch.searchsorted(ends, uniform.double()[:, None] * total, right=True)
    last = torch.searchsorted(ends, total)  # the last token that can come at all
    return torch.minimum(ids, last)[:, 0]


def sample(logits: Tensor, states: Sequence[SamplingState]) -> Tensor:
    """The next token of every row, in one go.

    A row at temperature 0 takes the largest logit after its penalties, of equals the lowest id,
    and no random number. Every other row takes exactly one, from its own generator, through
    `pick`: what a request draws depends neither on its row nor on who shares the batch.

    Args:
        logits: [B, V] as the model gave them; not changed.
        states: of the B rows. Their generators move on. Their counts do not: call
            state.add(token) for each token that is kept.

    Returns:
        [B] int64.

    Errors: ValueError when there are not as many states as rows, naming both numbers.
    """
    # exercise 5.4
    if len(states) != len(logits):
        raise ValueError(f"{len(logits)} rows of logits, but {len(states)} sampling states")
    drawn = [row for row, state in enumerate(states) if not state.params.is_greedy]
    if len(drawn) == len(states):
        return _drawn(logits, states)
    if not drawn:
        return _penalized(logits, states).argmax(-1)
    greedy = [row for row, state in enumerate(states) if state.params.is_greedy]
    ids = torch.empty(len(states), dtype=torch.long, device=logits.device)
    ids[greedy] = _penalized(logits[greedy], [states[row] for row in greedy]).argmax(-1)
    ids[drawn] = _drawn(logits[drawn], [states[row] for row in drawn])
    return ids


def log_probabilities(logits: Tensor, chosen: Tensor, top: int) -> tuple[Tensor, Tensor, Tensor]:
    """How probable the model itself held the chosen token, and its own favourites.

    Of the model's distribution: before penalties, temperature and filters, as the peers report
    it. So a token can be chosen that is no favourite, and the numbers say how sure the model was,
    not what the parameters made of it.

    Args:
        logits: [B, V] as the model gave them.
        chosen: [B] integers.
        top: how many of the most probable tokens to report, 0 or more; at most V are.

    Returns:
        (values, ids, tops): the natural logarithm of the probability of each chosen token, float32
        [B]; the ids of the most probable tokens, int64 [B, top], the most probable first, of
        equals the lower id first; and the logarithms of their probabilities, float32 [B, top].
        -inf for a token that cannot come.
    """
    # exercise 5.5
    wide = logits.float()
    shifted = wide - wide.amax(-1, keepdim=True)
    logs = shifted - shifted.exp().sum(-1, keepdim=True).log()
    values = logs.gather(-1, chosen.long()[:, None])[:, 0]
    if top == 0:
        return values, chosen.new_zeros((len(logs), 0), dtype=torch.long), logs[:, :0]
    least = logs.topk(min(top, logs.shape[-1])).values[:, -1:]
    tops, ids = sort_marked(logs, logs >= least)
    return values, ids[:, :top], tops[:, :top]


@dataclass(frozen=True)
class TokenLogProbs:
    """How probable the model held a token, and its favourites at that place."""

    token: int
    value: float  # natural logarithm
    top: dict[int, float]  # of the most probable ids, the most probable first


def report(
    logits: Tensor, ids: Tensor, states: Sequence[SamplingState]
) -> list[TokenLogProbs | None]:
    """`log_probabilities` for the rows whose params ask for it; the others cost nothing.

    Args:
        logits: [B, V] as the model gave them.
        ids: [B] as `sample` chose.
        states: of the B rows.

    Returns:
        for each row what its params.logprobs asks for, None where that is None.
    """
    wanted = {
        row: s.params.logprobs for row, s in enumerate(states) if s.params.logprobs is not None
    }
    found: list[TokenLogProbs | None] = [None] * len(states)
    if wanted:
        rows, most = list(wanted), max(wanted.values())
        values, names, tops = (x.tolist() for x in log_probabilities(logits[rows], ids[rows], most))
        for n, (row, count) in enumerate(wanted.items()):
            top = dict(zip(names[n][:count], tops[n][:count], strict=True))
            found[row] = TokenLogProbs(int(ids[row]), values[n], top)
    return found


def _drawn(logits: Tensor, states: Sequence[SamplingState]) -> Tensor:
    """A token for each of these rows, none of which is greedy."""
    numbers = [torch.rand((), dtype=torch.float64, generator=s.generator) for s in states]
    uniform = torch.stack(numbers).to(logits.device) if numbers else torch.zeros(0)
    return pick(distributions(logits, states), uniform)


def _penalized(logits: Tensor, states: Sequence[SamplingState]) -> Tensor:
    """The logits after the penalties of each row; the same tensor where no row has any."""
    rows, ids, written = (
        part.to(logits.device) for part in seen_tokens([s.counts for s in states])
    )
    if not len(rows):
        return logits
    names = "repetition_penalty", "presence_penalty", "frequency_penalty"
    return penalize(logits, rows, ids, written, *(_column(states, name, logits) for name in names))


def _column(states: Sequence[SamplingState], name: str, logits: Tensor) -> Tensor:
    """[B] float32: one parameter of every row."""
    values = [getattr(state.params, name) for state in states]
    return torch.tensor(values, dtype=torch.float32, device=logits.device)


def _keep(keep: Callable, logits: Tensor, values: list, is_on: Callable) -> Tensor:
    """A filter on those rows that ask for it; the others do not pay."""
    rows = [row for row, value in enumerate(values) if is_on(value)]
    if not rows:
        return logits
    chosen = torch.tensor([values[row] for row in rows], device=logits.device)
    if len(rows) == len(values):
        return keep(logits, chosen)
    logits[rows] = keep(logits[rows], chosen)  # logits are our own: the temperature made them
    return logits
