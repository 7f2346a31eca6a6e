"""The watchers of chapter 08 together, as a service has them."""

import gc
import json
import sys
import threading
import traceback
from pathlib import Path

import pytest

from solutions import monitoring
from solutions.events import Admitted, Arrived, Finished, Rejected, Sent, Stepped, Token
from solutions.json_log import DailyLog, describe_error
from solutions.monitoring import Monitoring, MonitoringSettings
from solutions.periodic_log import FIELDS, format_line, read_line
from tests.oracles.monitoring import exposed

SECRET = "my pin is 4711, do not tell"


class Service:
    """A Monitoring with a clock that is set by hand, and what it wrote."""

    def __init__(self, folder: Path | None, **settings):
        self.now, self.lines = 100.0, []
        wanted = MonitoringSettings("small", folder, **{"every": 0, "freeze": False} | settings)
        self.monitoring = Monitoring(
            wanted, lambda: self.now, lambda: 1_796_040_000.0 + self.now, self.lines.append
        )

    def one_request(self, id: str = "a", **end) -> None:
        """A request that is asked, answered with two tokens, and over."""
        start, watch = self.now, self.monitoring.watch
        watch(Arrived(id, start, 5, 9, len(SECRET), "c0ffee", True))
        watch(Admitted(id, start + 0.5))
        watch(Token(id, start + 1.0))
        watch(Token(id, start + 1.25))
        watch(Stepped(start + 1.25, 0.25, 1, 0, 14, 100))
        watch(Finished(id, start + 1.25, **{"reason": "stop", "tokens": 2} | end))
        watch(Sent(id, start + 1.5, 0.25))
        self.now = start + 2.0


def lines_of(folder: Path, name: str) -> list[dict]:
    """All lines of a log."""
    files = sorted(folder.glob(f"{name}-*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text("ascii").splitlines()]


def test_one_request_is_in_every_place(tmp_path):
    service = Service(tmp_path)
    service.one_request()
    service.monitoring.watch(Rejected(service.now, "queue_full"))
    service.monitoring.summarize()
    service.monitoring.close()
    series = exposed(service.monitoring.exposition().decode())
    assert series["llm_time_to_first_token_seconds_sum"] == {"model_name=small": 1.0}
    assert series["llm_inter_token_latency_seconds_sum"] == {"model_name=small": 0.25}
    asked, rejected = lines_of(tmp_path, "requests")
    assert (asked["id"], asked["first_token_s"], asked["tokens"]) == ("a", 1.0, 2)
    assert rejected["reason"] == "queue_full"
    (performance,) = lines_of(tmp_path, "performance")
    assert (performance["finished"], performance["inter_token_p50_s"]) == (1, 0.25)
    assert read_line(service.lines[0])["first_token_p95_s"] == 1.0
    assert lines_of(tmp_path, "errors") == []


def test_errors_are_logged_by_class(tmp_path):
    service = Service(tmp_path)
    service.one_request(reason="error", error="FloatingPointError")
    service.monitoring.error(fail("x"))
    told = [(line["id"], line["error"]) for line in lines_of(tmp_path, "errors")]
    assert told == [("a", "FloatingPointError"), (None, "UnicodeDecodeError")]
    assert lines_of(tmp_path, "errors")[1]["frames"][-1].endswith(" fail")


def fail(text: str) -> BaseException:
    """An exception that holds the text wherever an exception can: and in the frames' variables."""
    prompt = text
    try:
        try:
            raise KeyError(prompt)
        except KeyError as first:
            error = UnicodeDecodeError("utf-8", prompt.encode(), 0, 1, prompt)
            error.add_note(prompt)
            raise error from first
    except UnicodeDecodeError as caught:
        return caught


def test_a_secret_is_nowhere(tmp_path, capfd):
    """What a user wrote reaches no log, no metric, no line, whatever an exception holds."""
    service = Service(tmp_path)
    monitored = service.monitoring
    error = fail(SECRET)
    assert SECRET in "".join(traceback.format_exception(error))  # a plain log would tell it
    monitored.start()
    service.one_request(reason="error", error=type(error).__name__)
    monitored.logs.error(error)
    monitored.logs.error(ExceptionGroup(SECRET, [ValueError(SECRET)]))
    with pytest.raises(ValueError, match="reason"):
        monitored.watch(Rejected(service.now, "odd"))
    monitored.summarize()
    monitored.close()
    told = [path.read_text(encoding="utf-8") for path in tmp_path.iterdir()]
    told += [*service.lines, monitored.exposition().decode(), *capfd.readouterr()]
    assert len(told) == 3 + 1 + 1 + 2
    assert "UnicodeDecodeError" in "".join(told)
    for word in (SECRET, "4711", "my pin", repr(SECRET.encode()), SECRET.encode().hex()):
        assert word not in "".join(told)


def test_a_watcher_that_fails_does_not_keep_the_others_from_it(tmp_path, monkeypatch):
    service = Service(tmp_path)

    def broken(event):
        raise RuntimeError("on purpose")

    monkeypatch.setattr(service.monitoring.metrics, "watch", broken)
    with pytest.raises(RuntimeError, match="on purpose"):
        service.monitoring.watch(Rejected(1.0, "draining"))
    assert [line["reason"] for line in lines_of(tmp_path, "requests")] == ["draining"]


def test_without_a_folder_there_are_no_logs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    service = Service(None)
    service.one_request()
    service.monitoring.summarize()
    service.monitoring.close()
    assert service.monitoring.logs is None
    assert list(tmp_path.iterdir()) == []
    assert len(service.lines) == 1


def test_logs_that_cannot_be_written_harm_nobody(tmp_path):
    (tmp_path / "logs").write_text("a file stands where the folder should be", encoding="utf-8")
    service = Service(tmp_path / "logs")
    service.one_request()
    service.monitoring.summarize()
    assert service.lines[1:] == ["2 lines of the logs are lost: is the disk full?"]
    service.monitoring.close()
    assert service.monitoring.logs.lost == 2
    assert b"llm_requests_total" in service.monitoring.exposition()


def test_a_line_that_nobody_reads_is_in_the_log(tmp_path):
    def broken(line: str) -> None:
        raise BrokenPipeError

    settings = MonitoringSettings("m", log_folder=tmp_path, every=0, freeze=False)
    service = Monitoring(settings, write_line=broken)
    with pytest.raises(BrokenPipeError):
        service.summarize()
    service.close()
    (log,) = tmp_path.glob("performance-*.jsonl")
    assert json.loads(log.read_text("ascii"))["finished"] == 0


def test_the_ticker_writes_lines_and_a_last_one(tmp_path):
    written = threading.Semaphore(0)
    lines: list[str] = []

    def write(line: str) -> None:
        lines.append(line)
        written.release()
        if len(lines) == 1:
            raise BrokenPipeError  # nobody reads any more: the next lines are tried all the same

    settings = MonitoringSettings("small", tmp_path, every=0.01, freeze=False)
    monitored = Monitoring(settings, write_line=write)
    monitored.start()
    for _ in range(3):
        assert written.acquire(timeout=30)
    monitored.close()
    count = len(lines)
    monitored.close()
    assert len(lines) == count
    assert all(read_line(line) for line in lines)
    assert not any(thread.name == "monitoring" for thread in threading.enumerate())


def test_the_collector_is_tamed_and_let_loose_again():
    before, callbacks = gc.get_threshold(), list(gc.callbacks)
    service = Service(None, freeze=True)
    service.monitoring.start()
    try:
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold() != before
        gc.collect()
    finally:
        service.monitoring.close()
    assert (gc.get_threshold(), gc.get_freeze_count(), gc.callbacks) == (before, 0, callbacks)
    series = exposed(service.monitoring.exposition().decode())
    assert series["llm_gc_pause_seconds_count"]["model_name=small"] >= 1


def test_lines_go_to_standard_error_unless_told_otherwise(capsys):
    monitored = Monitoring(MonitoringSettings("small", every=0, freeze=False))
    monitored.summarize()
    said = capsys.readouterr()
    assert said.out == ""
    assert read_line(said.err.removesuffix("\n"))


def test_watching_from_several_threads_loses_nothing(tmp_path):
    service = Service(tmp_path)
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)

    def work(number: int) -> None:
        watch = service.monitoring.watch
        for n in range(100):
            watch(Arrived(f"{number}-{n}", 1.0, 5, 9, 3, "f", True))
            watch(Admitted(f"{number}-{n}", 2.0))
            watch(Token(f"{number}-{n}", 3.0))
            watch(Finished(f"{number}-{n}", 4.0, "stop", 1))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    try:
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            service.monitoring.exposition()
            service.monitoring.summarize()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switch)
    service.monitoring.summarize()
    assert sum(read_line(line)["finished"] for line in service.lines) == 400
    series = exposed(service.monitoring.exposition().decode())
    assert series["llm_requests_total"]["finish_reason=stop,model_name=small"] == 400.0
    assert series["llm_requests_running"]["model_name=small"] == 0.0
    assert len(lines_of(tmp_path, "requests")) == 400


