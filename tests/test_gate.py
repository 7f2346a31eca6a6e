"""`python -m course gate`: the verdict, its reasons, and the exit code for a script."""

import json
import random
from pathlib import Path

import pytest

from course import gate

QUIET = [1.0, 1.01, 0.99]
SLOWER = [1.3, 1.31, 1.29]
NOISY = [0.7, 1.6, 1.0]


@pytest.fixture
def saved(tmp_path: Path):
    """Write a benchmark file with this figure, and give its path."""

    def save(name: str, values: list, **changes) -> str:
        content = {
            "schema": "course.bench/1",
            "made": "2026-11-30T12:00:00Z",
            "machine": {"cores": 2},
            "model": "small",
            "server": name,
            "settings": {"rate": 1.0, "seed": 3},
            "figures": {"first_token_p50": {"unit": "s", "better": "lower", "values": values}},
        }
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(content | changes), encoding="utf-8")
        return str(path)

    return save


@pytest.mark.parametrize(
    ("after", "code", "word"),
    [(QUIET, 0, "PASS"), (SLOWER, 1, "FAIL"), (NOISY, 2, "CANNOT TELL")],
    ids=["equal", "slower", "noisy"],
)
def test_the_verdict_is_the_exit_code(saved, capsys, after, code, word):
    assert gate.main([saved("before", QUIET), saved("after", after)]) == code
    said = capsys.readouterr().out
    assert word in said
    assert "first_token_p50" in said
    if code == 1:
        assert "30.0% worse" in said


def test_the_tolerance_is_the_readers(saved):
    files = [saved("before", QUIET), saved("after", SLOWER)]
    assert gate.main([*files, "--tolerance", "50%"]) == 0
    assert gate.main([*files, "--tolerance", "0.5"]) == 0
    assert gate.main([*files, "--tolerance", "10%"]) == 1


@pytest.mark.parametrize("wrong", ["-5%", "five", "", "1e9", "5%%"])
def test_a_tolerance_that_is_no_share_is_refused(saved, wrong, capsys):
    with pytest.raises(SystemExit):
        gate.main([saved("before", QUIET), saved("after", QUIET), f"--tolerance={wrong}"])
    assert "share" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["0%", "50%", "90%"])
def test_a_level_that_is_no_chance_is_refused(saved, wrong, capsys):
    with pytest.raises(SystemExit):
        gate.main([saved("before", QUIET), saved("after", QUIET), f"--level={wrong}"])
    assert "below 50%" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"machine": {"cores": 4}}, "machine"),
        ({"model": "large"}, "model"),
        ({"settings": {}}, "settings"),
        ({"figures": {"e2e_p50": {"unit": "s", "better": "lower", "values": QUIET}}}, "e2e_p50"),
    ],
    ids=["machine", "model", "settings", "figures"],
)
def test_other_things_are_not_compared(saved, capsys, changes, word):
    assert gate.main([saved("before", QUIET), saved("after", QUIET, **changes)]) == 2
    said = capsys.readouterr().out
    assert "cannot be compared" in said
    assert f"{word}: " in said


def test_only_what_differs_is_shown(saved, capsys):
    """Of twelve settings one is not the same, one is new, and the machine has one core more."""
    same = {f"setting{n}": n for n in range(10)}
    files = [
        saved("before", QUIET, settings=same | {"seed": 3, "rate": 1}),
        saved("after", QUIET, settings=same | {"seed": 4, "rate": 1.0, "chat": True},
              machine={"cores": 3}),
    ]  # fmt: skip
    assert gate.main(files) == 2
    assert capsys.readouterr().out.splitlines()[1:] == [
        "  machine: cores 2 before, 3 after",
        "  settings: seed 3 before, 4 after; chat not given before, true after",
    ]


