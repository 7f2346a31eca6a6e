"""`load` end to end against a server that answers at once: report, file, plot, words."""

import asyncio
import errno
import json
import os
import re
import signal
import subprocess
import sys
import threading
from dataclasses import replace

import pytest

from course import load, load_arguments, load_client, load_file, load_plot, place
from course.load_client import LoadError, Target
from course.load_figures import ANSWERED, FIGURES, NO_SERVER, REJECTED, Outcome
from course.load_report import Round
from course.paths import ROOT
from solutions.upgrade_gate import read_benchmark
from tests.fake_server import chunk, events, model_of_three, models, response, serve

QUICK = ["--rate", "2000", "--requests", "6"]


@pytest.fixture
def server():
    """The address of one that gives three tokens to everybody, and what it has seen."""
    with serve(model_of_three) as found:
        yield found


def test_report_file_and_plot(server, tmp_path, capsys):
    url, seen = server
    out, plot = tmp_path / "a.json", tmp_path / "a.png"
    argv = ["--url", url + "/v1/", *QUICK, "--out", str(out), "--plot", str(plot)]
    assert load.main([*argv, "--api-key", "secret"]) == 0
    shown = capsys.readouterr().out
    assert "2000 requests/s, 3 times: 18 of 18 answered" in shown
    assert [len(re.findall(r"\d", line)) > 4 for line in shown.splitlines()[2:5]] == [True] * 3
    assert "p99 of 18 answers is little more than the slowest one" in shown
    assert "secret" not in shown + out.read_text(encoding="utf-8")
    found = json.loads(out.read_text(encoding="utf-8"))
    assert found["schema"] == "course.bench/1"
    assert (found["model"], found["server"]) == ("tiny", url)
    assert found["settings"]["requests"] == 6
    assert found["settings"]["rate"] == 2000.0
    assert list(found["figures"]) == list(FIGURES)
    for name, figure in found["figures"].items():
        assert (figure["unit"], figure["better"]) == FIGURES[name]
        assert len(figure["values"]) == 3
        assert all(isinstance(value, float) for value in figure["values"])
    assert list(read_benchmark(out).figures) == list(FIGURES)  # the upgrade gate can read it
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "a.png"]
    paths = [path for path, _, _ in seen]
    assert paths == ["/v1/models"] + ["/v1/completions"] * (1 + 18)
    prompts = {body["prompt"] for _, body, _ in seen[2:]}
    assert len(prompts) == 18


def test_several_rates_have_figures_of_their_own(server, tmp_path, capsys):
    url, _ = server
    out, plot = tmp_path / "a.json", tmp_path / "a.png"
    argv = ["--url", url, "--rates", "1000,3000", "--requests", "4", "--repeat", "2"]
    assert load.main([*argv, "--out", str(out), "--plot", str(plot)]) == 0
    shown = capsys.readouterr().out
    assert "1000 requests/s, 2 times" in shown
    assert "3000 requests/s, 2 times" in shown
    found = json.loads(out.read_text(encoding="utf-8"))
    assert list(found["figures"]) == [f"{name}@{rate}" for rate in (1000, 3000) for name in FIGURES]
    assert found["settings"]["rates"] == [1000.0, 3000.0]
    assert plot.exists()


def test_whole_answers_have_no_first_token(server, tmp_path, capsys):
    url, seen = server
    out = tmp_path / "a.json"
    argv = ["--url", url, *QUICK, "--no-stream", "--chat", "--ignore-eos"]
    argv += ["--repeat", "1", "--out", str(out)]
    assert load.main(argv) == 0
    shown = capsys.readouterr().out
    assert "first token" not in shown
    assert "end to end" in shown
    figures = json.loads(out.read_text(encoding="utf-8"))["figures"]
    assert list(figures) == ["e2e_p50", "e2e_p95", "throughput", "rejected", "errors"]
    assert {path for path, _, _ in seen[1:]} == {"/v1/chat/completions"}
    assert all(body["ignore_eos"] is True for _, body, _ in seen[1:])


