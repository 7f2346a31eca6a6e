"""The official `openai` package against the running server, unchanged."""

import asyncio
import json
import threading
import time

import pytest

from tests.real.conftest import run_apart

try:
    import openai
except ImportError:
    pytest.fail("the package openai is missing: type `python -m course dev`", pytrace=False)

PATIENCE = 60  # seconds; only a guard against waiting for ever
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
HAIKU = [{"role": "user", "content": "Write a short poem about the sea 🌊, please."}]


def client_of(server, key: str = "none", retries: int = 0) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=f"{server.url}/v1", api_key=key, max_retries=retries, timeout=PATIENCE
    )


@pytest.fixture(scope="module")
def client(server):
    with client_of(server) as made:
        yield made


@pytest.fixture(scope="module")
def model(client) -> str:
    (found,) = client.models.list().data
    assert found.object == "model"
    assert isinstance(found.created, int)
    assert found.owned_by
    return found.id


def chat(client, model, messages=QUESTION, **wishes):
    """A greedy answer of 12 tokens at most, unless other wishes are given."""
    wishes = {"temperature": 0, "max_tokens": 12} | wishes
    return client.chat.completions.create(model=model, messages=messages, **wishes)


def complete(client, model, prompt="The sea is", **wishes):
    wishes = {"temperature": 0, "max_tokens": 8} | wishes
    return client.completions.create(model=model, prompt=prompt, **wishes)


# ---- one request ----


def test_a_chat(client, model):
    answer = chat(client, model)
    (choice,) = answer.choices
    assert answer.object == "chat.completion"
    assert answer.model == model
    assert choice.message.role == "assistant"
    assert "Paris" in choice.message.content
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens > len(QUESTION[0]["content"].split())
    assert 1 <= usage.completion_tokens <= 12


def test_a_completion(client, model):
    answer = complete(client, model, ignore := "The sea is", extra_body={"ignore_eos": True})
    (choice,) = answer.choices
    assert ignore not in choice.text
    assert answer.object == "text_completion"
    assert (choice.finish_reason, answer.usage.completion_tokens) == ("length", 8)
    assert complete(client, model, extra_body={"ignore_eos": True}).choices[0].text == choice.text


def test_max_completion_tokens_is_the_new_name(client, model):
    answer = client.chat.completions.create(
        model=model, messages=HAIKU, temperature=0, max_completion_tokens=3
    )
    assert answer.usage.completion_tokens == 3
    assert answer.choices[0].finish_reason == "length"


def test_a_stop_string_is_not_in_the_answer(client, model):
    whole = chat(client, model, HAIKU, max_tokens=24).choices[0].message.content
    stop = whole[len(whole) // 2 :][:3]
    cut = chat(client, model, HAIKU, max_tokens=24, stop=[stop]).choices[0]
    assert cut.message.content == whole[: whole.index(stop)]
    assert cut.finish_reason == "stop"


def test_a_seed_repeats_and_without_one_answers_differ(client, model):
    def draw(**wishes):
        answer = chat(client, model, HAIKU, temperature=1.5, max_tokens=16, **wishes)
        return answer.choices[0].message.content

    assert draw(seed=7) == draw(seed=7)
    assert draw() != draw()


def test_several_answers_at_once(client, model):
    answer = chat(client, model, HAIKU, n=3, temperature=1.5, max_tokens=8)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len({choice.message.content for choice in answer.choices}) == 3


def test_log_probabilities_of_a_chat(client, model):
    answer = chat(client, model, logprobs=True, top_logprobs=3, max_tokens=4)
    told = answer.choices[0].logprobs.content
    assert len(told) == answer.usage.completion_tokens
    for token in told:
        assert len(token.top_logprobs) == 3
        assert token.logprob == token.top_logprobs[0].logprob <= 0  # greedy
        assert bytes(token.bytes).decode("utf-8", errors="replace") == token.token
    spoken = b"".join(bytes(token.bytes) for token in told).decode()
    assert answer.choices[0].message.content == spoken


def test_log_probabilities_of_a_completion(client, model):
    answer = complete(client, model, logprobs=2, max_tokens=4)
    told = answer.choices[0].logprobs
    assert len(told.tokens) == len(told.token_logprobs) == len(told.top_logprobs) == 4
    assert "".join(told.tokens) == answer.choices[0].text
    assert all(value <= 0 for value in told.token_logprobs)


# ---- streaming ----


def test_a_streamed_chat_equals_the_whole(client, model):
    whole = chat(client, model, HAIKU, max_tokens=24)
    chunks = list(
        chat(
            client, model, HAIKU, max_tokens=24, stream=True, stream_options={"include_usage": True}
        )
    )
    *content, last = chunks
    assert last.choices == []
    assert last.usage == whole.usage
    assert {c.id for c in chunks} == {chunks[0].id}
    assert {c.created for c in chunks} == {chunks[0].created}
    assert {c.object for c in chunks} == {"chat.completion.chunk"}
    assert content[0].choices[0].delta.role == "assistant"
    assert not any(c.choices[0].delta.role for c in content[1:])
    reasons = [c.choices[0].finish_reason for c in content]
    assert reasons[:-1] == [None] * (len(reasons) - 1)
    assert reasons[-1] == whole.choices[0].finish_reason
    joined = "".join(c.choices[0].delta.content or "" for c in content)
    assert joined == whole.choices[0].message.content
    assert len(content) > 6  # it came in pieces


def test_a_streamed_completion_equals_the_whole(client, model):
    whole = complete(client, model)
    chunks = list(complete(client, model, stream=True))
    assert {c.object for c in chunks} == {"text_completion"}
    assert "".join(c.choices[0].text for c in chunks) == whole.choices[0].text
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason


def test_the_helper_for_streams_understands_ours(client, model):
    with client.chat.completions.stream(
        model=model, messages=QUESTION, temperature=0, max_tokens=8
    ) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert "Paris" in final.choices[0].message.content


def running(server) -> float:
    """Requests that are running or waiting, by the server's own metrics."""
    lines = server.get("/metrics").text.splitlines()
    names = ("llm_requests_running", "llm_requests_waiting")
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(names))


