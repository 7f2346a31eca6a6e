"""Wrong versions of 4.1 rms_norm, 4.2 rope_tables and apply_rope, 4.4 feed_forward."""

import torch
import torch.nn.functional as F

from course.misconceptions import misconception

# --- 4.1 ---


@misconception("4.1", "rms_norm")
def layer_norm(x, weight, eps):
    """You subtract the mean, as LayerNorm does. RMSNorm leaves the mean where it is: it only
    divides by the root of the mean square.
    """
    wide = x.float() - x.float().mean(-1, keepdim=True)
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


@misconception("4.1", "rms_norm")
def sum_of_squares(x, weight, eps):
    """You divide by the length of the vector: the root of the sum of its squares. RMSNorm takes
    their mean, so that the result does not shrink as E grows.
    """
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().sum(-1, keepdim=True) + eps)).to(x.dtype) * weight


@misconception("4.1", "rms_norm")
def eps_outside_the_root(x, weight, eps):
    """You add eps after taking the root. It belongs to the mean of the squares, inside the root;
    for small vectors that is a large difference.
    """
    wide = x.float()
    root = wide.square().mean(-1, keepdim=True).sqrt() + eps
    return (wide / root).to(x.dtype) * weight


@misconception("4.1", "rms_norm")
def eps_forgotten(x, weight, eps):
    """You do not use eps. Then a vector of zeros is divided by zero and becomes NaN; eps is added
    to the mean of the squares.
    """
    wide = x.float()
    return (wide / wide.square().mean(-1, keepdim=True).sqrt()).to(x.dtype) * weight


@misconception("4.1", "rms_norm")
def root_forgotten(x, weight, eps):
    """You divide by the mean of the squares itself. It is its square root that has the size of the
    numbers.
    """
    wide = x.float()
    return (wide / (wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


@misconception("4.1", "rms_norm")
def squares_in_half_precision(x, weight, eps):
    """You square in the dtype of x. In float16 anything above 255 has an infinite square, and the
    vector is scaled to zero: go to float32 before squaring.
    """
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


@misconception("4.1", "rms_norm")
def result_left_in_float32(x, weight, eps):
    """You compute in float32, which is right, but you also return float32. The result has the dtype
    of x, or every layer after it gets the wrong one.
    """
    wide = x.float()
    return wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight


@misconception("4.1", "rms_norm")
def mean_over_everything(x, weight, eps):
    """You take one mean over the whole tensor. Each vector, so each token, has its own: the mean is
    over the last dimension only.
    """
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean() + eps)).to(x.dtype) * weight


@misconception("4.1", "rms_norm")
def weight_plus_one(x, weight, eps):
    """You multiply by 1 + weight. Some model families store their norm weights that way; Llama
    multiplies by the weight as it is.
    """
    wide = x.float()
    scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return scaled.to(x.dtype) * (1 + weight)


# --- 4.2 ---


@misconception("4.2", "apply_rope")
def interleaved_pairs(x, cos, sin):
    """You pair neighbours, x[2i] with x[2i + 1]: the interleaved layout. Hugging Face stores Llama
    weights for the half-split layout, where x[i] is paired with x[i + D/2].
    """
    cos, sin = cos[:, None], sin[:, None]
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2).to(x.dtype)


@misconception("4.2", "apply_rope")
def turned_backwards(x, cos, sin):
    """You turn in the opposite direction: the sign of both sine terms is swapped. It is a cos - b
    sin for the first half and b cos + a sin for the second.
    """
    cos, sin = cos[:, None], sin[:, None]
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos + b * sin, b * cos - a * sin), dim=-1).to(x.dtype)


@misconception("4.2", "apply_rope")
def minus_forgotten(x, cos, sin):
    """You swap the two halves but lose the minus sign of one of them. Without it this is not a
    rotation: the length of the vector changes.
    """
    cos, sin = cos[:, None], sin[:, None]
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos + b * sin, b * cos + a * sin), dim=-1).to(x.dtype)


@misconception("4.2", "apply_rope")
def angle_by_head(x, cos, sin):
    """You line the tables up with the heads instead of the tokens. x is [B, H, T, D] and the tables
    are [B, T, D/2]: the new dimension goes after B, where the heads are.
    """
    cos, sin = cos[:, :, None], sin[:, :, None]
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)


@misconception("4.2", "apply_rope")
def rope_left_in_float32(x, cos, sin):
    """Your result is float32 because the tables are. It has to come back in the dtype of x, or a
    half-precision model stops at the next product.
    """
    cos, sin = cos[:, None], sin[:, None]
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


