"""Wrong versions of 4.6: Llama.forward and Llama.attend."""

import torch
import torch.nn.functional as F

from course.misconceptions import misconception
from solutions.forward_pass import (
    _last_real_column,
    apply_rope,
    attention,
    check_inputs,
    feed_forward,
    rope_tables,
)


@misconception("4.6", "Llama.forward")
def residual_from_the_normed(self, tokens, positions, cache=None, rows=None, every_position=False):
    """You add to the normalised x. The residual stream is x itself: the norm makes a copy for
    attention or feed-forward to read, and x goes past it untouched.
    """
    check_inputs(self.config, tokens, positions)
    rows = torch.arange(len(tokens)) if rows is None else rows
    rotation = rope_tables(positions, self.config.head_dim, self.config.rope_theta)
    x = self.embedding[tokens.where(positions >= 0, 0)]
    for layer in range(self.config.num_hidden_layers):
        x = self.norm(x, f"model.layers.{layer}.input_layernorm.weight")
        x = x + self.attend(layer, x, positions, rotation, cache, rows)
        x = self.norm(x, f"model.layers.{layer}.post_attention_layernorm.weight")
        x = x + feed_forward(x, *self.mlp_weights(layer), self.linear)
    if not every_position:
        x = x[torch.arange(len(x)), _last_real_column(positions)]
    return self.linear(self.norm(x, "model.norm.weight"), self.head)


@misconception("4.6", "Llama.forward")
def head_on_every_position(self, tokens, positions, cache=None, rows=None, every_position=False):
    """You multiply all positions by the head and then pick the last. The head is the largest matrix
    of all: of a prompt of 1,000 tokens, 999 products are thrown away. Pick first.
    """
    check_inputs(self.config, tokens, positions)
    rows = torch.arange(len(tokens)) if rows is None else rows
    rotation = rope_tables(positions, self.config.head_dim, self.config.rope_theta)
    x = self.embedding[tokens.where(positions >= 0, 0)]
    for layer in range(self.config.num_hidden_layers):
        h = self.norm(x, f"model.layers.{layer}.input_layernorm.weight")
        x = x + self.attend(layer, h, positions, rotation, cache, rows)
        h = self.norm(x, f"model.layers.{layer}.post_attention_layernorm.weight")
        x = x + feed_forward(h, *self.mlp_weights(layer), self.linear)
    logits = self.linear(self.norm(x, "model.norm.weight"), self.head)
    last = logits[torch.arange(len(x)), _last_real_column(positions)]
    return logits if every_position else last


@misconception("4.6", "Llama.forward")
def no_residual(self, tokens, positions, cache=None, rows=None, every_position=False):
    """You replace x by what attention and feed-forward return. Both are added to x: a layer
    corrects what is there, it does not start again.
    """
    check_inputs(self.config, tokens, positions)
    rows = torch.arange(len(tokens)) if rows is None else rows
    rotation = rope_tables(positions, self.config.head_dim, self.config.rope_theta)
    x = self.embedding[tokens.where(positions >= 0, 0)]
    for layer in range(self.config.num_hidden_layers):
        h = self.norm(x, f"model.layers.{layer}.input_layernorm.weight")
        x = self.attend(layer, h, positions, rotation, cache, rows)
        h = self.norm(x, f"model.layers.{layer}.post_attention_layernorm.weight")
        x = feed_forward(h, *self.mlp_weights(layer), self.linear)
    if not every_position:
        x = x[torch.arange(len(x)), _last_real_column(positions)]
    return self.linear(self.norm(x, "model.norm.weight"), self.head)


