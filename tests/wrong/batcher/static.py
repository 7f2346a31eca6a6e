"""6.1 pad and generate_static."""

import torch

from tests.parts import part


def padded(m, change) -> None:
    """change(tokens, positions) of what pad makes."""
    right = m.pad
    m.pad = lambda *args, **named: change(*right(*args, **named))


@part("6.1")
def padded_in_int32(m):
    """The tensors are int32."""
    padded(m, lambda tokens, positions: (tokens.int(), positions.int()))


@part("6.1")
def padded_with_another_token(m):
    """The padding has token 1."""
    padded(m, lambda t, p: (torch.where(p < 0, 1, t), p))


@part("6.1")
def padded_one_too_wide(m):
    """There is always a column of padding."""
    padded(
        m,
        lambda t, p: (
            torch.nn.functional.pad(t, (0, 1)),
            torch.nn.functional.pad(p, (0, 1), value=-1),
        ),
    )


@part("6.1")
def padded_on_the_cpu(m):
    """The device is not looked at."""
    right = m.pad
    m.pad = lambda sequences, starts=None, device="cpu": right(sequences, starts)


@part("6.1")
def lists_only(m):
    """Tuples are an error."""
    right = m.pad

    def pad(sequences, starts=None, device="cpu"):
        return right([ids.copy() for ids in sequences], starts, device)

    m.pad = pad


@part("6.1")
def lists_extended(m):
    """The caller's lists are padded."""
    right = m.pad

    def pad(sequences, starts=None, device="cpu"):
        found = right(sequences, starts, device)
        for ids in sequences:
            if isinstance(ids, list):
                ids.extend([0] * (found[0].shape[1] - len(ids)))
        return found

    m.pad = pad


@part("6.1")
def no_starts_are_zeros(m):
    """An empty list of starts counts as none."""
    right = m.pad
    m.pad = lambda sequences, starts=None, device="cpu": right(sequences, starts or None, device)


@part("6.1")
def more_starts_than_needed(m):
    """Too many starts are cut off."""
    right = m.pad

    def pad(sequences, starts=None, device="cpu"):
        return right(sequences, starts and starts[: len(sequences)], device)

    m.pad = pad


@part("6.1")
def empty_ones_unnamed(m):
    """The message does not say which sequence is empty."""
    right = m.pad

    def pad(sequences, starts=None, device="cpu"):
        if sequences and not all(sequences):
            raise ValueError("a sequence is empty")
        return right(sequences, starts, device)

    m.pad = pad


def static(m, change) -> None:
    """change(right, model, cache, prompts, counts, end_ids) takes generate_static's place."""
    right = m.generate_static

    def generate_static(model, cache, prompts, max_new_tokens, end_ids=()):
        return change(right, model, cache, prompts, max_new_tokens, end_ids)

    m.generate_static = generate_static


class Changed:
    """A cache with one method of another kind."""

    def __init__(self, cache, name, method):
        self._cache, self._name, self._method = cache, name, method

    def __getattr__(self, name):
        if name == self._name:
            return lambda *args: self._method(self._cache, *args)
        return getattr(self._cache, name)


def with_cache(m, name, method) -> None:
    """generate_static sees a cache whose method of that name is method(cache, ...)."""
    static(
        m,
        lambda right, model, cache, *rest: right(model, Changed(cache, name, method), *rest),
    )


@part("6.1")
def whole_rows_reserved(m):
    """All of a row is reserved."""
    with_cache(m, "reserve", lambda cache, row, length: cache.reserve(row, cache.max_length))


@part("6.1")
def last_row_kept(m):
    """The last row stays reserved."""
    with_cache(m, "free", lambda cache, row: cache.free(row) if row < 2 else None)


@part("6.1")
def kept_when_a_row_is_full(m):
    """The rows are reserved before the `try`: what was reserved stays when one of them is full."""

    def change(right, model, cache, prompts, *rest):
        taken, full = [], []

        def reserve(cache, row, length):
            try:
                cache.reserve(row, length)
                taken.append((row, length))
            except Exception:
                full.append(row)
                raise

        try:
            return right(model, Changed(cache, "reserve", reserve), prompts, *rest)
        finally:
            for row, length in taken if full else ():
                cache.reserve(row, length)

    static(m, change)