@misconception("4.2", "rope_tables")
def exponent_by_half(positions, head_dim, theta):
    """Your exponent is -i / D. It is -2 i / D: with D / 2 pairs the exponents have to reach from 0
    to almost -1.
    """
    pairs = torch.arange(head_dim // 2)
    if head_dim % 2:
        raise ValueError(f"head_dim {head_dim} is odd")
    angles = positions[..., None].float() * theta ** (-pairs.float() / head_dim)
    return angles.cos(), angles.sin()


@misconception("4.2", "rope_tables")
def exponent_without_minus(positions, head_dim, theta):
    """Your exponent has lost its minus sign, so pairs turn faster and faster instead of slower. The
    first pair turns by 1 radian a position, the last one hardly at all.
    """
    if head_dim % 2:
        raise ValueError(f"head_dim {head_dim} is odd")
    pairs = torch.arange(0, head_dim, 2)
    angles = positions[..., None].float() * theta ** (pairs.float() / head_dim)
    return angles.cos(), angles.sin()


@misconception("4.2", "rope_tables")
def columns_for_positions(positions, head_dim, theta):
    """You count the columns from 0 instead of using the positions. With a cache the new token
    stands in column 0 but at position 57; with padding the columns are shifted too.
    """
    if head_dim % 2:
        raise ValueError(f"head_dim {head_dim} is odd")
    pairs = torch.arange(0, head_dim, 2)
    columns = torch.arange(positions.shape[-1]).expand(positions.shape)
    angles = columns[..., None].float() * theta ** (-pairs.float() / head_dim)
    return angles.cos(), angles.sin()


@misconception("4.2", "rope_tables")
def one_row_for_all(positions, head_dim, theta):
    """You use the positions of the first sequence for the whole batch. Sequences in a batch stand
    at different positions: the tables are [B, T, D/2], each row with its own.
    """
    if head_dim % 2:
        raise ValueError(f"head_dim {head_dim} is odd")
    pairs = torch.arange(0, head_dim, 2)
    row = positions[:1].expand(positions.shape)
    angles = row[..., None].float() * theta ** (-pairs.float() / head_dim)
    return angles.cos(), angles.sin()


@misconception("4.2", "rope_tables")
def tables_doubled(positions, head_dim, theta):
    """Your tables have D columns, each angle twice, as some programs keep them. Here they have one
    column a pair: D / 2.
    """
    if head_dim % 2:
        raise ValueError(f"head_dim {head_dim} is odd")
    pairs = torch.arange(0, head_dim, 2)
    angles = positions[..., None].float() * theta ** (-pairs.float() / head_dim)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


@misconception("4.2", "rope_tables")
def tables_swapped(positions, head_dim, theta):
    """You return (sin, cos). The order is (cos, sin); apply_rope takes them in that order."""
    if head_dim % 2:
        raise ValueError(f"head_dim {head_dim} is odd")
    pairs = torch.arange(0, head_dim, 2)
    angles = positions[..., None].float() * theta ** (-pairs.float() / head_dim)
    return angles.sin(), angles.cos()


@misconception("4.2", "rope_tables")
def odd_head_accepted(positions, head_dim, theta):
    """You accept an odd head_dim. One number would be left without a partner, and the tables would
    not fit: raise ValueError.
    """
    pairs = torch.arange(0, head_dim, 2)
    angles = positions[..., None].float() * theta ** (-pairs.float() / head_dim)
    return angles.cos(), angles.sin()


# --- 4.4 ---


@misconception("4.4", "feed_forward")
def silu_on_up(x, gate, up, down, linear=F.linear):
    """You put silu on the up product. It belongs on the gate: that is the half which opens and
    closes.
    """
    return linear(linear(x, gate) * F.silu(linear(x, up)), down)


@misconception("4.4", "feed_forward")
def gelu_for_silu(x, gate, up, down, linear=F.linear):
    """You use GELU where this model was trained with silu, z / (1 + exp(-z)). The two curves look
    alike, but the weights know the difference.
    """
    return linear(F.gelu(linear(x, gate)) * linear(x, up), down)


@misconception("4.4", "feed_forward")
def relu_for_silu(x, gate, up, down, linear=F.linear):
    """You use ReLU where this model was trained with silu, z / (1 + exp(-z)), which lets small
    negative values through.
    """
    return linear(F.relu(linear(x, gate)) * linear(x, up), down)


@misconception("4.4", "feed_forward")
def sigmoid_only(x, gate, up, down, linear=F.linear):
    """Your gate is the logistic function 1 / (1 + exp(-z)) alone. silu multiplies it by z."""
    return linear(torch.sigmoid(linear(x, gate)) * linear(x, up), down)


@misconception("4.4", "feed_forward")
def gate_added(x, gate, up, down, linear=F.linear):
    """You add the gate to the up product. A gate works by multiplying: where it is zero, nothing
    passes.
    """
    return linear(F.silu(linear(x, gate)) + linear(x, up), down)


@misconception("4.4", "feed_forward")
def silu_of_the_product(x, gate, up, down, linear=F.linear):
    """You multiply first and put silu on the product. silu is for the gate alone, before it is
    multiplied with up.
    """
    return linear(F.silu(linear(x, gate) * linear(x, up)), down)


@misconception("4.4", "feed_forward")
def linear_passed_over(x, gate, up, down, linear=F.linear):
    """You multiply with the weights yourself and do not call `linear`. It is the only place that
    knows what a weight is made of: with quantized weights your product cannot work.
    """
    return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)
