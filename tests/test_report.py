"""`python -m course report`: plain lines and performance logs as plots, and what is missing."""

import errno
import json
import math
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from course import report
from solutions.periodic_log import Series

FIELDS = ["seconds", "running", "waiting", "kv", "memory", "tokens_per_s"]
FIELDS += ["first_token_p50_s", "first_token_p95_s", "inter_token_p50_s", "inter_token_p95_s"]
FIELDS += ["finished", "rejected", "errors"]


def line(number: int) -> str:
    """A periodic line, ten seconds after the one before."""
    clock = f"12:{number // 6:02d}:{number % 6}0.000Z"
    values = " ".join(f"{name}={'-' if name == 'kv' else number}" for name in FIELDS)
    return f"2026-11-30T{clock} llm {values}"


def as_json(number: int) -> str:
    """The same as a line of a performance log."""
    clock = f"12:{number // 6:02d}:{number % 6}0.000Z"
    values = {name: None if name == "kv" else number for name in FIELDS}
    return json.dumps({"at": f"2026-11-30T{clock}", **values})


def write(path: Path, lines: list[str], end: str = "\n") -> Path:
    """A file of these lines."""
    path.write_text("".join(f"{one}\n" for one in lines[:-1]) + lines[-1] + end, encoding="utf-8")
    return path


