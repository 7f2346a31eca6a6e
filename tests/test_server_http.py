"""The server over HTTP: shapes, errors, keys, results, pages."""

import contextlib
import json
import socket

import jsonschema
import pytest

from solutions.app import PAGES
from solutions.settings import SettingError, Settings
from tests.server_kit import CHAT, COMPLETIONS, nobody_is_left, read_all, serving, until

HELLO = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4, "temperature": 0}


@pytest.fixture(scope="module")
def running():
    with serving() as made:
        yield made


def events_of(text: str) -> list:
    """The data of each event of a stream; a comment is None."""
    assert text.endswith("\n\n")
    blocks = text[:-2].split("\n\n")
    assert blocks[-1] == "data: [DONE]"
    return [json.loads(b[6:]) if b.startswith("data: ") else None for b in blocks[:-1]]


def test_a_stream_says_what_the_whole_answer_says(running):
    for path, body in ((CHAT, HELLO), (COMPLETIONS, {"prompt": "Hello", "max_tokens": 5})):
        body = body | {"temperature": 0}
        whole = running.post(path, body).json()
        streamed = running.post(path, body | {"stream": True})
        assert streamed.headers["content-type"].startswith("text/event-stream")
        chunks = events_of(streamed.text)
        assert len({(chunk["id"], chunk["created"]) for chunk in chunks}) == 1
        assert chunks[0]["id"] == streamed.headers["x-request-id"] != whole["id"]
        parts = [chunk["choices"][0] for chunk in chunks]
        if path == CHAT:
            text = "".join(part["delta"].get("content", "") for part in parts)
            assert text == whole["choices"][0]["message"]["content"]
            assert [part["delta"].get("role") for part in parts].count("assistant") == 1
        else:
            assert "".join(part["text"] for part in parts) == whole["choices"][0]["text"]
        reasons = [part["finish_reason"] for part in parts]
        assert reasons == [None] * (len(parts) - 1) + ["length"]


def test_usage_comes_last_when_it_is_asked_for(running):
    body = HELLO | {"stream": True, "stream_options": {"include_usage": True}}
    *chunks, last = events_of(running.post(CHAT, body).text)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 4
    assert all("usage" not in chunk for chunk in chunks)
    assert last["usage"] == running.post(CHAT, HELLO).json()["usage"]


