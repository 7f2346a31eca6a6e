"""The end-to-end checks of the capstone. Each asks a running server, and names the layers to see.

The first three are the three tests that every service should have: loading, one request, many at
once. What is expected comes from tests/reference (made with another library) or from the promises
of chapters 04 to 08, never from our own layers.
"""

import json
import socket
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import httpx

from course.capstone_target import COMPLETIONS, GUARD, Failed, Target, require, stop, until
from course.paths import MODEL, ROOT

ROWS, WAITING = 4, 12  # of the server under test
CHAT = "/v1/chat/completions"
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@dataclass(frozen=True)
class Check:
    """One promise of the whole engine.

    Args:
        layers: the modules to look at when it is not kept, the likeliest first.
    """

    name: str
    promise: str
    layers: tuple[str, ...]
    run: Callable[[Target], None]


CHECKS: list[Check] = []


def _check(name: str, *layers: str):
    def keep(function: Callable[[Target], None]) -> Callable[[Target], None]:
        CHECKS.append(Check(name, " ".join(function.__doc__.split()), layers, function))
        return function

    return keep


@_check("loading", "loader", "checkpoint", "forward_pass", "lifecycle")
def _loading(at: Target) -> None:
    """The model is loaded, the service says that it can serve, and which model."""
    health = httpx.get(f"{at.url}/health", timeout=GUARD)
    said = f"/health answered {health.status_code} {health.text:.100}"
    require(health.status_code == 200 and health.json()["status"] == "ready", said)
    listed = httpx.get(f"{at.url}/v1/models", timeout=GUARD).json()
    cards = [card["id"] for card in listed["data"]]
    require(cards == [MODEL.name], f"/v1/models lists {cards}, not {MODEL.name}")


@_check("one request", "chat", "bodies", "responses", "forward_pass", "batcher")
def _one_request(at: Target) -> None:
    """One question gets its answer, ended by the model, with its tokens counted."""
    found = at.ask(CHAT, messages=QUESTION, max_tokens=16, temperature=0)
    choice, usage = found["choices"][0], found["usage"]
    text = choice["message"]["content"]
    require("Paris" in text, f"asked for the capital of France, it said {text!r}")
    require(choice["finish_reason"] == "stop", f"it ended by {choice['finish_reason']}, not stop")
    require(usage["prompt_tokens"] == 37, f"37 tokens of prompt were counted as {usage}")
    at.empty()


@_check("many at once", "batcher", "admission", "chunking", "kv_cache", "forward_pass")
def _many(at: Target) -> None:
    """Twelve requests at the same time, on four rows: each gets what it would get alone."""
    prompts = [f"The number after {n} is" for n in ("one", "two", "three")]
    alone = [at.complete(prompt) for prompt in prompts]
    with ThreadPoolExecutor(12) as pool:
        found = list(pool.map(lambda n: at.complete(prompts[n % 3]), range(12)))
    wrong = [(prompts[n % 3], alone[n % 3], text) for n, text in enumerate(found)]
    wrong = [one for one in wrong if one[1] != one[2]]
    said = f"{len(wrong)} of 12 differ: " + " / ".join(map(repr, wrong[:1]))
    require(not wrong, said)
    at.empty()


@_check("greedy tokens", "forward_pass", "kv_cache", "quantized", "sampling", "sampler")
def _greedy(at: Target) -> None:
    """At temperature 0 it writes, token for token, what another implementation writes."""
    from tokenizers import Tokenizer

    path = ROOT / "tests" / "reference" / "greedy.json"
    decode = Tokenizer.from_file(str(MODEL / "tokenizer.json")).decode
    for one in json.loads(path.read_text(encoding="utf-8"))["prompts"][:3]:
        expected = decode(one["new"])
        text = at.complete(one["prompt"], max_tokens=len(one["new"]), ignore_eos=True)
        said = f"after {one['text']!r} came {text!r}, not {expected!r}"
        require(text == expected, said)


@_check("streaming", "streaming", "channel", "detokenizer", "responses")
def _streaming(at: Target) -> None:
    """A stream says the same as a whole answer, and ends in [DONE]."""
    for path, body in (
        (CHAT, {"messages": [{"role": "user", "content": "Say hello with an emoji 😀"}]}),
        (COMPLETIONS, {"prompt": "Une élève a"}),
    ):
        body |= {"max_tokens": 12, "temperature": 0}
        choice = at.ask(path, **body)["choices"][0]
        whole = choice["message"]["content"] if path == CHAT else choice["text"]
        text, reason, last = at.stream(path, **body)
        require(text == whole, f"{path} streamed {text!r}; whole it was {whole!r}")
        ended = choice["finish_reason"]
        require(reason == ended, f"the stream ended by {reason}, the whole answer by {ended}")
        require(last == "[DONE]", f"its last event is {last:.60}, not [DONE]")


