"""The arguments of `load`, and what is wrong with them in words."""

import argparse
import math
import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from course.arguments import at_least_one
from course.load_plan import ANSWERS, PROMPTS, Lengths, read_lengths
from course.paths import folder_argument

URL = "http://127.0.0.1:8000"
REQUESTS = 30
FASTEST = 10_000.0  # requests a second


def parse(argv: list[str]) -> argparse.Namespace:
    """The arguments: `rates` is a list, and one of `requests` and `seconds` is set."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.out and args.plot and args.out.resolve() == args.plot.resolve():
        parser.error("--out and --plot name the same file: name two")
    if args.seconds is None and args.requests is None:
        args.requests = REQUESTS
    return args


def _url(text: str) -> str:
    """A server's address, without the /v1 that clients want."""
    try:
        parts = urlsplit(text)
        fine = parts.scheme in ("http", "https") and httpx.URL(text).host and parts.port != 0
    except (ValueError, httpx.InvalidURL):  # no such port, a bracket without its other
        fine = False
    if not fine or parts.query or parts.fragment or not text.isprintable():
        raise argparse.ArgumentTypeError(f"{_hidden(text)} is not an address such as {URL}")
    if parts.username or parts.password:
        raise argparse.ArgumentTypeError("leave the password out of the address: use --api-key")
    return text.rstrip("/").removesuffix("/v1")


def _hidden(text: str) -> str:
    """What was given as an address, cut, without what may be a password."""
    _, at, rest = text.rpartition("@")
    return repr(f"{'…@' if at else ''}{rest}"[:60])


def _key(text: str) -> str:
    """An API key as the service's settings take it. What is wrong with it never shows it."""
    if not text.isprintable() or text != text.strip():
        raise argparse.ArgumentTypeError(
            "the key (here or in LLM_API_KEY) must be printable, without blanks at its ends: "
            "it travels in a header"
        )
    return text


def _file(text: str) -> Path:
    """A file to be written."""
    if not text.strip():
        raise argparse.ArgumentTypeError("the name of the file is empty: write its path")
    return folder_argument(text)


def _rate(text: str) -> float:
    """Requests a second."""
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not 0.001 <= rate <= FASTEST:
        raise argparse.ArgumentTypeError(
            f"a rate is a number of requests a second from 0.001 to {FASTEST:g}, not {text[:20]!r}"
        )
    return rate


def _rates(text: str) -> list[float]:
    return list(dict.fromkeys(map(_rate, text.split(","))))


def _lengths(text: str) -> Lengths:
    try:
        return read_lengths(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None


def _within(low: float, high: float, what: str) -> Callable[[str], float]:
    """The type of a number in a range."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(
                f"{what} is a number from {low:g} to {high:g}, not {text[:20]!r}"
            )
        return value

    return read


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m course load",
        description="Send requests at a rate, whether or not the last has come back, and measure.",
        epilog="Lengths are N, or MEDIAN:SIGMA:SHORTEST:LONGEST (lognormal, cut at both ends). "
        "Ctrl-C prints what there is.",
    )
    parser.add_argument("--url", type=_url, default=URL, help=f"the server (default: {URL})")
    rates = parser.add_mutually_exclusive_group()
    rates.add_argument(
        "--rate",
        dest="rates",
        type=lambda text: [_rate(text)],
        metavar="R",
        default=[1.0],
        help="requests a second (default: 1)",
    )
    rates.add_argument("--rates", type=_rates, metavar="R,R", help="several, one after the other")
    size = parser.add_mutually_exclusive_group()
    size.add_argument(
        "--requests",
        type=at_least_one,
        metavar="N",
        help=f"how many at each rate (default: {REQUESTS})",
    )
    size.add_argument(
        "--seconds",
        type=_within(0.01, 86400, "a time"),
        metavar="S",
        help="all that arrive in so many seconds",
    )
    parser.add_argument(
        "--repeat",
        type=at_least_one,
        default=3,
        metavar="N",
        help="repetitions, which show the noise (default: 3)",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument(
        "--prompt-tokens",
        type=_lengths,
        default=PROMPTS,
        metavar="LENGTHS",
        help=f"default: {PROMPTS}",
    )
    parser.add_argument(
        "--output-tokens",
        type=_lengths,
        default=ANSWERS,
        metavar="LENGTHS",
        help=f"at most so many; default: {ANSWERS}",
    )
    parser.add_argument(
        "--temperature",
        type=_within(0, 2, "a temperature"),
        default=0.0,
        metavar="T",
        help="default: 0, the same work each time",
    )
    parser.add_argument(
        "--ignore-eos",
        action="store_true",
        help="answers exactly as long as planned, which makes two runs comparable to the token "
        "(a field that this course's server and vLLM know)",
    )
    parser.add_argument("--chat", action="store_true", help="conversations of one message")
    parser.add_argument(
        "--no-stream",
        dest="stream",
        action="store_false",
        help="answers in one piece: only end-to-end times are measured",
    )
    parser.add_argument("--model", metavar="NAME", help="default: the first that the server names")
    parser.add_argument(
        "--api-key",
        type=_key,
        default=os.environ.get("LLM_API_KEY") or None,
        metavar="KEY",
        help="default: LLM_API_KEY of the environment",
    )
    parser.add_argument("--out", type=_file, metavar="F.json", help="the figures, for a comparison")
    parser.add_argument("--plot", type=_file, metavar="F.png", help="a picture of the latencies")
    return parser
