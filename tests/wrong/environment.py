"""Chapter 01: wrong answers that a case must catch, each a small slip in an otherwise right one."""

import dataclasses
import hashlib
import re
from pathlib import Path

from tests.parts import part


@part("1.1")
def version_of_the_program(m):
    """The version behind "NVIDIA-SMI", which is the program's and not the driver's."""
    m.DRIVER = re.compile(r"NVIDIA-SMI ([0-9.]+)")


@part("1.1")
def two_spaces_behind_a_name(m):
    """Long names have a single space between them and the mode."""
    m.DEVICE = re.compile(r"\|\s+[0-9]+\s+(\S.*?)\s{2,}\S+\s*\|\s*[0-9A-Fa-f]{4,8}:")


@part("1.1")
def numbers_of_one_digit(m):
    """Device numbers from 10 on are passed over."""
    m.DEVICE = re.compile(r"\|\s+[0-9]\s+(\S.*?)\s+\S+\s*\|\s*[0-9A-Fa-f]{4,8}:")


@part("1.1")
def csv_of_the_first_device(m):
    """The CSV ends after its first device."""
    right = m._from_csv
    m._from_csv = lambda lines: right(lines[:2])


@part("1.1")
def units_needed(m):
    """A number without MiB behind it is no number."""
    right = m._mib
    m._mib = lambda cell: right(cell) if cell and "MiB" in cell else None


@part("1.1")
def no_devices_anywhere(m):
    """Any text with these words in it is a driver without devices."""
    right = m.parse_nvidia_smi
    nothing = m.Driver(None, None, ())
    m.parse_nvidia_smi = lambda text: nothing if m.NO_DEVICES in text else right(text)


@part("1.1")
def patch_level_counts(m):
    """12.4.1 does not run on a driver for 12.4."""

    def choose_cuda(supported, available):
        fitting = {tuple(map(int, text.split("."))): text for text in available}
        fitting = {number: text for number, text in fitting.items() if number <= tuple(supported)}
        if not fitting:
            raise ValueError(f"{supported[0]}.{supported[1]}: none of {list(available)}")
        return fitting[max(fitting)]

    m.choose_cuda = choose_cuda


@part("1.2")
def runs_in_a_list(m):
    """runs is a list: the dataclass is frozen and its content is not."""
    right = m.time_call

    def time_call(*args, **kwargs):
        return m.Timing(list(right(*args, **kwargs).runs))

    m.time_call = time_call


@part("1.2")
def clock_read_once_between(m):
    """The end of one run is the beginning of the next."""

    def time_call(call, clock=m.time.perf_counter, warmup=1, repeats=5):
        if warmup < 0 or repeats < 1:
            raise ValueError(f"{warmup} {repeats}")
        for _ in range(warmup):
            call()
        marks = [clock()]
        for _ in range(repeats):
            call()
            marks.append(clock())
        return m.Timing(tuple(b - a for a, b in zip(marks, marks[1:], strict=False)))

    m.time_call = time_call


@part("1.2")
def counts_checked_late(m):
    """The counts are checked when the warm-up has run."""
    right = m.time_call

    def time_call(call, clock=m.time.perf_counter, warmup=1, repeats=5):
        for _ in range(warmup):
            call()
        if warmup < 0:
            raise ValueError(warmup)
        return right(call, clock, 0, repeats)

    m.time_call = time_call


@part("1.2")
def sorts_its_runs(m):
    """median puts the runs in order, in place."""

    def median(self):
        ordered = sorted(self.runs)
        object.__setattr__(self, "runs", tuple(ordered))
        return m.median(ordered)

    m.Timing.median = property(median)


@part("1.3")
def warm_up_not_passed_on(m):
    """bandwidth warms up once, whatever it is told."""

    def bandwidth(transfer, nbytes, clock=m.time.perf_counter, warmup=1, repeats=5):
        if nbytes < 1:
            raise ValueError(nbytes)
        seconds = m.time_call(transfer, clock, repeats=repeats).median
        if seconds <= 0:
            raise ValueError("no time")
        return nbytes / seconds

    m.bandwidth = bandwidth


