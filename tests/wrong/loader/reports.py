"""2.6 match_tensors, 2.7 load_model: reports that nearly say it, loads that nearly do it."""

import dataclasses
import itertools

import torch

from tests.parts import part


@part("2.6")
def derived_anywhere(m):
    """Any name with rotary_emb.inv_freq in it is left out, wherever that is."""
    right = m.match_tensors
    m.match_tensors = lambda found, config: right(
        {name: tensor for name, tensor in found.items() if m.DERIVED not in name}, config
    )


@part("2.6")
def derived_in_layers_only(m):
    """A table outside of the layers, as later files have it, is unexpected."""
    right = m.match_tensors

    def match_tensors(found, config):
        odd = [f"unexpected: {n}" for n in found if n.endswith(m.DERIVED) and "layers" not in n]
        if odd:
            raise ValueError("\n".join(odd))
        return right(found, config)

    m.match_tensors = match_tensors


def with_faults(m, faults):
    """Replace what is said about a tensor that is there."""
    right = m._faults
    m._faults = lambda name, tensor, shape: faults(right, name, tensor, shape)


@part("2.6")
def shapes_the_other_way_round(m):
    """NAME is EXPECTED, expected SHAPE."""

    def faults(right, name, tensor, shape):
        if tuple(tensor.shape) == shape:
            return right(name, tensor, shape)
        return [f"misshapen: {name} is {shape}, expected {tuple(tensor.shape)}"]

    with_faults(m, faults)


@part("2.6")
def only_integers_are_no_floats(m):
    """bool and complex numbers pass as floating point."""
    with_faults(
        m,
        lambda right, name, tensor, shape: (
            [] if tensor.dtype in (torch.bool, torch.complex64) else right(name, tensor, shape)
        ),
    )


@part("2.6")
def eight_bits_are_no_floats(m):
    """A list of floating dtypes that lacks those of 8 bits."""

    def faults(right, name, tensor, shape):
        few = [f"not floating point: {name} is {tensor.dtype}"] if tensor.itemsize == 1 else []
        return right(name, tensor, shape) or few

    with_faults(m, faults)


@part("2.6")
def head_of_any_shape(m):
    """A head that is not tied is looked for, and not looked at."""
    with_faults(
        m, lambda right, name, tensor, shape: [] if name == m.HEAD else right(name, tensor, shape)
    )


@part("2.6")
def numbers_looked_at(m):
    """Every number is read, to see whether it is one."""
    right = m.match_tensors

    def match_tensors(found, config):
        for name, tensor in found.items():
            if tensor.is_floating_point() and bool(tensor.isnan().all()):
                raise ValueError(f"{name} has no number")
        return right(found, config)

    m.match_tensors = match_tensors


@part("2.6")
def numbers_wiped(m):
    """The tensors that are given back are zeros by then."""
    right = m.match_tensors

    def match_tensors(found, config):
        matched = right(found, config)
        for tensor in matched.values():
            tensor.zero_()
        return matched

    m.match_tensors = match_tensors


@part("2.7")
def dtype_checked_late(m):
    """The config is read before the dtype is looked at."""
    right = m.load_model

    def load_model(folder, *more, **named):
        m.read_config(folder)
        return right(folder, *more, **named)

    m.load_model = load_model


@part("2.7")
def complex_accepted(m):
    """Only dtypes with "int" in their names are refused."""
    right = m.load_model

    def load_model(folder, dtype=torch.float32, *more, **named):
        plain = dtype.is_floating_point or "int" in str(dtype)
        return right(folder, dtype if plain else torch.float32, *more, **named)

    m.load_model = load_model


@part("2.7")
def config_half_kept(m):
    """The end tokens are lost on the way."""
    right = m.load_model

    def load_model(*more, **named):
        loaded = right(*more, **named)
        return dataclasses.replace(
            loaded, config=dataclasses.replace(loaded.config, eos_token_ids=())
        )

    m.load_model = load_model


@part("2.7")
def device_by_name_only(m):
    """A torch.device has no startswith."""
    right = m.load_model

    def load_model(folder, dtype=torch.float32, device="cpu", *more, **named):
        place = "cpu" if device.startswith("cuda") and not torch.cuda.is_available() else device
        return right(folder, dtype, place, *more, **named)

    m.load_model = load_model


@part("2.7")
def only_wide_floats(m):
    """8-bit floats are refused, which are floats as well."""
    right = m.load_model

    def load_model(folder, dtype=torch.float32, *more, **named):
        if dtype.itemsize == 1:
            raise ValueError(dtype)
        return right(folder, dtype, *more, **named)

    m.load_model = load_model


def with_progress(m, before: bool):
    """A load that tells of each tensor before it is moved, or of all when the last one is there."""

    def load_model(
        folder, dtype=torch.float32, device="cpu", clock=m.time.perf_counter, progress=print
    ):
        laps = m._Laps(clock)
        config = m.read_config(folder)
        laps.end("config")
        stored = m.stored_tensors(folder, config)
        laps.end("instantiate")
        total, done, weights, calls = sum(t.nbytes for t in stored.values()), 0, {}, []
        for name, tensor in stored.items():
            m._touch(tensor)
            laps.end("read")
            done += tensor.nbytes
            if before:
                progress(done, total)
            else:
                calls.append((done, total))
            weights[name] = tensor.to(device, dtype)
            laps.end("move")
        for call in calls:
            progress(*call)
        laps.end("move")
        return m.LoadedModel(config, weights, laps.seconds)

    right = m.load_model
    m.load_model = lambda *args, progress=None, **named: (
        load_model(*args, progress=progress, **named) if progress else right(*args, **named)
    )


@part("2.7")
def progress_in_a_row(m):
    """progress is called for all tensors when the last has come."""
    with_progress(m, before=False)


@part("2.7")
def progress_before_the_move(m):
    """progress is told of a tensor that has been read, and converts it afterwards."""
    with_progress(m, before=True)


@part("2.7")
def stage_after_stage(m):
    """All is read, then all is moved: a page that was dropped meanwhile is read twice."""

    def load_model(folder, dtype=torch.float32, device="cpu", clock=None, progress=None):
        if not dtype.is_floating_point:
            raise ValueError(dtype)
        clock = clock or m.time.perf_counter
        marks = [clock()]
        config = m.read_config(folder)
        marks.append(clock())
        found = m.stored_tensors(folder, config)
        marks.append(clock())
        sizes = {name: tensor.nbytes for name, tensor in found.items()}
        found = {name: tensor.clone() for name, tensor in found.items()}
        marks.append(clock())
        done, weights = 0, {}
        for name in sizes:
            weights[name] = found.pop(name).to(device=device, dtype=dtype)
            done += sizes[name]
            _ = progress and progress(done, sum(sizes.values()))
        marks.append(clock())
        parts = (b - a for a, b in itertools.pairwise(marks))
        return m.LoadedModel(config, weights, dict(zip(m.STAGES, parts, strict=True)))

    m.load_model = load_model
