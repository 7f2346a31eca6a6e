"""4.8 generate_greedy."""

import torch

from tests.parts import part


def replace(m, generate) -> None:
    """generate(right, model, prompt, max_new_tokens, end_ids, cache, on_token) takes its place."""
    right = m.generate_greedy

    def generate_greedy(model, prompt, max_new_tokens, end_ids, cache=None, on_token=None):
        return generate(right, model, prompt, max_new_tokens, end_ids, cache, on_token)

    m.generate_greedy = generate_greedy


@part("4.8")
def end_ids_indexed(m):
    """A set of end ids fails."""

    def generate(right, model, prompt, count, end_ids, *args):
        if end_ids:
            end_ids[0]
        return right(model, prompt, count, end_ids, *args)

    replace(m, generate)


@part("4.8")
def end_id_zero_unseen(m):
    """The end id 0 is left out, as false."""

    def generate(right, model, prompt, count, end_ids, *args):
        return right(model, prompt, count, [e for e in end_ids if e], *args)

    replace(m, generate)


@part("4.8")
def prompt_must_be_a_list(m):
    """A tuple as the prompt is an error."""
    replace(m, lambda right, model, prompt, *args: right(model, prompt.copy(), *args))


@part("4.8")
def prompt_extended(m):
    """The caller's prompt holds the answer afterwards."""

    def generate(right, model, prompt, *args):
        found = right(model, prompt, *args)
        if isinstance(prompt, list):
            prompt.extend(found.ids)
        return found

    replace(m, generate)


@part("4.8")
def all_digits_in_the_message(m):
    """The message of the ValueError contains every number, one inside the other."""
    right = m.room_for

    def room_for(*args):
        try:
            return right(*args)
        except ValueError:
            raise ValueError("0123456789 1011121314151617181920 2122232425262728293031") from None

    m.room_for = room_for


@part("4.8")
def one_free_place_refused(m):
    """A prompt that leaves room for exactly one token is refused."""
    right = m.room_for

    def room_for(config, prompt, count, cache):
        room = right(config, prompt, 10**9, cache)
        if room == 1:
            raise ValueError(f"{len(prompt)} tokens leave no room in {len(prompt) + 1}")
        return right(config, prompt, count, cache)

    m.room_for = room_for


@part("4.8")
def every_row_freed(m):
    """All rows of the cache are freed at the end, whoever they belong to."""

    def generate(right, model, prompt, count, end_ids, cache, on_token):
        try:
            return right(model, prompt, count, end_ids, cache, on_token)
        finally:
            for row in range(cache.rows if cache is not None else 0):
                cache.free(row)

    replace(m, generate)


def reserving(m, reserve) -> None:
    """reserve(cache, length) before anything else is done."""

    def generate(right, model, prompt, count, end_ids, cache, on_token):
        length = len(prompt) + m.room_for(model.config, prompt, count, cache)
        if cache is not None:
            reserve(cache, length)
        return right(model, prompt, count, end_ids, cache, on_token)

    replace(m, generate)


@part("4.8")
def every_row_reserved(m):
    """Room is reserved in all rows of the cache."""
    reserving(m, lambda cache, n: [cache.reserve(row, n) for row in range(cache.rows)])


@part("4.8")
def whole_row_reserved(m):
    """All of the row is reserved, also what cannot be needed."""
    reserving(m, lambda cache, length: cache.reserve(0, cache.max_length))


@part("4.8")
def told_only_with_a_cache(m):
    """on_token is not called when there is no cache."""

    def generate(right, model, prompt, count, end_ids, cache, on_token):
        return right(model, prompt, count, end_ids, cache, on_token if cache else None)

    replace(m, generate)


@part("4.8")
def told_tensors(m):
    """on_token gets a tensor, while the ids are ints."""

    def generate(right, model, prompt, count, end_ids, cache, on_token):
        told = on_token and (lambda token: on_token(torch.tensor(token)))
        return right(model, prompt, count, end_ids, cache, told)

    replace(m, generate)


