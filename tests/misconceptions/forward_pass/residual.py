"""Wrong versions of 4.6: one of the two residuals of a layer is lost."""

import torch

from course.misconceptions import misconception
from solutions.forward_pass import _last_real_column, check_inputs, feed_forward, rope_tables


@misconception("4.6", "Llama.forward")
def attention_not_added(self, tokens, positions, cache=None, rows=None, every_position=False):
    """You replace x by what attention returns, and lose what was there. It is added: x = x + ...
    in both halves of a layer.
    """
    check_inputs(self.config, tokens, positions)
    rows = torch.arange(len(tokens)) if rows is None else rows
    rotation = rope_tables(positions, self.config.head_dim, self.config.rope_theta)
    x = self.embedding[tokens.where(positions >= 0, 0)]
    for layer in range(self.config.num_hidden_layers):
        h = self.norm(x, f"model.layers.{layer}.input_layernorm.weight")
        x = self.attend(layer, h, positions, rotation, cache, rows)
        h = self.norm(x, f"model.layers.{layer}.post_attention_layernorm.weight")
        x = x + feed_forward(h, *self.mlp_weights(layer), self.linear)
    if not every_position:
        x = x[torch.arange(len(x)), _last_real_column(positions)]
    return self.linear(self.norm(x, "model.norm.weight"), self.head)


@misconception("4.6", "Llama.forward")
def feed_forward_not_added(self, tokens, positions, cache=None, rows=None, every_position=False):
    """You replace x by what the feed-forward returns, and lose what was there. It is added:
    x = x + ... in both halves of a layer.
    """
    check_inputs(self.config, tokens, positions)
    rows = torch.arange(len(tokens)) if rows is None else rows
    rotation = rope_tables(positions, self.config.head_dim, self.config.rope_theta)
    x = self.embedding[tokens.where(positions >= 0, 0)]
    for layer in range(self.config.num_hidden_layers):
        h = self.norm(x, f"model.layers.{layer}.input_layernorm.weight")
        x = x + self.attend(layer, h, positions, rotation, cache, rows)
        h = self.norm(x, f"model.layers.{layer}.post_attention_layernorm.weight")
        x = feed_forward(h, *self.mlp_weights(layer), self.linear)
    if not every_position:
        x = x[torch.arange(len(x)), _last_real_column(positions)]
    return self.linear(self.norm(x, "model.norm.weight"), self.head)


@misconception("4.6", "Llama.forward")
def attention_added_to_the_normed(
    self, tokens, positions, cache=None, rows=None, every_position=False
):
    """You add attention to the normalised x. What is normalised is a copy for attention to read;
    the sum takes x itself.
    """
    check_inputs(self.config, tokens, positions)
    rows = torch.arange(len(tokens)) if rows is None else rows
    rotation = rope_tables(positions, self.config.head_dim, self.config.rope_theta)
    x = self.embedding[tokens.where(positions >= 0, 0)]
    for layer in range(self.config.num_hidden_layers):
        h = self.norm(x, f"model.layers.{layer}.input_layernorm.weight")
        x = h + self.attend(layer, h, positions, rotation, cache, rows)
        h = self.norm(x, f"model.layers.{layer}.post_attention_layernorm.weight")
        x = x + feed_forward(h, *self.mlp_weights(layer), self.linear)
    if not every_position:
        x = x[torch.arange(len(x)), _last_real_column(positions)]
    return self.linear(self.norm(x, "model.norm.weight"), self.head)


@misconception("4.6", "Llama.forward")
def feed_forward_added_to_the_normed(
    self, tokens, positions, cache=None, rows=None, every_position=False
):
    """You add the feed-forward to the normalised x. What is normalised is a copy for it to read;
    the sum takes x itself.
    """
    check_inputs(self.config, tokens, positions)
    rows = torch.arange(len(tokens)) if rows is None else rows
    rotation = rope_tables(positions, self.config.head_dim, self.config.rope_theta)
    x = self.embedding[tokens.where(positions >= 0, 0)]
    for layer in range(self.config.num_hidden_layers):
        h = self.norm(x, f"model.layers.{layer}.input_layernorm.weight")
        x = x + self.attend(layer, h, positions, rotation, cache, rows)
        h = self.norm(x, f"model.layers.{layer}.post_attention_layernorm.weight")
        x = h + feed_forward(h, *self.mlp_weights(layer), self.linear)
    if not every_position:
        x = x[torch.arange(len(x)), _last_real_column(positions)]
    return self.linear(self.norm(x, "model.norm.weight"), self.head)
