"""Token ids of conversations as transformers renders the bundled model's own chat template.

No message here contains a marker: transformers would turn it into one, and ours must not.
"""

import json

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from course.paths import MODEL
from tests.reference.record import FOLDER, record, write_text

CONVERSATIONS = [
    [{"role": "user", "content": "What is gravity?"}],
    [
        {"role": "system", "content": "You answer in one short sentence."},
        {"role": "user", "content": "\n  Why is\tthe sky blue? 🌍"},
    ],
    [
        {"role": "user", "content": "Bonjour, je m'appelle Zoé, j'ai 27 ans."},
        {"role": "assistant", "content": "Enchanté !\n"},
        {"role": "user", "content": ""},
    ],
]


def main() -> None:
    """The ids of each conversation, and of every text in it that is encoded as one piece."""
    chat = PreTrainedTokenizerFast.from_pretrained(MODEL)
    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    entries = []
    for messages in CONVERSATIONS:
        text = chat.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        pieces = {}
        for part in text.split("<|im_start|>")[1:]:
            turn, _, newline = part.partition("<|im_end|>")
            pieces |= {piece: tokenizer.encode(piece).ids for piece in (turn, newline) if piece}
        ids = tokenizer.encode(text).ids
        entries.append({"messages": messages, "ids": ids, "pieces": pieces})
    special = {name: tokenizer.token_to_id(name) for name in ("<|im_start|>", "<|im_end|>")}
    result = {"special": special, "conversations": entries}
    write_text(FOLDER / "chat.json", json.dumps(result, ensure_ascii=False, indent=1) + "\n")
    record(["chat.json"], "make_chat.py", None, ["tokenizers", "transformers"])


if __name__ == "__main__":
    main()
