"""Wrong versions of 3.4 QuantizedTensor, quantize and linear."""

import torch
import torch.nn.functional as F
from torch import Tensor

from course.misconceptions import misconception
from solutions.quantize import pack, quantize_groups, quantize_rows, unpack
from solutions.quantized import QuantizedTensor


@misconception("3.4", "QuantizedTensor.nbytes")
def bytes_of_the_numbers(self):
    """You count the numbers and not their scales and minimums. At 4 bits in groups of 32 these are
    a fifth of all bytes: a size without them is an advertisement.
    """
    return self.data.nbytes


@misconception("3.4", "QuantizedTensor.nbytes")
def bytes_by_formula(self):
    """You compute out * in * bits / 8. What memory holds is what the tensors say: 3 bits take the
    room of 4, a last group is filled up, and scales and minimums come on top.
    """
    return self.shape[0] * self.shape[1] * self.bits // 8


@misconception("3.4", "QuantizedTensor.nbytes")
def minimums_forgotten(self):
    """You count the scales but forget the minimums: affine groups have both."""
    return self.data.nbytes + self.scale.nbytes


@misconception("3.4", "QuantizedTensor.dequantize")
def the_filling_read_back(self, dtype=torch.float32):
    """You leave in what filled the last group up. The weight is [out, in] again: cut the
    rows to `in` columns at the end.
    """
    if self.minimum is None:
        return (self.data.float() * self.scale).to(dtype)
    groups = self.scale.shape[1]
    q = unpack(self.data, self.bits, groups * self.group_size).float()
    wide = q.unflatten(1, (groups, self.group_size))
    wide = wide * self.scale.float()[..., None] + self.minimum.float()[..., None]
    return wide.flatten(1).to(dtype)


@misconception("3.4", "QuantizedTensor.dequantize")
def minimum_before_the_scale(self, dtype=torch.float32):
    """You compute scale * (q + minimum). The minimum is a weight, not a number of steps: it comes
    after the scale, scale * q + minimum.
    """
    if self.minimum is None:
        return (self.data.float() * self.scale).to(dtype)
    groups = self.scale.shape[1]
    q = unpack(self.data, self.bits, groups * self.group_size).float()
    wide = q.unflatten(1, (groups, self.group_size))
    wide = (wide + self.minimum.float()[..., None]) * self.scale.float()[..., None]
    return wide.flatten(1)[:, : self.shape[1]].to(dtype)


@misconception("3.4", "QuantizedTensor.dequantize")
def minimum_left_out(self, dtype=torch.float32):
    """You multiply by the scale and leave the minimum out. Then every weight of a group is
    positive: scale * q + minimum.
    """
    if self.minimum is None:
        return (self.data.float() * self.scale).to(dtype)
    groups = self.scale.shape[1]
    q = unpack(self.data, self.bits, groups * self.group_size).float()
    wide = q.unflatten(1, (groups, self.group_size)) * self.scale.float()[..., None]
    return wide.flatten(1)[:, : self.shape[1]].to(dtype)


@misconception("3.4", "QuantizedTensor.dequantize")
def arithmetic_in_float16(self, dtype=torch.float32):
    """You multiply and add in the dtype of the scale. In float16 each of the two rounds the weight
    to 11 bits once more: scale and minimum go to float32 before they are used.
    """
    if self.minimum is None:
        return (self.data.float() * self.scale).to(dtype)
    groups = self.scale.shape[1]
    q = unpack(self.data, self.bits, groups * self.group_size).to(self.scale.dtype)
    wide = q.unflatten(1, (groups, self.group_size))
    wide = wide * self.scale[..., None] + self.minimum[..., None]
    return wide.flatten(1)[:, : self.shape[1]].to(dtype)


@misconception("3.4", "QuantizedTensor.dequantize")
def always_float32(self, dtype=torch.float32):
    """You return float32 whatever dtype was asked for. A half-precision product stops at it: the
    arithmetic is in float32, the result in dtype.
    """
    if self.minimum is None:
        return self.data.float() * self.scale
    groups = self.scale.shape[1]
    q = unpack(self.data, self.bits, groups * self.group_size).float()
    wide = q.unflatten(1, (groups, self.group_size))
    wide = wide * self.scale.float()[..., None] + self.minimum.float()[..., None]
    return wide.flatten(1)[:, : self.shape[1]]


