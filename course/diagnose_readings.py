"""Two saved readings of /metrics that a diagnosis may trust: whole, of this server, in order."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from solutions.vitals import Samples, figures, read_exposition

SHOWN = 3  # series that are named; of more, only their number


@dataclass(frozen=True)
class Pair:
    """Two readings.

    Attributes:
        copied: they are equal to the byte.
        fell: a counter that is smaller in the later one, in words; None where none is.
    """

    before: Samples
    after: Samples
    copied: bool
    fell: str | None


def pair(before: Path, after: Path) -> Pair:
    """Read both.

    Errors: ValueError naming the file, for one that cannot be read, is not whole, is not ours, or
    is named twice.
    """
    read = [_content(path) for path in (before, after)]
    samples = [_parsed(path, data) for path, data in zip((before, after), read, strict=True)]
    if before.samefile(after):
        raise ValueError(f"{before} is named twice: give two readings, taken some time apart")
    return Pair(*samples, read[0] == read[1], fallen(*samples))


def _content(path: Path) -> bytes:
    """All of a file, which may be a pipe. Errors: ValueError naming the file."""
    try:
        return path.read_bytes()
    except OSError as problem:
        raise ValueError(f"{path} cannot be read ({problem.strerror})") from None


def _parsed(path: Path, data: bytes) -> Samples:
    """An exposition. Errors: ValueError naming the file, when it is not whole, or not ours."""
    try:
        text = data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise ValueError(
            f"{path} is not UTF-8: save it by curl's own -o, not by > in PowerShell"
        ) from None
    try:
        samples = read_exposition(text)
        figures(samples, samples, 1.0)  # bounds that are no numbers are seen here
    except Exception:  # the parser of prometheus_client raises whatever it meets
        raise ValueError(f"{path} is damaged, or not in Prometheus' text format") from None
    _check_whole(path, text, samples)
    return samples


def _check_whole(path: Path, text: str, samples: Samples) -> None:
    """Every series is there once. Errors: ValueError naming the file and what is wrong."""
    missing = lacking(samples)
    if all(name not in samples for name, _ in missing) and len(missing) == len(whole()):
        raise ValueError(f"{path} has no series of ours: is it what /metrics of this server says?")
    if not text.endswith("\n"):
        raise ValueError(f"{path} is cut off: its last line has no end")
    if missing:
        named = ", ".join(map(_written, missing[:SHOWN]))
        more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
        raise ValueError(
            f"{path} is not whole, it has no {named}{more}: save all that /metrics says"
        )
    if twice := _twice(text):
        raise ValueError(f"{path} has {twice} twice: keep each reading in a file of its own")


def lacking(samples: Samples) -> list[tuple[str, str]]:
    """(name, value of the other label) of each series that a whole exposition has and this not."""
    return [(name, key) for name, key in whole() if key not in samples.get(name, {})]


def whole() -> list[tuple[str, str]]:
    """(name, value of the other label) of every series of this server, as it is from its start."""
    from solutions.metrics import Metrics  # later: it imports torch

    fresh = read_exposition(Metrics("any", memory=_kinds).exposition().decode())
    return [(name, key) for name, values in fresh.items() for key in values]


def _kinds() -> dict[str, int]:
    """The kinds of memory; how much is of no interest."""
    from solutions.metrics import memory_bytes

    return dict.fromkeys(memory_bytes(), 0)


def _written(series: tuple[str, str]) -> str:
    """A series in a message."""
    name, key = series
    return f"{name} of {key}" if key else name


def _twice(text: str) -> str | None:
    """A series that has two lines."""
    lines = (line for line in text.splitlines() if line.strip() and not line.startswith("#"))
    counted = Counter(line.rpartition(" ")[0] for line in lines)
    series, times = counted.most_common(1)[0]
    return series[:80] if times > 1 else None


def fallen(before: Samples, after: Samples) -> str | None:
    """A counter that is smaller than it was, with both values."""
    for end in ("_count", "_total"):
        for name in filter(lambda name: name.endswith(end), after):
            for key, value in after[name].items():
                was = before.get(name, {}).get(key, 0.0)
                if value < was:
                    return f"{_written((name, key))} was {was:g}, then {value:g}"
    return None
