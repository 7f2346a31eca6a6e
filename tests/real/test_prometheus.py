"""A real Prometheus that scrapes the running server, and its tool that reads our files."""

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from course.paths import ROOT
from tests.real.conftest import free_port

MONITORING = ROOT / "monitoring"
PATIENCE = 60  # seconds; only a guard against waiting for ever
SERIES = {  # of conventions.md, and which labels they have besides model_name
    "llm_time_to_first_token_seconds_bucket": {"le"},
    "llm_time_to_first_token_seconds_count": set(),
    "llm_inter_token_latency_seconds_bucket": {"le"},
    "llm_e2e_request_latency_seconds_bucket": {"le"},
    "llm_request_queue_seconds_bucket": {"le"},
    "llm_prompt_tokens_total": set(),
    "llm_generation_tokens_total": set(),
    "llm_requests_total": {"finish_reason"},
    "llm_requests_rejected_total": {"reason"},
    "llm_requests_running": set(),
    "llm_requests_waiting": set(),
    "llm_kv_cache_usage_ratio": set(),
    "llm_memory_bytes": {"kind"},
    "llm_ready": set(),  # ours
}
PROCESS = 'job="llm",instance="a"'
LABELS = f'{PROCESS},model_name="m"'
ENDED = f"llm_requests_total{{{LABELS},finish_reason="
WELL = {  # a service that is asked 3 times a second; values as promtool writes them, every 15 s
    f"up{{{PROCESS}}}": "1x240",
    f"llm_ready{{{LABELS}}}": "1x240",
    f"llm_requests_running{{{LABELS}}}": "8x240",
    f"llm_requests_waiting{{{LABELS}}}": "0x240",
    f"llm_kv_cache_usage_ratio{{{LABELS}}}": "0.4x240",
    f"llm_step_seconds_count{{{LABELS}}}": "0+150x240",
    f'{ENDED}"stop"}}': "0+45x240",
    f'{ENDED}"error"}}': "0x240",
    f'{ENDED}"timeout"}}': "0x240",
}
STORIES = {  # what differs from WELL after 10 minutes, and what must fire at last
    "all is well": ({}, set()),
    "the engine dies, and the HTTP side lives on": (
        {
            "llm_ready": "1x39 0x200",
            "llm_requests_running": "8x39 0x200",
            "llm_step": "0+150x39 5850x200",
            '"stop"': "0+45x39 1755x200",
            '"error"': "0x39 8x200",
        },
        {"NotReady"},
    ),
    "a deployment drains for 90 s": ({"llm_ready": "1x231 0x7"}, set()),
    "nobody asks, and one request fails": ({'"stop"': "3x240", '"error"': "0x225 1x15"}, set()),
    "one in a thousand fails": ({'"error"': "0+0.045x240"}, set()),
    "every request takes too long": (
        {'"stop"': "3x240", '"timeout"': "0+15x240"},
        {"RequestsFail"},
    ),
    "one request in ten fails": ({'"error"': "0+5x240"}, {"RequestsFail"}),
    "requests wait at nine tenths of the cache": (
        {"llm_kv": "0.9x240", "llm_requests_waiting": "40x240", "llm_requests_running": "3x240"},
        {"CacheFull"},
    ),
    "rows are short, not room": ({"llm_requests_waiting": "40x240"}, set()),
    "nobody waits for long at a full cache": (
        {"llm_kv": "0.9x240", "llm_requests_waiting": "3x200 0x5 3x30"},
        set(),
    ),
}


def program(name: str) -> str:
    """Where it is. On Debian both are in the package prometheus."""
    found = shutil.which(name)
    if not found:
        pytest.fail(f"{name} is missing: type `apt-get install prometheus`", pytrace=False)
    return found