def test_rejections_and_errors_are_counted_apart(capsys):
    calls = iter(range(100))

    def answer(path, body):
        if path == "/v1/models":
            return models()
        call = next(calls)
        if call % 3 == 1:
            return response(b"{}", "503 Service Unavailable", f"Retry-After: {call}")
        return events(chunk(" a"), done=call % 3 == 0)

    with serve(answer) as (url, _):
        assert load.main(["--url", url, *QUICK, "--repeat", "1"]) == 0
    shown = capsys.readouterr().out
    assert "2 of 6 answered, 2 rejected (Retry-After 1 to 4 s)" in shown
    assert "2 failed (the stream ended before its [DONE])" in shown


def test_no_server_is_one_sentence(tmp_path, capsys):
    with serve(model_of_three) as (url, _):
        pass
    out = tmp_path / "a.json"
    assert load.main(["--url", url, *QUICK, "--out", str(out)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    last = captured.err.splitlines()[-1]
    assert last.startswith(f"load: no server at {url} (")
    assert "python -m course serve" in last
    assert not out.exists()


@pytest.mark.parametrize("part", [[None], [b"HTTP/1.1 200 OK\r\n\r\n", None]])
def test_a_server_that_takes_connections_and_never_answers(part, monkeypatch, capsys):
    monkeypatch.setattr(load_client, "PATIENCE", 0.2)
    with serve(lambda path, body: part) as (url, _):
        assert load.main(["--url", url, *QUICK]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"load: {url} does not answer: nothing came from /v1/models for 0.2 s")
    assert "no server" not in last


def test_what_is_no_http_server_is_not_called_none(capsys):
    with serve(lambda path, body: [b"SSH-2.0-x\r\n\r\n"]) as (url, _):
        assert load.main(["--url", url, *QUICK]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"load: {url} is there, but gives no answer that can be read (")
    assert "no server" not in last


def test_waiting_for_the_first_answer_is_said(monkeypatch, capsys):
    monkeypatch.setattr(load, "PATIENCE", 0.1)
    target = Target("", "tiny", timeout=0.4)

    def answer(path, body):
        return models() if path == "/v1/models" else [None]

    async def run(url: str) -> None:
        made = replace(target, url=url)
        async with made.client() as client:
            await load._try_one(client, made)

    with serve(answer) as (url, _), pytest.raises(LoadError, match=r"nothing came for 0\.4 s"):
        asyncio.run(run(url))
    said = capsys.readouterr().err
    assert "no answer yet to a first short request, after 0.1 s" in said
    assert "when nothing comes for 0.4 s" in said


def test_one_is_no_plural(server, capsys):
    url, _ = server
    argv = ["--url", url, "--rate", "2000", "--requests", "1", "--repeat", "1"]
    assert load.main([*argv, "--prompt-tokens", "1"]) == 0
    said = capsys.readouterr()
    assert "prompts: 1 token; " in said.err
    assert "; 1 request in 0 s or more" in said.err
    assert "p99 of 1 answer is" in said.out
    assert "prompts of 1 token (mean; longest 1)" in said.out


def test_a_server_that_does_not_serve_is_one_sentence(capsys):
    def answer(path, body):
        return models() if path == "/v1/models" else response(b"{}", "401 Unauthorized")

    with serve(answer) as (url, _):
        assert load.main(["--url", url, *QUICK]) == 1
    assert "did not answer a first short request (status 401)" in capsys.readouterr().err


def test_a_server_that_is_not_ready_is_one_sentence(capsys):
    def answer(path, body):
        return models() if path == "/v1/models" else response(b"{}", "503 Service Unavailable")

    with serve(answer) as (url, _):
        assert load.main(["--url", url, *QUICK]) == 1
    assert "refuses the first request already: wait" in capsys.readouterr().err


def test_a_server_that_goes_away_ends_the_run(tmp_path, capsys, monkeypatch):
    """After the first short request and two more, nobody is there any longer."""
    left, gone_ = threading.Event(), threading.Event()
    out = tmp_path / "a.json"
    asked = []

    def answer(path, body):
        if path == "/v1/models":
            return models()
        asked.append(body)
        if len(asked) == 3:
            left.set()
        return model_of_three(path, body)

    def until_left() -> None:
        with serve(answer) as (url, _):
            where.append(url)
            gone_.set()
            left.wait()

    where: list[str] = []
    thread = threading.Thread(target=until_left)
    thread.start()
    gone_.wait()
    argv = ["--url", where[0], "--rate", "20", "--requests", "100000", "--out", str(out)]
    assert load.main(argv) == 1
    thread.join()
    captured = capsys.readouterr()
    assert "has gone, after" in captured.err.splitlines()[-1]
    assert "failed (no connection)" in captured.out
    assert not out.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot send Ctrl-C to one process")
def test_ctrl_c_prints_what_there_is(tmp_path):
    """A child, because the signal ends the whole loop. Every third request never gets its end."""
    enough = threading.Event()
    asked = []

    def answer(path, body):
        if path == "/v1/models":
            return models()
        asked.append(body)
        if len(asked) == 8:
            enough.set()
        return (
            [*events(chunk(" a"), done=False), None]
            if len(asked) % 3 == 0
            else (model_of_three(path, body))
        )

    out = tmp_path / "a.json"
    with serve(answer) as (url, _):
        command = [
            sys.executable,
            "-c",
            "import sys; from course import cli; sys.exit(cli.main(sys.argv[1:]))",
            "load",
            "--url",
            url,
            "--rate",
            "20",
            "--requests",
            "1000",
            "--out",
            str(out),
        ]
        child = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
        )
        assert enough.wait(60)
        child.send_signal(signal.SIGINT)
        said, wrong = child.communicate(timeout=60)
    assert child.returncode == 130, wrong
    assert re.search(r"20 requests/s, once: \d+ of \d+ answered, \d+ not finished", said)
    assert "first token" in said
    assert "stopped; this is what there was" in wrong
    assert "Traceback" not in wrong
    assert not out.exists()


def test_a_file_that_is_there_is_not_overwritten(server, tmp_path, capsys):
    url, seen = server
    old = tmp_path / "before.json"
    old.write_text("precious", encoding="utf-8")
    for argv, words in (
        (["--out", str(old)], "is there already: move it"),
        (["--plot", str(old)], "is there already: move it"),
        (["--out", str(old / "a.json")], "before.json is no folder): name another place"),
        (["--out", str(tmp_path)], "is there already: move it"),
    ):
        assert load.main(["--url", url, *QUICK, *argv]) == 1
        assert words in capsys.readouterr().err
    assert old.read_text(encoding="utf-8") == "precious"
    assert not seen


def test_a_folder_that_is_not_there_is_made_when_there_is_something_to_keep(
    server, tmp_path, capsys
):
    url, _ = server
    out, plot = tmp_path / "a" / "b" / "x.json", tmp_path / "c" / "x.png"
    argv = [*QUICK, "--repeat", "1", "--out", str(out), "--plot", str(plot)]
    with serve(model_of_three) as (gone, _):
        pass
    assert load.main(["--url", gone, *argv]) == 1
    assert list(tmp_path.iterdir()) == []
    assert load.main(["--url", url, *argv]) == 0
    assert list(read_benchmark(out).figures) == list(FIGURES)
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in out.parent.iterdir()] == ["x.json"]


