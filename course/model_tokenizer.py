"""The vocabulary inside a GGUF file as the tokenizer.json that `tokenizers` and others load."""

from typing import Any

from solutions.config import count, is_int

CONTROL = 3  # GGUF's token type for tokens that are never text, such as <|im_end|>
# How a text is split before the merges, by GGUF's name for it: whether digits stand alone first.
PRE_TOKENIZERS = {"smollm": True, "gpt-2": False}


def listed(metadata: dict[str, Any], key: str, kind: type) -> list[Any]:
    """A list that has to be there, of values of one type. Raises ValueError."""
    values = metadata.get(key)
    if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
        raise ValueError(f"its metadata has no {key} that is a list of {kind.__name__}")
    return values


def tokenizer_json(metadata: dict[str, Any]) -> dict[str, Any]:
    """Byte-level BPE: perhaps digits stand alone, then GPT-2's split, then merges by their rank.

    Raises ValueError for a vocabulary of another kind, whose ids would come out wrong.
    """
    split = _split(metadata)
    tokens = listed(metadata, "tokenizer.ggml.tokens", str)
    kinds = listed(metadata, "tokenizer.ggml.token_type", int)
    if len(kinds) != len(tokens):
        raise ValueError(f"it has {len(tokens)} tokens, and types for {len(kinds)}")
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(tokens, kinds),
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": split},
        "post_processor": None,
        "decoder": split[-1],
        "model": _bpe(tokens, listed(metadata, "tokenizer.ggml.merges", str)),
    }


def _split(metadata: dict[str, Any]) -> list[dict[str, Any]]:
    """What a text goes through before the merges, for the kinds that are known."""
    kind = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
    if kind[0] != "gpt2" or kind[1] not in PRE_TOKENIZERS:
        known = ", ".join(repr(("gpt2", name)) for name in PRE_TOKENIZERS)
        raise ValueError(f"its tokenizer is of kind {kind}; this converter knows {known}")
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    byte_level["use_regex"] = True
    digits = {"type": "Digits", "individual_digits": True}
    return [digits, byte_level] if PRE_TOKENIZERS[kind[1]] else [byte_level]


def _added_tokens(tokens: list[str], kinds: list[int]) -> list[dict[str, Any]]:
    """The special tokens, matched whole and before anything else."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return [
        {"id": index, "content": token, **flags, "special": True}
        for index, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
        if kind == CONTROL
    ]


def _bpe(tokens: list[str], merges: list[str]) -> dict[str, Any]:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": {token: index for index, token in enumerate(tokens)},
        "merges": [merge.split(" ", 1) for merge in merges],
    }


def tokenizer_config(metadata: dict[str, Any]) -> dict[str, Any]:
    """tokenizer_config.json. The class is named so that nothing rebuilds the digit split away."""
    tokens = listed(metadata, "tokenizer.ggml.tokens", str)
    names = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}
    ids = {key: metadata.get(f"tokenizer.ggml.{name}_token_id") for key, name in names.items()}
    given = [index for index in ids.values() if index is not None]
    wrong = [index for index in given if not is_int(index) or not 0 <= index < len(tokens)]
    if wrong:
        raise ValueError(f"it names special tokens {wrong}, and has {len(tokens)} tokens")
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{key: tokens[index] for key, index in ids.items() if index is not None},
        "model_max_length": count(metadata, "llama.context_length"),
        "clean_up_tokenization_spaces": False,
    }
