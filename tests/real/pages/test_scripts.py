"""The parts of the pages that compute: fed by hand, expected values worked out by hand."""

from collections.abc import Callable

import pytest


@pytest.fixture
def scripts(server, visit) -> Callable:
    """Run a function of JavaScript in the chat page, which may import the page's modules."""
    return visit(server.url).evaluate


READ_EVENTS = """async ([bytes, size]) => {
    const { eventData } = await import('/pages/sse.js');
    const stream = new ReadableStream({ start(controller) {
        for (let i = 0; i < bytes.length; i += size) {
            controller.enqueue(new Uint8Array(bytes.slice(i, i + size)));
        }
        controller.close();
    }});
    const found = [];
    for await (const data of eventData(stream)) found.push(data);
    return found;
}"""
STREAMS = [
    ("data: one\n\ndata: two\n\n", ["one", "two"]),
    ("data: é 🌊 日本\n\n", ["é 🌊 日本"]),  # characters of 2, 4 and 3 bytes
    ("data: one\r\n\r\ndata: two\r\n\r\n", ["one", "two"]),
    ("data: one\r\rdata: two\r\r", ["one", "two"]),
    ("data: a\ndata: b\n\n", ["a\nb"]),
    ("data: a\r\ndata: b\r\n\r\n", ["a\nb"]),  # between CR and LF there is no blank line
    (": keep-alive\n\ndata: one\n\n: again\n\n", ["one"]),
    ("event: x\nid: 7\nretry: 10\ndata: one\n\n", ["one"]),
    ("data:one\n\ndata:  two\n\n", ["one", " two"]),  # one space goes, the next stays
    ("data\n\ndata:\n\n", ["", ""]),
    ("data: whole\n\ndata: cut off", ["whole"]),
    ("data: whole\n\ndata: no blank line\n", ["whole"]),
    ("\ufeffdata: after a mark\n\n", ["after a mark"]),
    ("database: no\n\ndata: yes\n\n", ["yes"]),
    ("", []),
]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
@pytest.mark.parametrize(("text", "expected"), STREAMS)
def test_events_are_whole_wherever_the_chunks_end(scripts, text, expected, size):
    assert scripts(READ_EVENTS, [list(text.encode()), size]) == expected


EXPOSITION = r"""# HELP llm_requests_total Requests that ended.
# TYPE llm_requests_total counter
llm_requests_total{finish_reason="stop",model_name="a \"b\" \\ {c}, d=\"e\""} 3.0
llm_requests_total{model_name="x",finish_reason="stop"} 4
llm_requests_total{finish_reason="length",model_name="x"} 1e1 1395066363000
llm_inter_token_latency_seconds_bucket{le="+Inf"} 7
up 1
nothing here
"""


def test_metrics_are_read_as_prometheus_writes_them(scripts):
    by_reason, models, bucket, up, names = scripts(
        """async (text) => {
            const { parse, total, totalsBy } = await import('/pages/prometheus.js');
            const metrics = parse(text);
            const models = metrics.get('llm_requests_total').map(({ labels }) => labels.model_name);
            return [
                Object.fromEntries(totalsBy(metrics, 'llm_requests_total', 'finish_reason')),
                models,
                metrics.get('llm_inter_token_latency_seconds_bucket')[0].labels.le,
                [total(metrics, 'up'), total(metrics, 'down')],
                [...metrics.keys()],
            ];
        }""",
        EXPOSITION,
    )
    assert by_reason == {"stop": 7, "length": 10}
    assert models == ['a "b" \\ {c}, d="e"', "x", "x"]
    assert bucket == "+Inf"
    assert up == [1, None]
    assert names == ["llm_requests_total", "llm_inter_token_latency_seconds_bucket", "up"]


QUANTILE = """async ([q, buckets]) => {
    const { quantile } = await import('/pages/figures.js');
    return quantile(q, buckets.map(([le, n]) => [le ?? Infinity, n]));
}"""
# Ten observations: 2 up to 0.1, 6 more up to 0.2, 2 more up to 0.4.
TEN = [[0.1, 2], [0.2, 8], [0.4, 10], [None, 10]]


@pytest.mark.parametrize(
    ("q", "buckets", "expected"),
    [
        (0.5, TEN, 0.15),  # rank 5 is 3 of 6 into the second bucket
        (0.2, TEN, 0.1),
        (0.1, TEN, 0.05),
        (0.95, TEN, 0.35),  # rank 9.5 is 1.5 of 2 into the third
        (0.9, [[0.1, 0], [0.2, 1], [None, 10]], 0.2),  # beyond the last bound
        (0.5, [[0.1, 0], [0.2, 0], [None, 0]], None),
        (0.5, [], None),
    ],
)
def test_quantiles_are_interpolated_inside_a_bucket(scripts, q, buckets, expected):
    assert scripts(QUANTILE, [q, buckets]) == (expected and pytest.approx(expected))


HISTORY = """async ([span, window, readings]) => {
    const { createHistory } = await import('/pages/history.js');
    const { parse } = await import('/pages/prometheus.js');
    const history = createHistory(span);
    for (const [at, tokens] of readings) {
        history.add(at, parse(tokens === null ? '' : `llm_generation_tokens_total ${tokens}`));
    }
    const points = history.points(window);
    return points.map(({ at, life, figures }) => [at, life, figures.written ?? null]);
}"""