@misconception("4.6", "Llama.forward")
def second_norm_missing(self, tokens, positions, cache=None, rows=None, every_position=False):
    """Your feed-forward reads x as it is. It has a norm of its own before it,
    post_attention_layernorm.
    """
    check_inputs(self.config, tokens, positions)
    rows = torch.arange(len(tokens)) if rows is None else rows
    rotation = rope_tables(positions, self.config.head_dim, self.config.rope_theta)
    x = self.embedding[tokens.where(positions >= 0, 0)]
    for layer in range(self.config.num_hidden_layers):
        h = self.norm(x, f"model.layers.{layer}.input_layernorm.weight")
        x = x + self.attend(layer, h, positions, rotation, cache, rows)
        x = x + feed_forward(x, *self.mlp_weights(layer), self.linear)
    if not every_position:
        x = x[torch.arange(len(x)), _last_real_column(positions)]
    return self.linear(self.norm(x, "model.norm.weight"), self.head)


@misconception("4.6", "Llama.forward")
def first_norm_used_twice(self, tokens, positions, cache=None, rows=None, every_position=False):
    """You use input_layernorm before the feed-forward too. The weight there is
    post_attention_layernorm.
    """
    check_inputs(self.config, tokens, positions)
    rows = torch.arange(len(tokens)) if rows is None else rows
    rotation = rope_tables(positions, self.config.head_dim, self.config.rope_theta)
    x = self.embedding[tokens.where(positions >= 0, 0)]
    for layer in range(self.config.num_hidden_layers):
        h = self.norm(x, f"model.layers.{layer}.input_layernorm.weight")
        x = x + self.attend(layer, h, positions, rotation, cache, rows)
        h = self.norm(x, f"model.layers.{layer}.input_layernorm.weight")
        x = x + feed_forward(h, *self.mlp_weights(layer), self.linear)
    if not every_position:
        x = x[torch.arange(len(x)), _last_real_column(positions)]
    return self.linear(self.norm(x, "model.norm.weight"), self.head)


@misconception("4.6", "Llama.forward")
def both_halves_from_one_norm(self, tokens, positions, cache=None, rows=None, every_position=False):
    """Your feed-forward reads the x from before attention: the two halves run side by side. In
    Llama they follow each other: normalise again after attention has been added.
    """
    check_inputs(self.config, tokens, positions)
    rows = torch.arange(len(tokens)) if rows is None else rows
    rotation = rope_tables(positions, self.config.head_dim, self.config.rope_theta)
    x = self.embedding[tokens.where(positions >= 0, 0)]
    for layer in range(self.config.num_hidden_layers):
        h = self.norm(x, f"model.layers.{layer}.input_layernorm.weight")
        g = self.norm(x, f"model.layers.{layer}.post_attention_layernorm.weight")
        x = x + self.attend(layer, h, positions, rotation, cache, rows)
        x = x + feed_forward(g, *self.mlp_weights(layer), self.linear)
    if not every_position:
        x = x[torch.arange(len(x)), _last_real_column(positions)]
    return self.linear(self.norm(x, "model.norm.weight"), self.head)


@misconception("4.6", "Llama.forward")
def final_norm_missing(self, tokens, positions, cache=None, rows=None, every_position=False):
    """You go from the last layer straight to the head. There is one more norm between them,
    model.norm.
    """
    check_inputs(self.config, tokens, positions)
    rows = torch.arange(len(tokens)) if rows is None else rows
    rotation = rope_tables(positions, self.config.head_dim, self.config.rope_theta)
    x = self.embedding[tokens.where(positions >= 0, 0)]
    for layer in range(self.config.num_hidden_layers):
        h = self.norm(x, f"model.layers.{layer}.input_layernorm.weight")
        x = x + self.attend(layer, h, positions, rotation, cache, rows)
        h = self.norm(x, f"model.layers.{layer}.post_attention_layernorm.weight")
        x = x + feed_forward(h, *self.mlp_weights(layer), self.linear)
    if not every_position:
        x = x[torch.arange(len(x)), _last_real_column(positions)]
    return self.linear(x, self.head)


