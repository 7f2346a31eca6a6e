"""Chapter 01 with one part written otherwise."""

import mmap
import os
from decimal import Decimal
from hashlib import sha256
from pathlib import Path

from tests.parts import part


@part("1.1")
def driver_of_lists(m):
    """A driver whose devices are kept in a list until the end, read from the last line upwards."""

    def devices(lines):
        found, below = [], ""
        for line in reversed(lines):
            if m.DEVICE.match(line.strip()):
                memory = m.MEMORY.search(below)
                numbers = [int(n) << 20 for n in memory.groups()] if memory else [None, None]
                found.append(m.Gpu(m.DEVICE.match(line.strip()).group(1), numbers[1], numbers[0]))
            below = line
        return found[::-1]

    m._devices = devices


@part("1.1")
def refusal_with_the_whole_text(m):
    """The message repeats all that was seen, not its first line alone."""
    right = m.parse_nvidia_smi

    def parse_nvidia_smi(text):
        try:
            return right(text)
        except ValueError:
            raise ValueError(f"not from nvidia-smi: {text.strip() or 'nothing'}") from None

    m.parse_nvidia_smi = parse_nvidia_smi


@part("1.1")
def versions_by_decimal_parts(m):
    """The version that is fewest steps below what is supported."""

    def choose_cuda(supported, available):
        best = {}
        for text in available:
            number = m._major_minor(text)
            steps = (supported[0] - number[0]) * 1000 + supported[1] - number[1]
            if steps >= 0:
                best.setdefault(steps, text)
        if not best:
            raise ValueError(f"{supported[0]}.{supported[1]} is under all of {list(available)}")
        return best[min(best)]

    m.choose_cuda = choose_cuda


@part("1.2")
def clock_read_in_decimals(m):
    """Durations as differences of decimals, floats again at the end."""

    def time_call(call, clock=m.time.perf_counter, warmup=1, repeats=5):
        if repeats < 1:
            raise ValueError("repeats")
        if warmup < 0:
            raise ValueError("warmup")
        runs = []
        for turn in range(warmup + repeats):
            began = Decimal(clock()) if turn >= warmup else None
            call()
            if began is not None:
                runs.append(float(Decimal(clock()) - began))
        return m.Timing(tuple(runs))

    m.time_call = time_call


@part("1.3")
def file_through_a_map(m):
    """Bytes by the positions of a raw file descriptor."""

    def read_through(path, chunk=2**20):
        if chunk < 1:
            raise ValueError(chunk)
        handle, total = os.open(path, os.O_RDONLY), 0
        try:
            while piece := os.read(handle, chunk):
                total += len(piece)
        finally:
            os.close(handle)
        return total

    m.read_through = read_through


@part("1.3")
def bandwidth_of_single_calls(m):
    """time_call with one run at a time, the median taken here."""

    def bandwidth(transfer, nbytes, clock=m.time.perf_counter, warmup=1, repeats=5):
        if nbytes < 1:
            raise ValueError(nbytes)
        for _ in range(warmup):
            transfer()
        runs = sorted(m.time_call(transfer, clock, 0, 1).runs[0] for _ in range(repeats))
        middle = (runs[(repeats - 1) // 2] + runs[repeats // 2]) / 2
        if not middle:
            raise ValueError("no time")
        return nbytes / middle

    m.bandwidth = bandwidth


@part("1.4")
def weights_tensor_by_tensor(m):
    """Every tensor of every layer one after another."""

    def weight_bytes(config, bits=32, group_size=None, kept_bits=16):
        m._check_widths(bits, group_size, kept_bits)
        norm = config["hidden_size"]
        shapes = [(config["vocab_size"], norm), (norm,)]
        if not config.get("tie_word_embeddings", False):
            shapes.append(shapes[0])
        total = 0
        for _ in range(config["num_hidden_layers"]):
            shapes += [(norm,), (norm,)]
            for out, into in m.matrices(config):
                group = group_size or into
                bytes_of_bits, left = divmod(-(-into // group) * group * bits, 8)
                row = bytes_of_bits + bool(left) + 4 * -(-into // group)
                total += out * (row if bits < 16 else into * bits // 8)
        width = (bits if bits >= 16 else kept_bits) // 8
        return total + width * sum(m.math.prod(shape) for shape in shapes)

    m.weight_bytes = weight_bytes


@part("1.6")
def turn_by_counting(m):
    """Counts up until the prediction changes."""

    def compute_bound_from(weight_bytes, kv_bytes, parameters, bandwidth, flops):
        if bandwidth <= 0 or flops <= 0:
            raise ValueError("machine")
        if 2 * parameters * bandwidth <= kv_bytes * flops:
            return None
        batch = 1
        while weight_bytes * flops + batch * kv_bytes * flops >= 2 * parameters * batch * bandwidth:
            batch += 1
        return batch

    m.compute_bound_from = compute_bound_from


@part("1.7")
def reasons_in_other_words(m):
    """Sentences of its own, and whole numbers compared as fractions of five."""

    def plan_memory(file_bytes, weight_bytes, kv_bytes, ram_bytes, device_bytes=None):
        for number in (file_bytes, weight_bytes, kv_bytes, ram_bytes, device_bytes):
            if number is not None and number < 0:
                raise ValueError(f"{number} is less than nothing")
        place, said = (ram_bytes if device_bytes is None else device_bytes), []
        if ram_bytes < 2 * file_bytes:
            said += [f"a file needs {file_bytes / 5e8:.2f} GB, not {ram_bytes / 1e9:.2f} GB"]
        if 4 * place < 5 * (weight_bytes + kv_bytes):
            said += [
                f"{(weight_bytes + kv_bytes) / 1e9:.2f} GB, {place / 1.25e9:.2f} GB: less cache"
            ]
        return m.MemoryPlan(fits=said == [], reasons=tuple(said))

    m.plan_memory = plan_memory


@part("1.8")
def hash_of_a_map(m):
    """The file mapped, hashed slice by slice."""

    def sha256_file(path, chunk=2**20, progress=None):
        if chunk < 1:
            raise ValueError(chunk)
        digest, size = sha256(), os.path.getsize(path)
        if not size:
            return digest.hexdigest()
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for at in range(0, size, chunk):
                digest.update(memoryview(data)[at : at + chunk])
                if progress:
                    progress(min(chunk, size - at))
        return digest.hexdigest()

    m.sha256_file = sha256_file


@part("1.8")
def manifest_of_the_disk(m):
    """Goes through the disk first, then through what is left of the list."""

    def check_manifest(folder, files, ignore=("manifest.json",), progress=None):
        open_names = {name: files[name] for name in files if name not in set(ignore)}
        for name in open_names:
            m._check_name(name)
        if not Path(folder).is_dir():
            raise FileNotFoundError(folder)
        lines = []
        for path in Path(folder).glob("**/*"):
            name = path.relative_to(folder).as_posix()
            facts = open_names.pop(name, None)
            if facts is not None and m._difference(Path(folder), name, facts, progress):
                lines.append(f"changed: {name}")
            elif facts is None and path.is_file() and name not in set(ignore):
                lines.append(f"unlisted: {name}")
        return sorted(lines + [f"missing: {name}" for name in open_names])

    m.check_manifest = check_manifest
