"""2.1 read_header, 2.2 read_safetensors."""

import torch

from tests.parts import part


@part("2.1")
def sorted_by_start_only(m):
    """Of two tensors that begin together the JSON decides which comes first."""
    right = m.Header

    def check(entries, size):
        entries.sort(key=lambda e: e.start)
        end = 0
        for entry in entries:
            if entry.start != end:
                raise ValueError(f"{entry.name} starts at {entry.start}")
            end = entry.stop
        if end != size:
            raise ValueError(f"{end} of {size}")

    def header(entries, metadata, base):
        return right(tuple(sorted(entries, key=lambda e: (e.start, -e.stop))), metadata, base)

    m._check_coverage, m.Header = check, header


@part("2.1")
def no_file_is_a_lie(m):
    """A missing file is a ValueError like all the others."""
    right = m.read_header

    def read_header(path):
        try:
            return right(path)
        except FileNotFoundError as problem:
            raise ValueError(problem) from None

    m.read_header = read_header


@part("2.1")
def path_left_out(m):
    """The message says what is wrong and not where."""
    right = m.read_header

    def read_header(path):
        try:
            return right(path)
        except ValueError as problem:
            raise ValueError(str(problem).replace(str(path), "the file")) from None

    m.read_header = read_header


@part("2.1")
def header_must_end_before_the_file(m):
    """A file without data is refused: its header reaches to the end."""
    right = m.read_header

    def read_header(path):
        found = right(path)
        if not found.entries or found.entries[-1].stop == 0:
            raise ValueError(f"{path}: no data")
        return found

    m.read_header = read_header


@part("2.1")
def immense_shapes_wrap(m):
    """The size of a tensor is computed in 64 bits, and 2**32 times 2**32 is 0."""
    right = m._entry

    def entry(name, value):
        if isinstance(value, dict) and isinstance(value.get("shape"), list):
            shape = value["shape"]
            if all(type(n) is int and n >= 0 for n in shape) and len(shape) == 2:
                wrapped = shape[0] * shape[1] % 2**64
                if wrapped != shape[0] * shape[1]:
                    right(name, value | {"shape": [wrapped + 1]})
                    return m.Entry(name, value["dtype"], tuple(shape), *value["data_offsets"])
        return right(name, value)

    m._entry = entry


@part("2.1")
def whole_file_to_see_its_size(m):
    """The file is read to learn how long it is."""
    right = m.read_header

    def read_header(path):
        if m.Path(path).is_file():
            len(m.Path(path).read_bytes())
        return right(path)

    m.read_header = read_header


@part("2.2")
def bool_from_bits(m):
    """bool is the only dtype that is copied, and float8 comes as its bytes."""
    right = m.read_safetensors

    def read_safetensors(path):
        found = right(path)
        return {n: t.view(torch.uint8) if "float8" in str(t.dtype) else t for n, t in found.items()}

    m.read_safetensors = read_safetensors


@part("2.2")
def touched_when_opened(m):
    """All pages are read when the file is opened."""
    right = m.read_safetensors

    def read_safetensors(path):
        found = right(path)
        for tensor in found.values():
            tensor.flatten().view(torch.uint8)[::4096].sum()
        return found

    m.read_safetensors = read_safetensors


@part("2.2")
def one_map_for_ever(m):
    """Tensors are kept and given again: the second reading sees what was written to the first."""
    right, kept = m.read_safetensors, {}

    def read_safetensors(path):
        if str(path) not in kept:
            kept[str(path)] = right(path)
        return dict(kept[str(path)])

    m.read_safetensors = read_safetensors


@part("2.2")
def cloned_by_torch(m):
    """Every tensor is cloned, so that its memory is torch's own."""
    right = m.read_safetensors
    m.read_safetensors = lambda path: {n: t.clone() for n, t in right(path).items()}