def change_ids(m, change) -> None:
    """Each id is something else than an int."""
    right = m._most_probable

    def most_probable(model, new_ids, start, cache):
        return change(right(model, [int(i) for i in new_ids], start, cache))

    m._most_probable = most_probable


@part("4.8")
def ids_are_floats(m):
    """Ids and what on_token gets are floats."""
    change_ids(m, float)


@part("4.8")
def ids_are_tensors(m):
    """Ids and what on_token gets are tensors without a dimension."""
    change_ids(m, torch.tensor)


def written_out(m, room=None, kept=lambda error, where: False) -> None:
    """The whole function again, with other room at first, or the row kept after some errors."""

    def generate_greedy(model, prompt, max_new_tokens, end_ids, cache=None, on_token=None):
        limit = m.room_for(model.config, prompt, max_new_tokens, cache)
        ids, done = list(prompt), 0
        if cache is not None:
            cache.reserve(0, len(prompt) + (min(limit, room) if room else limit))
        reason, where = "length", "prefill"
        try:
            for _ in range(limit):
                if cache is not None:
                    cache.reserve(0, len(ids))
                token = m._most_probable(model, ids[done:], done, cache)
                if token in end_ids:
                    reason = "stop"
                    break
                done = len(ids) if cache is not None else 0
                ids.append(token)
                where = "on_token"
                if on_token is not None:
                    on_token(token)
                where = "decode"
        except BaseException as error:
            if cache is not None and not kept(error, where):
                cache.free(0)
            raise
        if cache is not None:
            cache.free(0)
        return m.Generation(ids[len(prompt) :], reason)

    m.generate_greedy = generate_greedy


@part("4.8")
def room_for_six_at_first(m):
    """Room for more than six new tokens is asked for when they come."""
    written_out(m, room=6)


@part("4.8")
def kept_after_ctrl_c(m):
    """`except Exception` where it should be `finally`: the row stays reserved after Ctrl-C."""
    written_out(m, kept=lambda error, where: not isinstance(error, Exception))


@part("4.8")
def kept_after_ctrl_c_in_on_token(m):
    """`except Exception` around on_token alone: the row stays reserved after Ctrl-C there."""
    written_out(
        m, kept=lambda error, where: where == "on_token" and not isinstance(error, Exception)
    )


@part("4.8")
def kept_after_sys_exit(m):
    """`except (Exception, KeyboardInterrupt)`: the row stays reserved after sys.exit()."""
    written_out(m, kept=lambda error, where: isinstance(error, SystemExit))


@part("4.8")
def kept_when_the_prefill_fails(m):
    """The first forward stands before the `try`."""
    written_out(m, kept=lambda error, where: where == "prefill")


@part("4.8")
def tokens_kept_by_the_row(m):
    """The room is given back by hand, and what the row holds stays there."""

    def generate(right, model, prompt, count, end_ids, cache, on_token):
        if cache is not None:
            cache.free = lambda row: cache.reserved.__setitem__(row, 0)
        try:
            return right(model, prompt, count, end_ids, cache, on_token)
        finally:
            if cache is not None:
                del cache.free

    replace(m, generate)


@part("4.8")
def third_same_id_ends(m):
    """The same id three times in a row is taken for the end."""

    def generate(right, *args):
        found = right(*args)
        for i in range(2, len(found.ids)):
            if len(set(found.ids[i - 2 : i + 1])) == 1:
                return m.Generation(found.ids[:i], "stop")
        return found

    replace(m, generate)


@part("4.8")
def end_ids_of_three_kinds(m):
    """End ids that are not a list, tuple or set are taken for one id."""

    def generate(right, model, prompt, count, end_ids, *args):
        known = isinstance(end_ids, list | tuple | set)
        return right(model, prompt, count, end_ids if known else [end_ids], *args)

    replace(m, generate)
