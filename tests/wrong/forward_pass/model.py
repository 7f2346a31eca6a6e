"""4.6 Llama."""

import torch

from tests.parts import part


def replace_forward(m, forward) -> None:
    """forward(right, self, tokens, positions, cache, rows, every_position) takes its place."""
    right = m.Llama.forward

    def wrapped(self, tokens, positions, cache=None, rows=None, every_position=False):
        return forward(right, self, tokens, positions, cache, rows, every_position)

    m.Llama.forward = wrapped


@part("4.6")
def no_mask_for_one_token(m):
    """One new token a sequence is taken as free of padding: wrong in a ragged batch."""
    right = m.attention

    def attention(q, k, v, q_positions, k_positions):
        if q.shape[2] == 1:
            k_positions = torch.zeros_like(k_positions)
        return right(q, k, v, q_positions, k_positions)

    m.attention = attention


@part("4.6")
def default_rows_are_zero(m):
    """Without rows, every sequence lives in row 0."""

    def forward(right, self, tokens, positions, cache, rows, every_position):
        rows = torch.zeros(len(tokens), dtype=torch.long) if rows is None else rows
        return right(self, tokens, positions, cache, rows, every_position)

    replace_forward(m, forward)


@part("4.6")
def looks_padding_up(m):
    """The token at a padded place is looked up too, and may not exist."""

    def forward(right, self, tokens, positions, *args):
        m.check_inputs(self.config, tokens, positions)
        self.embedding[tokens]
        return right(self, tokens, positions, *args)

    replace_forward(m, forward)


@part("4.6")
def logits_in_float32(m):
    """A model in 16 bits gives float32."""
    replace_forward(m, lambda right, *args: right(*args).float())


@part("4.6")
def tokens_changed(m):
    """The caller's tokens and positions have no padding left afterwards."""

    def forward(right, self, tokens, positions, *args):
        found = right(self, tokens, positions, *args)
        tokens.masked_fill_(positions < 0, 0)
        positions.clamp_(min=0)
        return found

    replace_forward(m, forward)


@part("4.6")
def last_column_of_one_sequence(m):
    """A single sequence answers at its last column, even where that is padding."""

    def forward(right, self, tokens, positions, cache, rows, every_position):
        if len(tokens) == 1 and not every_position:
            return right(self, tokens, positions, cache, rows, True)[:, -1]
        return right(self, tokens, positions, cache, rows, every_position)

    replace_forward(m, forward)


@part("4.6")
def first_cache_kept(m):
    """The first cache that the model was ever given is used in place of later ones."""

    def forward(right, self, tokens, positions, cache, *args):
        if cache is not None:
            self.kept = cache = getattr(self, "kept", cache)
        return right(self, tokens, positions, cache, *args)

    replace_forward(m, forward)


@part("4.6")
def context_not_checked(m):
    """Of the inputs, negative ids and positions past the context are not refused."""
    right = m.check_inputs

    def check_inputs(config, tokens, positions):
        if tokens.shape == positions.shape:
            positions = positions.clamp(max=config.max_position_embeddings - 1)
            tokens = tokens.where(tokens >= 0, 0)
        right(config, tokens, positions)

    m.check_inputs = check_inputs


@part("4.6")
def tied_head_by_hand(m):
    """A tied head is multiplied without `linear`."""

    def forward(right, self, *args):
        linear, ours = self.linear, self.config.tie_word_embeddings
        self.linear = lambda x, w: x @ w.T if ours and w is self.head else linear(x, w)
        try:
            return right(self, *args)
        finally:
            self.linear = linear

    replace_forward(m, forward)


@part("4.6")
def attend_changes_x(m):
    """x is zeros afterwards."""
    right = m.Llama.attend

    def attend(self, layer, x, *args):
        found = right(self, layer, x, *args)
        x.zero_()
        return found

    m.Llama.attend = attend


@part("4.6")
def attend_reaches_into_the_cache(m):
    """The cache's own tensors are used: another kind of cache has none."""
    right = m.Llama.attend

    def attend(self, layer, x, positions, rotation, cache, rows):
        if cache is not None:
            cache.keys[layer][rows], cache.lengths[rows]
        return right(self, layer, x, positions, rotation, cache, rows)

    m.Llama.attend = attend


@part("4.6")
def default_rows_of_the_first_call(m):
    """Without rows, those of the first call are kept, also for another number of sequences."""

    def forward(right, self, tokens, positions, cache, rows, every_position):
        if rows is None:
            self.kept = rows = getattr(self, "kept", torch.arange(len(tokens)))
        return right(self, tokens, positions, cache, rows, every_position)

    replace_forward(m, forward)


@part("4.6")
def rows_must_be_given(m):
    """Rows that are left out are -1."""
    right = m.Llama.forward

    def forward(self, tokens, positions, cache=None, rows=-1, every_position=False):
        rows = torch.full((len(tokens),), -1) if isinstance(rows, int) else rows
        return right(self, tokens, positions, cache, rows, every_position)

    m.Llama.forward = forward


@part("4.6")
def padding_counted_at_every_position(m):
    """With every_position and no cache, padding is taken for tokens."""

    def forward(right, self, tokens, positions, cache, rows, every_position):
        if every_position and cache is None:
            tokens = tokens.where(positions >= 0, 0)
            positions = torch.arange(tokens.shape[1]).expand(tokens.shape)
        return right(self, tokens, positions, cache, rows, every_position)

    replace_forward(m, forward)


@part("4.6")
def columns_of_the_first_sequence(m):
    """With every_position, the columns where the first sequence has padding are left out."""

    def forward(right, self, tokens, positions, cache, rows, every_position):
        logits = right(self, tokens, positions, cache, rows, every_position)
        return logits[:, positions[0] >= 0] if every_position else logits

    replace_forward(m, forward)


def by_hand(m, where) -> None:
    """Products go past `linear` where(self, tokens, cache, every_position, weight) is true."""

    def forward(right, self, tokens, positions, cache, rows, every_position):
        kept = self.linear

        def linear(x, weight):
            here = where(self, tokens, cache, every_position, weight)
            return x @ weight.T if here else kept(x, weight)

        self.linear = linear
        try:
            return right(self, tokens, positions, cache, rows, every_position)
        finally:
            self.linear = kept

    replace_forward(m, forward)


@part("4.6")
def head_by_hand_at_every_position(m):
    """With every_position the head is multiplied without `linear`."""
    by_hand(m, lambda self, tokens, cache, every, weight: every and weight is self.head)


@part("4.6")
def one_token_by_hand(m):
    """A single token is multiplied without `linear`."""
    by_hand(m, lambda self, tokens, cache, every, weight: tokens.shape[1] == 1)


@part("4.6")
def by_hand_with_a_cache(m):
    """With a cache nothing goes through `linear`."""
    by_hand(m, lambda self, tokens, cache, every, weight: cache is not None)


@part("4.6")
def head_on_all_with_a_cache(m):
    """In a prefill all positions go through the head."""

    def forward(right, self, tokens, positions, cache, rows, every_position):
        if cache is None or every_position:
            return right(self, tokens, positions, cache, rows, every_position)
        logits = right(self, tokens, positions, cache, rows, True)
        return logits[torch.arange(len(logits)), m._last_real_column(positions)]

    replace_forward(m, forward)