def test_several_answers_of_one_body(running):
    body = {"prompt": ["Hi", "Ho"], "n": 2, "max_tokens": 3, "temperature": 0}
    choices = running.post(COMPLETIONS, body).json()["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2, 3]
    texts = [choice["text"] for choice in choices]
    assert texts[0] == texts[1]
    assert texts[2] == texts[3] != texts[0]
    drawn = body | {"temperature": 2, "seed": 5, "max_tokens": 12}
    first, second = (running.post(COMPLETIONS, drawn).json()["choices"] for _ in range(2))
    assert [c["text"] for c in first] == [c["text"] for c in second]
    until(lambda: nobody_is_left(running), "nobody is left")


def test_log_probabilities(running):
    body = HELLO | {"logprobs": True, "top_logprobs": 2}
    told = running.post(CHAT, body).json()["choices"][0]["logprobs"]["content"]
    assert [len(token["top_logprobs"]) for token in told] == [2] * 4
    chunks = events_of(running.post(CHAT, body | {"stream": True}).text)
    found = [c["choices"][0]["logprobs"]["content"] for c in chunks]
    assert [token for content in found for token in content] == told


@pytest.mark.parametrize(
    ("path", "body", "status", "param", "code"),
    [
        (CHAT, b"{", 400, None, "invalid_json"),
        (CHAT, {"messages": []}, 400, "messages", "invalid_value"),
        (CHAT, HELLO | {"temperature": 9}, 400, "temperature", "invalid_value"),
        (CHAT, HELLO | {"model": "gpt-9"}, 404, "model", "model_not_found"),
        (COMPLETIONS, {"prompt": "x" * 400}, 400, "prompt", "context_length_exceeded"),
        (COMPLETIONS, {"prompt": [1, 5000]}, 400, "prompt", "invalid_value"),
        (COMPLETIONS, {"prompt": [-1]}, 400, "prompt", "invalid_value"),
        (COMPLETIONS, {"prompt": "é"}, 400, "prompt", "invalid_value"),
        (COMPLETIONS, {"prompt": "x", "max_tokens": 0}, 400, "max_tokens", "invalid_value"),
        (COMPLETIONS, b'{"prompt": "\\ud800"}', 400, "prompt", "invalid_value"),
        (COMPLETIONS, b'{"\\ud800": 1, "prompt": "x"}', 400, "\ud800", "unknown_parameter"),
        (COMPLETIONS, {"prompt": ["x"] * 9}, 400, "n", "invalid_value"),
    ],
)
def test_what_is_wrong_is_named_and_the_next_request_works(
    running, path, body, status, param, code
):
    found = running.post(path, body)
    error = found.json()["error"]
    assert [found.status_code, error["param"], error["code"]] == [status, param, code]
    assert error["type"] == "invalid_request_error"
    assert error["message"]
    assert running.post(CHAT, HELLO).status_code == 200


def test_a_prompt_that_is_too_long_names_both_lengths(running):
    message = running.post(COMPLETIONS, {"prompt": "x" * 400}).json()["error"]["message"]
    assert "400" in message
    assert "256" in message


def test_places_that_are_not_there_have_the_shape_as_well(running):
    for method, path in (("GET", "/v1/nothing"), ("GET", CHAT), ("PUT", "/health")):
        with running.client() as client:
            found = client.request(method, path)
        assert found.status_code in (404, 405)
        assert set(found.json()["error"]) == {"message", "type", "param", "code"}


def test_a_body_that_is_too_large_is_413_before_it_has_come():
    with serving(max_body_bytes=1000) as running:
        found = running.post(COMPLETIONS, {"prompt": "x" * 2000})
        assert [found.status_code, found.json()["error"]["code"]] == [413, "body_too_large"]
        sock = running.connect()
        sock.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n\r\n{"
        )
        assert sock.recv(100).startswith(b"HTTP/1.1 413")
        sock.close()

        def pieces():
            for _ in range(50):
                yield b"x" * 100

        assert running.post(COMPLETIONS, pieces()).status_code == 413
        assert running.post(CHAT, HELLO).status_code == 200


def test_a_body_or_a_head_that_does_not_come_is_not_waited_for():
    with serving(read_timeout=0.2) as running:
        sock = running.connect()
        sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        assert sock.recv(100).startswith(b"HTTP/1.1 408")
        sock.close()
        for begun in (b"", b"GET /health HT"):
            sock = running.connect()
            sock.sendall(begun)
            with contextlib.suppress(ConnectionResetError):
                assert sock.recv(100) == b""
            sock.close()
        assert running.get("/health").status_code == 200


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
        b"GET /health HTTP/1.1\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 70_000,
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
    ],
)
def test_what_is_no_http_is_refused_in_the_same_shape(running, data, caplog):
    sock = running.connect()
    sock.sendall(data)
    head, _, body = read_all(sock).partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 400 Bad Request")
    assert json.loads(body)["error"]["code"] == "not_http"
    assert not caplog.records  # nobody can fill our logs from outside
    assert running.get("/health").status_code == 200


def test_a_connection_too_many_is_told_so():
    with serving(max_connections=3) as running:
        socks = [running.connect() for _ in range(3)]
        for sock in socks:
            sock.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert sock.recv(1000).startswith(b"HTTP/1.1 200")
        more = running.connect()
        told = more.recv(1000)
        assert told.startswith(b"HTTP/1.1 503")
        assert b"retry-after" in told
        for sock in [more, *socks]:
            sock.close()
        until(lambda: not running.server.server_state.connections, "all connections are closed")
        assert running.get("/health").status_code == 200


def test_small_packets_go_out_at_once(running):
    """Without TCP_NODELAY each event can wait for 40 ms, and so does every answer."""
    sock = running.connect()
    sock.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    assert sock.recv(1000)
    for connection in list(running.server.server_state.connections):
        inside = connection.transport.get_extra_info("socket")
        assert inside.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    sock.close()


def test_a_key_is_asked_for_where_it_matters():
    with serving(api_key="s3cret ~") as running:
        for header in ({}, {"authorization": "Bearer wrong"}, {"authorization": "s3cret"}):
            found = running.post(CHAT, HELLO, headers=header)
            assert [found.status_code, found.json()["error"]["code"]] == [401, "invalid_api_key"]
            assert found.headers["www-authenticate"] == "Bearer"
        for scheme in (b"Bearer", b"bearer", b"BEARER"):  # RFC 9110, 11.1
            key = {"authorization": scheme + b" s3cret ~"}
            assert running.post(CHAT, HELLO, headers=key).status_code == 200
        for wrong in (b"Basic s3cret ~", b"Bearers3cret ~", b"Bearer", b"Bearer s3cret \xc3\xa9"):
            found = running.post(CHAT, HELLO, headers={"authorization": wrong})
            assert found.status_code == 401
        assert running.get("/v1/models").status_code == 401
        assert running.get("/health").status_code == 200
        assert running.get("/metrics").status_code == 200


