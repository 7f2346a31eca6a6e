"""What chapter 04 should compute, in numpy and float64, one number or one head at a time.

Written to be unlike the engine: complex numbers for rotations, loops over heads and queries, no
batches, no cache. tests/test_oracles_04.py holds it against arrays made by transformers.
"""

import math

import numpy as np


def wide(values) -> np.ndarray:
    """Any tensor (also bfloat16, which numpy lacks) or array as a float64 array."""
    return values.double().numpy() if hasattr(values, "double") else np.asarray(values, float)


def rms_norm(x, weight, eps: float) -> np.ndarray:
    """x [..., E] over the root of its mean square, times weight [E]."""
    x, weight = wide(x), wide(weight)
    power = np.einsum("...e,...e->...", x, x) / x.shape[-1]
    return x / np.sqrt(power + eps)[..., None] * weight


def rope_angles(positions, head_dim: int, theta: float) -> np.ndarray:
    """Radians [..., D / 2]: position / theta ** (2 i / D), one pair after the other."""
    places = wide(positions)
    pairs = [places * math.exp(-2 * i / head_dim * math.log(theta)) for i in range(head_dim // 2)]
    return np.stack(pairs, axis=-1)


def apply_rope(x, angles) -> np.ndarray:
    """x [B, H, T, D] as complex numbers (first half + i second half), turned by [B, T, D / 2]."""
    x = wide(x)
    half = x.shape[-1] // 2
    turned = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * wide(angles))[:, None]
    return np.concatenate((turned.real, turned.imag), axis=-1)


def attention(q, k, v, q_positions, k_positions) -> np.ndarray:
    """Query by query: the keys it may see, their softmax, the mean of their values."""
    q, k, v, places, seen = map(wide, (q, k, v, q_positions, k_positions))
    batch, heads, length, head_dim = q.shape
    share = heads // k.shape[1]
    out = np.zeros(q.shape)
    for b, h, t in np.ndindex(batch, heads, length):
        visible = [s for s in range(k.shape[2]) if 0 <= seen[b, s] <= places[b, t]]
        if not visible:
            continue
        scores = k[b, h // share, visible] @ q[b, h, t] / math.sqrt(head_dim)
        weights = np.exp(scores - scores.max())
        out[b, h, t] = weights / weights.sum() @ v[b, h // share, visible]
    return out


def feed_forward(x, gate, up, down) -> np.ndarray:
    """x [..., E] through SwiGLU; silu(z) is z times the logistic function, here as tanh."""
    x, gate, up, down = map(wide, (x, gate, up, down))
    z = np.einsum("...e,fe->...f", x, gate)
    silu = z * (1 + np.tanh(z / 2)) / 2
    return np.einsum("...f,ef->...e", silu * np.einsum("...e,fe->...f", x, up), down)


def attend(config: dict, weights: dict, layer: int, x, positions) -> np.ndarray:
    """The attention half of a layer for x [T, E] of one sequence at positions [T], no cache."""
    x, prefix = wide(x), f"model.layers.{layer}.self_attn."
    angles = rope_angles(positions, config["head_dim"], config["rope_theta"])[None]
    q, k, v = (
        np.stack(np.split(x @ wide(weights[f"{prefix}{n}_proj.weight"]).T, heads, axis=-1))[None]
        for n, heads in (
            ("q", config["num_attention_heads"]),
            ("k", config["num_key_value_heads"]),
            ("v", config["num_key_value_heads"]),
        )
    )
    places = np.asarray(positions)[None]
    mixed = attention(apply_rope(q, angles), apply_rope(k, angles), v, places, places)[0]
    return np.concatenate(list(mixed), axis=-1) @ wide(weights[f"{prefix}o_proj.weight"]).T


def logits(config: dict, weights: dict, ids: list[int], positions=None) -> np.ndarray:
    """Logits [T, V] of one sequence, all at once, at positions 0 .. T - 1 unless given."""
    positions = range(len(ids)) if positions is None else positions
    places, eps = np.asarray(list(positions)), config["rms_norm_eps"]
    embedding = wide(weights["model.embed_tokens.weight"])
    x = embedding[list(ids)]
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        norm = rms_norm(x, weights[f"{prefix}input_layernorm.weight"], eps)
        x = x + attend(config, weights, layer, norm, places)
        norm = rms_norm(x, weights[f"{prefix}post_attention_layernorm.weight"], eps)
        mlp = (weights[f"{prefix}mlp.{n}_proj.weight"] for n in ("gate", "up", "down"))
        x = x + feed_forward(norm, *mlp)
    head = embedding if config["tie_word_embeddings"] else wide(weights["lm_head.weight"])
    return rms_norm(x, weights["model.norm.weight"], eps) @ head.T


def greedy(config: dict, weights: dict, prompt: list[int], count: int) -> tuple[list, float]:
    """count ids, each the most probable, and the smallest margin by which one won."""
    ids, margin = list(prompt), math.inf
    for _ in range(count):
        last = logits(config, weights, ids)[-1]
        second, first = np.sort(last)[-2:]
        margin = min(margin, first - second)
        ids.append(int(last.argmax()))
    return ids[len(prompt) :], margin