def promtool(*arguments: str | Path, text: str = "") -> str:
    """What it says about our files; it must accept them without a word of doubt."""
    done = subprocess.run(
        [program("promtool"), *map(str, arguments)],
        input=text,
        capture_output=True,
        encoding="utf-8",
        cwd=MONITORING,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


class Prometheus:
    """Its HTTP API."""

    def __init__(self, url: str):
        self.url = url

    def query(self, expression: str) -> list[dict]:
        """The series that an expression gives now."""
        return self.get("/api/v1/query", query=expression)["result"]

    def get(self, path: str, **parameters: str) -> dict:
        """The data of an answer; httpx.HTTPError while it is not up, or still loading (503)."""
        answer = httpx.get(f"{self.url}{path}", params=parameters, timeout=PATIENCE)
        answer.raise_for_status()
        return answer.json()["data"]

    def value(self, expression: str) -> float:
        """The only value of an expression."""
        (series,) = self.query(expression)
        return float(series["value"][1])

    def await_true(self, expression: str) -> None:
        """Wait until a comparison gives a series."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                if self.query(expression):
                    return
            except httpx.HTTPError:
                pass  # it is not listening yet, or not ready
            time.sleep(0.2)
        pytest.fail(f"{expression} never became true; there is {self.query('up')}")


@pytest.fixture(scope="module")
def prometheus(server, tmp_path_factory) -> Iterator[Prometheus]:
    """Our own prometheus.yml with another target and a short interval."""
    folder = tmp_path_factory.mktemp("prometheus")
    text = (MONITORING / "prometheus.yml").read_text(encoding="utf-8")
    text = re.sub(r"(127\.0\.0\.1|localhost):8000", server.url.removeprefix("http://"), text)
    text = re.sub(r"(scrape_interval|evaluation_interval): *\w+", r"\1: 1s", text)
    text = re.sub(r"scrape_timeout: *\w+", "scrape_timeout: 1s", text)
    (folder / "prometheus.yml").write_text(text, encoding="utf-8")
    shutil.copy(MONITORING / "alerts.yml", folder)
    port = free_port()
    with (folder / "log.txt").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [
                program("prometheus"),
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=warn",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        found = Prometheus(f"http://127.0.0.1:{port}")
        try:
            found.await_true("up == 1")
        except (httpx.HTTPError, pytest.fail.Exception) as problem:
            pytest.fail(f"{problem}\n{(folder / 'log.txt').read_text(encoding='utf-8')[-3000:]}")
        yield found
    finally:
        process.terminate()
        process.wait()


def ask(server, **wishes) -> dict:
    body = {"prompt": "The sea is", "max_tokens": 5, "temperature": 0, "ignore_eos": True}
    answer = server.post("/v1/completions", json=body | wishes)
    assert answer.status_code == 200, answer.text
    return answer.json()


def counted(server, name: str) -> float:
    """A counter as the server itself has it."""
    lines = server.get("/metrics").text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{name}{{"))


def test_prometheus_finds_the_server_up(prometheus):
    assert prometheus.value("up") == 1


def test_every_series_of_the_convention_is_there(server, prometheus):
    ask(server)
    prometheus.await_true("llm_requests_total > 0")
    for name, labels in SERIES.items():
        found = prometheus.query(name)
        assert found, f"{name} is not there"
        for series in found:
            own = set(series["metric"]) - {"__name__", "instance", "job"}
            assert own == labels | {"model_name"}, name


def test_counters_move_by_what_was_done(server, prometheus):
    names = "llm_prompt_tokens_total", "llm_generation_tokens_total"
    before = {name: counted(server, name) for name in names}
    for name, count in before.items():  # it has seen what earlier tests did
        prometheus.await_true(f"sum({name}) == {count}")
    ended = prometheus.value('llm_requests_total{finish_reason="length"}')
    used = [ask(server)["usage"] for _ in range(3)]
    prometheus.await_true(f'llm_requests_total{{finish_reason="length"}} >= {ended + 3}')
    made = prometheus.value("sum(llm_generation_tokens_total)")
    read = prometheus.value("sum(llm_prompt_tokens_total)")
    tokens = sum(usage["completion_tokens"] for usage in used)
    assert made - before["llm_generation_tokens_total"] == tokens
    prompts = sum(usage["prompt_tokens"] for usage in used)
    assert read - before["llm_prompt_tokens_total"] == prompts


def test_quantiles_can_be_asked_for(server, prometheus):
    ask(server)
    prometheus.await_true("llm_time_to_first_token_seconds_count > 0")
    for name in ("time_to_first_token", "inter_token_latency", "e2e_request_latency"):
        value = prometheus.value(
            f"histogram_quantile(0.95, sum by (le) (llm_{name}_seconds_bucket))"
        )
        assert 0 < value < PATIENCE


def test_our_rules_are_loaded_and_evaluated_without_error(prometheus):
    def rules() -> list[dict]:
        groups = prometheus.get("/api/v1/rules")["groups"]
        return [rule for group in groups for rule in group["rules"]]

    end = time.monotonic() + PATIENCE
    while any(rule["health"] == "unknown" for rule in rules()) and time.monotonic() < end:
        time.sleep(0.2)
    assert rules()
    assert {rule["name"]: rule.get("lastError") for rule in rules() if rule["health"] != "ok"} == {}


def test_nobody_is_woken_for_a_healthy_server(prometheus):
    """An alert may be pending, but none fires while all is well."""
    assert prometheus.query('ALERTS{alertstate="firing"}') == []


def test_promtool_accepts_the_rules():
    assert re.search(r"SUCCESS: [1-9]\d* rules found", promtool("check", "rules", "alerts.yml"))


@pytest.mark.parametrize("story", STORIES)
def test_an_alert_fires_for_what_it_is_named_for(story, tmp_path):
    """promtool plays an hour of readings; JSON is YAML, too."""
    changes, fires = STORIES[story]
    values = dict(WELL)
    for part, changed in changes.items():
        (name,) = (name for name in WELL if part in name)
        values[name] = changed
    asked = {
        "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
        "eval_time": "59m30s",
        "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in fires],
    }
    played = {
        "interval": "15s",
        "input_series": [{"series": name, "values": text} for name, text in values.items()],
        "promql_expr_test": [asked],
    }
    files = {"rule_files": [str(MONITORING / "alerts.yml")], "evaluation_interval": "15s"}
    (tmp_path / "story.yml").write_text(json.dumps(files | {"tests": [played]}), encoding="utf-8")
    assert "SUCCESS" in promtool("test", "rules", tmp_path / "story.yml")


def test_promtool_accepts_the_configuration():
    said = promtool("check", "config", "prometheus.yml")
    assert "SUCCESS" in said
    assert "alerts.yml" in said or "1 rule files found" in said


def test_promtool_accepts_the_metrics(server):
    """It also knows the habits of naming; anything that it prints is a complaint."""
    ask(server)
    answer = server.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert promtool("check", "metrics", text=answer.text) == ""
