"""Chapter 04 by someone who thinks in einsum, complex numbers and torch's own attention."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from solutions.loader import Config

ROLES = ("system", "user", "assistant")
DEFAULT_SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


def rms_norm(x, weight, eps):
    y = x.to(torch.float64 if x.dtype == torch.float64 else torch.float32)
    power = torch.einsum("...e,...e->...", y, y).div(y.size(-1)).unsqueeze(-1)
    return (y / (power + eps).sqrt() * weight.to(y.dtype)).type_as(x)


def rope_tables(positions, head_dim, theta):
    if head_dim % 2 != 0:
        raise ValueError("head_dim is odd")
    inverse = 1.0 / theta ** (torch.arange(head_dim // 2, dtype=torch.float32) * 2 / head_dim)
    angles = torch.einsum("bt,i->bti", positions.to(torch.float32), inverse)
    turns = torch.polar(torch.ones_like(angles), angles)
    return turns.real.clone(), turns.imag.clone()


def apply_rope(x, cos, sin):
    # in the dtype of x all the way, as transformers has it
    cos = torch.cat([cos, cos], -1).to(x.dtype).unsqueeze(1)
    sin = torch.cat([sin, sin], -1).to(x.dtype).unsqueeze(1)
    half = x.shape[-1] // 2
    rotated = torch.cat([-x[..., half:], x[..., :half]], -1)
    return x * cos + rotated * sin


def attention(q, k, v, q_positions, k_positions):
    share, rest = divmod(q.size(1), k.size(1))
    if rest:
        raise ValueError("query heads must be a multiple of key/value heads")
    k, v = k.repeat_interleave(share, 1), v.repeat_interleave(share, 1)
    visible = (k_positions[:, None, :] <= q_positions[:, :, None]) & (k_positions[:, None, :] >= 0)
    visible = visible[:, None]
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=visible)
    return torch.where(visible.any(-1, keepdim=True), out, torch.zeros_like(out)).to(v.dtype)


def feed_forward(x, gate, up, down, linear=F.linear):
    z = linear(x, gate)
    return linear(z * torch.sigmoid(z) * linear(x, up), down)


class CacheFull(RuntimeError):
    pass


class KVCache:
    """One tensor for keys and values together, [row, slot, layer, 2, KV, D]."""

    def __init__(self, config, rows, max_length, dtype=torch.float32, device="cpu"):
        if rows < 1 or max_length < 1:
            raise ValueError("a KV cache needs a row and a token")
        self.rows, self.max_length = rows, max_length
        layers, heads = config.num_hidden_layers, config.num_key_value_heads
        shape = (rows, max_length, layers, 2, heads, config.head_dim)
        self.store = torch.full(shape, 7.0, dtype=dtype, device=device)
        self.room, self.filled = [0] * rows, [0] * rows

    @property
    def nbytes(self):
        return self.store.nbytes

    @property
    def total_tokens(self):
        return self.rows * self.max_length

    @property
    def used_tokens(self):
        return sum(self.room)

    @property
    def free_tokens(self):
        return self.total_tokens - self.used_tokens

    def _known(self, row):
        if row not in range(self.rows):
            raise IndexError(f"row {row} is not one of 0..{self.rows - 1}")

    def reserve(self, row, length):
        self._known(row)
        if length > self.max_length:
            raise CacheFull(f"wanted {length}, at most {self.max_length}")
        if length > self.room[row]:
            self.room[row] = length

    def write(self, layer, rows, positions, k, v):
        for row in rows.tolist():
            self._known(row)
        new = torch.stack([k, v]).permute(1, 3, 0, 2, 4).to(self.store.dtype)  # [B, T, 2, KV, D]
        for row, places in zip(rows.tolist(), positions.tolist(), strict=True):
            if max(places) >= self.room[row]:
                raise CacheFull(f"row {row}: position {max(places)}, room {self.room[row]}")
        for b, row in enumerate(rows.tolist()):
            keep = positions[b] >= 0
            self.store[row, positions[b][keep], layer] = new[b][keep]
            self.filled[row] = max(self.filled[row], int(positions[b].max()) + 1)

    def read(self, layer, rows):
        lengths = torch.tensor([self.filled[row] for row in rows.tolist()])
        longest = int(lengths.max())
        both = self.store[rows, :longest, layer].permute(2, 0, 3, 1, 4)  # [2, B, KV, S, D]
        positions = torch.arange(longest).expand(len(rows), longest).clone()
        positions[positions >= lengths[:, None]] = -1
        return both[0], both[1], positions

    def free(self, row):
        self._known(row)
        self.room[row] = self.filled[row] = 0


def check_inputs(config, tokens, positions):
    if tokens.ndim != 2 or tokens.shape != positions.shape or tokens.numel() == 0:
        raise ValueError(f"shapes {list(tokens.shape)} and {list(positions.shape)}")
    real = positions >= 0
    if not real.any(1).all():
        raise ValueError("a sequence is all padding")
    if ((tokens < 0) | (tokens >= config.vocab_size))[real].any():
        raise ValueError(f"token ids {tokens[real].tolist()}, vocabulary {config.vocab_size}")
    if int(positions.max()) >= config.max_position_embeddings:
        raise ValueError(f"position {int(positions.max())} of {config.max_position_embeddings}")


class Llama:
    def __init__(self, config: Config, weights, linear=F.linear):
        self.config, self.weights, self.linear = config, weights, linear
        self.embedding = weights["model.embed_tokens.weight"]
        self.head = self.embedding if config.tie_word_embeddings else weights["lm_head.weight"]
        self.device = self.embedding.device

    def forward(self, tokens, positions, cache=None, rows=None, every_position=False):
        check_inputs(self.config, tokens, positions)
        rows = torch.arange(tokens.size(0)) if rows is None else rows
        rotation = rope_tables(positions, self.config.head_dim, self.config.rope_theta)
        x = F.embedding(tokens.masked_fill(positions < 0, 0), self.embedding)
        for i in range(self.config.num_hidden_layers):
            name = f"model.layers.{i}."
            y = self.norm(x, name + "input_layernorm.weight")
            x = x + self.attend(i, y, positions, rotation, cache, rows)
            y = self.norm(x, name + "post_attention_layernorm.weight")
            x = x + feed_forward(y, *self.mlp_weights(i), self.linear)
        if not every_position:
            columns = torch.arange(tokens.size(1)).where(positions >= 0, -1).amax(1)
            x = x.gather(1, columns[:, None, None].expand(-1, 1, x.size(-1)))[:, 0]
        return self.linear(self.norm(x, "model.norm.weight"), self.head)

    def attend(self, layer, x, positions, rotation, cache, rows):
        q = apply_rope(self.heads(layer, "q_proj", x), *rotation)
        k = apply_rope(self.heads(layer, "k_proj", x), *rotation)
        v = self.heads(layer, "v_proj", x)
        seen = positions
        if cache is not None:
            cache.write(layer, rows, positions, k, v)
            k, v, seen = cache.read(layer, rows)
        mixed = attention(q, k, v, positions, seen)
        joined = mixed.permute(0, 2, 1, 3).reshape(x.size(0), x.size(1), -1)
        return self.linear(joined, self.weights[f"model.layers.{layer}.self_attn.o_proj.weight"])

    def heads(self, layer, name, x):
        y = self.linear(x, self.weights[f"model.layers.{layer}.self_attn.{name}.weight"])
        return y.unflatten(-1, (-1, self.config.head_dim)).transpose(1, 2)

    def norm(self, x, name):
        return rms_norm(x, self.weights[name], self.config.rms_norm_eps)

    def mlp_weights(self, layer):
        name = f"model.layers.{layer}.mlp."
        return tuple(self.weights[f"{name}{part}_proj.weight"] for part in ("gate", "up", "down"))


def chat_ids(messages, encode, special):
    if len(messages) == 0:
        raise ValueError("no messages")
    ids = []

    def say(role, content):
        if role not in ROLES:
            raise ValueError(f"role {role}")
        ids.append(special["<|im_start|>"])
        ids.extend(encode(role + "\n" + content))
        ids.append(special["<|im_end|>"])
        ids.extend(encode("\n"))

    if messages[0]["role"] != "system":
        say("system", DEFAULT_SYSTEM)
    for message in messages:
        say(message["role"], message["content"])
    ids.append(special["<|im_start|>"])
    ids.extend(encode("assistant\n"))
    return ids


@dataclass(frozen=True)
class Generation:
    ids: list[int]
    finish_reason: str


def room_for(config, prompt, max_new_tokens, cache):
    context = config.max_position_embeddings
    if cache is not None and cache.max_length < context:
        context = cache.max_length
    if len(prompt) == 0 or max_new_tokens < 1:
        raise ValueError("an empty prompt, or no token wanted")
    if len(prompt) >= context:
        raise ValueError(f"{len(prompt)} tokens in a context of {context}")
    return min(max_new_tokens, context - len(prompt))


def generate_greedy(model, prompt, max_new_tokens, end_ids, cache=None, on_token=None):
    room = room_for(model.config, prompt, max_new_tokens, cache)
    if cache is None:
        return _write(model, list(prompt), room, set(end_ids), None, on_token)
    try:
        cache.reserve(0, len(prompt) + room)
        return _write(model, list(prompt), room, set(end_ids), cache, on_token)
    finally:
        cache.free(0)


def _write(model, prompt, room, end_ids, cache, on_token):
    new, feed, first = [], prompt, 0
    for _ in range(room):
        tokens = torch.as_tensor(feed).unsqueeze(0)
        positions = torch.arange(first, first + len(feed)).unsqueeze(0)
        logits = model.forward(tokens, positions, cache=cache, rows=torch.tensor([0]))
        token = torch.argmax(logits[-1]).item()
        if token in end_ids:
            return Generation(new, "stop")
        new.append(token)
        if on_token:
            on_token(token)
        if cache is None:
            feed = feed + [token]
        else:
            feed, first = [token], first + len(feed)
    return Generation(new, "length")
