"""`batch`: a file of requests in, a file of results out, gone on with after any interruption."""

import io
import itertools
import json
import random
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tokenizers import Tokenizer

from course import batch, cli
from course.assemble import assemble
from course.batch_files import alone, open_output
from course.batch_lines import WrongLines, jobs, read_results, survey
from course.paths import MODEL
from tests.reference.arrays import read_json
from tests.test_engine import sure
from tests.tiny_files import random_tensors, write_checkpoint

BYTES = 259  # ids of the tiny tokenizer: three special ones, then one a byte
LINES = [
    {"id": "long", "prompt": "Once upon a time", "max_tokens": 30},
    {"id": "short", "prompt": "Hi", "max_tokens": 2},
    {"prompt": "Nobody named me", "max_tokens": 9},
    {"id": 4, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5},
    {"id": "é", "prompt": "¿Qué?", "max_tokens": 7, "seed": 1, "temperature": 0.8},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A tiny checkpoint whose every id is one of the tokenizer's."""
    tensors = random_tensors()
    tensors["model.embed_tokens.weight"] = tensors["model.embed_tokens.weight"][:BYTES].clone()
    path = tmp_path_factory.mktemp("models") / "tiny"
    return write_checkpoint(path, tensors, vocab_size=BYTES, eos_token_id=None)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """LINES, greedy where they do not say otherwise."""
    return write(tmp_path / "in.jsonl", LINES)


def write(path: Path, requests: list) -> Path:
    lines = [json.dumps({"temperature": 0} | line, ensure_ascii=False) for line in requests]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def read(path: Path) -> list[dict]:
    """The results; each line must be whole."""
    text = path.read_text(encoding="utf-8")
    assert text == "" or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def run(folder: Path, file: Path, *more: str) -> int:
    return batch.main([str(file), "--model", str(folder), *more])


def results_of(file: Path) -> Path:
    return file.with_name("in.results.jsonl")


def fail_at(monkeypatch, number: int, error: type[BaseException]) -> None:
    """The number-th forward of the next run raises; the first warms the model up."""

    def load(folder: Path):
        engine = assemble(folder)
        forward, calls = engine.model.forward, itertools.count(1)

        def broken(*args):
            if next(calls) == number:
                raise error("on purpose")
            return forward(*args)

        engine.model.forward = broken
        return engine

    monkeypatch.setattr(batch, "load_engine", load)


# ---- what comes out ----


def test_each_request_has_a_result_in_the_order_of_finishing(folder, file, capsys):
    assert run(folder, file) == 0
    found = read(results_of(file))
    assert [r["id"] for r in found] == ["short", 4, "é", None, "long"]
    assert [r["line"] for r in found] == [2, 4, 5, 3, 1]
    assert [r["completion_tokens"] for r in found] == [2, 5, 7, 9, 30]
    assert {r["finish_reason"] for r in found} == {"length"}
    assert {r["model"] for r in found} == {"tiny"}
    assert found[0]["prompt_tokens"] == 2
    assert found[2]["prompt_tokens"] == 7  # bytes of ¿Qué?
    assert not any("error" in r or "logprobs" in r for r in found)
    out, err = capsys.readouterr()
    assert out == ""
    assert "[5 requests, " in err
    assert "new tokens/s" in err
    assert "%" not in err  # nobody watches: no bar


def test_the_text_is_what_transformers_writes(tmp_path):
    """Greedy ids of the bundled model, as far as they are beyond doubt, put into text."""
    stored = [read_json("greedy.json")["prompts"][i] for i in (0, 1, 4, 11)]
    counts = [min(6, sure(entry["margins"])) for entry in stored]
    assert min(counts) >= 3
    lines = [
        {key: entry[key] for key in ("text", "messages") if key in entry} | {"max_tokens": count}
        for entry, count in zip(stored, counts, strict=True)
    ]
    lines = [{"prompt" if k == "text" else k: v for k, v in line.items()} for line in lines]
    file = write(tmp_path / "in.jsonl", lines)
    assert batch.main([str(file), "--max-running", "3"]) == 0
    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    found = {r["line"]: r for r in read(results_of(file))}
    for line, (entry, count) in enumerate(zip(stored, counts, strict=True), 1):
        assert found[line]["prompt_tokens"] == len(entry["prompt"])
        assert found[line]["text"] == tokenizer.decode(entry["new"][:count])


def test_a_stop_string_ends_the_text_and_is_cut(folder, file):
    run(folder, file)
    whole = next(r["text"] for r in read(results_of(file)) if r["id"] == "long")
    stop = whole[8:11]
    before = whole[: whole.index(stop)]
    again = write(file.with_name("b.jsonl"), [LINES[0] | {"stop": [stop, "never there"]}])
    assert run(folder, again) == 0
    (found,) = read(again.with_name("b.results.jsonl"))
    assert (found["text"], found["finish_reason"]) == (before, "stop")
    assert found["completion_tokens"] < 30


def test_a_lower_priority_number_goes_first(folder, tmp_path):
    lines = [{"prompt": "abc", "priority": p, "max_tokens": 2} for p in (2, 0, 1, -1)]
    file = write(tmp_path / "in.jsonl", lines)
    assert run(folder, file, "--max-running", "1") == 0
    assert [r["line"] for r in read(results_of(file))] == [4, 2, 3, 1]


def test_log_probabilities_come_where_they_are_asked_for(folder, tmp_path):
    file = write(tmp_path / "in.jsonl", [{"prompt": "a", "max_tokens": 3, "logprobs": 2}])
    assert run(folder, file) == 0
    (found,) = read(results_of(file))
    assert len(found["logprobs"]) == 3
    for told in found["logprobs"]:
        assert told["logprob"] == max(told["top"].values()) <= 0  # it is greedy
        assert len(told["top"]) == 2


def test_standard_input_and_output(folder, monkeypatch, capsysbinary):
    text = "".join(json.dumps(line) + "\n" for line in LINES)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))
    assert run(folder, Path("-")) == 0
    found = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    assert len(found) == len(LINES)