@misconception("4.6", "Llama.forward")
def always_the_tied_head(self, tokens, positions, cache=None, rows=None, every_position=False):
    """You multiply by the embedding in every model. That is right only where the head is tied to
    it; others bring lm_head.weight, and self.head is the one to use.
    """
    check_inputs(self.config, tokens, positions)
    rows = torch.arange(len(tokens)) if rows is None else rows
    rotation = rope_tables(positions, self.config.head_dim, self.config.rope_theta)
    x = self.embedding[tokens.where(positions >= 0, 0)]
    for layer in range(self.config.num_hidden_layers):
        h = self.norm(x, f"model.layers.{layer}.input_layernorm.weight")
        x = x + self.attend(layer, h, positions, rotation, cache, rows)
        h = self.norm(x, f"model.layers.{layer}.post_attention_layernorm.weight")
        x = x + feed_forward(h, *self.mlp_weights(layer), self.linear)
    if not every_position:
        x = x[torch.arange(len(x)), _last_real_column(positions)]
    return self.linear(self.norm(x, "model.norm.weight"), self.embedding)


@misconception("4.6", "Llama.forward")
def last_column(self, tokens, positions, cache=None, rows=None, every_position=False):
    """You take the last column of every sequence. Where there is padding on the right, nothing is
    there: take the rightmost column whose position is not -1.
    """
    check_inputs(self.config, tokens, positions)
    rows = torch.arange(len(tokens)) if rows is None else rows
    rotation = rope_tables(positions, self.config.head_dim, self.config.rope_theta)
    x = self.embedding[tokens.where(positions >= 0, 0)]
    for layer in range(self.config.num_hidden_layers):
        h = self.norm(x, f"model.layers.{layer}.input_layernorm.weight")
        x = x + self.attend(layer, h, positions, rotation, cache, rows)
        h = self.norm(x, f"model.layers.{layer}.post_attention_layernorm.weight")
        x = x + feed_forward(h, *self.mlp_weights(layer), self.linear)
    if not every_position:
        x = x[:, -1]
    return self.linear(self.norm(x, "model.norm.weight"), self.head)


@misconception("4.6", "Llama.forward")
def column_by_count(self, tokens, positions, cache=None, rows=None, every_position=False):
    """You count a sequence's tokens and take the column of that number. That is the last one only
    if all padding is on the right; it may stand on the left or in between.
    """
    check_inputs(self.config, tokens, positions)
    rows = torch.arange(len(tokens)) if rows is None else rows
    rotation = rope_tables(positions, self.config.head_dim, self.config.rope_theta)
    x = self.embedding[tokens.where(positions >= 0, 0)]
    for layer in range(self.config.num_hidden_layers):
        h = self.norm(x, f"model.layers.{layer}.input_layernorm.weight")
        x = x + self.attend(layer, h, positions, rotation, cache, rows)
        h = self.norm(x, f"model.layers.{layer}.post_attention_layernorm.weight")
        x = x + feed_forward(h, *self.mlp_weights(layer), self.linear)
    if not every_position:
        x = x[torch.arange(len(x)), (positions >= 0).sum(-1) - 1]
    return self.linear(self.norm(x, "model.norm.weight"), self.head)


@misconception("4.6", "Llama.forward")
def positions_recounted(self, tokens, positions, cache=None, rows=None, every_position=False):
    """You count positions from 0 in every call. After a prefill of 5 the next token stands at 5,
    and padding shifts columns too: use the positions you are given.
    """
    check_inputs(self.config, tokens, positions)
    rows = torch.arange(len(tokens)) if rows is None else rows
    columns = torch.arange(tokens.shape[1]).expand(tokens.shape)
    rotation = rope_tables(columns, self.config.head_dim, self.config.rope_theta)
    x = self.embedding[tokens.where(positions >= 0, 0)]
    for layer in range(self.config.num_hidden_layers):
        h = self.norm(x, f"model.layers.{layer}.input_layernorm.weight")
        x = x + self.attend(layer, h, positions, rotation, cache, rows)
        h = self.norm(x, f"model.layers.{layer}.post_attention_layernorm.weight")
        x = x + feed_forward(h, *self.mlp_weights(layer), self.linear)
    if not every_position:
        x = x[torch.arange(len(x)), _last_real_column(positions)]
    return self.linear(self.norm(x, "model.norm.weight"), self.head)


