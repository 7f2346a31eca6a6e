"""`python -m course serve`: the model as a service, for clients of the OpenAI API.

Settings come from the command line, else from the environment (LLM_PORT=8001), else from a file
(llm.toml, or the one that LLM_CONFIG names), else they are the defaults of solutions/settings.py.
Ctrl-C and SIGTERM drain: what was accepted is answered, within the drain limit. A second one ends
at once.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import torch

from course import mine_places, serve_http
from course.arguments import add_model, model_folder
from course.assemble import REFERENCE, Engine, assemble
from course.mine import USAGE
from course.model import ModelError
from solutions.parts import Parts
from solutions.service import Service
from solutions.settings import SettingError, Settings, load_settings

MEMORY_SHARE = 0.8  # of the memory that is available, for the KV cache
LAYERS = {  # the layer that each of the service's parts is from
    "parse_body": "bodies",
    "response_body": "responses",
    "error_body": "responses",
    "to_json": "responses",
    "EngineThread": "engine_thread",
    "Channel": "channel",
    "listen": "channel",
    "Pace": "backpressure",
    "Door": "backpressure",
    "failure": "backpressure",
    "ResultStore": "results",
    "collect": "streaming",
    "stream": "streaming",
    "while_connected": "streaming",
    "health": "lifecycle",
    "Lifecycle": "lifecycle",
    "Request": "request",
    "Detokenizer": "detokenizer",
    "StopMatcher": "stopping",
    "chat_ids": "chat",
}
Wrap = Callable[[str, Any], Any]


def _keep(name: str, part: Any) -> Any:
    return part


@dataclass(frozen=True)
class Built:
    """A service, ready to be started, and what it was made of."""

    engine: Engine
    service: Service
    monitoring: Any  # of chapter 08
    app: Any  # of FastAPI


def build(
    settings: Settings,
    folder: Path,
    layers: Mapping[str, ModuleType] = REFERENCE,
    wrap: Wrap = _keep,
) -> Built:
    """Put everything together, from the checkpoint folder to the HTTP application.

    Args:
        folder: of the model.
        layers: the module of each layer.
        wrap: wrap(name, part) gives what takes the place of a part: "model", "cache", "sampler",
            "batcher", "watchers" (a list). Drills put their faults in by it.

    Errors: SettingError for settings that this model or this machine has no room for; those of
    assemble.
    """
    from solutions.app import create_app  # FastAPI takes a second to import

    engine = assemble(folder, layers)
    name = settings.model_name or folder.resolve().name
    monitoring = _monitoring(settings, name, layers)
    watchers = wrap("watchers", [monitoring.watch])
    batcher = wrap("batcher", _batcher(engine, settings, layers, wrap))
    parts = Parts(**{part: getattr(layers[layer], part) for part, layer in LAYERS.items()})
    service = Service(
        *(batcher, engine.text, settings, name, watchers), on_error=monitoring.error, parts=parts
    )
    return Built(engine, service, monitoring, create_app(service, settings, monitoring.exposition))


def _batcher(engine: Engine, settings: Settings, layers: Mapping[str, ModuleType], wrap: Wrap):
    layer, rows = layers["batcher"], settings.max_running
    length = min(settings.max_context, engine.config.max_position_embeddings)
    _require_memory(engine.new_cache(1, 1).nbytes * length * rows, rows, length)
    limits = layer.Limits(
        max_waiting=settings.max_waiting,
        step_tokens=settings.step_tokens,
        patience=settings.patience,
    )
    return layer.Batcher(
        wrap("model", engine.model),
        wrap("cache", engine.new_cache(rows, length)),
        engine.config.eos_token_ids,
        limits,
        time.monotonic,
        wrap("sampler", layers["sampler"]),
    )


def _require_memory(needed: int, rows: int, length: int) -> None:
    """The cache must fit: a process that is killed later says nothing to anybody."""
    free = int(MEMORY_SHARE * psutil.virtual_memory().available)
    if needed > free:
        raise SettingError(
            f"{rows} requests of {length} tokens need {needed / 1e9:.1f} GB for the KV cache, and "
            f"{free / 1e9:.1f} GB can be had: lower max_running or max_context"
        )


def _monitoring(settings: Settings, name: str, layers: Mapping[str, ModuleType]):
    layer = layers["monitoring"]
    logs = Path(settings.log_dir).expanduser() if settings.log_dir else None
    if logs is not None:
        _require_folder(logs)
    wanted = layer.MonitoringSettings(name, logs, every=settings.log_seconds)
    return layer.Monitoring(wanted)


def _require_folder(folder: Path) -> None:
    """Whoever wants logs must hear at the start that there will be none."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as problem:
        said = f"log_dir {folder} cannot be written to ({problem.strerror}): choose another folder"
        raise SettingError(said) from None


def main(argv: list[str]) -> int:
    """The verb; 0 after a drain, 1 with one sentence when it could not start or was torn off."""
    args = _parser().parse_args(argv)
    try:
        settings = load_settings(os.environ, _overrides(args))
        return serve(settings, _folder(args, settings))
    except (SettingError, ModelError, ValueError, FileNotFoundError) as problem:
        print(f"serve: {problem}{mine_places.raised(problem)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nserve: stopped before it was ready", file=sys.stderr)
        return 130


