"""4.2, 4.5, 4.7 and 4.8: the first row, the first name or the first id taken for all of them."""

from tests.parts import part


@part("4.2")
def one_token_first_sequence(m):
    """With one token each, every sequence is turned by the angle of the first."""
    right = m.apply_rope

    def apply_rope(x, cos, sin):
        one = x.shape[2] == 1
        return right(x, cos[:1], sin[:1]) if one else right(x, cos, sin)

    m.apply_rope = apply_rope


@part("4.5")
def always_the_first_row_freed(m):
    """free gives back row 0, whichever was asked for."""
    right = m.KVCache.free
    m.KVCache.free = lambda self, row: right(self, 0 if 0 <= row < self.rows else row)


@part("4.5")
def all_rows_freed(m):
    """free gives back every row."""
    right = m.KVCache.free

    def free(self, row):
        right(self, row)
        for other in range(self.rows):
            right(self, other)

    m.KVCache.free = free


@part("4.5")
def growth_compared_with_what_is_free(m):
    """reserve wants the whole length to be free, although the row has a part of it already."""
    right = m.KVCache.reserve

    def reserve(self, row, length):
        if 0 <= row < self.rows and length > self.free_tokens + (self.reserved[row] == 0) * 10**9:
            raise m.CacheFull(f"{length} of {self.max_length}")
        right(self, row, length)

    m.KVCache.reserve = reserve


@part("4.7")
def values_in_order(m):
    """The first value of a message is taken for its role."""
    right = m.chat_ids

    def chat_ids(messages, encode, special):
        named = [dict(zip(("role", "content"), t.values(), strict=False)) for t in messages]
        return right(named, encode, special)

    m.chat_ids = chat_ids


@part("4.7")
def special_in_order(m):
    """The first special id is taken for the opening marker, the second for the closing one."""
    right = m.chat_ids

    def chat_ids(messages, encode, special):
        names = ("<|im_start|>", "<|im_end|>")
        return right(messages, encode, dict(zip(names, special.values(), strict=False)))

    m.chat_ids = chat_ids


@part("4.8")
def end_id_in_the_prompt_stops(m):
    """A prompt that holds an end id gets an empty answer."""
    right = m.generate_greedy

    def generate_greedy(model, prompt, max_new_tokens, end_ids, cache=None, on_token=None):
        if set(prompt) & set(end_ids):
            return m.Generation([], "stop")
        return right(model, prompt, max_new_tokens, end_ids, cache, on_token)

    m.generate_greedy = generate_greedy


@part("4.8")
def last_end_id_only(m):
    """Of several end ids only the last one ends the text."""
    right = m.generate_greedy

    def generate_greedy(model, prompt, max_new_tokens, end_ids, cache=None, on_token=None):
        return right(model, prompt, max_new_tokens, list(end_ids)[-1:], cache, on_token)

    m.generate_greedy = generate_greedy