@_check("stop string", "stopping", "detokenizer", "channel")
def _stop(at: Target) -> None:
    """A stop string ends the answer before it; no piece of it is streamed."""
    prompt, length = "Once upon a time", 24
    text = at.complete(prompt, max_tokens=length, ignore_eos=True)
    for place in (len(text) // 3, len(text) // 2):
        stop = text[place:][:10]  # long enough to lie in several tokens
        expected = text[: text.index(stop)]
        body = {"prompt": prompt, "max_tokens": length, "temperature": 0, "stop": [stop]}
        choice = at.ask(COMPLETIONS, **body)["choices"][0]
        whole = (choice["text"], choice["finish_reason"])
        for how, found in (("gave", whole), ("streamed", at.stream(COMPLETIONS, **body)[:2])):
            said = f"with stop {stop!r} it {how} {found}, not {(expected, 'stop')}"
            require(found == (expected, "stop"), said)


@_check("sampling", "sampler", "sampling")
def _sampling(at: Target) -> None:
    """A seed gives its text, whoever runs beside it; the most likely alone is the greedy text."""
    prompt, hot = "My favourite", {"temperature": 1.5, "max_tokens": 12, "ignore_eos": True}
    first, alone = (at.complete(prompt, seed=1, **hot) for _ in range(2))
    require(first == alone, f"seed 1, alone, gave {first!r} and then {alone!r}: is it used?")
    with ThreadPoolExecutor(ROWS) as pool:
        texts = pool.map(lambda seed: at.complete(prompt, seed=seed, **hot), range(1, ROWS + 1))
        again, *others = texts
    require(first == again, f"seed 1 gave {first!r}; with others beside it, {again!r}")
    require(set(others) != {first}, f"every seed gave {first!r} at temperature 1.5")
    greedy = at.complete(prompt, max_tokens=12, ignore_eos=True)
    for one in ({"top_k": 1}, {"top_p": 1e-6}):
        text = at.complete(prompt, **hot, **one)
        require(text == greedy, f"{one} gave {text!r}; temperature 0 gives {greedy!r}")


@_check("refusals", "bodies", "responses")
def _refusals(at: Target) -> None:
    """What is wrong in a request is answered by 400 in the usual shape, and names the field."""
    bad = {"temperature": 3, "top_p": 0, "max_tokens": 0, "stop": list("abcde"), "no_such": 1}
    for name, value in bad.items():
        found = at.post(COMPLETIONS, prompt="x", **{name: value})
        said = f"{name} = {value} was answered by {found.status_code} {found.text:.200}"
        require(found.status_code == 400, said)
        require(found.json().get("error", {}).get("param") == name, said)
    found = httpx.post(at.url + CHAT, content=b'{"messages": ', timeout=GUARD)
    require(found.status_code == 400, f"half a body was answered by {found.status_code}")


@_check("results", "results", "responses")
def _results(at: Target) -> None:
    """An answer can be fetched again by its id, and not only once."""
    found = at.ask(COMPLETIONS, prompt="One two three", max_tokens=4, temperature=0)
    for time_ in ("first", "second"):
        again = httpx.get(f"{at.url}/v1/results/{found['id']}", timeout=GUARD)
        said = f"the {time_} time it was answered by {again.status_code}: {again.text:.150}"
        require(again.status_code == 200 and again.json() == found, said)
    unknown = httpx.get(f"{at.url}/v1/results/nobody", timeout=GUARD).status_code
    require(unknown == 404, f"a result that never was is answered by {unknown}, not 404")


LONG = {"prompt": "Once", "max_tokens": 400, "temperature": 0, "ignore_eos": True}


def _until_count(at: Target, name: str, count: int) -> None:
    """So many long requests were sent: all of them run, or wait."""
    until(
        lambda: at.metrics()[name] == count,
        lambda: f"after {count} requests {name} is {at.metrics()[name]:g}",
    )


@_check("disconnect", "streaming", "batcher", "engine_thread", "admission")
def _disconnect(at: Target) -> None:
    """A client that goes away ends its request, and its memory comes back."""
    before = at.metrics()
    socks = [at.send(COMPLETIONS, stream=bool(n % 2), **LONG) for n in range(ROWS + 2)]
    _until_count(at, "llm_requests_running", ROWS)
    for sock in socks:
        sock.close()
    name = "llm_requests_total cancelled"
    ended = before[name] + len(socks)
    until(
        lambda: at.metrics()[name] >= ended,
        lambda: f"{len(socks)} left; {at.metrics()[name] - before[name]:g} ended as cancelled",
    )
    at.empty()


@_check("full", "backpressure", "responses", "waiting", "batcher")
def _full(at: Target) -> None:
    """When every place is taken the next is refused: 503, and when to come again."""
    socks: list[socket.socket] = []
    try:
        for name, count in (("running", ROWS), ("waiting", WAITING)):
            socks += [at.send(COMPLETIONS, stream=True, **LONG) for _ in range(count)]
            _until_count(at, f"llm_requests_{name}", count)
        found = at.post(COMPLETIONS, prompt="x", max_tokens=1)
        said = f"one more was answered by {found.status_code}: {found.text:.150}"
        require(found.status_code == 503, said)
        again = found.headers.get("retry-after", "")
        require(again.isdigit(), f"its Retry-After is {again!r}, no number of seconds")
        counted = at.metrics()["llm_requests_rejected_total queue_full"]
        require(counted >= 1, "llm_requests_rejected_total of queue_full counted nothing")
    finally:
        for sock in socks:
            sock.close()


@_check("metrics", "metrics", "request_timing", "histogram")
def _metrics(at: Target) -> None:
    """The metrics grow by exactly what was asked and answered."""
    before = at.metrics()
    usages = [
        at.ask(COMPLETIONS, prompt="One two", max_tokens=n, ignore_eos=True)["usage"]
        for n in (1, 2, 3)
    ]
    answered = sum(usage["completion_tokens"] for usage in usages)
    expected = {
        "llm_requests_total length": 3,
        "llm_prompt_tokens_total": sum(usage["prompt_tokens"] for usage in usages),
        "llm_generation_tokens_total": answered,
        "llm_time_to_first_token_seconds_count": 3,
        "llm_inter_token_latency_seconds_count": answered - 3,
        "llm_e2e_request_latency_seconds_count": 3,
        "llm_request_queue_seconds_count": 3,
    }

    def grown() -> dict[str, float]:
        now = at.metrics()
        return {name: now.get(name, 0) - before.get(name, 0) for name in expected}

    def said() -> str:
        found = grown()
        wrong = [name for name in expected if found[name] != expected[name]]
        return ", ".join(f"{name} grew by {found[name]:g}, not {expected[name]}" for name in wrong)

    until(lambda: grown() == expected, said)


@_check("logs", "json_log", "request_timing")
def _logs(at: Target) -> None:
    """Every request is a line of JSON in the log; the user's words are in none."""
    secret = "marmalade-4711"
    found = at.ask(COMPLETIONS, prompt=f"Tell nobody: {secret}", max_tokens=2)

    def lines() -> list[str]:
        files = sorted(at.logs.glob("*.jsonl"))
        return [line for path in files for line in path.read_text(encoding="utf-8").splitlines()]

    until(
        lambda: any(found["id"] in line for line in lines()),
        lambda: f"no line of {at.logs} holds {found['id']}",
    )
    for line in lines():
        json.loads(line)
        require(secret not in line, f"a line holds the user's words: {line:.200}")


@_check("drain", "lifecycle", "engine_thread", "streaming")
def _drain(at: Target) -> None:
    """Told to stop, it refuses what is new, finishes what it accepted, and exits with 0."""
    body = LONG | {"max_tokens": 40}
    found: list[dict] = []
    asks = [threading.Thread(target=lambda: found.append(_answer(at, body))) for _ in range(3)]
    for ask in asks:
        ask.start()
    _until_count(at, "llm_requests_running", 3)
    stop(at.process)
    for ask in asks:
        ask.join(GUARD)
    counts = [one.get("usage", {}).get("completion_tokens", one) for one in found]
    require(counts == [40] * 3, f"three answers of 40 tokens were under way; they came as {counts}")
    try:
        code = at.process.wait(GUARD / 2)
    except subprocess.TimeoutExpired:
        raise Failed("it does not end after its answers are out") from None
    require(code == 0, f"it ended with exit code {code}, not 0")


def _answer(at: Target, body: dict) -> dict:
    try:
        return at.ask(COMPLETIONS, **body)
    except (Failed, httpx.HTTPError) as problem:
        return {"usage": {"completion_tokens": str(problem) or type(problem).__name__}}
