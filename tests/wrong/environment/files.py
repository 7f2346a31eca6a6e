"""1.2 an error in a run, 1.3 bytes that were not read, 1.8 files that were not looked for."""

import contextlib
import glob
import os
from pathlib import Path

from tests.parts import part


@part("1.2")
def errors_in_timed_runs_dropped(m):
    """A timed call that fails is a run like the others."""

    def time_call(call, clock=m.time.perf_counter, warmup=1, repeats=5):
        if warmup < 0 or repeats < 1:
            raise ValueError(warmup, repeats)
        for _ in range(warmup):
            call()
        return m.Timing(tuple(run(call, clock) for _ in range(repeats)))

    m.time_call = time_call


def run(call, clock) -> float:
    """The seconds of a call, whatever becomes of it."""
    began = clock()
    with contextlib.suppress(Exception):
        call()
    return clock() - began


def bandwidth_unless(stands_still):
    """bandwidth that refuses when this says so of the runs."""

    def change(m):
        def bandwidth(transfer, nbytes, clock=m.time.perf_counter, warmup=1, repeats=5):
            timing = m.time_call(transfer, clock, warmup, repeats) if nbytes > 0 else None
            if timing is None or stands_still(timing.runs):
                raise ValueError(nbytes)
            return nbytes / (timing.median or 1e-9)

        m.bandwidth = bandwidth

    return change


@part("1.3")
def one_run_without_time(m):
    """Refuses when the clock stood still in any run; asked is the median one."""
    bandwidth_unless(lambda runs: min(runs) <= 0)(m)


@part("1.3")
def all_runs_without_time(m):
    """Refuses only when the clock stood still in every run."""
    bandwidth_unless(lambda runs: max(runs) <= 0)(m)


@part("1.3")
def one_byte_is_nothing(m):
    """1 byte is refused, too."""
    right = m.bandwidth

    def bandwidth(transfer, nbytes, *args, **kwargs):
        if nbytes <= 1:
            raise ValueError(nbytes)
        return right(transfer, nbytes, *args, **kwargs)

    m.bandwidth = bandwidth


def reading(m, body):
    """read_through with this body behind the check of the chunk."""

    def read_through(path, chunk=2**20):
        if chunk < 1:
            raise ValueError(chunk)
        return body(path, chunk)

    m.read_through = read_through


@part("1.3")
def end_without_the_way(m):
    """Goes to the end of the file and asks where that is: nothing is read."""

    def body(path, chunk):
        with open(path, "rb") as file:
            return file.seek(0, os.SEEK_END)

    reading(m, body)


@part("1.3")
def first_chunk_and_size(m):
    """Reads one chunk, and takes the rest from the system."""

    def body(path, chunk):
        with open(path, "rb") as file:
            file.read(chunk)
        return os.path.getsize(path)

    reading(m, body)


@part("1.3")
def opened_as_text(m):
    """Counts characters, and on Windows one for two at the end of a line."""

    def body(path, chunk):
        with open(path, encoding="latin-1") as file:
            return sum(map(len, iter(lambda: file.read(chunk), "")))

    reading(m, body)


@part("1.3")
def buffer_of_its_own_size(m):
    """4 KiB at a time, whatever was asked for."""

    def body(path, chunk):
        with open(path, "rb", buffering=0) as file:
            return sum(map(len, iter(lambda: file.read(4096), b"")))

    reading(m, body)


@part("1.3")
def folder_has_no_bytes(m):
    """A folder is an empty file."""
    right = m.read_through
    m.read_through = lambda path, *chunk: 0 if os.path.isdir(path) else right(path, *chunk)


@part("1.8")
def folder_is_not_there(m):
    """A folder is a FileNotFoundError, as if nothing stood under that name."""
    right = m.sha256_file

    def sha256_file(path, *args, **kwargs):
        if os.path.isdir(path):
            raise FileNotFoundError(path)
        return right(path, *args, **kwargs)

    m.sha256_file = sha256_file


@part("1.8")
def pieces_of_its_own_size(m):
    """64 bytes at a time, whatever was asked for."""
    right = m.sha256_file

    def sha256_file(path, chunk=2**20, progress=None):
        return right(path, min(chunk, 64), progress)

    m.sha256_file = sha256_file


@part("1.8")
def chunk_below_nothing(m):
    """A negative chunk, which `read` takes for all there is, is not refused."""
    right = m.sha256_file

    def sha256_file(path, chunk=2**20, progress=None):
        return right(path, 2**20 if chunk < 0 else chunk, progress)

    m.sha256_file = sha256_file


def with_names_on_disk(m, names):
    """check_manifest that finds the names of the files in a folder like this."""

    def check_manifest(folder, files, ignore=("manifest.json",), progress=None):
        listed = {name: facts for name, facts in files.items() if name not in ignore}
        for name in listed:
            m._check_name(name)
        if not os.path.isdir(folder):
            raise FileNotFoundError(folder)
        lines = [m._difference(Path(folder), *item, progress) for item in listed.items()]
        unlisted = set(names(str(folder))) - listed.keys() - set(ignore)
        return sorted([*filter(None, lines), *(f"unlisted: {name}" for name in unlisted)])

    m.check_manifest = check_manifest


@part("1.8")
def hidden_files_unseen(m):
    """glob.glob passes over names that begin with a dot."""

    def names(folder):
        found = glob.glob("**/*", root_dir=folder, recursive=True)
        return [n.replace(os.sep, "/") for n in found if os.path.isfile(os.path.join(folder, n))]

    with_names_on_disk(m, names)


@part("1.8")
def folder_cut_off_by_its_length(m):
    """Relative names by counting letters: one too many where the folder ends in a slash."""

    def names(folder):
        walked = ((place, name) for place, _, inside in os.walk(folder) for name in inside)
        full = (os.path.join(place, name) for place, name in walked)
        return [path[len(folder) + 1 :].replace(os.sep, "/") for path in full]

    with_names_on_disk(m, names)


def checking(m, change):
    """check_manifest with its folder and ignore changed first."""
    right = m.check_manifest

    def check_manifest(folder, files, ignore=("manifest.json",), progress=None):
        folder, ignore = change(folder, ignore)
        return right(folder, files, ignore, progress)

    m.check_manifest = check_manifest


@part("1.8")
def folder_must_be_text(m):
    """A Path for the folder is a TypeError."""
    checking(m, lambda folder, ignore: (folder + "/", ignore))


@part("1.8")
def file_for_a_folder(m):
    """A file is a folder in which everything is missing."""
    right = m.check_manifest

    def check_manifest(folder, files, *args, **kwargs):
        if os.path.isfile(folder):
            return sorted(f"missing: {name}" for name in files)
        return right(folder, files, *args, **kwargs)

    m.check_manifest = check_manifest


@part("1.8")
def ignored_by_the_last_part(m):
    """manifest.json is ignored in every folder inside, as well."""
    right = m.check_manifest

    def check_manifest(folder, files, ignore=("manifest.json",), progress=None):
        lines = right(folder, files, ignore, progress)
        return [line for line in lines if line.split(": ")[1].split("/")[-1] not in ignore]

    m.check_manifest = check_manifest