def test_a_run_without_end_is_refused_before_it_is_planned(server, capsys):
    url, seen = server
    assert load.main(["--url", url, "--requests", "999999999"]) == 1
    assert "more than 100000 requests in one run" in capsys.readouterr().err
    assert not seen


@pytest.mark.parametrize("option", ["--out", "--plot"])
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_sent(
    option, server, tmp_path, capsys
):
    url, seen = server
    path = tmp_path / ("x" * 250)  # a name too long once .partial is behind it
    assert load.main(["--url", url, *QUICK, option, str(path)]) == 1
    said = capsys.readouterr().err
    assert f"load: {path} cannot be written (" in said
    assert "Traceback" not in said
    assert not seen
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_is_named_and_leaves_no_piece(tmp_path, monkeypatch):
    path = tmp_path / "a.json"

    def full(self, data):
        with self.open("wb") as file:
            file.write(data[:3])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # of a write: without a name

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(ValueError, match=r"a\.json cannot be written \(No space left"):
        place.put(path, b"figures")
    assert list(tmp_path.iterdir()) == []


def test_a_plot_that_fails_leaves_the_figures(server, tmp_path, capsys, monkeypatch):
    def fails(path, rounds, title):
        raise ValueError(f"{path} cannot be written (No space left on device)")

    monkeypatch.setattr("course.load_plot.save", fails)
    url, _ = server
    out, plot = tmp_path / "a.json", tmp_path / "a.png"
    assert load.main(["--url", url, *QUICK, "--out", str(out), "--plot", str(plot)]) == 1
    assert f"load: {plot} cannot be written" in capsys.readouterr().err
    assert list(read_benchmark(out).figures) == list(FIGURES)


