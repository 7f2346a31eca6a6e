"""`python -m course diagnose`: causes from two saved readings of /metrics, and the exit code."""

import subprocess
import sys
from pathlib import Path

import pytest

from course import diagnose
from course.paths import ROOT
from solutions.diagnose import NEXT
from solutions.metrics import Metrics, memory_bytes

FRESH = Metrics("m", memory=lambda: dict.fromkeys(memory_bytes(), 0)).exposition().decode()
ENDS = [f'llm_requests_total{{finish_reason="{reason}"}}' for reason in ("stop", "length")]
WELL = {
    "llm_step_seconds_count": 100,
    'llm_step_seconds_bucket{le="0.1"}': 100,
    "llm_generation_tokens_total": 300,
    "llm_prompt_tokens_total": 200,
    ENDS[0]: 9,
    ENDS[1]: 2,
    "llm_requests_running": 1,
    "llm_requests_waiting": 0,
    'llm_memory_bytes{kind="process_resident"}': 1.0e9,
    'llm_inter_token_latency_seconds_bucket{le="0.1"}': 290,
    'llm_request_prompt_tokens_bucket{le="50.0"}': 11,
}
GARBLED = {ENDS[0]: 18, ENDS[1]: 44, "llm_step_seconds_count": 300}
LATER = {name: value if value > 1e8 else 2 * value for name, value in WELL.items()}


def exposition(values: dict) -> str:
    """What a server says: every series, at 0 where nothing else is asked for.

    A bucket's count is that of all wider ones too.
    """
    left, lines, bucket, count = dict(values), [], None, 0
    for line in FRESH.splitlines():
        series = line.rpartition(" ")[0].replace(',model_name="m"', "")
        series = series.replace('{model_name="m"}', "")
        name = series.partition("{")[0]
        if name != bucket:
            bucket, count = name, 0
        value = left.pop(series, count)
        if name.endswith("_bucket"):
            count = value
        lines.append(line if line.startswith("#") else f"{line.rpartition(' ')[0]} {value}")
    assert not left
    return "\n".join(lines) + "\n"


@pytest.fixture
def saved(tmp_path: Path):
    """Write an exposition with these values, and give its path."""

    def save(name: str, values: dict, **changes) -> str:
        path = tmp_path / name
        path.write_text(exposition(values | changes), encoding="utf-8")
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
    usual = [saved("c.txt", WELL), saved("d.txt", LATER)]
    assert run(capsys, *files, "--usual", *usual)[:2] == (0, "nothing found\n")


def test_a_leak_is_named_with_its_next_step(saved, capsys):
    memory = 'llm_memory_bytes{kind="process_resident"}'
    files = [saved("a.txt", WELL), saved("b.txt", LATER, **{memory: 1.5e9})]
    code, said, _ = run(capsys, *files)
    assert code == 1
    assert said.startswith("memory_leak: memory 1.5e+09, memory_before 1e+09\n  ")
    assert NEXT["memory_leak"] in said


def test_what_is_usual_decides(saved, capsys):
    """Answers that end by length are garbled only where they did not before."""
    usual = [saved("a.txt", WELL), saved("b.txt", LATER)]
    now = saved("c.txt", LATER, **GARBLED)
    assert run(capsys, usual[1], now)[0] == 0
    code, said, _ = run(capsys, usual[1], now, "--usual", *usual)
    assert (code, said.splitlines()[0]) == (1, "garbled_output: stop 0, length 40")
    usual = [saved("a.txt", WELL), saved("d.txt", LATER, **{ENDS[1]: 40})]
    code, said, _ = run(capsys, usual[1], now, "--usual", *usual)
    assert (code, said.splitlines()[0]) == (0, "nothing found")
    assert "cannot be seen: usually, too, most answers end by length" in said


