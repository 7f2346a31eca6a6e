"""course/text.py against llama.cpp's token ids and the tokenizers library."""

import json
import random

import pytest
from tokenizers import Tokenizer, decoders, models

from course.model import ensure_model
from course.text import Text
from tests.reference.arrays import read_json

CASES = read_json("tokenizer.json")["texts"]


@pytest.fixture(scope="module")
def text() -> Text:
    return Text(ensure_model())


@pytest.fixture(scope="module")
def library() -> Tokenizer:
    return Tokenizer.from_file(str(ensure_model() / "tokenizer.json"))


def test_there_are_enough_texts():
    assert len({case["text"] for case in CASES}) >= 60


@pytest.mark.parametrize("case", CASES, ids=lambda case: ascii(case["text"])[:40])
def test_ids_equal_llama_cpp(text, case):
    assert text.encode(case["text"]) == case["ids"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: ascii(case["text"])[:40])
def test_decoding_gives_the_text_back(text, case):
    assert text.decode(case["ids"]) == case["text"]


def test_special_tokens_have_their_ids(text):
    assert text.special["<|im_start|>"] == 1
    assert text.special["<|im_end|>"] == 2
    assert len(text.special) == 17
    assert text.size == 49152


def test_text_that_looks_like_a_special_token_stays_text(text):
    """Pitfall 10: a user who types <|im_end|> must not end the turn."""
    for special in text.special:
        for typed in (special, f"a{special}b", special * 2):
            ids = text.encode(typed)
            assert not set(ids) & set(text.special.values())
            assert text.decode(ids) == typed


def test_special_tokens_are_decoded_only_on_request(text):
    ids = [1, *text.encode("hi"), 2]
    assert text.decode(ids) == "hi"
    assert text.decode(ids, special=True) == "<|im_start|>hi<|im_end|>"


def test_a_lone_surrogate_is_a_value_error(text):
    with pytest.raises(ValueError, match="character 2 of the text is a lone surrogate"):
        text.encode("ab\ud83d")


@pytest.mark.parametrize("token", [-1, 49152, 10**9])
def test_an_id_outside_the_vocabulary_is_a_value_error(text, token):
    with pytest.raises(ValueError, match=f"token id {token} is not in the vocabulary"):
        text.decode([260, token])


def random_ids(count: int) -> list[list[int]]:
    """Sequences no text would give: many single bytes, in any order, and special tokens."""
    rng = random.Random(2)
    pools = [range(49152), range(17, 252), range(3), range(180, 252)]
    return [
        [rng.choice(pools[rng.randrange(4)]) for _ in range(rng.randrange(30))]
        for _ in range(count)
    ]


def test_any_ids_decode_as_the_library_decodes_them(text, library):
    """Pitfall 3: raw bytes in an order that is no UTF-8 survive."""
    for ids in random_ids(1000):
        assert text.decode(ids) == library.decode(ids, skip_special_tokens=True)
        assert text.decode(ids, special=True) == library.decode(ids, skip_special_tokens=False)


# ---- streaming ----


def streamed(text: Text, ids: list[int]) -> list[str]:
    stream = text.stream()
    return [*(stream.add(token) for token in ids), stream.flush()]


def test_pieces_joined_equal_the_library_s_decoding(text, library):
    """Pitfalls 1, 2 and 3: nothing lost, nothing repeated, nothing taken back."""
    for ids in [*random_ids(500), *(case["ids"] for case in CASES)]:
        assert "".join(streamed(text, ids)) == library.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize("case", CASES, ids=lambda case: ascii(case["text"])[:40])
def test_no_replacement_character_before_the_end(text, case):
    """Pitfall 1: a character spread over tokens appears once it is whole."""
    pieces = streamed(text, case["ids"])
    assert "\ufffd" not in "".join(pieces)
    assert pieces[-1] == ""


def test_an_emoji_waits_for_its_last_byte(text):
    ids = text.encode("🌿")
    assert len(ids) > 1
    assert streamed(text, ids) == [""] * (len(ids) - 1) + ["🌿", ""]


def test_a_truncated_character_is_flushed_once(text):
    """Pitfall 4."""
    stream = text.stream()
    assert [stream.add(token) for token in text.encode("🌿")[:-1]][-1] == ""
    assert stream.flush() == "\ufffd"
    assert stream.flush() == ""


def test_streams_do_not_disturb_each_other(text):
    first, second = text.encode("héllo 🌿🌿"), text.encode("漢字 naïve")
    one, two = text.stream(), text.stream()
    pieces = [(one.add(a), two.add(b)) for a, b in zip(first, second, strict=False)]
    rest = "".join(one.add(token) for token in first[len(pieces) :]) + one.flush()
    tail = "".join(two.add(token) for token in second[len(pieces) :]) + two.flush()
    assert "".join(a for a, _ in pieces) + rest == "héllo 🌿🌿"
    assert "".join(b for _, b in pieces) + tail == "漢字 naïve"


# ---- other tokenizers ----


def test_a_sentencepiece_tokenizer_with_byte_fallback(tmp_path):
    """Llama 2's kind: U+2581 for a space, <0x0A> for a byte, a space before the first word."""
    pieces = ["<unk>", "▁Hello", "▁world", *(f"<0x{byte:02X}>" for byte in range(256))]
    model = models.BPE({p: i for i, p in enumerate(pieces)}, [], byte_fallback=True)
    tokenizer = Tokenizer(model)
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens(["<unk>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    text = Text(tmp_path)
    leaf = [3 + byte for byte in "🌿".encode()]
    for ids in ([1, 2], [1, *leaf, 2], [0, 1, 2], [*leaf], [3 + 10, 1], []):
        assert text.decode(ids) == tokenizer.decode(ids, skip_special_tokens=True)
    assert text.decode([1, *leaf, 2]) == "Hello🌿 world"
    assert text.stream().add(2) == "world"
    assert text.stream(continues=True).add(2) == " world"  # behind a prompt, the space is meant


def test_a_decoder_of_another_kind_is_refused(tmp_path):
    tokenizer = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ValueError, match="ByteLevel"):
        Text(tmp_path)


def test_a_missing_or_broken_tokenizer_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="python -m course model"):
        Text(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0"}', encoding="utf-8")
    with pytest.raises(ValueError, match="not a tokenizer file"):
        Text(tmp_path)


def test_an_added_token_need_not_be_of_the_byte_alphabet(tmp_path):
    """As DeepSeek's; what is wrong in another token is a sentence."""
    folder = tmp_path / "model"
    folder.mkdir()
    data = json.loads((ensure_model() / "tokenizer.json").read_text(encoding="utf-8"))
    data["added_tokens"][0]["content"] = name = "<｜begin▁of▁sentence｜>"
    old = min(data["model"]["vocab"], key=data["model"]["vocab"].get)
    data["model"]["vocab"] = {
        (name if t == old else t): i for t, i in data["model"]["vocab"].items()
    }
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    assert Text(folder).special[name] == 0
    data["added_tokens"] = data["added_tokens"][1:]
    path.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(ValueError, match="which is no byte"):
        Text(folder)
