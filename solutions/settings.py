"""Chapter 07: every path, size, port and time of the service, in one place and none in the code.

The command line goes before the environment (LLM_PORT=8001), the environment before the file
(port = 8001), the file before the defaults below.
"""

import difflib
import os
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

PREFIX = "LLM_"
FILE = Path("llm.toml")  # read when it is there, unless LLM_CONFIG names another


class SettingError(ValueError):
    """A setting that is unknown or out of range; the message says which, and where it came from."""


def _setting(default, words: str, least=None, most=None, secret: bool = False) -> Any:
    """A field of Settings: what it means, in words, and the range of a number."""
    told = {"words": words, "least": least, "most": most, "secret": secret}
    return field(default=default, metadata=told, repr=not secret)


@dataclass(frozen=True)
class Settings:
    """What whoever runs the service may choose. Times are seconds, sizes bytes."""

    host: str = _setting("127.0.0.1", "address to listen on; 0.0.0.0 is every network")
    port: int = _setting(8000, "port to listen on; 0 is any free one", 0, 65535)
    model: str = _setting("", "checkpoint folder or GGUF file; empty is the bundled model")
    model_name: str = _setting("", "name that clients use; empty is the name of the folder")
    api_key: str = _setting("", "key that clients must send; empty is none", secret=True)
    cors_origins: tuple[str, ...] = _setting((), "web sites that may call, separated by commas")
    threads: int = _setting(0, "threads that compute; 0 is torch's choice", 0, 1024)
    max_running: int = _setting(8, "requests that run at once", 1, 1024)
    max_waiting: int = _setting(64, "requests that wait, at most", 1, 8_000)
    max_context: int = _setting(2048, "tokens of prompt and answer together", 2, 10_000_000)
    step_tokens: int = _setting(128, "places that one step computes, at most", 1, 1_000_000)
    patience: float = _setting(5.0, "seconds after which a waiting request is promoted", 0)
    queue_timeout: float = _setting(30.0, "seconds that a request may wait for its turn", 0.001)
    request_timeout: float = _setting(300.0, "seconds that a request may take in all", 0.001)
    stall_timeout: float = _setting(60.0, "seconds after which a step counts as hung", 0.001)
    drain_timeout: float = _setting(30.0, "seconds that a shutdown waits for what runs", 0)
    keep_alive: float = _setting(15.0, "seconds of silence before a stream says it is alive", 0.001)
    read_timeout: float = _setting(30.0, "seconds that a request may take to come in", 0.001)
    write_timeout: float = _setting(60.0, "seconds that a client may let us wait", 0.001)
    max_body_bytes: int = _setting(1_048_576, "size of a body, at most", 1)
    write_buffer: int = _setting(65_536, "bytes of a stream that wait for a slow client", 1024)
    max_connections: int = _setting(512, "connections at once, at most", 1)
    results_seconds: float = _setting(60.0, "seconds that a result can be fetched again", 0)
    results_count: int = _setting(1000, "results that are kept, at most", 0)
    results_bytes: int = _setting(16_777_216, "size of all results that are kept, at most", 0)
    log_dir: str = _setting("", "folder for log files; empty is none")
    log_seconds: float = _setting(10.0, "seconds between two lines of performance; 0 is none", 0)

    def __post_init__(self):
        for one in fields(self):
            _check(one, getattr(self, one.name))
        if not self.host.strip():  # the system would take it for every network
            raise SettingError("host must be an address; 0.0.0.0 is every network")
        key = self.api_key
        if not (key.isascii() and key.isprintable()) or key != key.strip():
            raise SettingError(
                "api_key must be printable, without blanks at its ends, and ASCII: it travels in a "
                "header"
            )
        if self.step_tokens < self.max_running:
            raise SettingError(
                f"step_tokens ({self.step_tokens}) must be at least max_running "
                f"({self.max_running}): each request needs a place in every step"
            )

    def changed(self) -> dict[str, Any]:
        """The settings that differ from the defaults; of a secret, only that it is set."""
        found = {}
        for one in fields(self):
            value = getattr(self, one.name)
            if value != one.default:
                found[one.name] = "(set)" if one.metadata["secret"] else value
        return found


