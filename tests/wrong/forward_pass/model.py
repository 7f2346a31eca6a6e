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