def is_png(path: Path) -> bool:
    """A whole PNG file."""
    data = path.read_bytes()
    return data.startswith(b"\x89PNG") and data.endswith(b"IEND\xaeB`\x82")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Where the plots go, in a folder that is not there yet."""
    return tmp_path / "plots" / "r.png"


def test_a_whole_log_is_drawn(tmp_path, out, capsys):
    log = write(tmp_path / "server.log", ["INFO: started", *map(line, range(9)), "INFO: bye"])
    assert report.main([str(log), "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "9 lines from 2026-11-30T12:00:00.000Z to 2026-11-30T12:01:20.000Z" in said
    rows = {row.split()[0]: row.split()[1:] for row in said.splitlines() if row.strip()}
    assert rows["tokens_per_s"] == ["0", "4", "8"]
    assert rows["kv"] == ["-", "-", "-"]
    assert is_png(out)
    assert [path.name for path in out.parent.iterdir()] == ["r.png"]


def test_a_performance_log_says_the_same(tmp_path, out, capsys):
    numbers = [0, 1, 2, 3, 7, 8]
    plain = write(tmp_path / "server.log", list(map(line, numbers)))
    exact = write(tmp_path / "performance-2026-11-30.jsonl", list(map(as_json, numbers)))
    assert report.main([str(plain), "--out", str(out)]) == 1
    first = capsys.readouterr().out.replace(str(plain), "LOG")
    assert report.main([str(exact), "--out", str(out)]) == 1
    assert capsys.readouterr().out.replace(str(exact), "LOG") == first
    assert "LOG: 3 lines are missing from 2026-11-30T12:00:30.000Z to 2026-11-30T12:01:10" in first


def test_a_cut_or_damaged_log_is_drawn_as_far_as_it_goes(tmp_path, out, capsys):
    lines = list(map(line, range(6)))
    lines[2] = lines[2][:70]
    log = write(tmp_path / "server.log", lines, end="")
    assert report.main([str(log), "--out", str(out)]) == 1
    said = capsys.readouterr().out
    assert "4 lines from" in said
    assert f"{log}: damaged or cut off, left out: line 3, 6\n" in said
    assert is_png(out)


def test_damaged_json_counts_as_damaged(tmp_path, out, capsys):
    lines = list(map(as_json, range(6)))
    lines[1] = lines[1][:50]
    lines[3] = "[]"
    lines[4] = lines[4].replace('"running": 4, ', "")
    log = write(tmp_path / "performance-2026-11-30.jsonl", [*lines, "\x00\x00"])
    assert report.main([str(log), "--out", str(out)]) == 1
    assert "left out: line 2, 4, 5, 7\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"running": 1', f'"running": {10**400}'),
        ("2026-11-30T", "0001-01-01T"),
        ('": 1,', '": 1e999,'),
    ],
    ids=["no float", "the year 1", "infinity"],
)
def test_odd_numbers_count_as_damaged(tmp_path, out, capsys, old, new):
    lines = list(map(as_json, range(4)))
    lines[1] = lines[1].replace(old, new)
    if "0001" in new:
        lines[1] = lines[1].replace("Z", "+23:59")  # before the first moment that there is
    log = write(tmp_path / "performance-2026-11-30.jsonl", lines)
    assert report.main([str(log), "--out", str(out)]) == 1
    assert "left out: line 2\n" in capsys.readouterr().out


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_a_log_that_powershell_wrote(tmp_path, out, capsys, encoding):
    log = tmp_path / "server.log"
    log.write_bytes("\r\n".join([*map(line, range(4)), ""]).encode(encoding))
    assert report.main([str(log), "--out", str(out)]) == 0
    assert "4 lines from" in capsys.readouterr().out


def test_a_folder_is_its_performance_logs(tmp_path, out, capsys):
    write(tmp_path / "performance-2026-11-30.jsonl", list(map(as_json, range(3))))
    write(tmp_path / "performance-2026-12-01.jsonl", list(map(as_json, range(3, 6))))
    write(tmp_path / "requests-2026-11-30.jsonl", ["{}"])
    assert report.main([str(tmp_path), "--out", str(out)]) == 0
    assert "6 lines from" in capsys.readouterr().out


def test_a_picture_never_takes_the_place_of_a_log(tmp_path, capsys):
    log = write(tmp_path / "server.log", list(map(line, range(3))))
    before = log.read_bytes()
    for out in (log, tmp_path / "another.log", tmp_path):
        assert report.main([str(log), "--out", str(out)]) == 1
        assert f"--out {out} must be a file whose name ends in .png" in capsys.readouterr().err
    assert log.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["server.log"]


@pytest.mark.parametrize(
    ("old", "new"),
    [("memory=1", "memory=1.7e+308"), ("2026", "9999")],
    ids=["too large", "another age"],
)
def test_what_cannot_be_drawn_is_said(tmp_path, out, capsys, old, new):
    lines = list(map(line, range(3)))
    lines[1] = lines[1].replace(old, new)
    lines[0] = lines[0].replace("2026", "0001")
    log = write(tmp_path / "server.log", lines)
    assert report.main([str(log), "--out", str(out)]) == 1
    assert "these numbers cannot be drawn (" in capsys.readouterr().err
    assert not out.exists()
    assert not list(tmp_path.rglob("*.partial"))


def test_a_folder_without_logs_says_what_it_looked_for_and_where_some_are(
    tmp_path, out, capsys, monkeypatch
):
    monkeypatch.setattr(report, "picture", lambda found: b"a picture")
    (tmp_path / "empty").mkdir()
    assert report.main([str(tmp_path / "empty"), "--out", str(out)]) == 1
    said = capsys.readouterr().out
    assert said.startswith("0 files, no lines\n")
    assert f"{tmp_path / 'empty'} has no file performance-*.jsonl (the performance log of" in said
    assert "nor have the folders in it" in said
    below = tmp_path / "drills" / "monday-1"
    below.mkdir(parents=True)
    write(below / "performance-2026-11-30.jsonl", [as_json(0)])
    assert report.main([str(tmp_path), "--out", str(out)]) == 1
    assert f"but there are some in {below}: name one" in capsys.readouterr().out
    assert report.main([str(below), "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("1 line from ")
    assert "performance-*" not in said
    assert report.main([str(below), str(tmp_path / "empty"), "--out", str(out)]) == 1


def test_one_is_no_plural(tmp_path, out, capsys):
    log = write(tmp_path / "server.log", ["INFO: started"])
    report.main([str(log), "--out", str(out)])
    assert capsys.readouterr().out.startswith("1 file, no lines\n")
    write(log, list(map(line, [0, 1, 2, 4])))
    report.main([str(log), "--out", str(out)])
    assert f"{log}: 1 line is missing from" in capsys.readouterr().out


def test_a_log_that_is_named_twice_counts_once(tmp_path, out, capsys, monkeypatch):
    monkeypatch.setattr(report, "picture", lambda found: b"a picture")
    log = write(tmp_path / "performance-2026-11-30.jsonl", list(map(as_json, range(3))))
    for others in ([log], [tmp_path], [tmp_path / "." / log.name, tmp_path]):
        assert report.main([*map(str, [log, *others]), "--out", str(out)]) == 0
        assert capsys.readouterr().out.startswith("3 lines from")


@pytest.mark.parametrize("kind", ["under a file", "too long"])
def test_a_picture_that_cannot_be_written_is_refused_before_anything_is_told(
    kind, tmp_path, capsys
):
    log = write(tmp_path / "server.log", list(map(line, range(3))))
    out = log / "x.png" if kind == "under a file" else tmp_path / "new" / ("x" * 250 + ".png")
    assert report.main([str(log), "--out", str(out)]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"report: {out} cannot be written (")
    assert ".partial" not in said.err
    assert [path.name for path in tmp_path.iterdir()] == ["server.log"]


def test_a_disk_that_fills_up_while_drawing_is_named(tmp_path, out, capsys, monkeypatch):
    log, writes = write(tmp_path / "server.log", list(map(line, range(3)))), []

    def full(self, data):
        writes.append(self)
        if data:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    assert report.main([str(log), "--out", str(out)]) == 1
    assert f"report: {out} cannot be written (No space left" in capsys.readouterr().err
    assert len(writes) == 2


def test_what_make_was_not_given_is_named(capsys):
    with pytest.raises(SystemExit) as ended:
        report.main([""])
    assert ended.value.code == 2
    assert "LOG (make: LOG=) is empty" in capsys.readouterr().err


def test_nothing_to_draw(tmp_path, out, capsys):
    log = write(tmp_path / "server.log", ["INFO: started"])
    (tmp_path / "empty").mkdir()
    for path in (log, tmp_path / "empty"):
        assert report.main([str(path), "--out", str(out)]) == 1
        assert "no periodic line" in capsys.readouterr().err
        assert not out.exists()


def test_a_log_that_is_not_there(tmp_path, out, capsys):
    assert report.main([str(tmp_path / "none.log"), "--out", str(out)]) == 1
    assert "none.log cannot be read" in capsys.readouterr().err


def test_curves_break_where_lines_are_missing():
    records = [{"time": float(t), "kv": v} for t, v in ((0, 0.1), (10, None), (20, 0.3), (60, 0.4))]
    times, values = report.curve({"a": Series(records, [], [(20.0, 60.0, 3)])}, "kv", 10)
    assert [time.timestamp() for time in times] == [0.0, 10.0, 20.0, 40.0, 60.0]
    assert times[0] == datetime(1970, 1, 1, tzinfo=UTC)
    assert [None if math.isnan(v) else round(v, 9) for v in values] == [1.0, None, 3.0, None, 4.0]
