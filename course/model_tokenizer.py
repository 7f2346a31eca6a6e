"""The vocabulary inside a GGUF file as the tokenizer.json that `tokenizers` and others load."""

from typing import Any

CONTROL = 3  # GGUF's token type for tokens that are never text, such as <|im_end|>
PRE_TOKENIZER = "smollm"


def tokenizer_json(metadata: dict[str, Any]) -> dict[str, Any]:
    """Byte-level BPE: digits stand alone, then GPT-2's split, then merges in order of rank.

    Raises ValueError for a vocabulary of another kind, whose ids would come out wrong.
    """
    _check_kind(metadata)
    tokens = metadata["tokenizer.ggml.tokens"]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    byte_level["use_regex"] = True
    digits = {"type": "Digits", "individual_digits": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(tokens, metadata["tokenizer.ggml.token_type"]),
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, byte_level]},
        "post_processor": None,
        "decoder": byte_level,
        "model": _bpe(tokens, metadata["tokenizer.ggml.merges"]),
    }


def _check_kind(metadata: dict[str, Any]) -> None:
    kind = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
    if kind != ("gpt2", PRE_TOKENIZER):
        raise ValueError(f"tokenizer kind {kind} is not ('gpt2', '{PRE_TOKENIZER}').")


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
    tokens = metadata["tokenizer.ggml.tokens"]
    names = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}
    special = {key: tokens[metadata[f"tokenizer.ggml.{n}_token_id"]] for key, n in names.items()}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **special,
        "model_max_length": metadata["llama.context_length"],
        "clean_up_tokenization_spaces": False,
    }