def usual_of(kind: str, saved) -> tuple[list[str], str]:
    """Two usual readings with which nothing can be compared, and what is to be said of them."""
    idle = WELL | {"llm_requests_running": 0}
    if kind == "idle":
        return [saved("u.txt", idle), saved("v.txt", idle)], "no request ended"
    if kind == "swapped":
        return [saved("u.txt", LATER), saved("v.txt", WELL)], "A counter fell in the usual readings"
    return [saved("u.txt", LATER), saved("v.txt", {})], "(llm_step_seconds_count was 200, then 0)"


@pytest.mark.parametrize("kind", ["idle", "swapped", "restarted"])
def test_usual_readings_that_say_nothing_are_not_taken_for_good_ones(kind, saved, capsys):
    """Forty of forty answers are garbled, which only a good time could tell."""
    usual, words = usual_of(kind, saved)
    files = [saved("b.txt", LATER), saved("c.txt", LATER, **GARBLED)]
    code, said, _ = run(capsys, *files, "--usual", *usual)
    assert code == 2
    assert said.startswith("CANNOT TELL")
    assert words in said
    assert "Not looked for" in said
    for cause in ("huge_request", "slow_machine", "garbled_output without NaN"):
        assert cause in said
    memory = 'llm_memory_bytes{kind="process_resident"}'
    leak = saved("d.txt", LATER, **GARBLED | {memory: 1.5e9})
    code, said, _ = run(capsys, files[0], leak, "--usual", *usual)
    assert (code, said[:12]) == (1, "memory_leak:")  # this needs no comparison
    assert "Not looked for" in said


def test_what_usual_readings_hold_is_looked_for(saved, capsys):
    """One cause of three cannot be compared, and only that is named."""
    latency = 'llm_inter_token_latency_seconds_bucket{le="0.1"}'
    usual = [saved("u.txt", WELL), saved("v.txt", LATER, **{latency: 290})]
    files = [saved("b.txt", LATER), saved("c.txt", LATER, **{"llm_step_seconds_count": 300})]
    code, said, _ = run(capsys, *files, "--usual", *usual)
    assert code == 2
    assert "huge_request (no second token of an answer)" in said
    assert "slow_machine" not in said
    assert "garbled_output" not in said
    code, said, _ = run(capsys, files[0], saved("g.txt", LATER, **GARBLED), "--usual", *usual)
    assert (code, said.splitlines()[0]) == (1, "garbled_output: stop 0, length 40")


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
    code, said, _ = run(capsys, *reversed(files))
    assert code == 2
    assert "A counter fell: the server began anew" in said
    assert "llm_step_seconds_count was 200, then 100" in said
    assert not any(line.startswith("nothing found") for line in said.splitlines())


def test_findings_of_swapped_readings_are_no_verdict(saved, capsys):
    more = {'llm_memory_bytes{kind="process_resident"}': 1.5e9}
    code, said, _ = run(capsys, saved("a.txt", LATER), saved("b.txt", WELL, **more))
    assert code == 2
    assert said.startswith("memory_leak")
    assert "A counter fell" in said


def test_one_reading_twice_is_none_of_two(saved, tmp_path, capsys):
    file, other = saved("a.txt", WELL), saved("b.txt", LATER)
    for argv in ([file, file], [file, f"{tmp_path}/./a.txt"], [file, other, "--usual", file, file]):
        code, said, told = run(capsys, *argv)
        assert (code, said) == (2, "")
        assert "is named twice: give two readings" in told
    code, said, told = run(capsys, file, other, "--usual", file, other)
    assert (code, said) == (2, "")
    assert "--usual names the same two readings" in told


def test_a_copy_is_told(saved, capsys):
    """It may be honest: an idle server, or one that is stuck, says the same again and again."""
    files = [saved("a.txt", WELL), saved("b.txt", WELL)]
    code, said, _ = run(capsys, *files)
    assert (code, said.splitlines()[0]) == (1, "stuck_engine: steps 0, running 1, waiting 0")
    assert "equal to the byte" in said