def test_a_stream_that_is_closed_is_noticed(server, client, model):
    stream = chat(
        client, model, HAIKU, max_tokens=2000, stream=True, extra_body={"ignore_eos": True}
    )
    next(iter(stream))
    assert running(server) >= 1
    stream.close()
    end = time.monotonic() + PATIENCE
    while running(server) and time.monotonic() < end:
        time.sleep(0.05)
    assert running(server) == 0


# ---- many at once ----


def test_many_at_once(server, model):
    """Sixteen conversations, some streamed, through the asynchronous client; greedy, so each is
    the answer that it is alone."""

    async def run() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as many:

            async def one(n: int) -> str:
                wishes = {"model": model, "messages": QUESTION, "temperature": 0, "max_tokens": 10}
                if n % 2:
                    answer = await many.chat.completions.create(**wishes)
                    return answer.choices[0].message.content
                stream = await many.chat.completions.create(**wishes, stream=True)
                return "".join([c.choices[0].delta.content or "" async for c in stream])

            return await asyncio.gather(*map(one, range(16)))

    assert len(set(run_apart(run()))) == 1


# ---- what is wrong, and what is refused ----


@pytest.mark.parametrize(
    ("wishes", "param"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"stop": list("abcde")}, "stop"),
        ({"n": 1000}, "n"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "Hi"}]}, "messages[0].role"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"extra_body": {"temprature": 1}}, "temprature"),
        ({"messages": [{"role": "user", "content": "the " * 9000}]}, None),
    ],
)
def test_a_bad_request_names_its_fault(client, model, wishes, param):
    with pytest.raises(openai.BadRequestError) as refused:
        chat(client, model, **wishes)
    assert refused.value.status_code == 400
    assert param is None or refused.value.param == param
    assert refused.value.type == "invalid_request_error"
    assert refused.value.body["message"]


def test_a_lone_surrogate_is_a_bad_request(server, model):
    """The package cannot send one, so this one goes out by hand; what is said is the same."""
    body = {"model": model, "messages": [{"role": "user", "content": "\ud800"}]}
    answer = server.post("/v1/chat/completions", content=json.dumps(body).encode())
    assert answer.status_code == 400
    assert "surrogate" in answer.json()["error"]["message"]


def test_a_model_that_is_not_here(client):
    with pytest.raises(openai.NotFoundError) as refused:
        chat(client, "gpt-9")
    assert refused.value.code == "model_not_found"


def test_a_route_that_is_not_here(client):
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="any", input="text")


def test_a_server_with_a_key(start):
    server = start(api_key="right")
    for wrong in ("wrong", "Right", "right1"):
        with client_of(server, wrong) as made, pytest.raises(openai.AuthenticationError):
            made.models.list()
    with client_of(server, "right") as made:
        found = made.models.list().data[0].id
        assert chat(made, found, max_tokens=2).choices


def test_a_full_server_refuses_and_a_patient_client_is_served(start):
    """One request at a time, one waiting. A third is refused with the time to come again; the
    client that may retry comes again and gets its answer."""
    server = start(max_running=1, max_waiting=1)
    with client_of(server) as hasty, client_of(server, retries=20) as patient:
        model = hasty.models.list().data[0].id
        long = {"max_tokens": 60, "extra_body": {"ignore_eos": True}}
        threads = [threading.Thread(target=chat, args=(hasty, model), kwargs=long) for _ in "ab"]
        for count, thread in enumerate(threads, 1):
            thread.start()
            await_running(server, count)
        with pytest.raises(openai.InternalServerError) as refused:
            chat(hasty, model, max_tokens=2)
        assert refused.value.status_code == 503
        assert int(refused.value.response.headers["retry-after"]) >= 1
        assert chat(patient, model, max_tokens=2).choices
        for thread in threads:
            thread.join()


def await_running(server, count: int) -> None:
    end = time.monotonic() + PATIENCE
    while running(server) < count:
        assert time.monotonic() < end, "the server did not take the request"
        time.sleep(0.01)