def test_the_axes_of_the_plot_have_plain_numbers():
    rounds = []
    for rate, slow in ((0.5, 1.0), (2.0, 40.0)):
        outcomes = [
            Outcome(0, 0, slow * n, [slow * n / 4, slow * n / 2], ANSWERED) for n in range(1, 5)
        ]
        rounds.append(Round(rate, outcomes, True))
    figure = load_plot.draw(rounds, "two rates")
    figure.canvas.draw()
    labels = [
        label.get_text()
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for label in axis.get_ticklabels(which="both")
    ]
    assert "1,000" in labels
    assert [one for one in labels if not re.fullmatch(r"[0-9,]*\.?[0-9]*", one)] == []
    assert all(len(axes.get_xticks()) >= 3 for axes in figure.axes)


def test_seconds_without_an_arrival_are_refused_before_anything_is_sent(server, capsys):
    url, seen = server
    assert load.main(["--url", url, "--rate", "0.001", "--seconds", "0.01"]) == 1
    assert "no request arrives in 0.01 s" in capsys.readouterr().err
    assert not seen


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--url", "127.0.0.1:8000"], "is not an address such as"),
        (["--url", "ftp://host"], "is not an address such as"),
        (["--url", "http://"], "is not an address such as"),
        (["--url", "http://me:secret@host"], "leave the password out"),
        (["--url", "http://me:secret@host:99999"], "'…@host:99999' is not an address"),
        (["--url", "http://127.0.0.1:99999"], "99999' is not an address such as"),
        (["--url", "http://127.0.0.1:0"], "is not an address such as"),
        (["--url", "http://[::1"], "'http://[::1' is not an address such as"),
        (["--url", "http://host\n:80"], "is not an address such as"),
        (["--api-key", "secret\nb"], "the key (here or in LLM_API_KEY) must be printable"),
        (["--api-key", "secret "], "without blanks at its ends"),
        (["--out", ""], "the name of the file is empty"),
        (["--plot", " "], "the name of the file is empty"),
        (["--out", "x", "--plot", "./x"], "--out and --plot name the same file"),
        (["--rate", "1e400"], "from 0.001 to 10000, not '1e400'"),
        (["--rate=-1"], "from 0.001 to 10000, not '-1'"),
        (["--seconds", "nan"], "a time is a number from 0.01 to 86400"),
        (["--requests", "nan"], "must be a whole number from 1"),
        (["--requests", "1e9"], "must be a whole number from 1 to 999999999, in digits, not '1e9'"),
        (["--repeat", "9" * 400], "must be a whole number from 1 to 999999999, in digits"),
        (["--rate", "0"], "from 0.001 to 10000, not '0'"),
        (["--rate", "nan"], "from 0.001 to 10000, not 'nan'"),
        (["--rate", "inf"], "from 0.001"),
        (["--rates", "1,,2"], "from 0.001"),
        (["--rate", "1", "--rates", "2"], "not allowed with"),
        (["--requests", "0"], "must be a whole number from 1"),
        (["--requests", "3", "--seconds", "3"], "not allowed with"),
        (["--seconds", "-1"], "a time is a number from 0.01 to 86400"),
        (["--temperature", "3"], "a temperature is a number from 0 to 2"),
        (["--prompt-tokens", "many"], "'many' is not a length: write N"),
        (["--output-tokens", "0"], "in the order 1, shortest"),
    ],
)
def test_arguments_that_make_no_sense_are_named(argv, words, capsys):
    with pytest.raises(SystemExit) as ended:
        load.main(argv)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert words in said
    assert "secret" not in said.splitlines()[-1]