def test_an_empty_file_has_no_results(folder, tmp_path):
    file = tmp_path / "in.jsonl"
    file.write_text("\n  \n", encoding="utf-8")
    assert run(folder, file) == 0
    assert not results_of(file).exists()


# ---- going on ----


def test_the_second_time_nothing_is_run(folder, file, capsys):
    run(folder, file)
    before = results_of(file).read_bytes()
    again = [dict(reversed(line.items())) for line in LINES]  # the same content, written otherwise
    lines = [json.dumps({"temperature": 0} | line, indent=None) for line in again]
    file.write_text("\n".join(lines), encoding="utf-8")
    assert run(folder, file) == 0
    assert results_of(file).read_bytes() == before
    assert "5 of 5 have their result" in capsys.readouterr().err


@pytest.mark.parametrize("seed", range(4))
def test_cut_off_anywhere_the_file_becomes_whole_again(folder, file, seed):
    """As a power cut would leave it: no result is lost for good, none is there twice."""
    run(folder, file)
    path, engine = results_of(file), assemble(folder)
    whole = path.read_bytes()
    expected = {r["line"]: r for r in read(path)}
    for cut in sorted(random.Random(seed).sample(range(len(whole)), 6)):
        path.write_bytes(whole[:cut])
        with file.open("rb") as source:
            tally = batch.run(engine, "tiny", source, "in", path, 2)
        assert tally.finished == len(LINES) - whole[:cut].count(b"\n")
        found = read(path)
        assert len(found) == len(LINES)
        assert {r["line"]: r for r in found} == expected


@pytest.mark.parametrize("number", [1, 4, 12])
def test_ctrl_c_leaves_whole_lines_and_the_next_run_goes_on(
    folder, file, number, monkeypatch, capsys
):
    fail_at(monkeypatch, number, KeyboardInterrupt)
    assert run(folder, file) == 130
    assert "Type the same again" in capsys.readouterr().err
    path = results_of(file)
    kept = read(path) if path.exists() else []
    assert len(kept) < len(LINES)
    monkeypatch.setattr(batch, "load_engine", assemble)
    assert run(folder, file) == 0
    found = read(path)
    assert found[: len(kept)] == kept
    assert Counter(r["line"] for r in found) == Counter(range(1, len(LINES) + 1))


def test_what_ended_in_error_is_run_again(folder, file, monkeypatch, capsys):
    fail_at(monkeypatch, 6, ArithmeticError)
    assert run(folder, file, "--max-running", "2") == 1
    found = read(results_of(file))
    bad = [r for r in found if "error" in r]
    assert 0 < len(bad) < len(LINES) == len(found)
    assert {(r["finish_reason"], r["error"]) for r in bad} == {
        ("error", "ArithmeticError: on purpose")
    }
    assert f"{len(bad)} of 5 requests ended in error" in capsys.readouterr().err
    monkeypatch.setattr(batch, "load_engine", assemble)
    assert run(folder, file) == 0
    again = read(results_of(file))
    good = [r for r in found if "error" not in r]
    assert again[: len(good)] == good
    assert Counter(r["line"] for r in again) == Counter(range(1, len(LINES) + 1))
    assert not any("error" in r for r in again)


