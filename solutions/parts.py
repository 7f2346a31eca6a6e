"""Chapter 07: what the service is made of, so that another's work can stand in for ours."""

from collections.abc import Callable
from dataclasses import dataclass

from solutions import (
    backpressure,
    bodies,
    channel,
    chat,
    detokenizer,
    engine_thread,
    lifecycle,
    request,
    responses,
    results,
    stopping,
    streaming,
)


@dataclass(frozen=True)
class Parts:
    """What the service is made of. Another of the same behaviour may take the place of each."""

    parse_body: Callable = bodies.parse_body
    response_body: Callable = responses.response_body
    error_body: Callable = responses.error_body
    to_json: Callable = responses.to_json
    EngineThread: type = engine_thread.EngineThread
    Channel: type = channel.Channel
    listen: Callable = channel.listen
    Pace: type = backpressure.Pace
    Door: type = backpressure.Door
    failure: Callable = backpressure.failure
    ResultStore: type = results.ResultStore
    collect: Callable = streaming.collect
    stream: Callable = streaming.stream
    while_connected: Callable = streaming.while_connected
    health: Callable = lifecycle.health
    Lifecycle: type = lifecycle.Lifecycle
    Request: type = request.Request
    Detokenizer: type = detokenizer.Detokenizer
    StopMatcher: type = stopping.StopMatcher
    chat_ids: Callable = chat.chat_ids


REFERENCE = Parts()
