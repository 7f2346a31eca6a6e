"""`python -m course diagnose`: causes from two saved readings of /metrics, and the exit code."""

import subprocess
import sys
from pathlib import Path

import pytest

from course import diagnose
from course.paths import ROOT
from solutions.diagnose import NEXT
from solutions.metrics import Metrics

WELL = {
    "llm_step_seconds_count": 100,
    "llm_generation_tokens_total": 300,
    "llm_prompt_tokens_total": 200,
    'llm_requests_total{finish_reason="stop"}': 9,
    'llm_requests_total{finish_reason="length"}': 2,
    "llm_requests_running": 1,
    "llm_requests_waiting": 0,
    'llm_memory_bytes{kind="process_resident"}': 1.0e9,
    'llm_memory_bytes{kind="device_allocated"}': 0,
}
LATER = {name: value if value > 1e8 else 2 * value for name, value in WELL.items()}


@pytest.fixture
def saved(tmp_path: Path):
    """Write an exposition with these values, and give its path."""

    def save(name: str, values: dict, **changes) -> str:
        lines = []
        for series, value in (values | changes).items():
            metric, _, labels = series.partition("{")
            lines.append(f'{metric}{{model_name="m",{labels or "}"} {value}\n')
        path = tmp_path / name
        path.write_text("".join(lines).replace(",}", "}"), encoding="utf-8")
        return str(path)

    return save


def run(capsys, *argv: str) -> tuple[int, str, str]:
    """(exit code, out, err) of the verb."""
    code = diagnose.main([*argv, "--seconds", "10"])
    return code, *capsys.readouterr()


def test_all_is_well(saved, capsys):
    files = [saved("a.txt", WELL), saved("b.txt", LATER)]
    code, said, _ = run(capsys, *files)
    assert code == 0
    assert said == f"nothing found\n(not looked for without --usual: {diagnose.COMPARED})\n"
    assert run(capsys, *files, "--usual", *files)[:2] == (0, "nothing found\n")


def test_a_leak_is_named_with_its_next_step(saved, capsys):
    memory = 'llm_memory_bytes{kind="process_resident"}'
    files = [saved("a.txt", WELL), saved("b.txt", LATER, **{memory: 1.5e9})]
    code, said, _ = run(capsys, *files)
    assert code == 1
    assert said.startswith("memory_leak: memory 1.5e+09, memory_before 1e+09\n  ")
    assert NEXT["memory_leak"] in said


def test_what_is_usual_decides(saved, capsys):
    """Answers that end by length are garbled only where they did not before."""
    ends = [f'llm_requests_total{{finish_reason="{reason}"}}' for reason in ("stop", "length")]
    usual = [saved("a.txt", WELL), saved("b.txt", LATER)]
    now = saved("c.txt", LATER, **{ends[0]: 18, ends[1]: 44, "llm_step_seconds_count": 300})
    assert run(capsys, usual[1], now)[0] == 0
    code, said, _ = run(capsys, usual[1], now, "--usual", *usual)
    assert (code, said.splitlines()[0]) == (1, "garbled_output: stop 0, length 40")
    usual = [saved("a.txt", WELL), saved("d.txt", LATER, **{ends[1]: 40})]
    assert run(capsys, usual[1], now, "--usual", *usual)[0] == 0


def test_seconds_are_those_of_the_reader(saved, capsys):
    pauses = [saved("a.txt", WELL, llm_gc_pause_seconds_sum=0)]
    pauses.append(saved("b.txt", LATER, llm_gc_pause_seconds_sum=0.6))
    assert run(capsys, *pauses)[0] == 1
    assert diagnose.main([*pauses, "--seconds", "60"]) == 0


def test_nothing_happened(saved, capsys):
    idle = WELL | {"llm_requests_running": 0}
    code, said, _ = run(capsys, saved("a.txt", idle), saved("b.txt", idle))
    assert code == 0
    assert "nothing found: no step, and no request ended" in said


def test_swapped_readings_are_noticed(saved, capsys):
    files = [saved("a.txt", WELL), saved("b.txt", LATER)]
    assert "fell" not in run(capsys, *files)[1]
    assert "A counter fell: the server began anew" in run(capsys, *reversed(files))[1]


def test_every_figure_on_request(saved, capsys):
    files = [saved("a.txt", WELL), saved("b.txt", LATER)]
    said = run(capsys, *files, "--figures")[1].splitlines()
    assert said[0].split() == ["figure", "now"]
    assert ["steps", "100"] in [line.split() for line in said]
    assert ["step_p50", "-"] in [line.split() for line in said]
    said = run(capsys, *files, "--figures", "--usual", *files)[1].splitlines()
    assert ["seconds", "10", "-"] in [line.split() for line in said]


def test_what_the_server_really_exports(tmp_path, capsys):
    path = tmp_path / "a.txt"
    path.write_bytes(Metrics('odd "name"').exposition())
    code, said, _ = run(capsys, str(path), str(path))
    assert (code, said.splitlines()[0]) == (0, "nothing found: no step, and no request ended")


def bad_readings(good: bytes) -> dict[str, bytes | None]:
    """What a reading may be instead: by name."""
    return {
        "missing": None,
        "empty": b"",
        "of_others": b"up 1\n",
        "a_page": b"<html><body>404</body></html>\n",
        "json": b'{"error": {"message": "no"}}\n',
        "cut_in_a_number": good[:-2],
        "cut_in_a_label": good[: good.rindex(b'"') - 2],
        "utf_16": good.decode().encode("utf-16"),
        "binary": bytes(range(256)),
        "other_bounds": good + b'llm_step_seconds_bucket{le="1",instance="a"} 3\n',
        "odd_numbers": good + b"llm_requests_total three\n",
    }


@pytest.mark.parametrize("kind", [*bad_readings(b'a{b="c"} 1\n'), "folder"])
def test_a_reading_that_cannot_be_used(kind, saved, tmp_path, capsys):
    good, bad = saved("good.txt", WELL), tmp_path / "bad.txt"
    if kind == "folder":
        bad.mkdir()
    elif (data := bad_readings(Path(good).read_bytes())[kind]) is not None:
        bad.write_bytes(data)
    for argv in ([good, str(bad)], [str(bad), good], [good, good, "--usual", good, str(bad)]):
        code, said, told = run(capsys, *argv)
        assert (code, said) == (2, "")
        assert told.startswith(f"diagnose: {bad} ")
        assert told.count("\n") == 1


@pytest.mark.parametrize("wrong", ["0", "-1", "nan", "inf", "soon", ""])
def test_seconds_that_are_no_time(saved, wrong, capsys):
    file = saved("a.txt", WELL)
    with pytest.raises(SystemExit):
        diagnose.main([file, file, f"--seconds={wrong}"])
    assert "must be a number above 0" in capsys.readouterr().err


def test_the_verb_as_typed(saved):
    argv = ["diagnose", saved("a.txt", WELL), saved("b.txt", LATER), "--seconds", "5"]
    done = subprocess.run(
        [sys.executable, "-m", "course", *argv], cwd=ROOT, capture_output=True, encoding="utf-8"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("nothing found\n")
