"""1.1 parse_nvidia_smi and choose_cuda: what passed when the tables were tamer."""

import csv
import dataclasses
import re

from tests.parts import part


def driver_of_rows(m, rows: list[dict]):
    """What a plain reading of the CSV gives, every column being there."""
    total, used = "memory.total [MiB]", "memory.used [MiB]"
    gpus = tuple(m.Gpu(r["name"], m._mib(r[total]), m._mib(r[used])) for r in rows)
    return m.Driver(rows[0]["driver_version"], None, gpus)


@part("1.1")
def bus_ids_are_decimal(m):
    """Only digits are looked for in a bus id, and 3B is none."""
    m.DEVICE = re.compile(r"\|\s+[0-9]+\s+(\S.*?)\s+\S+\s*\|\s*[0-9]{4,8}:[0-9]{2}:")


@part("1.1")
def nothing_used_is_unknown(m):
    """`or None` turns a device with 0 MiB in use into one that does not tell."""
    right = m.parse_nvidia_smi

    def parse_nvidia_smi(text):
        found = right(text)
        gpus = (dataclasses.replace(g, used_bytes=g.used_bytes or None) for g in found.gpus)
        return dataclasses.replace(found, gpus=tuple(gpus))

    m.parse_nvidia_smi = parse_nvidia_smi


@part("1.1")
def lines_end_in_newlines(m):
    """The carriage return of Windows stays at the end of a line, where no bar is then found."""
    right = m.parse_nvidia_smi

    def parse_nvidia_smi(text):
        found = right(text)
        return dataclasses.replace(found, gpus=()) if "\r" in text else found

    m.parse_nvidia_smi = parse_nvidia_smi


@part("1.1")
def csv_version_as_it_stands(m):
    """ "[N/A]" is given for a version."""

    def from_csv(lines):
        return driver_of_rows(m, list(csv.DictReader(lines, skipinitialspace=True)))

    m._from_csv = from_csv


@part("1.1")
def csv_of_four_columns(m):
    """A CSV without driver_version ends in a KeyError."""
    right = m._from_csv

    def from_csv(lines):
        driver_of_rows(m, list(csv.DictReader(lines, skipinitialspace=True)))
        return right(lines)

    m._from_csv = from_csv


@part("1.1")
def no_devices_with_a_newline(m):
    """ "No devices were found" is known by its newline."""
    right = m.parse_nvidia_smi

    def parse_nvidia_smi(text):
        if text.strip() == m.NO_DEVICES and not text.endswith("found\n"):
            raise ValueError(text)
        return right(text)

    m.parse_nvidia_smi = parse_nvidia_smi


@part("1.1")
def version_of_any_kind(m):
    """Whatever stands behind "Driver Version:" is the version, "N/A" too."""
    m.DRIVER = re.compile(r"(?:Driver|KMD) Version:\s*(\S+)")


@part("1.1")
def version_needed(m):
    """A table whose driver does not say its version is no table."""
    m.DRIVER = re.compile(r"(?:Driver|KMD) Version:\s*([0-9.]+)")


def choose_by(key):
    """choose_cuda with a key of its own."""

    def choose_cuda(supported, available):
        fitting = [text for text in available if key(text) <= key("{}.{}".format(*supported))]
        if not fitting:
            raise ValueError("{}.{}: none of {}".format(*supported, available))
        return max(fitting, key=key)

    return choose_cuda


@part("1.1")
def minor_that_is_no_number(m):
    """12.x counts as 12.0."""

    def key(text):
        major, minor = text.split(".")[:2]
        return int(major), int(minor) if minor.isdigit() else 0

    m.choose_cuda = choose_by(key)


@part("1.1")
def beginning_of_a_version(m):
    """12.4beta counts as 12.4: `match` where `fullmatch` is meant."""

    def key(text):
        found = m.VERSION.match(text)
        if not found:
            raise ValueError(text)
        return int(found[1]), int(found[2])

    m.choose_cuda = choose_by(key)


@part("1.1")
def supported_as_a_pair(m):
    """The message says (11, 2), which nobody would look for."""
    right = m.choose_cuda

    def choose_cuda(supported, available):
        try:
            return right(supported, available)
        except ValueError as problem:
            raise ValueError(str(problem).replace("11.2", str(supported))) from None

    m.choose_cuda = choose_cuda
