"""Text at the edges: characters to token ids and back. The engine between sees only ids."""

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, decoders

from solutions.detokenizer import Detokenizer


class Text:
    """The tokenizer of one checkpoint folder.

    `special` maps the text of each special token to its id, e.g. {"<|im_end|>": 2}. Only code that
    builds a prompt uses it; nothing a user types ever becomes one of these ids. `strip` says
    whether the text of tokens begins with a space that is not meant (SentencePiece).
    """

    def __init__(self, folder: str | Path):
        """Read tokenizer.json. Raises FileNotFoundError or ValueError, naming the file."""
        self._tokenizer = _load(Path(folder) / "tokenizer.json")
        added = self._tokenizer.get_added_tokens_decoder()
        self.special = {token.content: i for i, token in added.items() if token.special}
        self._special_ids = set(self.special.values())
        self._bytes, self.strip = _bytes_by_id(self._tokenizer, added)

    @property
    def size(self) -> int:
        """How many ids the tokenizer can produce; the model's vocabulary may be padded to more."""
        return max(self._bytes) + 1

    def encode(self, text: str) -> list[int]:
        """Token ids of plain text: no special token is added, and none is recognised in it.

        Characters that the vocabulary has no bytes for (in the bundled model a few control
        characters, such as U+0000) are dropped, as llama.cpp drops them.
        Raises ValueError for a lone surrogate, which is half a character and has no UTF-8.
        """
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as problem:
            raise ValueError(
                f"character {problem.start} of the text is a lone surrogate "
                f"({text[problem.start]!r}); send valid Unicode"
            ) from None
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Iterable[int], special: bool = False) -> str:
        """The text of token ids; special tokens are left out unless `special` is true.

        Bytes that are no UTF-8 become U+FFFD. Raises ValueError for an id that does not exist.
        """
        stream = self.stream(special)
        return "".join([*map(stream.add, ids), stream.flush()])

    def stream(
        self, special: bool = False, kind: type = Detokenizer, continues: bool = False
    ) -> Detokenizer:
        """A decoder to be fed one id at a time; its pieces joined equal `decode` of all ids.

        kind: the class, which may be a learner's own.
        continues: the text goes on behind a prompt, so that a space at its beginning is meant.
        """
        strip = self.strip and not continues
        return kind(lambda token: self.token_bytes(token, special), strip)

    def token_bytes(self, token: int, special: bool = False) -> bytes:
        """The bytes of a token id; none for a special token unless `special` is true.

        Raises ValueError for an id that does not exist.
        """
        if token not in self._bytes:
            raise ValueError(f"token id {token} is not in the vocabulary ({len(self._bytes)} ids)")
        return b"" if token in self._special_ids and not special else self._bytes[token]


def _load(path: Path) -> Tokenizer:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; run `python -m course model`")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as problem:  # tokenizers raises a bare Exception
        raise ValueError(f"{path} is not a tokenizer file: {problem}") from None
    tokenizer.encode_special_tokens = True  # text that looks like a special token stays text
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _bytes_by_id(tokenizer: Tokenizer, added: dict) -> tuple[dict[int, bytes], bool]:
    """The bytes that each id stands for, and whether the first space of a text is stripped."""
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    if isinstance(tokenizer.decoder, decoders.ByteLevel):
        convert, strip = _byte_level, False
    elif "<0x00>" in vocabulary:
        convert, strip = _sentencepiece, True
    else:
        kind = type(tokenizer.decoder).__name__
        raise ValueError(f"a tokenizer with decoder {kind} is not supported; ByteLevel is")
    try:
        table = {i: convert(token) for token, i in vocabulary.items() if i not in added}
    except KeyError as character:
        raise ValueError(f"a token of tokenizer.json has {character}, which is no byte") from None
    return table | {i: token.content.encode("utf-8") for i, token in added.items()}, strip


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's alphabet: a printable byte is its own character, the others start at U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    shown = {chr(byte): byte for byte in printable}
    return shown | {chr(0x100 + rank): byte for rank, byte in enumerate(others)}


_ALPHABET = _byte_alphabet()


def _byte_level(token: str) -> bytes:
    return bytes(_ALPHABET[character] for character in token)


def _sentencepiece(token: str) -> bytes:
    """`<0x0A>` is one byte; in all others U+2581 stands for a space."""
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return bytes([int(token[3:5], 16)])
    return token.replace("\u2581", " ").encode("utf-8")