@part("1.3")
def stops_at_a_short_piece(m):
    """Reads whole chunks only, and drops the last, shorter one."""

    def read_through(path, chunk=2**20):
        if chunk < 1:
            raise ValueError(chunk)
        total, buffer = 0, bytearray(chunk)
        with open(path, "rb") as file:
            while file.readinto(buffer) == chunk:
                total += chunk
        return total

    m.read_through = read_through


@part("1.3")
def size_without_reading(m):
    """Asks the system for the size and reads nothing."""

    def read_through(path, chunk=2**20):
        if chunk < 1:
            raise ValueError(chunk)
        return Path(path).stat().st_size

    m.read_through = read_through


@part("1.4")
def groups_rounded_by_a_float(m):
    """Bytes come out as a float."""
    right = m.weight_bytes
    m.weight_bytes = lambda *args, **kwargs: float(right(*args, **kwargs))


@part("1.4")
def one_head_for_nothing(m):
    """0 is taken for the default."""

    def kv_width(config):
        return config.get("num_key_value_heads", 1) * m.head_dim(config)

    m.kv_width = kv_width


@part("1.4")
def bytes_filled_by_the_group(m):
    """Every group ends with a whole byte: chapter 03 fills up the row, not the group."""

    def row(length, bits, group):
        return -(-length // group) * (-(-group * bits // 8) + m.SCALE_BYTES)

    m._row_bytes = row


@part("1.4")
def norms_at_full_width(m):
    """The norms always have 32 bits."""
    right = m.weight_bytes

    def weight_bytes(config, bits=32, group_size=None, kept_bits=16):
        width = bits if bits >= 16 else kept_bits
        norms = (2 * config["num_hidden_layers"] + 1) * config["hidden_size"]
        return right(config, bits, group_size, kept_bits) + norms * (32 - width) // 8

    m.weight_bytes = weight_bytes


@part("1.5")
def hidden_size_for_heads(m):
    """Keys as wide as the queries where there is no head_dim."""
    right = m.kv_cache_bytes

    def kv_cache_bytes(config, length, batch=1, bits=16):
        wide = config if config.get("head_dim") else config | {"num_key_value_heads": None}
        return right(wide, length, batch, bits)

    m.kv_cache_bytes = kv_cache_bytes


@part("1.6")
def speed_of_a_whole_number(m):
    """Tokens a second are rounded."""
    right = m.predict_decode

    def predict_decode(*args, **kwargs):
        found = right(*args, **kwargs)
        return dataclasses.replace(found, tokens_per_second=float(round(found.tokens_per_second)))

    m.predict_decode = predict_decode


@part("1.6")
def compute_at_the_ridge(m):
    """Where both take the same time, it says compute."""
    right = m.predict_decode

    def predict_decode(weight_bytes, kv_bytes, parameters, bandwidth, flops, batch=1):
        found = right(weight_bytes, kv_bytes, parameters, bandwidth, flops, batch)
        reading = (weight_bytes + batch * kv_bytes) / bandwidth
        even = reading == 2 * parameters * batch / flops
        return dataclasses.replace(found, bound="compute") if even else found

    m.predict_decode = predict_decode


@part("1.6")
def turn_at_nought(m):
    """Where one sequence is bound by arithmetic already, it says 0."""
    right = m.compute_bound_from

    def compute_bound_from(*args):
        found = right(*args)
        return 0 if found == 1 else found

    m.compute_bound_from = compute_bound_from


@part("1.7")
def headroom_of_the_device_only(m):
    """Without a device the whole RAM may be filled."""
    right = m.plan_memory

    def plan_memory(file_bytes, weight_bytes, kv_bytes, ram_bytes, device_bytes=None):
        if device_bytes is None:
            device_bytes = ram_bytes * 5 // 4
        return right(file_bytes, weight_bytes, kv_bytes, ram_bytes, device_bytes)

    m.plan_memory = plan_memory


@part("1.7")
def loading_not_asked_with_a_device(m):
    """With a device the RAM is not looked at."""
    right = m.plan_memory

    def plan_memory(file_bytes, weight_bytes, kv_bytes, ram_bytes, device_bytes=None):
        wide = ram_bytes if device_bytes is None or ram_bytes < 0 else 10**15
        return right(file_bytes, weight_bytes, kv_bytes, wide, device_bytes)

    m.plan_memory = plan_memory


@part("1.7")
def weights_and_cache_one_by_one(m):
    """Each of them fits; the two together were not asked."""
    right = m.plan_memory

    def plan_memory(file_bytes, weight_bytes, kv_bytes, ram_bytes, device_bytes=None):
        if min(weight_bytes, kv_bytes) < 0:
            raise ValueError(min(weight_bytes, kv_bytes))
        larger = max(weight_bytes, kv_bytes)
        return right(file_bytes, larger, 0, ram_bytes, device_bytes)

    m.plan_memory = plan_memory


@part("1.8")
def upper_case_digits(m):
    """Digits in upper case."""
    right = m.sha256_file
    m.sha256_file = lambda *args, **kwargs: right(*args, **kwargs).upper()


@part("1.8")
def file_read_to_tell_progress(m):
    """Told once, at the end, of everything."""

    def sha256_file(path, chunk=2**20, progress=None):
        if chunk < 1:
            raise ValueError(chunk)
        digest, total = hashlib.sha256(), 0
        with open(path, "rb") as file:
            while piece := file.read(chunk):
                digest.update(piece)
                total += len(piece)
        if progress:
            progress(total)
        return digest.hexdigest()

    m.sha256_file = sha256_file


@part("1.8")
def names_checked_on_the_way(m):
    """A name that leads out is refused when its turn comes, and others have been read by then."""
    right = m._difference

    def difference(folder, name, facts, progress):
        checks(name)
        return right(folder, name, facts, progress)

    checks, m._check_name, m._difference = m._check_name, lambda name: None, difference


@part("1.8")
def report_by_kind_of_name(m):
    """Sorted by name, and not by line."""
    right = m.check_manifest

    def check_manifest(*args, **kwargs):
        return sorted(right(*args, **kwargs), key=lambda line: line.split(": ")[1])

    m.check_manifest = check_manifest


@part("1.8")
def folders_are_unlisted(m):
    """A folder counts as a file that nobody listed."""
    right = m.check_manifest

    def check_manifest(folder, files, ignore=("manifest.json",), progress=None):
        lines = right(folder, files, ignore, progress)
        inside = (path for path in Path(folder).rglob("*") if path.is_dir())
        names = {path.relative_to(folder).as_posix() for path in inside} - files.keys()
        return sorted([*lines, *(f"unlisted: {name}" for name in names)])

    m.check_manifest = check_manifest


@part("1.8")
def only_the_licence_is_brought_to_words(m):
    """The list is taken as it is written, so that its own spelling decides."""

    def check_licence(licence, allowed):
        for choice in allowed:
            if m._words(licence) and m._words(licence) == choice.lower().replace("-", " ").split():
                return choice
        named = licence if m._words(licence) else "no licence"
        raise ValueError(f"{named} is not one of {', '.join(allowed)}")

    m.check_licence = check_licence


@part("1.8")
def last_of_equal_entries(m):
    """Of two entries that mean the same, the second."""
    right = m.check_licence

    def check_licence(licence, allowed):
        try:
            return right(licence, list(allowed)[::-1])
        except ValueError as problem:
            raise ValueError(f"{problem} {', '.join(allowed)}") from None

    m.check_licence = check_licence


@part("1.8")
def or_later_is_the_same(m):
    """A "+" counts as a space: GPL-2.0+ becomes GPL-2.0."""

    def words(licence):
        plain = "".join(c if c.isalnum() or c == "." else " " for c in licence.lower())
        return [w for w in plain.split() if w not in ("the", "license", "licence", "version")]

    m._words = words
