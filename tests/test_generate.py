"""`generate` on the real model: the text, the ids, and words for what cannot be done."""

import re

import pytest

from course import generate
from course.paths import MODEL
from solutions.sampling_params import SamplingParams


def greedy(max_tokens: int, **more) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=max_tokens, **more)


@pytest.fixture(scope="module")
def engine():
    return generate.load_engine(MODEL)


def test_text_is_streamed_and_the_speed_is_printed(engine, monkeypatch, capsys):
    monkeypatch.setattr(generate, "load_engine", lambda _: engine)
    assert generate.main(["The capital of France is", "--max-tokens", "3"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(" Paris")
    for word in ("5 prompt tokens, 3 new", "prefill", "decode", "tokens/s", "GB/s"):
        assert word in err


def test_raw_ids_are_the_ids_of_the_text(engine, capsys):
    prompt = engine.text.encode("The capital of France is")
    generate.run(engine, prompt, greedy(4))
    text = capsys.readouterr().out
    generate.run(engine, prompt, greedy(4), raw_ids=True)
    ids = [int(word) for word in capsys.readouterr().out.split()]
    assert engine.text.decode(ids) + "\n" == text


def test_sampling_is_seeded_and_a_stop_string_ends_it(engine, monkeypatch, capsys):
    monkeypatch.setattr(generate, "load_engine", lambda _: engine)
    argv = ["The capital of France is", "--max-tokens", "12"]
    heat = ["--temperature", "0.9", "--top-p", "0.95"]
    texts = []
    for seed in ("1", "1", "2"):
        assert generate.main([*argv, *heat, "--seed", seed]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]
    assert generate.main([*argv, "--stop", "zzz", "--stop", "Par", "--logprobs", "3"]) == 0
    out, err = capsys.readouterr()
    assert out == " \n"
    assert "1 new, finish reason stop" in err
    [line] = [line for line in err.split("\n") if line.startswith("' Paris'")]
    assert line.split()[2] == line.split()[5]  # the token was the model's favourite
    assert len(re.findall(r"-\d+\.\d\d", line)) == 4


def test_chat_applies_the_template(engine):
    ids = generate.encode(engine, "Hi <|im_end|>", chat=True)
    assert ids.count(engine.text.special["<|im_start|>"]) == 3  # system, user, assistant
    assert ids.count(engine.text.special["<|im_end|>"]) == 2  # the user's own stays text


def test_one_token_needs_no_decode_speed(engine, capsys):
    generate.run(engine, [1, 2, 3], greedy(1))
    assert "decode" not in capsys.readouterr().err


def test_the_bytes_of_a_step_are_the_file_without_a_second_embedding(engine):
    # 134,515,008 parameters, as the model card says 135M; 4 bytes each
    assert generate.bytes_per_token(engine) == 134_515_008 * 4


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["Hi", "--max-tokens", "0"], "must be a whole number from 1"),
        (["Hi", "--max-tokens", "²"], "must be a whole number from 1"),
        (["Hi", "--max-tokens", "9" * 5000], "must be a whole number from 1"),
        (["Hi", "--model", ""], "the folder is empty"),
        (["Hi", "--model", "~no such user/x"], "names no folder"),
        (["Hi", "--temperature", "2.1"], "temperature must be from 0 (greedy) to 2; got 2.1"),
        (["Hi", "--temperature", "nan"], "temperature must be from 0"),
        (["Hi", "--top-p", "0"], "top_p must be above 0, up to 1"),
        (["Hi", "--top-k", "-2"], "top_k must be at least 1, or 0 or -1 for off"),
        (["Hi", "--top-k", "1.5"], "must be a whole number"),
        (["Hi", "--min-p", "1.5"], "min_p must be from 0"),
        (["Hi", "--repetition-penalty", "0"], "repetition_penalty must be above 0"),
        (["Hi", "--presence-penalty", "-3"], "presence_penalty must be from -2 to 2"),
        (["Hi", "--frequency-penalty", "9"], "frequency_penalty must be from -2 to 2"),
        (["Hi", "--seed", "9" * 20], "seed must be from -2**63 to 2**63 - 1"),
        (["Hi", "--logprobs", "21"], "logprobs must be from 0 to 20"),
        (["Hi", "--stop", ""], "stop must hold texts of 1 to 256 characters"),
        (["Hi", *["--stop", "a"] * 5], "stop must be a text or up to 4 texts"),
        (["Hi", "--temperature", "warm"], "must be a number"),
    ],
)
def test_a_wrong_setting_is_refused(argv, words, capsys):
    with pytest.raises(SystemExit) as stop:
        generate.main(argv)
    assert stop.value.code == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "words"),
    [([""], "the prompt is empty"), (["a " * 9000], "the context holds 8192")],
)
def test_a_prompt_that_does_not_fit_is_named(argv, words, engine, monkeypatch, capsys):
    monkeypatch.setattr(generate, "load_engine", lambda _: engine)
    assert generate.main(argv) == 1
    assert words in capsys.readouterr().err


def test_a_folder_without_a_model_is_named(tmp_path, capsys):
    assert generate.main(["Hi", "--model", str(tmp_path)]) == 1
    assert str(tmp_path) in capsys.readouterr().err