def test_rates_are_taken_over_the_window(scripts):
    readings = [[0, 0], [1, 10], [2, 30], [3, 60], [4, 60]]
    assert scripts(HISTORY, [100, 2, readings]) == [
        [0, 0, None],
        [1, 0, 10],
        [2, 0, 15],
        [3, 0, 25],
        [4, 0, 15],
    ]


def test_a_restart_begins_another_life_and_no_rate_goes_below_zero(scripts):
    readings = [[0, 100], [1, 200], [2, 5], [3, 25], [4, None], [5, 1]]
    assert scripts(HISTORY, [100, 10, readings]) == [
        [0, 0, None],
        [1, 0, 100],
        [2, 1, None],
        [3, 1, 20],
        [4, 2, None],
        [5, 2, 1],
    ]


def test_old_readings_are_forgotten(scripts):
    readings = [[at, 0] for at in range(50)]
    assert [at for at, *_ in scripts(HISTORY, [10, 5, readings])] == list(range(39, 50))


WORDS = """async ([unit, value]) => (await import('/pages/units.js')).words(unit, value)"""


@pytest.mark.parametrize(
    ("unit", "value", "expected"),
    [
        ("seconds", 0.0834, "83.4 ms"),
        ("seconds", 1.5, "1.50 s"),
        ("seconds", 0, "0 ms"),
        ("bytes", 3 * 2**29, "1.50 GiB"),
        ("bytes", 300 * 2**20, "300 MiB"),
        ("bytes", 0, "0 B"),
        ("share", 0.125, "12.5 %"),
        ("requests", 3, "3"),
        ("tokens/s", 41.27, "41.3 tokens/s"),
        ("seconds", None, "–"),
    ],
)
def test_values_have_units(scripts, unit, value, expected):
    assert scripts(WORDS, [unit, value]) == expected


TICKS = """async ([largest, whole]) => (await import('/pages/units.js')).ticks(largest, whole)"""


@pytest.mark.parametrize(
    ("largest", "whole", "expected"),
    [
        (100, False, [0, 25, 50, 75, 100]),
        (0.83, False, [0, 0.25, 0.5, 0.75, 1]),
        (7, False, [0, 2, 4, 6, 8]),
        (1, True, [0, 1]),
        (4, True, [0, 1, 2, 3, 4]),
        (9, True, [0, 3, 6, 9]),
        (0, False, [0, 0.25]),
    ],
)
def test_axes_have_round_numbers(scripts, largest, whole, expected):
    assert scripts(TICKS, [largest, whole]) == expected


FOLLOW = """async (away) => {
    const { followEnd } = await import('/pages/follow.js');
    const scroller = document.getElementById('log');
    const button = document.getElementById('to-end');
    const line = () => {
        const made = document.createElement('p');
        made.textContent = '.';
        scroller.append(made);
    };
    const change = followEnd(scroller, button);
    for (let i = 0; i < 200; i++) change(line);
    if (away) scroller.scrollTop = 500;
    const before = scroller.scrollTop;
    for (let i = 0; i < 10; i++) change(line);
    const left = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight;
    return [scroller.scrollTop - before, Math.round(left), button.hidden];
}"""


def test_a_reader_at_the_end_stays_there(scripts):
    moved, left, hidden = scripts(FOLLOW, False)
    assert (moved > 0, left, hidden) == (True, 0, True)


def test_a_reader_who_has_scrolled_back_is_left_in_peace(scripts):
    moved, left, hidden = scripts(FOLLOW, True)
    assert (moved, left > 0, hidden) == (0, True, False)


QUEUE_NOTE = """async (waiting) => {
    const { PANELS } = await import('/pages/panels.js');
    return PANELS.find(({ title }) => title === "Queue").note({ waiting });
}"""


def test_a_queue_with_rows_to_spare_may_wait_for_the_engine(scripts):
    assert scripts(QUEUE_NOTE, 0) == "Nobody waits."
    assert "for an engine that steps" in scripts(QUEUE_NOTE, 3)


STATE = """async ([health, metrics]) => {
    const { stateOf } = await import('/pages/state.js');
    const answer = given => given && { status: given[0], text: given[1] };
    return stateOf(answer(health), answer(metrics));
}"""
FINE = [200, "llm_requests_running 0"]
READY = [200, '{"status": "ready"}']


@pytest.mark.parametrize(
    ("health", "metrics", "state", "words"),
    [
        (READY, FINE, "ready", "Ready"),
        (None, None, "trouble", "cannot be reached"),
        (READY, None, "trouble", "/metrics does not come"),
        (None, FINE, "trouble", "/health does not come"),
        (READY, [404, ""], "trouble", "has no /metrics"),
        ([502, "Bad Gateway"], [502, "Bad Gateway"], "trouble", "stands before it, answered with"),
        (READY, [502, ""], "trouble", "status 502"),
        ([503, "<h1>busy</h1>"], FINE, "trouble", "status 503"),
        ([503, '{"status": "dead"}'], FINE, "trouble", "takes no requests: dead."),
        ([200, "<html>log in</html>"], FINE, "trouble", "status 200"),
        ([200, "null"], FINE, "trouble", "status 200"),
        ([200, '{"status": "warming"}'], FINE, "trouble", "takes no requests: warming."),
    ],
)
def test_the_dashboard_says_only_what_it_knows(scripts, health, metrics, state, words):
    found, said = scripts(STATE, [health, metrics])
    assert found == state
    assert words in said