@misconception("4.6", "Llama.forward")
def rows_ignored(self, tokens, positions, cache=None, rows=None, every_position=False):
    """You use cache rows 0 to B - 1 always. `rows` names the row of each sequence; 0 to B - 1 is
    only the default.
    """
    check_inputs(self.config, tokens, positions)
    rows = torch.arange(len(tokens))
    rotation = rope_tables(positions, self.config.head_dim, self.config.rope_theta)
    x = self.embedding[tokens.where(positions >= 0, 0)]
    for layer in range(self.config.num_hidden_layers):
        h = self.norm(x, f"model.layers.{layer}.input_layernorm.weight")
        x = x + self.attend(layer, h, positions, rotation, cache, rows)
        h = self.norm(x, f"model.layers.{layer}.post_attention_layernorm.weight")
        x = x + feed_forward(h, *self.mlp_weights(layer), self.linear)
    if not every_position:
        x = x[torch.arange(len(x)), _last_real_column(positions)]
    return self.linear(self.norm(x, "model.norm.weight"), self.head)


@misconception("4.6", "Llama.forward")
def inputs_not_checked(self, tokens, positions, cache=None, rows=None, every_position=False):
    """You do not call check_inputs, or not in every case, so bad input fails somewhere inside a
    layer, with a cache when it has already been written. Call it first.
    """
    rows = torch.arange(len(tokens)) if rows is None else rows
    rotation = rope_tables(positions, self.config.head_dim, self.config.rope_theta)
    x = self.embedding[tokens.where(positions >= 0, 0)]
    for layer in range(self.config.num_hidden_layers):
        h = self.norm(x, f"model.layers.{layer}.input_layernorm.weight")
        x = x + self.attend(layer, h, positions, rotation, cache, rows)
        h = self.norm(x, f"model.layers.{layer}.post_attention_layernorm.weight")
        x = x + feed_forward(h, *self.mlp_weights(layer), self.linear)
    if not every_position:
        x = x[torch.arange(len(x)), _last_real_column(positions)]
    return self.linear(self.norm(x, "model.norm.weight"), self.head)


@misconception("4.6", "Llama.attend")
def keys_cached_before_rotation(self, layer, x, positions, rotation, cache, rows):
    """You write the keys to the cache before you rotate them. What is read back later has no
    position in it: rotate, write, read, attend, in this order.
    """
    q, k, v = (self.heads(layer, name, x) for name in ("q_proj", "k_proj", "v_proj"))
    q, turned, k_positions = apply_rope(q, *rotation), apply_rope(k, *rotation), positions
    if cache is not None:
        cache.write(layer, rows, positions, k, v)
        turned, v, k_positions = cache.read(layer, rows)
    joined = attention(q, turned, v, positions, k_positions).transpose(1, 2).flatten(2)
    return self.linear(joined, self.weights[f"model.layers.{layer}.self_attn.o_proj.weight"])


@misconception("4.6", "Llama.attend")
def values_rotated(self, layer, x, positions, rotation, cache, rows):
    """You rotate the values too. Only queries and keys turn: their dot product should know the
    distance, the values should arrive as they are.
    """
    q, k, v = (self.heads(layer, name, x) for name in ("q_proj", "k_proj", "v_proj"))
    q, k, v = (apply_rope(t, *rotation) for t in (q, k, v))
    k_positions = positions
    if cache is not None:
        cache.write(layer, rows, positions, k, v)
        k, v, k_positions = cache.read(layer, rows)
    joined = attention(q, k, v, positions, k_positions).transpose(1, 2).flatten(2)
    return self.linear(joined, self.weights[f"model.layers.{layer}.self_attn.o_proj.weight"])