@pytest.mark.parametrize(("line", "name"), [(1, "id 'short'"), (2, "line 3")])
def test_a_request_that_was_changed_is_refused(folder, file, line, name, capsys):
    run(folder, file)
    path = results_of(file)
    before = path.read_bytes()
    changed = [dict(entry) for entry in LINES]
    changed[line]["max_tokens"] = 3
    write(file, changed)
    assert run(folder, file) == 1
    err = capsys.readouterr().err
    assert f"line {line + 1}: {name} has another content" in err
    assert path.read_bytes() == before


def test_new_lines_are_run_beside_the_old(folder, file):
    run(folder, file)
    write(file, [*LINES, {"id": "new", "prompt": "x", "max_tokens": 1}])
    assert run(folder, file) == 0
    assert [r["id"] for r in read(results_of(file))][5:] == ["new"]


def test_one_is_no_plural(folder, tmp_path, capsys):
    file = write(tmp_path / "in.jsonl", [{"prompt": "x", "max_tokens": 1}])
    assert run(folder, file) == 0
    assert "[1 request, 1 prompt token, 1 new, " in capsys.readouterr().err
    write(file, [{"prompt": "x", "max_tokens": 1}, {"prompt": "y", "max_tokens": 1}])
    assert run(folder, file) == 0
    assert "1 of 2 has its result" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        "my thesis, without an end of line",
        '{"id": 1}\n',
        "not json\n",
        '{"id": "x", "line": 1, "sha256": "", "model": "tiny"}\n[]\n{"id": ',
        "[" * 100_000 + "\n",
    ],
)
def test_a_file_of_somebody_else_is_refused_and_left_alone(folder, file, text, capsys):
    results_of(file).write_text(text, encoding="utf-8")
    assert run(folder, file) == 1
    assert "is no result of this command" in capsys.readouterr().err
    assert results_of(file).read_text(encoding="utf-8") == text


def test_results_of_another_model_are_not_mixed(folder, file, tmp_path, capsys):
    run(folder, file)
    other = tmp_path / "other"
    folder_copy = write_checkpoint(other)
    assert run(folder_copy, file) == 1
    assert "holds results of tiny, and this is other" in capsys.readouterr().err


def test_the_requests_are_not_overwritten(folder, file, capsys):
    before = file.read_bytes()
    assert run(folder, file, "--out", str(file)) == 1
    assert "holds the requests" in capsys.readouterr().err
    assert file.read_bytes() == before


# ---- what is wrong ----

WRONG = [
    ("not json", "not JSON"),
    ("[1]", "not a JSON object"),
    ('"text"', "not a JSON object"),
    ('{"prompt": "a"', "not JSON"),
    ("[" * 100_000, "not JSON"),
    ('{"prompt": ' + "9" * 5000 + "}", "not JSON"),
    ('{"prompt": "\\ud800"}', "lone surrogate"),
    ('{"id": "\\udfff", "prompt": "a"}', "lone surrogate"),
    ("{}", 'either "prompt" or "messages"'),
    ('{"prompt": "a", "messages": []}', 'either "prompt" or "messages"'),
    ('{"prompt": null}', 'either "prompt" or "messages"'),
    ('{"prompt": 3}', '"prompt" must be a text'),
    ('{"prompt": ""}', "the prompt is empty"),
    ('{"prompt": "' + "a" * 200 + '"}', "the prompt has 200 tokens and there is room for 128"),
    ('{"messages": []}', '"messages" must be a list'),
    ('{"messages": ["Hi"]}', '"messages" must be a list'),
    ('{"messages": [{"role": "king", "content": "Hi"}]}', '"messages" must be a list'),
    ('{"messages": [{"role": "user", "content": null}]}', '"messages" must be a list'),
    ('{"messages": [{"role": ["user"], "content": ""}]}', '"messages" must be a list'),
    ('{"prompt": "a", "temprature": 0}', "unknown field 'temprature'"),
    ('{"prompt": "a", "temperature": 3}', "temperature must be from 0"),
    ('{"prompt": "a", "temperature": NaN}', "temperature must be from 0"),
    ('{"prompt": "a", "max_tokens": 0}', "max_tokens must be at least 1"),
    ('{"prompt": "a", "max_tokens": "5"}', "max_tokens must be a whole number, at least 1"),
    ('{"prompt": "a", "stop": [""]}', "stop must hold texts"),
    ('{"prompt": "a", "priority": "high"}', "priority must be a whole number"),
    ('{"prompt": "a", "priority": true}', "priority must be a whole number"),
    ('{"id": 1.5, "prompt": "a"}', "id must be a text or a whole number"),
    ('{"id": false, "prompt": "a"}', "id must be a text or a whole number"),
    ('{"id": "twice", "prompt": "a"}', "id 'twice' is that of line 1, too"),
]