def test_one_file_twice_is_no_comparison(saved, tmp_path, capsys):
    file, copy = saved("before", QUIET), tmp_path / "copy.json"
    copy.write_bytes(Path(file).read_bytes())
    for other, words in (
        (file, f"{file} is named twice"),
        (f"{tmp_path}/./before.json", "are one file, or one is a copy of the other"),
        (str(copy), "are one file, or one is a copy of the other"),
    ):
        assert gate.main([file, other]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert words in said.err


@pytest.mark.parametrize(
    ("tolerance", "words"),
    [("100", "10000 %"), ("5%", "5 %"), ("0.000001%", "0.000001 %"), ("12.5%", "12.5 %")],
)
def test_a_tolerance_is_a_plain_number(saved, capsys, tolerance, words):
    files = [saved("before", QUIET), saved("after", QUIET[::-1])]
    gate.main([*files, "--tolerance", tolerance])
    gate.main([saved("slow", [9e9, 9e9]), saved("fast", [1, 1]), "--tolerance", tolerance])
    assert f"by more than {words} (" in capsys.readouterr().out


def test_no_change_is_called_so(saved, capsys):
    files = [saved("before", NOISY), saved("after", NOISY[::-1])]
    assert gate.main(files) == 2
    said = capsys.readouterr().out
    assert "first_token_p50: no change, " in said
    assert "-0.0" not in said
    assert "0.0% better" not in said


def test_what_make_was_not_given_is_named(capsys):
    for argv, words in (
        (["", ""], "BEFORE (make: A=), AFTER (make: B=) are empty"),
        (["a.json", ""], "AFTER (make: B=) is empty"),
    ):
        with pytest.raises(SystemExit) as ended:
            gate.main(argv)
        assert ended.value.code == 2
        assert words in capsys.readouterr().err


def test_damaged_and_missing_files(saved, tmp_path, capsys):
    good = saved("good", QUIET)
    cut = tmp_path / "cut.json"
    cut.write_bytes(Path(good).read_bytes()[:-30])
    for other in (cut, tmp_path / "none.json", tmp_path):
        assert gate.main([good, str(other)]) == 2
        said = capsys.readouterr().err
        assert said.startswith("gate: ")
        assert str(other) in said
        assert said.count("\n") == 1


@pytest.mark.parametrize("digits", ["1" + "0" * 400, "9" * 5000], ids=["no float", "unreadable"])
def test_numbers_without_end(saved, tmp_path, capsys, digits):
    good, bad = saved("good", QUIET), tmp_path / "bad.json"
    bad.write_text(Path(good).read_text(encoding="utf-8").replace("1.01", digits), encoding="utf-8")
    assert gate.main([good, str(bad)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"gate: {bad}")
    assert said.count("\n") == 1


def test_a_change_that_no_float_can_be(saved, capsys):
    files = [saved("before", [1e-300, 1.1e-300]), saved("after", [1e300, 1.1e300])]
    assert gate.main(files) == 1
    assert "+inf %" in capsys.readouterr().out


def test_the_columns_fit_each_other(saved, capsys):
    """1 and 4 have the geometric mean 2, and 2 after 8 is 75 % less."""
    files = [saved("before", [8.0, 8.0]), saved("after", [1.0, 4.0])]
    gate.main(files)
    row = capsys.readouterr().out.splitlines()[1].split()
    assert row[:6] == ["first_token_p50", "8", "2", "s", "-75.0", "%"]
    share = {"first_token_p50": {"unit": "ratio", "better": "lower", "values": [0.0, 0.5]}}
    gate.main([saved(name, QUIET, figures=share) for name in ("before", "after")])
    row = capsys.readouterr().out.splitlines()[1].split()
    assert row[1:3] == ["0.25", "0.25"]


def test_equal_versions_rarely_fail():
    """Ten figures, three repetitions, nothing changed: a twentieth may fail, and far fewer do."""
    from solutions.upgrade_gate import Benchmark, Figure, judge_upgrade

    rng = random.Random(5)

    def made(noise: float) -> Benchmark:
        values = [tuple(rng.lognormvariate(0, noise) for _ in range(3)) for _ in range(10)]
        figures = {f"f{n}": Figure("s", "lower", one) for n, one in enumerate(values)}
        return Benchmark({}, "m", {}, figures)

    for noise in (0.01, 0.1):
        failed = sum(
            judge_upgrade(made(noise), made(noise), tolerance=0.0).outcome == "fail"
            for _ in range(200)
        )
        assert failed <= 20  # 10 are expected of 200; over 20 come by chance once in 700 times


def test_a_name_cannot_command_the_terminal(saved, capsys):
    figures = {"\x1b[31mred": {"unit": "s", "better": "lower", "values": QUIET}}
    assert (
        gate.main([saved("before", QUIET, figures=figures), saved("after", 0, figures=figures)])
        == 0
    )
    assert "\x1b" not in capsys.readouterr().out