def test_a_reading_cut_at_any_line_is_refused(saved, tmp_path, capsys):
    """As `head` leaves it, or `tail`; comments may be missing."""
    good = saved("good.txt", LATER)
    lines = Path(good).read_text(encoding="utf-8").splitlines(keepends=True)
    series = [n for n, line in enumerate(lines) if not line.startswith("#")]
    bad = tmp_path / "bad.txt"
    for cut in (series[1], series[len(series) // 2], series[-1]):
        for part in (lines[:cut], lines[cut + 1 :], lines[:cut] + lines[cut + 1 :]):
            bad.write_text("".join(part), encoding="utf-8")
            code, said, told = run(capsys, good, str(bad))
            assert (code, said) == (2, "")
            assert told.startswith(f"diagnose: {bad} ")
    bad.write_text("".join(lines[n] for n in series), encoding="utf-8")
    assert run(capsys, good, str(bad))[0] == 1  # nothing has moved, and one is running


def test_the_first_series_that_are_missing_are_named(saved, tmp_path, capsys):
    good, bad = saved("good.txt", LATER), tmp_path / "bad.txt"
    text = Path(good).read_text(encoding="utf-8")
    bad.write_text(text[: text.index("# HELP llm_requests_running")], encoding="utf-8")
    assert run(capsys, good, str(bad))[2] == (
        f"diagnose: {bad} is not whole, it has no llm_requests_running, llm_requests_waiting, "
        f"llm_kv_cache_usage_ratio and {len(memory_bytes())} more: save all that /metrics says\n"
    )


def test_two_readings_in_one_file_are_not_added_up(saved, tmp_path, capsys):
    good, bad = saved("good.txt", WELL), tmp_path / "bad.txt"
    bad.write_text(2 * Path(good).read_text(encoding="utf-8"), encoding="utf-8")
    code, _, told = run(capsys, good, str(bad))
    assert code == 2
    assert "twice: keep each reading in a file of its own" in told


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["a.txt", "", "--seconds", ""], "AFTER (make: B=), --seconds (make: S=) are empty"),
        (["", "", "--seconds", ""], "BEFORE (make: A=), AFTER (make: B=), --seconds (make: S=)"),
        (["a.txt", " ", "--seconds", "3"], "AFTER (make: B=) is empty"),
        (["a.txt", "b.txt", "--seconds", "3", "--usual", "c.txt", ""], "--usual needs two"),
    ],
)
def test_what_make_was_not_given_is_named(argv, words, capsys):
    with pytest.raises(SystemExit) as ended:
        diagnose.main(argv)
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


def test_every_figure_on_request(saved, capsys):
    files = [saved("a.txt", WELL), saved("b.txt", LATER)]
    said = run(capsys, *files, "--figures")[1].splitlines()
    assert said[0].split() == ["figure", "now"]
    assert ["steps", "100"] in [line.split() for line in said]
    assert ["first_token_p50", "-"] in [line.split() for line in said]
    usual = [saved("c.txt", WELL), saved("d.txt", LATER)]
    said = run(capsys, *files, "--figures", "--usual", *usual)[1].splitlines()
    assert ["seconds", "10", "-"] in [line.split() for line in said]


def test_what_the_server_really_exports(tmp_path, capsys):
    files = [tmp_path / "a.txt", tmp_path / "b.txt"]
    metrics = Metrics('odd "name"')
    for path in files:
        path.write_bytes(metrics.exposition())
    code, said, _ = run(capsys, *map(str, files))
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
    later = saved("later.txt", LATER)
    for argv in ([good, str(bad)], [str(bad), good], [good, later, "--usual", good, str(bad)]):
        code, said, told = run(capsys, *argv)
        assert (code, said) == (2, "")
        assert told.startswith(f"diagnose: {bad} ")
        assert told.count("\n") == 1


@pytest.mark.parametrize("wrong", ["0", "-1", "nan", "inf", "soon"])
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