class Narrow:
    """A file on a disk that takes only the first bytes of a line."""

    def __init__(self, file, room: int):
        self.file, self.room = file, room

    def write(self, data: bytes) -> int:
        """Write what there is room for, once; afterwards the disk is full."""
        if not self.room:
            raise OSError(28, "No space left on device")
        taken, self.room = self.file.write(data[: self.room]), 0
        return taken

    def close(self) -> None:
        """Close the real file."""
        self.file.close()


def test_a_disk_that_is_full_in_the_middle_of_a_line(tmp_path):
    log = DailyLog(tmp_path, "requests", now=lambda: 0.0)
    assert log.write({"n": 1})
    log._file = Narrow(log._file, 20)
    assert not log.write({"n": 2})
    assert log.write({"n": 3})  # there is room again
    log.close()
    text = (tmp_path / "requests-1970-01-01.jsonl").read_text("ascii")
    first, cut, third = text.splitlines()
    assert (json.loads(first)["n"], json.loads(third)["n"]) == (1, 3)
    assert len(cut) == 20
    assert log.lost == 1


@pytest.mark.parametrize("value", ["nan", "-inf", "1e+400", "\u0663", "0x1"])
def test_a_value_that_is_no_finite_number_is_damage(value):
    values = dict.fromkeys(FIELDS, 1.5)
    line = format_line(1.8e9, values)
    assert read_line(line)["kv"] == 1.5
    assert read_line(line.replace("kv=1.5", f"kv={value}")) is None


def test_a_cause_that_is_an_empty_collection_is_told():
    class Several(Exception):
        """An error that holds others, at the moment none."""

        def __len__(self):
            return 0

    error = ValueError("no")
    error.__cause__ = Several()
    assert [one["error"] for one in describe_error(error)] == ["ValueError", "Several"]


def test_every_setting_is_explained():
    for name in MonitoringSettings.__dataclass_fields__:
        assert f"{name}: " in monitoring.MonitoringSettings.__doc__