def test_all_wrong_lines_are_named_before_anything_is_run(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("course.batch_lines.SHOWN", 100)
    file = tmp_path / "in.jsonl"
    good = '{"id": "twice", "prompt": "good"}'
    text = "\n\n".join([good, *(line for line, _ in WRONG), good.replace("twice", "once")])
    file.write_bytes(text.encode("utf-8") + b'\n{"prompt": "\xff"}\n')
    assert run(folder, file) == 1
    assert not results_of(file).exists()
    err = capsys.readouterr().err
    assert f"{len(WRONG) + 1} lines cannot be run; nothing was run" in err
    said = [line for line in err.splitlines() if line.startswith("  line ")]
    for number, (_, words) in enumerate(WRONG, 1):
        assert said[number - 1].startswith(f"  line {2 * number + 1}: "), said[number - 1]
        assert words in said[number - 1]
        assert len(said[number - 1]) < 300
    assert "not JSON in UTF-8" in said[-1]


def test_of_many_wrong_lines_the_first_are_shown():
    text = str(WrongLines("in", [(n, "bad") for n in range(1, 31)]))
    assert "line 20: bad" in text
    assert "line 21" not in text
    assert text.endswith("and 10 more")


def test_a_byte_order_mark_and_windows_line_ends_do_not_matter(folder, tmp_path):
    file = tmp_path / "in.jsonl"
    file.write_bytes(b'\xef\xbb\xbf{"prompt": "a", "max_tokens": 1}\r\n\r\n')
    assert run(folder, file) == 0
    assert len(read(results_of(file))) == 1


def test_a_conversation_needs_a_model_that_knows_its_markers(folder, file, monkeypatch, capsys):
    def without(folder: Path):
        engine = assemble(folder)
        engine.text.special = {}
        return engine

    monkeypatch.setattr(batch, "load_engine", without)
    assert run(folder, file) == 1
    assert "line 4: messages need a model whose tokenizer has '<|im_" in capsys.readouterr().err


def test_a_file_that_changes_while_it_is_read_is_noticed(tmp_path):
    file = write(tmp_path / "in.jsonl", LINES)
    with file.open("rb") as source:
        todo = survey(source, "in", {}, lambda job: 1).todo
        write(file, [LINES[0], LINES[2]])
        rest = jobs(source, "in", todo)
        assert next(rest).id == "long"
        with pytest.raises(ValueError, match="in was changed while it was read, at line 2"):
            list(rest)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["x.jsonl", "--max-running", "0"], "must be a whole number from 1"),
        (["x.jsonl", "--max-running", "²"], "must be a whole number from 1"),
        (["x.jsonl", "--max-running", "99999999999"], "a whole number from 1 to 999999999, in"),
        ([""], "the name of the file is empty: write its path (make batch FILE=in.jsonl)"),
        (["x.jsonl", "--out", " "], "the name of the file is empty"),
        (["~no such user/x"], "names no file"),
        (["x.jsonl", "--quantized", "nowhere"], "holds no quantized.safetensors"),
    ],
)
def test_a_wrong_argument_is_refused(argv, words, capsys):
    with pytest.raises(SystemExit) as stop:
        batch.main(argv)
    assert stop.value.code == 2
    assert words in capsys.readouterr().err


def test_a_file_that_is_not_there_is_named(folder, tmp_path, capsys):
    assert run(folder, tmp_path / "nothing.jsonl") == 1
    assert "there is no file" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["folder", "no folder can be made", "no file can be made", "odd"])
def test_results_that_cannot_be_written_are_refused_before_the_model_is_loaded(
    kind, folder, file, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(batch, "load_engine", lambda folder: pytest.fail("the model was loaded"))
    out = {
        "folder": tmp_path,
        "no folder can be made": file / "more" / "x.jsonl",
        "no file can be made": tmp_path / "new" / ("x" * 250),
        "odd": file / "x.jsonl",
    }[kind]
    assert run(folder, file, "--out", str(out)) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"batch: {out} ")
    assert ("is a folder: name a file" if kind == "folder" else "cannot be written (") in said
    assert "Errno" not in said
    assert ".partial" not in said
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_results_that_cannot_be_written_anew_are_named(folder, file, tmp_path, capsys):
    """A half-written line is to be dropped, and there is no room beside the file."""
    results_of(file).write_bytes(b'{"id": ')
    (tmp_path / "in.results.jsonl.partial").mkdir()
    assert run(folder, file) == 1
    assert f"batch: {results_of(file)} cannot be written (" in capsys.readouterr().err
    assert results_of(file).read_bytes() == b'{"id": '