def serve(
    settings: Settings,
    folder: Path,
    layers: Mapping[str, ModuleType] = REFERENCE,
    wrap: Wrap = _keep,
) -> int:
    """Build and run until a signal comes; the exit code: 1 when it could not start or drain, or
    when the engine has ended by itself.
    """
    try:
        sock = serve_http.listen(settings)
    except (OSError, OverflowError) as problem:
        place = f"{settings.host} port {settings.port}"
        reason = getattr(problem, "strerror", None) or problem
        print(
            f"serve: {place} cannot be had ({reason}): choose another with --port or --host",
            file=sys.stderr,
        )
        return 1
    with sock:
        if settings.threads:
            torch.set_num_threads(settings.threads)
        began = time.perf_counter()
        built = build(settings, folder, layers, wrap)
        address = _address(settings, sock)
        _tell(f"{built.service.model} at {address}, warming up", "stderr")

        def on_ready() -> None:
            built.monitoring.start()
            seconds = time.perf_counter() - began
            _tell(greeting(settings, built.service.model, address, seconds))

        server = serve_http.make(built.app, built.service, settings, on_ready)
        server.run(sockets=[sock])
    built.monitoring.close()
    if server.failure is not None:
        where = mine_places.raised(server.failure, built.service.engine.error)
        print(f"serve: it could not start: {server.failure}{where}", file=sys.stderr)
        return 1
    error = built.service.engine.error
    _tell(f"serve: {_end(server.torn, error)}", "stderr")
    code = int(bool(server.torn) or error is not None)
    if built.service.engine.is_alive:  # it is in a step, or hangs in it, and would keep the process
        sys.stdout.flush()
        os._exit(code)
    return code


def _end(torn: int, error: BaseException | None) -> str:
    """What is said at the end: how many requests were torn off, or what the engine died of."""
    if torn:
        requests = "a request" if torn == 1 else f"{torn} requests"
        return f"ended at once, in the middle of {requests}"
    if error is not None:
        return f"stopped; the engine had ended before, by {type(error).__name__}"
    return "drained, good-bye"


def _tell(words: str, name: str = "stdout") -> None:
    """Print on one of the streams; a service goes on, though nobody reads what it says."""
    try:
        print(words, file=getattr(sys, name), flush=True)
    except OSError:
        setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115


def greeting(settings: Settings, model: str, address: str, seconds: float) -> str:
    """What is printed when the service is ready: where it is, how to call it, how to stop it."""
    key = "$LLM_API_KEY" if settings.api_key else ""
    header = f' -H "Authorization: Bearer {key}"' if key else ""
    changed = ", ".join(f"{name} = {value}" for name, value in settings.changed().items())
    question = "What is the capital of France?"
    return f"""
ready after {seconds:.1f} s: {model} at {address}

  chat page   {address}/
  dashboard   {address}/dashboard
  settings    {changed or "all defaults"}

curl -N {address}/v1/chat/completions{header} \\
  -H 'Content-Type: application/json' \\
  -d '{{"messages": [{{"role": "user", "content": "{question}"}}],
       "temperature": 0, "stream": true}}'

from openai import OpenAI  # pip install openai
client = OpenAI(base_url="{address}/v1", api_key={"os.environ['LLM_API_KEY']" if key else '"-"'})
answer = client.chat.completions.create(
    model="{model}",
    messages=[{{"role": "user", "content": "{question}"}}],
    temperature=0,
)
print(answer.choices[0].message.content)

Ctrl-C stops: what runs is brought to its end first (at most {settings.drain_timeout:g} s).
{_about_lines(settings)}"""


def _about_lines(settings: Settings) -> str:
    if not settings.log_seconds:
        return ""
    seconds = f"{settings.log_seconds:g} s"
    return f"A line of figures follows every {seconds} (chapter 08); --log-seconds 0: none.\n"


def _address(settings: Settings, sock) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    host = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)
    return f"http://{host}:{sock.getsockname()[1]}"


def _overrides(args: argparse.Namespace) -> dict:
    return {one.name: getattr(args, f"set_{one.name}", None) for one in fields(Settings)}


def _folder(args: argparse.Namespace, settings: Settings) -> Path:
    """The model: of the command line, else of the settings, else the bundled one."""
    if args.model is None and args.quantized is None and settings.model:
        args.model = Path(settings.model).expanduser()
    return model_folder(args)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m course serve",
        description="Serve the model over HTTP, for clients of the OpenAI API.",
        epilog=USAGE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    group = parser.add_argument_group("settings", "each may also be LLM_NAME in the environment")
    for one in fields(Settings):
        if one.name not in ("model", "api_key"):  # a key on the command line is seen by all
            default = _default_shown(one.default)
            group.add_argument(
                f"--{one.name.replace('_', '-')}",
                dest=f"set_{one.name}",
                metavar=type(one.default).__name__.upper().replace("TUPLE", "A,B"),
                help=f"{one.metadata['words']}; default {default}",
            )
    add_model(parser)
    return parser


def _default_shown(value) -> str:
    shown = ",".join(value) if isinstance(value, tuple) else str(value)
    return shown or "empty"