@misconception("4.6", "Llama.attend")
def keys_not_rotated(self, layer, x, positions, rotation, cache, rows):
    """You rotate the queries but not the keys. A dot product sees the distance of two tokens only
    when both have been turned by their own angle.
    """
    q, k, v = (self.heads(layer, name, x) for name in ("q_proj", "k_proj", "v_proj"))
    q, k_positions = apply_rope(q, *rotation), positions
    if cache is not None:
        cache.write(layer, rows, positions, k, v)
        k, v, k_positions = cache.read(layer, rows)
    joined = attention(q, k, v, positions, k_positions).transpose(1, 2).flatten(2)
    return self.linear(joined, self.weights[f"model.layers.{layer}.self_attn.o_proj.weight"])


@misconception("4.6", "Llama.attend")
def heads_not_brought_together(self, layer, x, positions, rotation, cache, rows):
    """You join the heads without swapping heads and tokens first, so a token gets numbers of other
    tokens. attention returns [B, H, T, D]; [B, T, H, D] is what can be flattened.
    """
    q, k, v = (self.heads(layer, name, x) for name in ("q_proj", "k_proj", "v_proj"))
    q, k, k_positions = apply_rope(q, *rotation), apply_rope(k, *rotation), positions
    if cache is not None:
        cache.write(layer, rows, positions, k, v)
        k, v, k_positions = cache.read(layer, rows)
    mixed = attention(q, k, v, positions, k_positions)
    joined = mixed.reshape(x.shape[0], x.shape[1], -1)
    return self.linear(joined, self.weights[f"model.layers.{layer}.self_attn.o_proj.weight"])


@misconception("4.6", "Llama.attend")
def cache_not_read(self, layer, x, positions, rotation, cache, rows):
    """You write to the cache but attend to the new tokens only. What was written in earlier calls
    has to be read back, or every call starts with an empty memory.
    """
    q, k, v = (self.heads(layer, name, x) for name in ("q_proj", "k_proj", "v_proj"))
    q, k = apply_rope(q, *rotation), apply_rope(k, *rotation)
    if cache is not None:
        cache.write(layer, rows, positions, k, v)
    joined = attention(q, k, v, positions, positions).transpose(1, 2).flatten(2)
    return self.linear(joined, self.weights[f"model.layers.{layer}.self_attn.o_proj.weight"])


@misconception("4.6", "Llama.attend")
def output_not_projected(self, layer, x, positions, rotation, cache, rows):
    """You return the joined heads without the last product. o_proj mixes what the heads found and
    brings H times D numbers back to E.
    """
    q, k, v = (self.heads(layer, name, x) for name in ("q_proj", "k_proj", "v_proj"))
    q, k, k_positions = apply_rope(q, *rotation), apply_rope(k, *rotation), positions
    if cache is not None:
        cache.write(layer, rows, positions, k, v)
        k, v, k_positions = cache.read(layer, rows)
    return attention(q, k, v, positions, k_positions).transpose(1, 2).flatten(2)


@misconception("4.6", "Llama.attend")
def linear_not_used(self, layer, x, positions, rotation, cache, rows):
    """A product goes past self.linear: you multiply with o_proj yourself, or do not pass
    self.linear on to feed_forward. It alone knows what a quantized weight is made of.
    """
    q, k, v = (self.heads(layer, name, x) for name in ("q_proj", "k_proj", "v_proj"))
    q, k, k_positions = apply_rope(q, *rotation), apply_rope(k, *rotation), positions
    if cache is not None:
        cache.write(layer, rows, positions, k, v)
        k, v, k_positions = cache.read(layer, rows)
    joined = attention(q, k, v, positions, k_positions).transpose(1, 2).flatten(2)
    return F.linear(joined, self.weights[f"model.layers.{layer}.self_attn.o_proj.weight"])
