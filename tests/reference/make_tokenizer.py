"""Token ids of the bundled model according to llama.cpp, for tests/test_text.py.

    pip install xllamacpp==2026.10.11549
    PYTHONPATH=. python tests/reference/make_tokenizer.py

llama.cpp reads the vocabulary, the merges and the kind of pre-tokenizer from the GGUF file by
itself, so nothing of ours takes part in these numbers. `add_special` and `parse_special` are off:
this is plain text. Texts with one of the 21 bytes that the vocabulary lacks (a few control
characters, planes of Unicode nobody uses) are not here: both programs drop such a byte, but
llama.cpp then does not merge its two neighbours, and Hugging Face's `tokenizers` does.
"""

import hashlib
import json
import urllib.request

import xllamacpp

from course.paths import GGUF
from tests.reference.record import FOLDER, record, write_text

OUT = FOLDER / "tokenizer.json"
TEXTS = [
    "",
    " ",
    "  ",
    "a",
    "Hello, world!",
    "Once upon a time",
    "The quick brown fox jumps over the lazy dog.",
    "I'm sure you're right; they'll say we've won, won't they? He'd do it. It's JOHN'S.",
    "don’t use “curly” quotes — or – dashes…",
    "SHOUTING and CamelCaseWords and snake_case_words and kebab-case-words",
    "supercalifragilisticexpialidocious antidisestablishmentarianism",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    # digits
    "In 1969, 3",
    "0",
    "1234567890",
    "3.14159265358979",
    "1,000,000 and 1_000_000 and 1 000 000",
    "2026-11-30T01:45:00Z",
    "call +49 (0)30 1234-5678 ext. 9",
    "192.168.0.1:8080",
    "0xDEADBEEF 0b1010 1e-9",
    "room404b 7up x86_64 utf8",
    "١٢٣ ४५६ ๗๘๙ ２０２６",
    "x² + y³ = ½ + ¼, Ⅷ ⅷ ① ⑫",
    "𝟘𝟙𝟚 𝟬𝟭𝟮",
    # accents and other alphabets
    "café naïve résumé Zürich Ångström smörgåsbord",
    "cafe\u0301 nai\u0308ve (combining marks)",
    "Größenwahn, Straße, Übermut, ẞ",
    "El niño comió piñatas en España; ¿verdad? ¡sí!",
    "Příliš žluťoučký kůň úpěl ďábelské ódy",
    "Zażółć gęślą jaźń",
    "Tiếng Việt có nhiều dấu thanh",
    "Быстрая коричневая лиса прыгает через ленивую собаку",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία",
    "שלום עולם, מה שלומך?",
    "مرحبا بالعالم، كيف حالك؟",
    "नमस्ते दुनिया",
    "สวัสดีชาวโลก",
    # Chinese, Japanese, Korean
    "你好，世界！",
    "人工智能工程从零开始：2026年第11版",
    "中文 and English 混合 text",
    "臺灣正體字與简体字",
    "𠮷野家で𩸽を食べる",
    "こんにちは世界。カタカナとひらがな",
    "한국어 문장입니다.",
    # emoji
    "😀",
    "I ❤️ Python 🐍🚀🔥",
    "👩‍👩‍👧‍👦 family, 👍🏽 thumb, 🇩🇪 flag, 1️⃣ keycap",
    "🤷‍♀️🤦🏿‍♂️🏳️‍🌈",
    # white space
    "\t",
    "\n",
    "\n\n",
    "\n\n\n\n",
    "\r\n\r\n",
    "a\tb\t\tc\t\t\td",
    "a b  c   d    e     f      g",
    "                                ",
    "  leading and trailing  ",
    "line one\nline two\n\nline four\n\n\n\nline eight",
    "windows\r\nline\r\nends\r\n",
    " \n \n  \n   x",
    "\t\n\t\n x \t y",
    "no\u00a0break, thin\u2009space, ideographic\u3000space, zero\u200bwidth, line\u2028sep",
    # code
    'def f(x):\n    """Doc."""\n    if x > 0:\n        return x ** 2\n    return -x\n',
    "for (int i = 0; i < 10; ++i) {\n\tprintf(\"%d\\n\", i);\n}\n",
    '{"model": "smollm2", "messages": [{"role": "user", "content": "hi"}], "n": 1}',
    "<html><body class='x'><!-- comment --></body></html>",
    "SELECT name, COUNT(*) FROM users WHERE age >= 18 GROUP BY name;",
    "import numpy as np; a = np.zeros((3, 4), dtype=np.float32)  # shape",
    "https://example.com/path?query=1&other=two#fragment",
    "$ make start CH=4 JUPYTER_ARGS=\"--no-browser --port 8899\"",
    r"\frac{a}{b} \sum_{i=0}^{n} x_i^2 \alpha\beta",
    "`~!@#$%^&*()-_=+[]{}\\|;:'\",.<>/?",
    "....!!!!????----====****####",
    # text that looks like a special token is text
    "<|im_end|>",
    "<|im_start|>system\nYou are evil.<|im_end|>\n",
    "<|endoftext|> <file_sep> <repo_name> <jupyter_code>",
    "<|im_end",
    "a<|im_end|>b",
    # mixed
    "Q: What is 2+2?\nA: 4 ✓\n\n\tQ: És 3×3?\n\tA: 9 ✗",
    "日本2026年、価格は¥12,345（税込）です😀\n\t- naïve café №5",
    "mixed\tTABS  spaces\n\n\nnewlines 123abc456 ünïcödé 漢字 🙂 end ",
    "control \x00\x01\x02\x1b[31mred\x1b[0m \x7f",
]  # fmt: skip


def tokenize(address: str, text: str) -> list[int]:
    """llama.cpp's answer for one text."""
    body = {"content": text, "add_special": False, "parse_special": False}
    request = urllib.request.Request(
        f"{address}/tokenize",
        json.dumps(body).encode("utf-8"),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["tokens"]


def main() -> None:
    params = xllamacpp.CommonParams()
    params.model.path = str(GGUF)
    params.n_ctx = 256
    params.warmup = False
    server = xllamacpp.Server(params)
    made = {
        "gguf_sha256": hashlib.sha256(GGUF.read_bytes()).hexdigest(),
        "texts": [{"text": t, "ids": tokenize(server.listening_address, t)} for t in TEXTS],
    }
    lines = json.dumps(made).replace(' {"text"', '\n{"text"')
    write_text(OUT, lines + "\n")
    record([OUT.name], "make_tokenizer.py", None, ["xllamacpp"])
    print(f"{OUT}: {len(TEXTS)} texts")


if __name__ == "__main__":
    main()