def load_settings(
    environment: Mapping[str, str] = os.environ, overrides: Mapping[str, Any] | None = None
) -> Settings:
    """The settings from overrides, the environment, the file, the defaults, in this order.

    Args:
        environment: LLM_NAME for each setting, and LLM_CONFIG for the file.
        overrides: values of the command line; None for a name is not given.

    Errors: SettingError naming the setting, its value, what it may be and where it came from; an
    unknown one, in the file or with the prefix, too: a typing error must not be a default in
    silence. OSError for a file that cannot be read.
    """
    given = _from_file(environment) | _from_environment(environment)
    given |= {name: (v, "--") for name, v in (overrides or {}).items() if v is not None}
    known = {one.name: one for one in fields(Settings)}
    values = {}
    for name, (value, source) in given.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise SettingError(f"{source} has an unknown setting {name[:60]!r}{hint}")
        try:
            values[name] = _check(known[name], _converted(known[name], value))
        except ValueError as problem:
            where = f"--{name.replace('_', '-')}" if source == "--" else source
            raise SettingError(f"{where}: {problem}") from None
    return Settings(**values)


def settings_table() -> str:
    """The settings as a Markdown table, for the README of the chapter."""
    rows = ["| variable | in the file | default | meaning |", "|---|---|---|---|"]
    for one in fields(Settings):
        default = f"`{_written(one.default)}`" if _written(one.default) else "none"
        name, words = one.name, one.metadata["words"]
        rows.append(f"| `{PREFIX}{name.upper()}` | `{name}` | {default} | {words} |")
    return "\n".join(rows)


def _written(value) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _from_file(environment: Mapping[str, str]) -> dict[str, tuple]:
    named = environment.get(f"{PREFIX}CONFIG")
    path = Path(named).expanduser() if named else FILE
    if not named and not path.is_file():
        return {}
    if named and not path.exists():
        raise SettingError(f"{PREFIX}CONFIG names {path}, and there is no such file")
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as problem:
        raise SettingError(f"{path} is not TOML: {problem}") from None
    return {name: (value, str(path)) for name, value in found.items()}


def _from_environment(environment: Mapping[str, str]) -> dict[str, tuple]:
    names = [name for name in environment if name.startswith(PREFIX) and name != f"{PREFIX}CONFIG"]
    return {name.removeprefix(PREFIX).lower(): (environment[name], name) for name in names}


def _converted(one, value):
    """A text of the environment in the type of its setting; ValueError when it is none."""
    if isinstance(one.default, tuple):
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, list | tuple) or not all(isinstance(p, str) for p in parts):
            raise ValueError(f"{one.name} must be texts; got {value!r}")
        return tuple(part.strip() for part in parts if part.strip())
    if not isinstance(value, str) or isinstance(one.default, str):
        return value
    try:
        return type(one.default)(value)
    except ValueError:
        return value  # _check says what it should be


def _check(one, value):
    """The value, when it is of the setting's type and in its range; else ValueError."""
    kind, least, most = type(one.default), one.metadata["least"], one.metadata["most"]
    kinds = (int, float) if kind is float else kind
    fine = isinstance(value, kinds) and not isinstance(value, bool)
    if fine and least is not None:
        fine = least <= value <= (sys.float_info.max if most is None else most)
    if not fine:
        words = {int: "a whole number", float: "a number", str: "a text", tuple: "texts"}[kind]
        if least is not None:
            words += f" from {least}" + ("" if most is None else f" to {most}")
        shown = "what was given" if one.metadata["secret"] else f"{value!r:.60}"
        raise SettingError(f"{one.name} must be {words}; got {shown}")
    return float(value) if kind is float else value
