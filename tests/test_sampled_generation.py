"""solutions/generate.py on a tiny Llama: chapter 04's loop with a sampler and with text."""

import pytest
import torch

from solutions.detokenizer import Detokenizer
from solutions.forward_pass import Llama
from solutions.generate import generate
from solutions.greedy import generate_greedy
from solutions.kv_cache import KVCache
from solutions.sampling_params import SamplingParams
from tests.reference.arrays import tiny_weights
from tests.scenarios.helpers import config_of

PROMPT = [3, 14, 15, 9, 2]


@pytest.fixture(scope="module")
def model() -> Llama:
    return Llama(config_of("tied"), tiny_weights("tied"))


def stream() -> Detokenizer:
    """Token 5 is the text "<5>"."""
    return Detokenizer(lambda token: b"<%d>" % token)


def told(model, params, ends=(), cache=None, **more):
    return generate(model, PROMPT, params, stream(), ends, cache, **more)


def a_cache(model, length: int = 40) -> KVCache:
    return KVCache(model.config, 2, length)


def test_at_temperature_zero_it_is_generate_greedy(model):
    expected = generate_greedy(model, PROMPT, 8, ())
    for cache in (None, a_cache(model)):
        made = told(model, SamplingParams(temperature=0, max_tokens=8), cache=cache)
        assert made.ids == expected.ids
        assert made.finish_reason == "length"
        assert made.text == "".join(f"<{token}>" for token in made.ids)


def test_a_seed_gives_the_same_with_and_without_a_cache(model):
    wish = {"temperature": 1.5, "top_p": 0.9, "frequency_penalty": 0.7, "max_tokens": 12}
    cached = told(model, SamplingParams(**wish, seed=5), cache=a_cache(model))
    assert told(model, SamplingParams(**wish, seed=5)).ids == cached.ids
    assert told(model, SamplingParams(**wish, seed=6)).ids != cached.ids
    assert told(model, SamplingParams(**wish)).ids != told(model, SamplingParams(**wish)).ids


def test_penalties_count_the_prompt_and_what_was_written(model):
    wish = {"temperature": 0, "repetition_penalty": 1e6, "max_tokens": 20}
    made = told(model, SamplingParams(**wish))
    assert len({*made.ids, *PROMPT}) == 25  # every token once


def test_an_end_id_and_a_stop_string_end_it(model):
    free = told(model, SamplingParams(temperature=0, max_tokens=8))
    end = free.ids[4]
    first = free.ids.index(end)
    made = told(model, SamplingParams(temperature=0, max_tokens=8), [end])
    assert (made.ids, made.finish_reason) == (free.ids[:first], "stop")
    made = told(model, SamplingParams(temperature=0, max_tokens=8, stop=[f"{end}>"]))
    assert (made.ids, made.finish_reason) == (free.ids[: first + 1], "stop")
    assert made.text == free.text.split(f"{end}>")[0]


def test_listeners_hear_each_token_and_each_text_in_time(model):
    heard = []
    made = told(
        model,
        SamplingParams(temperature=0, max_tokens=6, stop=["><", "never"]),
        on_token=lambda token: heard.append(token),
        on_text=lambda text: heard.append(text),
    )
    texts = [one for one in heard if isinstance(one, str)]
    assert [one for one in heard if isinstance(one, int)] == made.ids
    assert "".join(texts) == made.text == f"<{made.ids[0]}"
    assert "" not in texts
    assert heard[0] == made.ids[0]


def test_an_end_id_is_not_told(model):
    free = told(model, SamplingParams(temperature=0, max_tokens=3))
    heard = []
    made = told(
        model,
        SamplingParams(temperature=0, max_tokens=3, logprobs=1),
        [free.ids[0]],
        on_token=heard.append,
        on_text=heard.append,
    )
    assert (made.ids, made.text, made.logprobs, heard) == ([], "", [], [])


def test_log_probabilities_are_the_model_s_own(model):
    wish = {"max_tokens": 5, "seed": 2, "temperature": 2.0, "top_k": 2}
    assert told(model, SamplingParams(**wish)).logprobs == []
    made = told(model, SamplingParams(**wish, logprobs=3))
    assert [one.token for one in made.logprobs] == made.ids
    tokens = torch.tensor([PROMPT + made.ids])
    logs = model.forward(tokens, torch.arange(10)[None], every_position=True)[0].log_softmax(-1)
    for place, one in enumerate(made.logprobs, 4):
        assert one.value == pytest.approx(float(logs[place, one.token]), abs=1e-4)
        assert list(one.top) == logs[place].topk(3).indices.tolist()


def test_the_context_ends_it(model):
    cache = a_cache(model, 9)
    made = told(model, SamplingParams(max_tokens=10**9), cache=cache)
    assert (len(made.ids), made.finish_reason) == (4, "length")
    with pytest.raises(ValueError, match="5 tokens and the context holds 5"):
        told(model, SamplingParams(), cache=a_cache(model, 5))
    with pytest.raises(ValueError, match="empty"):
        generate(model, [], SamplingParams(), stream())


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("listener", ["on_token", "on_text"])
def test_the_row_is_free_again_whatever_happens(model, error, listener):
    cache = a_cache(model)
    cache.reserve(1, 3)
    told(model, SamplingParams(max_tokens=4), cache=cache)
    assert cache.used_tokens == 3

    def fail(_):
        raise error("on purpose")

    with pytest.raises(error):
        told(model, SamplingParams(max_tokens=4), cache=cache, **{listener: fail})
    assert cache.used_tokens == 3
