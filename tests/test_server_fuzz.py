"""Bodies of every kind, many of them: no 500, always an answer or an error in the right shape."""

import json
import random

import pytest

from tests.server_kit import CHAT, COMPLETIONS, nobody_is_left, serving, until

NAMES = (
    *("messages", "prompt", "model", "n", "stream", "stream_options", "max_tokens", "logprobs"),
    *("top_logprobs", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "tools", "echo"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty", "best_of", "logit_bias"),
    *("max_completion_tokens", "ignore_eos", "response_format", "user", "nothing", ""),
)
VALUES = (
    *(None, True, False, 0, 1, -1, 2, 0.5, 1e308, -(2**70), 10**400, "", "x", "tiny", "\ud800"),
    *(
        [],
        {},
        [1],
        ["x"],
        [[1]],
        [None],
        [[]],
        [{}],
        {"role": "user"},
        [{"role": "user"}],
        "é" * 50,
    ),
    [{"role": "user", "content": "Hi"}],
    [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
    {"include_usage": True},
    ["a", "b"],
    [1, 2, 3],
)


def some_body(rng: random.Random) -> bytes:
    """Sound as far as chance allows; sometimes cut or spoilt."""
    body = {"max_tokens": 2}
    if rng.random() < 0.6:
        body["messages"], body["prompt"] = [{"role": "user", "content": "Hi"}], "Hi"
        body.pop(rng.choice(["messages", "prompt"]))
    for _ in range(rng.randrange(4)):
        body[rng.choice(NAMES)] = rng.choice(VALUES)
    data = json.dumps(body).encode()
    if rng.random() < 0.1:
        data = data[: rng.randrange(len(data))]
    if rng.random() < 0.1:
        place = rng.randrange(len(data) + 1)
        data = data[:place] + bytes([rng.randrange(256)]) + data[place:]
    return data


@pytest.mark.parametrize("seed", range(4))
def test_bodies_at_random(seed):
    rng, statuses = random.Random(seed), set()
    with serving(rows=2, length=64) as running:
        with running.client() as client:
            for _ in range(400):
                body, path = some_body(rng), rng.choice([CHAT, COMPLETIONS])
                found = client.post(path, content=body)
                statuses.add(found.status_code)
                if found.status_code != 200:
                    assert found.status_code in (400, 404), body
                    error = json.loads(found.content)["error"]
                    assert set(error) == {"message", "type", "param", "code"}
                    assert error["message"]
                    assert error["code"]
        assert running.get("/health").status_code == 200
        until(lambda: nobody_is_left(running), "all is free")
    assert statuses == {200, 400, 404}