def test_results_go_into_a_folder_that_is_not_there(folder, file, tmp_path):
    out = tmp_path / "a" / "b" / "x.jsonl"
    assert run(folder, file, "--out", str(out)) == 0
    assert len(read(out)) == len(LINES)
    assert [path.name for path in out.parent.iterdir()] == ["x.jsonl"]


def test_no_lock_stays_behind(folder, file, tmp_path, monkeypatch):
    """Not at the end, not after a refusal, not after Ctrl-C."""
    locks = tmp_path / "locks"
    locks.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(locks))
    fail_at(monkeypatch, 4, KeyboardInterrupt)
    assert run(folder, file) == 130
    assert list(locks.iterdir()) == []
    monkeypatch.setattr(batch, "load_engine", assemble)
    assert run(folder, file) == 0
    assert run(folder, write(file, [{"prompt": 3}])) == 1
    assert list(locks.iterdir()) == []


def test_a_closed_standard_input_is_said(folder, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", None)
    assert run(folder, Path("-")) == 1
    assert "standard input is closed" in capsys.readouterr().err


def test_a_name_that_is_not_utf_8_is_a_name(tmp_path):
    with alone(tmp_path / "\udcff.results.jsonl"):
        pass


# ---- memory, and what the system refuses ----


def test_no_more_of_the_file_is_taken_than_has_room_to_wait(folder, monkeypatch):
    monkeypatch.setattr(batch, "WAITING", 5)
    engine, here, most = assemble(folder), Counter(), 0
    lines = [json.dumps({"prompt": "abc", "max_tokens": 2}) + "\n" for _ in range(60)]
    source = io.BytesIO("".join(lines).encode())
    todo = survey(source, "in", {}, lambda job: 5).todo

    def counted():
        for job in jobs(source, "in", todo):
            here["taken"] += 1
            yield job

    for _ in batch.serve(engine, batch._batcher(engine, 5, 3), counted()):
        here["given"] += 1
        most = max(most, here["taken"] - here["given"])
    assert here == {"taken": 60, "given": 60}
    assert 5 < most <= 5 + 3 + 3 + 1  # waiting, running, finished in one step, and in hand


def test_little_memory_means_fewer_at_once(folder, file, monkeypatch, capsys):
    monkeypatch.setattr(batch.psutil, "virtual_memory", lambda: SimpleNamespace(available=80_000))
    assert run(folder, file) == 0
    # 104 tokens, 2 layers, keys and values, 2 heads of 8 numbers of 4 bytes: 26,624 bytes a row
    assert (
        "2 requests at once: the memory has no room for more of 104 tokens"
        in capsys.readouterr().err
    )
    assert len(read(results_of(file))) == len(LINES)


def test_a_fault_in_writing_is_no_fault_of_a_request(folder, file, monkeypatch, capsys):
    """It must not be taken for one, swallowed, and the rest run for nothing."""

    class Full(io.BytesIO):
        def write(self, line: bytes) -> int:
            return len(line) // 2

    path, plain = results_of(file), Path.open

    def opened(self, mode="r", **more):
        return Full() if (self, mode) == (path, "ab") else plain(self, mode, **more)

    monkeypatch.setattr(Path, "open", opened)
    assert cli.main(["batch", str(file), "--model", str(folder)]) == 1
    assert "No space left" in capsys.readouterr().err


def test_results_are_on_disk_as_soon_as_they_are_written(tmp_path):
    path = tmp_path / "a" / "out.jsonl"
    with open_output(path) as put:
        put(b'{"id": 1}\n')
        assert path.read_bytes() == b'{"id": 1}\n'


def test_a_line_keeps_few_bytes_in_memory(tmp_path):
    """100,000 long prompts are not held: a place and a hash are."""
    text = json.dumps({"prompt": "x" * 10_000}) + "\n"
    path = tmp_path / "in.jsonl"
    path.write_text(text * 300, encoding="utf-8")
    with path.open("rb") as source:
        found = survey(source, "in", {}, lambda job: len(job.prompt))
    assert (found.total, found.longest) == (300, 10_000)
    assert all(len(sha256) == 64 for _, sha256 in found.todo)
    assert read_results(tmp_path / "none", "tiny") == ({}, True)


def test_threads_are_left_as_they_were(folder, file):
    before = torch.get_num_threads()
    run(folder, file)
    assert torch.get_num_threads() == before
