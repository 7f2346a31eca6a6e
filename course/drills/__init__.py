"""The drills: a service with a fault in it, and people who complain.

Whoever reads on here knows the answers. The names are days, so that they give nothing away.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from course.drills import clients, faults

Wraps = Mapping[str, Callable[[Any], Any]]  # by the name of a part, what takes its place
COMMON = {  # settings of every server in a drill
    "port": 0,
    "max_running": 4,
    "max_waiting": 8,
    "log_seconds": 5.0,
    "queue_timeout": 60.0,
    "stall_timeout": 10.0,
    "drain_timeout": 2.0,
}


@dataclass(frozen=True)
class Drill:
    """One incident.

    Args:
        ticket: what people say; it must not give the cause away.
        cause: one of causes.CAUSES.
        fault: makes the parts of the server that have the fault; it sleeps until the event is set.
        load: clients that come when the incident begins, beside the usual ones.
        settings: of the server, over COMMON.
    """

    ticket: str
    cause: str
    fault: Callable[[Event], Wraps] = faults.none
    load: tuple[clients.Client, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)


DRILLS: dict[str, Drill] = {
    "monday": Drill(
        "Support, since a few minutes ago: every now and then the text stops in the middle of an "
        "answer, for everybody at once, and then goes on.",
        "huge_request",
        load=(clients.long_prompts,),
    ),
    "tuesday": Drill(
        "The machine sends a warning that means nothing to the person on duty. Users say nothing "
        "so far.",
        "memory_leak",
        fault=faults.keeps_what_was_freed,
    ),
    "wednesday": Drill(
        "A new version went out. The dashboard is green, says the team. A user writes: what is "
        "wrong with you today?",
        "garbled_output",
        fault=faults.stores_in_a_wrong_dtype,
    ),
    "thursday": Drill(
        "Nobody gets an answer any more. The process is there, and it takes connections.",
        "stuck_engine",
        fault=faults.waits_for_ever,
        load=(clients.asker,) * 3,
    ),
    "friday": Drill(
        "One customer complains that long answers take for ever to be complete. Nobody else does.",
        "slow_client",
        load=(clients.slow_reader,) * 2,  # few: the others must not feel their work
        settings={"write_buffer": 2048, "max_running": 8, "max_context": 512},
    ),
    "saturday": Drill(
        "Everything takes longer than yesterday, at the same number of users. It stutters.",
        "collector_pauses",
        fault=faults.collects_all_the_time,
    ),
    "sunday": Drill(
        "Some users wait long for the first word, others see an error at once.",
        "queue_storm",
        load=(clients.pusher,) * 24,
    ),
    "payday": Drill(
        "The night shift writes: it felt slow, please have a look. No time is given, and no "
        "example.",
        "nothing",
    ),
}