@misconception("3.4", "quantize")
def shape_of_the_bytes(weight, format):
    """You keep the shape of the packed numbers. shape is that of the weight, [out, in]: without it
    nobody knows how many of the numbers in the last byte and the last group count.
    """
    if format.group_size is None:
        q, scale = quantize_rows(weight)
        return QuantizedTensor(q, scale, None, format.bits, None, tuple(q.shape))
    q, scale, minimum = quantize_groups(weight, format.bits, format.group_size)
    packed = pack(q, format.bits)
    size = format.group_size
    return QuantizedTensor(packed, scale, minimum, format.bits, size, tuple(packed.shape))


@misconception("3.4", "quantize")
def never_packed(weight, format):
    """You keep one number a byte. That is correct arithmetic and saves nothing below 8 bits: data
    holds the packed numbers.
    """
    shape = tuple(weight.shape)
    if format.group_size is None:
        q, scale = quantize_rows(weight)
        return QuantizedTensor(q, scale, None, format.bits, None, shape)
    q, scale, minimum = quantize_groups(weight, format.bits, format.group_size)
    return QuantizedTensor(q, scale, minimum, format.bits, format.group_size, shape)


@misconception("3.4", "quantize")
def scales_in_float32(weight, format):
    """You store scale and minimum of the groups in float32. They are float16: 8 bytes for every
    group of 32 would make 6 bits a weight out of 4.
    """
    shape = tuple(weight.shape)
    if format.group_size is None:
        q, scale = quantize_rows(weight)
        return QuantizedTensor(q, scale, None, format.bits, None, shape)
    parts = quantize_groups(weight, format.bits, format.group_size, torch.float32)
    q, scale, minimum = parts
    packed = pack(q, format.bits)
    return QuantizedTensor(packed, scale, minimum, format.bits, format.group_size, shape)


@misconception("3.4", "linear")
def scale_of_rows_forgotten(x, weight):
    """You multiply with the int8 numbers and forget their scale. It may come after the product, but
    it has to come.
    """
    if isinstance(weight, Tensor):
        return F.linear(x, weight)
    if weight.minimum is None:
        return F.linear(x, weight.data.to(x.dtype))
    return F.linear(x, weight.dequantize(x.dtype))


@misconception("3.4", "linear")
def product_left_in_float32(x, weight):
    """Your product with a quantized weight is float32 whatever x is. It comes back in the dtype of
    x, or the next product of a half-precision model stops.
    """
    if isinstance(weight, Tensor):
        return F.linear(x, weight)
    return F.linear(x.float(), weight.dequantize())


@misconception("3.4", "linear")
def scaled_after_it_overflowed(x, weight):
    """You multiply 16-bit activations with the unscaled int8 numbers. The sum of hundreds of
    products up to 127 times x is beyond 65504, infinite in float16, before the scale can help.
    """
    if isinstance(weight, Tensor):
        return F.linear(x, weight)
    if weight.minimum is None:
        scale = weight.scale.squeeze(1).to(x.dtype)
        return F.linear(x, weight.data.to(x.dtype)) * scale
    return F.linear(x, weight.dequantize(x.dtype))


@misconception("3.4", "linear")
def only_quantized(x, weight):
    """You expect every weight to be quantized. The embedding and the head stay tensors, and linear
    is called with the head too: a Tensor is multiplied as it is.
    """
    return F.linear(x, weight.dequantize(x.dtype))


@misconception("3.4", "linear")
def floats_kept(x, weight):
    """You keep the dequantized weight for the next product. After one token all of them are there,
    and the model takes its 32 bits again, next to the packed ones: read it back every time.
    """
    if isinstance(weight, Tensor):
        return F.linear(x, weight)
    if "_floats" not in vars(weight):
        vars(weight)["_floats"] = weight.dequantize(x.dtype)
    return F.linear(x, vars(weight)["_floats"])