def test_defaults_and_the_key_of_the_environment(monkeypatch):
    monkeypatch.delenv("LLM_API_KEY", raising=False)
    args = load_arguments.parse([])
    assert (args.url, args.rates, args.requests) == ("http://127.0.0.1:8000", [1.0], 30)
    assert (args.repeat, args.stream, args.chat, args.api_key) == (3, True, False, None)
    assert load_arguments.parse(["--seconds", "5"]).requests is None
    assert load_arguments.parse(["--rates", "2,1,2"]).rates == [2.0, 1.0]
    monkeypatch.setenv("LLM_API_KEY", "key")
    assert load_arguments.parse([]).api_key == "key"
    assert load_arguments.parse(["--api-key", "clé"]).api_key == "clé"
    monkeypatch.setenv("LLM_API_KEY", "se\ncret")
    with pytest.raises(SystemExit):
        load_arguments.parse([])


def test_the_machine_is_named():
    here = load_file.machine()
    assert all(here[name] for name in ("processor", "cores", "memory_gib", "system"))
    assert set(load_file.packages()) == {"python", *load_file.PACKAGES}
    assert here.keys().isdisjoint(load_file.packages())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", load_file.now())


class Bar:
    """A progress bar that nobody sees."""

    def update(self) -> None:
        pass


@pytest.mark.parametrize(
    ("kinds", "is_gone"),
    [
        ([ANSWERED, NO_SERVER, NO_SERVER, NO_SERVER], True),
        ([NO_SERVER, NO_SERVER, NO_SERVER, REJECTED], False),
        ([NO_SERVER, ANSWERED, NO_SERVER, NO_SERVER], False),
        ([NO_SERVER, NO_SERVER], False),
    ],
)
def test_the_server_has_gone_when_the_last_three_found_none(monkeypatch, kinds, is_gone):
    """In the order in which they ended, which is not that in which they were sent."""

    async def send(client, target, number, outcome, clock):
        await asyncio.sleep(0.001 * number)
        outcome.kind = kinds[number]

    async def open_loop(requests, one, outcomes, clock, stop):
        outcomes += [Outcome(0.0) for _ in kinds]
        await asyncio.gather(*(one(n, outcomes[n]) for n in reversed(range(len(kinds)))))

    monkeypatch.setattr(load, "send", send)
    monkeypatch.setattr(load, "open_loop", open_loop)
    made = Round(1.0)
    went = load._one_round(None, Target("http://x"), [], made, Bar())
    if is_gone:
        with pytest.raises(LoadError, match="has gone, after 1 answer at"):
            asyncio.run(went)
    else:
        asyncio.run(went)
    assert made.whole is not is_gone