def test_other_web_sites_may_call_only_when_they_are_named(running):
    origin = {"origin": "https://a.example"}
    assert "access-control-allow-origin" not in running.get("/v1/models", headers=origin).headers
    with serving(cors_origins=("https://a.example",)) as other:
        found = other.get("/v1/models", headers=origin)
        assert found.headers["access-control-allow-origin"] == "https://a.example"
        origin = {"origin": "https://b.example"}
        assert "access-control-allow-origin" not in other.get("/v1/models", headers=origin).headers


def test_a_key_can_be_sent_by_every_client():
    """The official client, browsers and proxies only send headers of ASCII."""
    for key in ("clé", "ключ", "\N{NO-BREAK SPACE}a"):
        with pytest.raises(SettingError, match="ASCII"):
            Settings(api_key=key)


def test_a_page_of_another_site_cannot_make_the_server_work(running):
    """A body of plain text needs no preflight, so CORS lets it through."""
    plain = {"content-type": "text/plain", "origin": "https://a.example"}
    body = json.dumps(HELLO).encode()
    for place in ("cross-site", "same-site"):
        found = running.post(CHAT, body, headers=plain | {"sec-fetch-site": place})
        assert [found.status_code, found.json()["error"]["code"]] == [403, "cross_site"]
        assert "LLM_CORS_ORIGINS" in found.json()["error"]["message"]
    assert running.post(CHAT, body, headers={"sec-fetch-site": "cross-site"}).status_code == 403
    for own in ({"sec-fetch-site": "same-origin"}, {"sec-fetch-site": "none"}, {}):
        assert running.post(CHAT, body, headers=plain | own).status_code == 200
    assert running.get("/", headers={"sec-fetch-site": "cross-site"}).status_code == 200  # a link


def test_a_page_of_a_listed_site_can():
    body, other = json.dumps(HELLO).encode(), {"sec-fetch-site": "cross-site"}
    for listed, origin, status in (
        ("https://a.example", "https://a.example", 200),
        ("https://a.example", "https://b.example", 403),
        ("*", "https://b.example", 200),
    ):
        with serving(cors_origins=(listed,)) as running:
            found = running.post(CHAT, body, headers=other | {"origin": origin})
            assert found.status_code == status
            told = found.headers.get("access-control-expose-headers", "").lower()
            if status == 200:
                assert set(told.split(", ")) == {
                    "retry-after",
                    "x-should-retry",
                    "location",
                    "x-request-id",
                }


def test_the_metrics_say_whether_the_engine_serves(running, monkeypatch):
    """For the alert: the HTTP side of a dead engine still answers, and nobody is inside."""
    name = 'llm_ready{model_name="tiny"}'
    assert f"\n{name} 1.0\n" in running.get("/metrics").text
    monkeypatch.setattr(running.service, "health", lambda: (503, {"status": "dead"}))
    lines = running.get("/metrics").text.splitlines()
    assert lines[-1] == f"{name} 0.0"
    assert "# TYPE llm_ready gauge" in lines
    monkeypatch.setattr(running.service, "model", 'a"b\\c\nd')
    assert running.get("/metrics").text.endswith('{model_name="a\\"b\\\\c\\nd"} 0.0\n')


def test_models(running):
    found = running.get("/v1/models").json()
    assert found["object"] == "list"
    card = found["data"][0]
    assert set(card) == {"id", "object", "created", "owned_by"}
    assert running.get("/v1/models/tiny").json() == card
    assert running.get("/v1/models/other").status_code == 404


def test_a_result_can_be_fetched_again(running):
    whole = running.post(CHAT, HELLO).json()
    again = running.get(f"/v1/results/{whole['id']}")
    assert [again.status_code, again.json()] == [200, whole]
    chunks = events_of(running.post(CHAT, HELLO | {"stream": True}).text)
    found = running.get(f"/v1/results/{chunks[0]['id']}").json()
    assert found["choices"] == whole["choices"]
    assert running.get("/v1/results/chatcmpl-nobody").status_code == 404


def test_an_answer_that_is_not_waited_for(running):
    running.model.hold()
    wish = {"prefer": "handling=lenient, respond-async;x=1, wait=5"}  # RFC 7240: a list
    told = running.post(CHAT, HELLO, headers=wish)
    assert told.status_code == 202
    place = told.headers["location"]
    found = running.get(place)
    assert [found.status_code, found.json()["status"]] == [202, "running"]
    running.model.release()
    until(lambda: running.get(place).status_code == 200, "the result is there")
    assert running.get(place).json()["choices"] == running.post(CHAT, HELLO).json()["choices"]
    until(lambda: running.service.lifecycle.inside == 0, "nobody is inside")


