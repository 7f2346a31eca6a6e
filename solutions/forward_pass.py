"""Chapter 04: from token ids to logits.

Everything between an integer and a probability: normalise, rotate, attend, feed forward. The model
is a Llama as Hugging Face stores it: half-split rotary embeddings, grouped-query attention, SwiGLU.

Shapes: B sequences, T new tokens each, S keys to look at, H query heads, KV key/value heads,
D numbers a head, E the hidden size, V the vocabulary.
"""

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from solutions.config import Config
from solutions.kv_cache import KVCache

Linear = Callable[[Tensor, Tensor], Tensor]  # (x [..., in], weight [out, in]) -> [..., out]


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Scale each vector to a root mean square of about 1, then by a learned weight.

    Without it the numbers grow from layer to layer until one of them drowns the rest.

    Args:
        x: [..., E], float32, float16 or bfloat16.
        weight: [E], same dtype as x.
        eps: added to the mean of the squares, so that a vector of zeros gives zeros.

    Returns:
        [..., E] in the dtype of x. The mean is taken in float32 whatever the dtype: the squares
        of float16 numbers above 255 are already infinite. x itself is not changed.

    Source: Zhang and Sennrich 2019, equation 4, with eps inside the root as Llama has it.
    """
    # exercise 4.1
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * scale).to(x.dtype) * weight


def rope_tables(positions: Tensor, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosine and sine of the angle that each pair of numbers turns by at each position.

    Args:
        positions: [B, T] integers. A token's place in its own sequence, wherever its column is.
        head_dim: D, even.
        theta: the base; pair i turns by theta ** (-2 i / D) radians a position.

    Returns:
        (cos, sin), each float32 [B, T, D / 2]; for padding, position -1, any finite numbers:
        nothing reads them.

    Errors: ValueError when head_dim is odd.

    Source: Su et al. 2021 (RoFormer), section 3.2.2.
    """
    # exercise 4.2
    if head_dim % 2:
        raise ValueError(f"rotary embedding turns pairs: head_dim must be even, not {head_dim}")
    pairs = torch.arange(0, head_dim, 2, device=positions.device)
    frequencies = theta ** (-pairs.float() / head_dim)
    angles = positions[..., None].float() * frequencies
    return angles.cos(), angles.sin()


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn every pair of x by its angle, so that a dot product sees how far apart two tokens are.

    Pair i of a head is (x[i], x[i + D / 2]): the first half with the second half, which is how
    Hugging Face stores Llama weights. (Other programs pair neighbours, x[2 i] with x[2 i + 1].)
    The pair (a, b) becomes (a cos - b sin, b cos + a sin).

    Args:
        x: [B, H, T, D] queries or keys.
        cos, sin: [B, T, D / 2], the same for every head.

    Returns:
        [B, H, T, D] in the dtype of x.
    """
    # exercise 4.2
    a, b = x.chunk(2, dim=-1)
    cos, sin = cos[:, None], sin[:, None]  # [B, 1, T, D / 2]: one angle for all heads
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)


def attention(q: Tensor, k: Tensor, v: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor:
    """Mix the values, each weighted by how well its key answers the query.

    weights = softmax(q · k / sqrt(D)) over the keys that a query may see: those whose position is
    0 or more and not after the query's own. Positions decide, not columns, so that a
    padded batch, a chunk of a prompt and one new token against a cache are all the same call.

    Args:
        q: [B, H, T, D], such that q · k is finite in its dtype.
        k, v: [B, KV, S, D], finite, in the dtype of q; H is a multiple of KV, and query head h
            uses key/value head h // (H / KV): neighbours share. S may be 0.
        q_positions: [B, T] integers, -1 where padded.
        k_positions: [B, S] integers, -1 where padded or never written.

    Returns:
        [B, H, T, D] in the dtype of v. A query that may see no key (padding, for one) gets
        zeros, never NaN.

    Errors: ValueError when H is not a multiple of KV.

    Source: Vaswani et al. 2017, equation 1; Ainslie et al. 2023 for the shared heads.
    """
    # exercise 4.3
    batch, heads, length, head_dim = q.shape
    kv_heads, keys = k.shape[1:3]
    if not kv_heads or heads % kv_heads:
        raise ValueError(f"{heads} query heads cannot share {kv_heads} key/value heads evenly")
    shared = heads // kv_heads * length  # queries to one key head: so k and v are not copied
    scores = q.reshape(batch, kv_heads, shared, head_dim) @ k.transpose(-1, -2)
    scores = scores.float().view(batch, heads, length, keys) / head_dim**0.5
    hidden = (k_positions[:, None] > q_positions[..., None]) | (k_positions[:, None] < 0)
    weights = scores.masked_fill(hidden[:, None], float("-inf")).softmax(-1)
    weights = weights.masked_fill(hidden[:, None], 0.0).to(v.dtype)  # a row of NaN becomes zeros
    return (weights.view(batch, kv_heads, shared, keys) @ v).view(q.shape)


def feed_forward(
    x: Tensor, gate: Tensor, up: Tensor, down: Tensor, linear: Linear = F.linear
) -> Tensor:
    """Each token on its own: widen, let one half gate the other, narrow again (SwiGLU).

    down(silu(gate(x)) * up(x)), where silu(z) = z / (1 + exp(-z)).

    Args:
        x: [..., E].
        gate, up: [F, E] weights.
        down: [E, F] weight.
        linear: the product of x with a weight, `x @ weight.T`; chapters 03 and 09 bring others.

    Returns:
        [..., E] in the dtype of x.

    Source: Shazeer 2020, "GLU Variants Improve Transformer", equation 6 (no biases).
    """
    # exercise 4.4
    return linear(F.silu(linear(x, gate)) * linear(x, up), down)


def check_inputs(config: Config, tokens: Tensor, positions: Tensor) -> None:
    """Refuse what the model cannot compute, before it fails deep inside a layer.

    Args:
        tokens, positions: both [B, T] integers.

    Errors: ValueError naming the shape, token id, position or row that is wrong.
    """
    if tokens.ndim != 2 or tokens.shape != positions.shape or not tokens.numel():
        raise ValueError(
            "tokens and positions must both be [B, T], at least one token: got "
            f"{list(tokens.shape)} and {list(positions.shape)}"
        )
    real = positions >= 0
    if not bool(real.any(-1).all()):
        row = int((~real.any(-1)).nonzero()[0])
        raise ValueError(f"sequence {row} is all padding: it has no position to answer for")
    unknown = tokens[real & ((tokens < 0) | (tokens >= config.vocab_size))]
    if len(unknown):
        raise ValueError(
            f"token id {int(unknown[0])} is not in the vocabulary of {config.vocab_size}"
        )
    if int(positions.max()) >= config.max_position_embeddings:
        raise ValueError(
            f"position {int(positions.max())} is past the model's context of "
            f"{config.max_position_embeddings} tokens"
        )


class Llama:
    """A Llama-type model: a mapping of weights and the arithmetic between them.

    Args:
        config: sizes and constants.
        weights: by their Hugging Face names: "model.embed_tokens.weight" [V, E],
            "model.norm.weight" [E], "lm_head.weight" [V, E] (absent when the head is tied to the
            embedding), and for each layer i, after "model.layers.{i}.":
            "input_layernorm.weight", "post_attention_layernorm.weight" [E];
            "self_attn.q_proj.weight" [H D, E], "self_attn.k_proj.weight" and
            "self_attn.v_proj.weight" [KV D, E], "self_attn.o_proj.weight" [E, H D];
            "mlp.gate_proj.weight", "mlp.up_proj.weight" [F, E], "mlp.down_proj.weight" [E, F].
        linear: the product of x [..., in] with a weight [out, in]; the only place that knows
            what a weight is made of.
    """

    def __init__(self, config: Config, weights: Mapping[str, Tensor], linear: Linear = F.linear):
        self.config, self.weights, self.linear = config, weights, linear
        self.embedding = weights["model.embed_tokens.weight"]
        self.head = self.embedding if config.tie_word_embeddings else weights["lm_head.weight"]
        self.device = self.embedding.device

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        cache: KVCache | None = None,
        rows: Tensor | None = None,
        every_position: bool = False,
    ) -> Tensor:
        """Token ids in, logits out. Prefill, chunked prefill and decode are all this call.

        Look the tokens up in the embedding; for every layer add what `attend` makes of the
        normalised x, then what `feed_forward` makes of the normalised x; normalise once more;
        multiply by the head. Only the positions that are asked for go through the head: it is
        the largest matrix of all.

        Args:
            tokens: [B, T] integers. What stands where the position is -1 may be any number.
            positions: [B, T] integers, each token's place in its own sequence; -1 is padding,
                which may stand anywhere, and changes no other token's logits.
            cache: earlier keys and values, in the dtype of the weights. Only `write` and `read`
                are used: chapter 10 brings another kind. Without one, tokens see each other only.
            rows: [B] integers, the cache row of each sequence. Default 0, 1, ..., B - 1.
            every_position: logits for all T columns instead of one a sequence.

        Returns:
            [B, V] in the dtype of the weights: the logits after each sequence's last real token,
            its rightmost with a position. With every_position [B, T, V], undefined where padded.

        Errors: ValueError from check_inputs, before anything is written; CacheFull from the
        cache when room was not reserved.
        """
        # exercise 4.6
        check_inputs(self.config, tokens, positions)
        if rows is None:
            rows = torch.arange(len(tokens), device=tokens.device)
        rotation = rope_tables(positions, self.config.head_dim, self.config.rope_theta)
        x = self.embedding[tokens.where(positions >= 0, 0)]  # [B, T, E]
        for layer in range(self.config.num_hidden_layers):
            h = self.norm(x, f"model.layers.{layer}.input_layernorm.weight")
            x = x + self.attend(layer, h, positions, rotation, cache, rows)
            h = self.norm(x, f"model.layers.{layer}.post_attention_layernorm.weight")
            x = x + feed_forward(h, *self.mlp_weights(layer), self.linear)
        if not every_position:
            x = x[torch.arange(len(x)), _last_real_column(positions)]  # [B, E]
        return self.linear(self.norm(x, "model.norm.weight"), self.head)

    def attend(
        self,
        layer: int,
        x: Tensor,
        positions: Tensor,
        rotation: tuple[Tensor, Tensor],
        cache: KVCache | None,
        rows: Tensor,
    ) -> Tensor:
        """The attention half of a layer, between the norm and the residual.

        Project x to queries, keys and values; split them into heads; rotate queries and keys;
        with a cache, write the new keys and values and read all of them back; attend; join the
        heads; project.

        Args:
            layer: from 0.
            x: [B, T, E], already normalised.
            positions: [B, T].
            rotation: (cos, sin) from rope_tables.
            cache, rows: as in forward.

        Returns:
            [B, T, E].
        """
        # exercise 4.6
        q, k, v = (self.heads(layer, name, x) for name in ("q_proj", "k_proj", "v_proj"))
        q, k = apply_rope(q, *rotation), apply_rope(k, *rotation)
        k_positions = positions
        if cache is not None:
            cache.write(layer, rows, positions, k, v)
            k, v, k_positions = cache.read(layer, rows)
        mixed = attention(q, k, v, positions, k_positions)  # [B, H, T, D]
        joined = mixed.transpose(1, 2).flatten(2)  # [B, T, H D]
        return self.linear(joined, self.weights[f"model.layers.{layer}.self_attn.o_proj.weight"])

    def heads(self, layer: int, name: str, x: Tensor) -> Tensor:
        """x [B, T, E] through one of q_proj, k_proj, v_proj, as heads [B, heads, T, D]."""
        projected = self.linear(x, self.weights[f"model.layers.{layer}.self_attn.{name}.weight"])
        return projected.unflatten(-1, (-1, self.config.head_dim)).transpose(1, 2)

    def norm(self, x: Tensor, name: str) -> Tensor:
        """rms_norm of x [..., E] with the weight of that name."""
        return rms_norm(x, self.weights[name], self.config.rms_norm_eps)

    def mlp_weights(self, layer: int) -> tuple[Tensor, Tensor, Tensor]:
        """The gate, up and down weights of a layer."""
        prefix = f"model.layers.{layer}.mlp."
        gate, up, down = (self.weights[f"{prefix}{n}_proj.weight"] for n in ("gate", "up", "down"))
        return gate, up, down


def _last_real_column(positions: Tensor) -> Tensor:
    """positions [B, T] -> [B]: the rightmost column of each sequence that is not padding."""
    columns = torch.arange(positions.shape[1], device=positions.device)
    return torch.where(positions >= 0, columns, -1).amax(-1)
