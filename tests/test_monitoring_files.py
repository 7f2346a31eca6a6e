"""monitoring/ names what the server exports: no metric and no label that is not there."""

import json
import re
from types import SimpleNamespace

import pytest

from course.paths import ROOT
from solutions.app import readiness
from solutions.events import Admitted, Arrived, Finished, Rejected, Sent, Stepped, Token
from solutions.metrics import Metrics
from tests.oracles import monitoring as oracle

FOLDER = ROOT / "monitoring"
WORDS = {  # of PromQL: functions, keywords
    *("and", "by", "deriv", "histogram_quantile", "on", "or", "rate", "sum", "unless", "le"),
    *("label_values", "ignoring", "without", "max", "min", "avg", "increase"),
    *("avg_over_time", "min_over_time"),
}
OTHERS = {"up": {"job", "instance"}}  # series that Prometheus itself makes
ADDED = {"instance", "job"}  # labels that Prometheus adds


@pytest.fixture(scope="module")
def exported() -> dict[str, set[str]]:
    """The labels of every series, by name, after one of each event."""
    metrics = Metrics("small")
    for event in (
        Arrived("a", 0.0, 5, 9, 20, "ff", True),
        Admitted("a", 1.0),
        Token("a", 2.0),
        Token("a", 3.0),
        Finished("a", 4.0, "stop", 2),
        Sent("a", 5.0, 1.0),
        Rejected(5.0, "queue_full"),
        Stepped(5.0, 0.1, 0, 0, 0, 10, ("KeyError",)),
    ):
        metrics.watch(event)
    found: dict[str, set[str]] = {}
    ready = readiness(SimpleNamespace(model="small", health=lambda: (200, {})))
    for name, series in oracle.exposed((metrics.exposition() + ready).decode()).items():
        names = {pair.partition("=")[0] for labels in series for pair in labels.split(",")}
        found[name] = names
    return found


def alert_expressions() -> list[str]:
    """The expr of each alert, whether on one line or on several."""
    text = (FOLDER / "alerts.yml").read_text(encoding="utf-8")
    blocks = re.findall(r"^        expr: (>\n(?:          .*\n)+|.+\n)", text, re.MULTILINE)
    return [" ".join(block.lstrip(">").split()) for block in blocks]


def dashboard() -> dict:
    """grafana.json, read."""
    return json.loads((FOLDER / "grafana.json").read_text(encoding="utf-8"))


def panel_expressions() -> list[str]:
    """Every query of the dashboard."""
    return [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]


def unknown(expression: str, exported: dict[str, set[str]]) -> list[str]:
    """Names and labels in a PromQL expression that are not exported."""
    known = exported | OTHERS
    text = re.sub(r'"[^"]*"', '""', expression)
    selectors = re.findall(r"([a-z_][a-z0-9_]*)\{([^}]*)\}", text)
    wrong = [
        f"{name}{{{label}}}"
        for name, matchers in selectors
        for label in re.findall(r"([a-z_]+)\s*[=!]", matchers)
        if label not in known.get(name, set()) | ADDED
    ]
    groups = re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", text)
    used = [name for name in known if re.search(rf"\b{name}\b", text)]
    labels = {label for name in used for label in known[name]} | ADDED
    wrong += [
        label
        for group in groups
        for label in re.split(r"\s*,\s*", group.strip())
        if label not in labels
    ]
    bare = re.sub(r"\{[^}]*\}|\[[^]]*\]", " ", re.sub(r"\b(?:by|on)\s*\([^)]*\)", " ", text))
    wrong += [w for w in re.findall(r"[a-zA-Z_]\w*", bare) if w not in known and w not in WORDS]
    return wrong


def test_alerts_use_what_is_exported(exported):
    expressions = alert_expressions()
    text = (FOLDER / "alerts.yml").read_text(encoding="utf-8")
    assert len(expressions) == text.count("- alert: ") > 8
    for expression in expressions:
        assert not unknown(expression, exported), expression


def test_the_dashboard_uses_what_is_exported(exported):
    assert len(panel_expressions()) > 20
    for expression in panel_expressions():
        assert not unknown(expression, exported), expression


def test_label_values_are_those_of_the_lists(exported):
    metrics = Metrics("small", lambda: {"process_resident": 1, "device_allocated": 0})
    series = oracle.exposed(metrics.exposition().decode())
    for expression in alert_expressions() + panel_expressions():
        for name, label, value in re.findall(
            r'([a-z_0-9]+)\{[^}]*?(\w+)=~?"([^"$]*)"[^}]*\}', expression
        ):
            for one in value.split("|") if name in series else ():
                assert any(f"{label}={one}" in labels for labels in series[name]), expression


def test_every_metric_is_on_the_dashboard(exported):
    text = " ".join(panel_expressions())
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in exported}
    assert [name for name in sorted(families) if name not in text] == []


def test_an_unknown_name_would_be_found(exported):
    assert unknown("rate(llm_requests_all[1m])", exported) == ["llm_requests_all"]
    assert unknown('rate(llm_requests_total{reason="stop"}[1m])', exported) == [
        "llm_requests_total{reason}"
    ]
    assert unknown("sum by (model) (llm_requests_running)", exported) == ["model"]


def test_a_panel_has_one_kind_of_quantity():
    """Thousands of tokens would press the seconds beside them flat."""
    for panel in dashboard()["panels"]:
        text = " ".join(target["expr"] for target in panel["targets"])
        kinds = {kind for kind in ("_seconds", "_tokens", "_errors", "_bytes{") if kind in text}
        assert len(kinds) <= 1, panel["title"]


def test_every_alert_says_what_to_do():
    text = (FOLDER / "alerts.yml").read_text(encoding="utf-8")
    for alert in text.split("- alert: ")[1:]:
        assert "summary:" in alert
        assert "action:" in alert
        assert re.search(r"severity: (page|ticket)", alert)


def test_prometheus_reads_the_alerts_and_the_server():
    text = (FOLDER / "prometheus.yml").read_text(encoding="utf-8")
    assert "- alerts.yml" in text
    assert "127.0.0.1:8000" in text
    assert "metrics_path: /metrics" in text


def test_panels_do_not_overlap_and_have_units():
    places = set()
    for panel in dashboard()["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & places
        places |= cells
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["description"]