def test_a_stream_cannot_be_fetched_later(running):
    told = running.post(CHAT, HELLO | {"stream": True}, headers={"prefer": "respond-async"})
    assert [told.status_code, told.json()["error"]["param"]] == [400, "stream"]
    until(lambda: nobody_is_left(running), "nothing is computed for it")


def test_a_route_with_a_slash_behind_it_is_unknown(running):
    """No redirect, which would lead to the host that the client has named."""
    assert running.get("/v1/models/").status_code == 404


def test_results_are_gone_after_their_time(running):
    id = running.post(CHAT, HELLO).json()["id"]
    until(lambda: running.get(f"/v1/results/{id}").status_code == 200, "the result is there")
    clock = running.service.results.clock
    running.service.results.clock = lambda: clock() + 59.0
    assert running.get(f"/v1/results/{id}").status_code == 200
    running.service.results.clock = lambda: clock() + 60.1
    assert running.get(f"/v1/results/{id}").status_code == 404
    running.service.results.clock = clock


def test_pages_are_served_from_their_files_and_from_nowhere_else(running):
    for path in PAGES.glob("*"):
        found = running.get(f"/pages/{path.name}")
        assert [found.status_code, found.content] == [200, path.read_bytes()], path.name
        policy = set(found.headers["content-security-policy"].split("; "))
        assert {"default-src 'self'", "form-action 'self'"} <= policy
        assert {"frame-ancestors 'none'", "base-uri 'none'"} <= policy  # default-src has not these
    assert running.get("/").content == (PAGES / "chat.html").read_bytes()
    assert running.get("/dashboard").content == (PAGES / "dashboard.html").read_bytes()
    for name in ("../app.py", "%2e%2e%2fapp.py", "..%2f..%2fREADME.md", "nothing.html", "."):
        assert running.get(f"/pages/{name}").status_code == 404
    assert running.get("/docs").status_code == 404


def test_head_is_answered_like_get_without_a_body(running):
    with running.client() as client:
        for path in ("/", "/health", "/v1/models", "/metrics"):
            found = client.head(path)
            assert [found.status_code, found.content] == [200, b""]
            assert int(found.headers["content-length"]) == len(client.get(path).content)


def test_the_description_names_every_field(running):
    found = running.get("/openapi.json").json()
    for path, name in ((CHAT, "messages"), (COMPLETIONS, "prompt")):
        body = found["paths"][path]["post"]["requestBody"]["content"]["application/json"]
        assert {name, "temperature", "stop"} <= set(body["schema"]["properties"])


NEUTRAL = [
    *({"temperature": None}, {"max_tokens": None}, {"stream": None}, {"stop": None}, {"n": None}),
    *({"logit_bias": None}, {"logit_bias": {}}, {"user": "x"}, {"logprobs": None}),
]


@pytest.mark.parametrize(
    ("path", "more"),
    [(path, more) for path in (CHAT, COMPLETIONS) for more in NEUTRAL]
    + [(CHAT, {"tools": []}), (CHAT, {"response_format": {"type": "text"}})]
    + [(COMPLETIONS, {"best_of": 1}), (COMPLETIONS, {"echo": False})],
)
def test_what_the_description_allows_is_what_is_taken(running, path, more):
    body = (HELLO if path == CHAT else {"prompt": "Hi", "max_tokens": 2}) | more
    schema = running.get("/openapi.json").json()["paths"][path]["post"]["requestBody"]["content"]
    jsonschema.validate(body, schema["application/json"]["schema"])
    assert running.post(path, body).status_code == 200


def test_a_fault_of_the_model_is_500_and_the_next_request_works(running):
    running.model.breaks = {running.model.calls + 1: "ArithmeticError"}
    found = running.post(CHAT, HELLO)
    assert [found.status_code, found.json()["error"]["code"]] == [500, "engine_error"]
    assert "ArithmeticError" in found.json()["error"]["message"]
    running.model.breaks = {running.model.calls + 3: "ArithmeticError"}
    text = running.post(CHAT, HELLO | {"stream": True}).text
    last = json.loads(text.strip().split("\n\n")[-1].removeprefix("data: "))
    assert last["error"]["code"] == "engine_error"
    assert running.post(CHAT, HELLO).status_code == 200
    assert [type(error) for error in running.errors] == [ArithmeticError] * 2
    assert running.errors[0].__traceback__ is not None  # it says where
    assert running.get("/health").status_code == 200
