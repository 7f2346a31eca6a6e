"""Wrong versions of 2.7 load_model."""

import time

import torch

from course.misconceptions import misconception
from solutions.checkpoint import stored_tensors
from solutions.config import read_config
from solutions.loader import LoadedModel, _Laps, _touch


@misconception("2.7", "_touch")
def nothing_read(tensor):
    """You time how long it takes to map the files, and call it reading. No number has left the disk
    yet: look at one byte of each page, or the first token pays for all of it.
    """


@misconception("2.7", "load_model")
def all_in_float32_first(
    folder, dtype=torch.float32, device="cpu", clock=time.perf_counter, progress=None
):
    """You bring all tensors into float32 memory, and convert them all afterwards. For a moment the
    whole model is there twice or more: read, convert and let go, one tensor at a time.
    """
    if not dtype.is_floating_point:
        raise ValueError(f"weights are floating-point numbers; {dtype} is not")
    laps = _Laps(clock)
    config = read_config(folder)
    laps.end("config")
    stored = stored_tensors(folder, config)
    laps.end("instantiate")
    total, done = sum(tensor.nbytes for tensor in stored.values()), 0
    read = {name: tensor.clone().float().clone() for name, tensor in stored.items()}
    laps.end("read")
    weights = {}
    for name, tensor in read.items():
        weights[name] = tensor.to(device, dtype, copy=True)
        done += stored[name].nbytes
        if progress:
            progress(done, total)
    laps.end("move")
    return LoadedModel(config, weights, laps.seconds)


@misconception("2.7", "load_model")
def one_dtype_only(
    folder, dtype=torch.float32, device="cpu", clock=time.perf_counter, progress=None
):
    """You move the tensors and leave them in the dtype of the file. All weights have to be in the
    one that was asked for: float32 unless something else is said.
    """
    if not dtype.is_floating_point:
        raise ValueError(f"weights are floating-point numbers; {dtype} is not")
    laps = _Laps(clock)
    config = read_config(folder)
    laps.end("config")
    stored = stored_tensors(folder, config)
    laps.end("instantiate")
    total, done = sum(tensor.nbytes for tensor in stored.values()), 0
    weights = {}
    for name in list(stored):
        tensor = stored.pop(name)
        _touch(tensor)
        laps.end("read")
        weights[name] = tensor.to(device)
        done += tensor.nbytes
        if progress:
            progress(done, total)
        laps.end("move")
    return LoadedModel(config, weights, laps.seconds)


@misconception("2.7", "load_model")
def bytes_of_the_result(
    folder, dtype=torch.float32, device="cpu", clock=time.perf_counter, progress=None
):
    """You count progress in bytes of the converted tensors. It is counted in bytes as they are
    stored, so that the last call has done == total whatever the dtype.
    """
    if not dtype.is_floating_point:
        raise ValueError(f"weights are floating-point numbers; {dtype} is not")
    laps = _Laps(clock)
    config = read_config(folder)
    laps.end("config")
    stored = stored_tensors(folder, config)
    laps.end("instantiate")
    total, done = sum(tensor.nbytes for tensor in stored.values()), 0
    weights = {}
    for name in list(stored):
        tensor = stored.pop(name)
        _touch(tensor)
        laps.end("read")
        weights[name] = tensor.to(device, dtype)
        done += weights[name].nbytes
        if progress:
            progress(done, total)
        laps.end("move")
    return LoadedModel(config, weights, laps.seconds)


@misconception("2.7", "load_model")
def time_lost(folder, dtype=torch.float32, device="cpu", clock=time.perf_counter, progress=None):
    """You read the clock at the beginning and at the end of each stage, and what happens between
    two stages belongs to none. Let the end of one be the beginning of the next: one reading for
    both.
    """
    if not dtype.is_floating_point:
        raise ValueError(f"weights are floating-point numbers; {dtype} is not")
    stages = {"config": 0.0, "instantiate": 0.0, "read": 0.0, "move": 0.0}
    began = clock()
    config = read_config(folder)
    stages["config"] = clock() - began
    began = clock()
    stored = stored_tensors(folder, config)
    stages["instantiate"] = clock() - began
    total, done = sum(tensor.nbytes for tensor in stored.values()), 0
    weights = {}
    for name in list(stored):
        began = clock()
        tensor = stored.pop(name)
        _touch(tensor)
        stages["read"] += clock() - began
        began = clock()
        weights[name] = tensor.to(device, dtype)
        stages["move"] += clock() - began
        done += tensor.nbytes
        if progress:
            progress(done, total)
    return LoadedModel(config, weights, stages)


@misconception("2.7", "load_model")
def progress_at_the_end(
    folder, dtype=torch.float32, device="cpu", clock=time.perf_counter, progress=None
):
    """You report progress once, when everything is there. Nobody who waits for 26 GB learns
    anything from that: report after each tensor.
    """
    if not dtype.is_floating_point:
        raise ValueError(f"weights are floating-point numbers; {dtype} is not")
    laps = _Laps(clock)
    config = read_config(folder)
    laps.end("config")
    stored = stored_tensors(folder, config)
    laps.end("instantiate")
    total = sum(tensor.nbytes for tensor in stored.values())
    weights = {}
    for name in list(stored):
        tensor = stored.pop(name)
        _touch(tensor)
        laps.end("read")
        weights[name] = tensor.to(device, dtype)
        laps.end("move")
    if progress:
        progress(total, total)
    laps.end("move")
    return LoadedModel(config, weights, laps.seconds)