@part("6.1")
def length_before_the_end_id(m):
    """With the last token that there may be nobody looks whether it is an end id."""
    right = m._take

    def take(token, answer, limit, end_ids):
        if len(answer) + 1 < limit:
            return right(token, answer, limit, end_ids)
        answer += [token] * (token not in end_ids)
        return "length"

    m._take = take


@part("6.1")
def small_vocabulary(m):
    """Token ids are kept in 16 bits on the way."""
    padded(m, lambda tokens, positions: (tokens.short().long(), positions))


@part("6.1")
def starts_in_a_list_only(m):
    """A tuple of starts is an error."""
    right = m.pad

    def pad(sequences, starts=None, device="cpu"):
        return right(sequences, starts if starts is None else starts.copy(), device)

    m.pad = pad


@part("6.1")
def tokens_kept(m):
    """The room is given back by hand; what the rows hold stays there."""
    with_cache(m, "free", lambda cache, row: cache.reserved.__setitem__(row, 0))


@part("6.1")
def room_kept_after_ctrl_c(m):
    """`except Exception` where it should be `finally`."""

    def change(right, model, cache, *rest):
        frees = []
        try:
            return right(model, Changed(cache, "free", lambda c, row: frees.append(row)), *rest)
        except Exception:
            raise
        except BaseException:
            frees.clear()
            raise
        finally:
            for row in frees:
                cache.free(row)

    static(m, change)


@part("6.1")
def reserved_as_it_grows(m):
    """Only the prompts are reserved at first."""

    def change(right, model, cache, prompts, counts, ends):
        full = dict(enumerate(counts))

        def reserve(cache, row, length):
            full[row] = length
            cache.reserve(row, len(prompts[row]))

        forward, calls = model.forward, []

        def grow(*args, **named):
            calls.append(0)
            if len(calls) > 1:
                for row, length in full.items():
                    cache.reserve(row, length)
            return forward(*args, **named)

        model.forward = grow
        return right(model, Changed(cache, "reserve", reserve), prompts, counts, ends)

    static(m, change)


@part("6.1")
def one_forward_more(m):
    """Another forward is computed when all are over."""

    def change(right, model, cache, prompts, counts, ends):
        found = right(model, cache, prompts, counts, ends)
        one = torch.zeros((len(prompts), 1), dtype=torch.long)
        model.forward(one, one)
        return found

    static(m, change)


@part("6.1")
def end_ids_indexed(m):
    """A set of end ids fails."""

    def change(right, model, cache, prompts, counts, ends):
        return right(model, cache, prompts, counts, [ends[i] for i in range(len(ends))])

    static(m, change)


@part("6.1")
def prompts_extended(m):
    """The caller's prompts hold the answers afterwards."""

    def change(right, model, cache, prompts, *rest):
        found = right(model, cache, prompts, *rest)
        for prompt, answer in zip(prompts, found.answers, strict=True):
            if isinstance(prompt, list):
                prompt.extend(answer.ids)
        return found

    static(m, change)


@part("6.1")
def reserved_before_it_looks(m):
    """Rows are reserved before the counts are compared, and stay so."""

    def change(right, model, cache, prompts, counts, ends):
        for row, prompt in enumerate(prompts[: cache.rows]):
            cache.reserve(row, min(len(prompt), cache.max_length))
        return right(model, cache, prompts, counts, ends)

    static(m, change)


@part("6.1")
def shortest_limit_for_all(m):
    """Counts beyond the number of prompts are left out."""

    def change(right, model, cache, prompts, counts, ends):
        return right(model, cache, prompts, counts[: len(prompts)], ends)

    static(m, change)


@part("6.1")
def all_is_useful(m):
    """Nothing counts as wasted."""

    def change(right, *args):
        found = right(*args)
        return m.StaticBatch(found.answers, found.places, 0)

    static(m, change)
