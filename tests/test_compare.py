"""`compare` end to end on a fake engine, and words for what cannot be done."""

import csv

import pytest

from course import compare
from solutions.sampling_params import SamplingParams


@pytest.fixture
def asked(monkeypatch) -> list:
    """What the model would have been asked; each answer says how it came to be."""
    calls = []

    def answer(engine, question, params, system):
        calls.append((question, params, system))
        return f"At {params.temperature} | {len(calls)}"

    monkeypatch.setattr(compare, "answer", answer)
    monkeypatch.setattr(compare, "load_engine", lambda folder: None)
    monkeypatch.setattr(compare, "model_folder", lambda args: None)
    return calls


def test_table_key_and_scores(asked, tmp_path, capsys):
    questions = tmp_path / "questions.txt"
    questions.write_text("Who?\n\n  Why é?  \nWho?\n", encoding="utf-8")
    out = tmp_path / "new" / "folder"
    argv = ["--questions", str(questions), "--seeds", "2", "--out", str(out), "--max-tokens", "9"]
    argv += [
        "--setting",
        "cold",
        "temperature=0.1",
        "--setting",
        "warm",
        "temperature=1",
        "top_k=5",
    ]
    assert compare.main(argv) == 0
    assert [question for question, _, _ in asked] == ["Who?"] * 4 + ["Why é?"] * 4
    assert asked[2][1] == SamplingParams(temperature=1, top_k=5, max_tokens=9, seed=1)
    lines = (out / compare.TABLE).read_text(encoding="utf-8").splitlines()
    with (out / compare.KEY).open(encoding="utf-8", newline="") as file:
        key = list(csv.DictReader(file))
    assert len(lines) == 2 + len(key) == 10
    for line, row in zip(lines[2:], key, strict=True):
        number, question, text = (cell.strip() for cell in line.replace("\\|", "/").split("|")[1:4])
        place = int(text.split("/")[1]) - 1
        assert number == row["#"]
        assert question == asked[place][0]
        assert asked[place][1].temperature == {"cold": 0.1, "warm": 1.0}[row["setting"]]
        assert asked[place][1].seed == int(row["seed"])
    shown = capsys.readouterr().out
    assert [line.split()[0] for line in shown.splitlines()[:3]] == ["setting", "cold", "warm"]
    assert not list(out.glob("*.partial"))


def test_without_arguments_it_measures_the_claim(asked, tmp_path):
    assert compare.main(["--out", str(tmp_path)]) == 0
    assert len(asked) == 4 * 3 * 3
    assert {(p.temperature, p.top_p) for _, p, _ in asked} == {(0.1, 1.0), (0.5, 0.85), (1.0, 1.0)}


def test_what_was_rated_is_never_overwritten(asked, tmp_path, capsys):
    (tmp_path / compare.TABLE).write_text("rated", encoding="utf-8")
    assert compare.main(["--out", str(tmp_path)]) == 1
    assert "name another --out" in capsys.readouterr().err
    assert (tmp_path / compare.TABLE).read_text(encoding="utf-8") == "rated"
    assert not asked


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a", "temperature=hot"], "setting 'a': temperature must be a number, not 'hot'"),
        (["a", "heat=1"], "'heat=1' is not FIELD=VALUE with FIELD one of"),
        (["a", "top_k"], "'top_k' is not FIELD=VALUE"),
        (["a", "seed=4"], "is not FIELD=VALUE"),
        (["a", "top_p=7"], "top_p must be above 0, up to 1"),
        (["a", "--setting", "a", "top_k=3"], "two settings are called 'a'"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(words, message, asked, tmp_path, capsys):
    assert compare.main(["--out", str(tmp_path), "--setting", *words]) == 1
    assert message in capsys.readouterr().err


def test_questions_that_are_not_there_are_named(asked, tmp_path, capsys):
    (tmp_path / "empty.txt").write_text("\n \n", encoding="utf-8")
    (tmp_path / "latin.txt").write_bytes("Où ?\n".encode("latin-1"))
    for path, words in (
        (tmp_path / "no.txt", "no.txt"),
        (tmp_path / "empty.txt", "no question"),
        (tmp_path / "latin.txt", "latin.txt is not UTF-8 (byte 1)"),
    ):
        assert compare.main(["--out", str(tmp_path), "--questions", str(path)]) == 1
        assert words in capsys.readouterr().err


def test_a_stop_in_the_middle_writes_nothing(asked, tmp_path, monkeypatch, capsys):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(compare, "answer", stop)
    assert compare.main(["--out", str(tmp_path)]) == 130
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_found_out_first(asked, tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(OSError, match="file"):  # course/cli.py puts it into words
        compare.main(["--out", str(tmp_path / "file")])
    assert not asked


def test_a_full_disk_leaves_neither_table_nor_key(asked, tmp_path, monkeypatch):
    def full(path, text, **_):
        if path.name.startswith(compare.TABLE):
            raise OSError(28, "No space left on device", str(path))
        path.write_bytes(text.encode())

    monkeypatch.setattr(type(tmp_path), "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        compare.main(["--out", str(tmp_path)])
    assert not list(tmp_path.iterdir())


def test_the_answers_are_kept_though_nobody_reads_the_scores(asked, tmp_path, monkeypatch):
    def closed(_):
        raise BrokenPipeError

    monkeypatch.setattr(compare, "score_table", closed)
    with pytest.raises(BrokenPipeError):
        compare.main(["--out", str(tmp_path)])
    assert {path.name for path in tmp_path.iterdir()} == {compare.TABLE, compare.KEY}
