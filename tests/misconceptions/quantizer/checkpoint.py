"""Wrong versions of 3.5 is_quantizable and quantize_weights."""

import torch

from course.misconceptions import misconception
from solutions.quantized import quantize
from solutions.quantizer import _converted, is_quantizable


@misconception("3.5", "is_quantizable")
def every_matrix(name, shape):
    """You quantize every matrix. The embedding and the head are matrices too, and stay as they
    are: the one is looked up, the other decides between tens of thousands of close logits.
    """
    return len(shape) == 2 and name.endswith(".weight")


@misconception("3.5", "is_quantizable")
def head_forgotten(name, shape):
    """You leave the embedding alone but not the head. They do the same work at the two ends of the
    model, and are often one tensor.
    """
    embedding = name == "model.embed_tokens.weight"
    return len(shape) == 2 and name.endswith(".weight") and not embedding


@misconception("3.5", "is_quantizable")
def by_name_alone(name, shape):
    """You go by the name and do not look at the shape. A norm's weight is a vector, and a matrix
    has exactly two dimensions.
    """
    return name.endswith(".weight") and "embed_tokens" not in name and "lm_head" not in name


@misconception("3.5", "is_quantizable")
def by_shape_alone(name, shape):
    """You go by the shape and the two exceptions. A buffer or a stored scale can be a matrix
    as well: only names that end in ".weight" are weights.
    """
    return len(shape) == 2 and name not in ("model.embed_tokens.weight", "lm_head.weight")


@misconception("3.5", "quantize_weights")
def everything_read_first(stored, format, dtype=torch.float32, progress=None):
    """You make a dict of all tensors first and quantize then. That holds the whole full-size model
    at once: ask for one tensor, quantize it, forget it, and only then ask for the next.
    """
    tensors, result = dict(stored), {}
    for done, (name, tensor) in enumerate(tensors.items(), 1):
        result[name] = _converted(name, tensor, format, dtype)
        if progress is not None:
            progress(done, len(tensors))
    return result


@misconception("3.5", "quantize_weights")
def kept_until_the_next(stored, format, dtype=torch.float32, progress=None):
    """Your loop variable holds the last tensor while the next one is made: items() gives the new
    tensor before the old name lets go, so two are alive. Let a function have it, or `del` it.
    """
    result, done = {}, 0
    for name, tensor in stored.items():
        result[name] = _converted(name, tensor, format, dtype)
        done += 1
        if progress is not None:
            progress(done, len(stored))
    return result


@misconception("3.5", "quantize_weights")
def left_in_its_dtype(stored, format, dtype=torch.float32, progress=None):
    """You leave the dtype of what you do not quantize as it was. The embedding's dtype is that of
    the whole computation: convert what is left alone to `dtype`.
    """
    result = {}
    for done, name in enumerate(stored, 1):
        one = _converted(name, stored[name], format, dtype)
        result[name] = stored[name] if isinstance(one, torch.Tensor) else one
        if progress is not None:
            progress(done, len(stored))
    return result


@misconception("3.5", "quantize_weights")
def copied_without_need(stored, format, dtype=torch.float32, progress=None):
    """You copy what is left alone even where it has the dtype already. The embedding is the largest
    tensor of this model: `to` gives back the same tensor when there is nothing to convert.
    """
    result = {}
    for done, name in enumerate(stored, 1):
        one = _converted(name, stored[name], format, dtype)
        result[name] = one.clone() if isinstance(one, torch.Tensor) else one
        if progress is not None:
            progress(done, len(stored))
    return result


@misconception("3.5", "quantize_weights")
def progress_before_the_work(stored, format, dtype=torch.float32, progress=None):
    """You report a tensor before it is done, so the count begins at 0 and never reaches the end.
    progress comes after each tensor: 1 of N first, N of N last.
    """
    result = {}
    for done, name in enumerate(stored):
        if progress is not None:
            progress(done, len(stored))
        result[name] = _converted(name, stored[name], format, dtype)
    return result


@misconception("3.5", "quantize_weights")
def which_tensor_it_was(stored, format, dtype=torch.float32, progress=None):
    """Your error does not say which tensor it was. Among 200 of them "row 3 holds an infinity"
    helps nobody: put the name in front.
    """
    result = {}
    for done, name in enumerate(stored, 1):
        tensor = stored[name]
        chosen = is_quantizable(name, tuple(tensor.shape))
        result[name] = quantize(tensor, format) if chosen else tensor.to(dtype)
        del tensor
        if progress is not None:
            progress(done, len(stored))
    return result


@misconception("3.5", "quantize_weights")
def work_kept_alive(stored, format, dtype=torch.float32, progress=None):
    """You let go of the stored tensors, but keep a float32 copy of each until the end. In the end
    that is the whole model at 32 bits, next to its quantized self.
    """
    result, work = {}, []
    for done, name in enumerate(stored, 1):
        tensor = stored[name]
        work.append(tensor.float().clone())
        result[name] = _converted(name, tensor, format, dtype)
        del tensor
        if progress is not None:
            progress(done, len(stored))
    return result


@misconception("3.5", "quantize_weights")
def progress_all_at_the_end(stored, format, dtype=torch.float32, progress=None):
    """You report all tensors when the last one is done. A bar then stands still for minutes and
    jumps to its end: progress comes after each tensor.
    """
    result = {}
    for name in stored:
        result[name] = _converted(name, stored[name], format, dtype)
    for done in range(1, len(result) + 1):
        if progress is not None:
            progress(done, len(stored))
    return result


@misconception("3.5", "quantize_weights")
def matrices_in_that_dtype(stored, format, dtype=torch.float32, progress=None):
    """You convert every tensor to `dtype` first. That is for what is left alone: a matrix rounded
    to 16 bits on its way to 4 is rounded twice.
    """
    result = {}
    for done, name in enumerate(stored, 1):
        result[name] = _converted(name, stored[name].to(dtype), format, dtype)
        if progress is not None:
            progress(done, len(stored))
    return result
