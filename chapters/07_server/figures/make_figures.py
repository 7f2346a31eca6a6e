"""Draw the chapter's diagrams: python chapters/07_server/figures/make_figures.py

Plots of measured numbers come from measure.py; what is drawn here is true on every machine.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from figure_kit import (
    BLUE,
    GREEN,
    GREY,
    INK,
    LINE,
    ORANGE,
    PALE,
    PINK,
    arrow,
    box,
    label,
    line,
    picture,
    save,
)

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Write all five diagrams."""
    drawings = {
        "map": the_map(),
        "one_loop": one_loop(),
        "sequence": sequence(),
        "backpressure": backpressure(),
        "health": health(),
    }
    save(drawings, HERE)


def the_map() -> str:
    """From socket to event stream: the loop, the engine's thread, and what crosses."""
    parts = [
        _room(150, 30, 430, 290, BLUE, "the event loop: answers everybody"),
        _room(690, 30, 250, 290, GREEN, "the engine's thread: computes"),
        box(15, 75, 95, 50, GREY, "client", "a JSON body"),
        box(15, 235, 95, 50, GREY, "client", "an event stream"),
        box(170, 75, 120, 50, ORANGE, "body → request", "7.1"),
        box(340, 75, 120, 50, ORANGE, "the door", "room? else 503 · 7.5"),
        box(170, 235, 120, 50, ORANGE, "answers", "chunks, errors · 7.2"),
        box(340, 235, 120, 50, ORANGE, "stream", "gone? cancel · 7.7"),
        box(340, 155, 120, 50, ORANGE, "results", "kept 60 s · 7.6"),
        box(170, 155, 120, 50, ORANGE, "health", "and draining · 7.8"),
        box(715, 75, 200, 50, ORANGE, "the thread", "step by step, or asleep · 7.3"),
        box(715, 155, 200, 50, BLUE, "batcher", "chapter 06: step()"),
        box(715, 235, 200, 50, ORANGE, "channel", "ids → text, stop strings · 7.4"),
        arrow((110, 100), (168, 100)),
        arrow((290, 100), (338, 100)),
        arrow((460, 100), (713, 100)),
        label(636, 90, "submit, cancel", 12, GREY),
        arrow((815, 125), (815, 153)),
        arrow((815, 205), (815, 233)),
        arrow((715, 260), (462, 260)),
        label(636, 250, "call_soon_", 12, GREY),
        label(636, 278, "threadsafe", 12, GREY),
        arrow((340, 260), (292, 260)),
        arrow((170, 260), (112, 260)),
        arrow((400, 235), (400, 207)),
        arrow((715, 112), (630, 112), (630, 140), (230, 140), (230, 153)),
        label(545, 155, "how it is", 12, GREY),
    ]
    return picture(955, 340, "A request from its socket to its event stream", parts)


def _room(x: float, y: float, width: float, height: float, ink: str, words: str) -> str:
    """A frame around what one thread does."""
    frame = (
        f"<rect x='{x}' y='{y}' width='{width}' height='{height}' rx='8' fill='none' "
        f"stroke='{ink}' stroke-width='1.5'/>"
    )
    return frame + label(x + width / 2, y + 25, words, 13, ink, weight="bold")


def one_loop() -> str:
    """A ping while the model runs on the loop, and while it has a thread of its own."""
    steps = range(130, 800, 170)
    parts = [
        label(20, 32, "the model on the loop", 14, anchor="start", weight="bold"),
        label(118, 76, "loop", 12, GREY, anchor="end"),
        *[_bar(x, 55, 150, ORANGE, "a step") for x in steps],
        *[_bar(x + 151, 55, 18, BLUE) for x in steps],
        arrow((350, 112), (350, 91), ink=PINK),
        label(350, 128, "a ping comes", 12),
        arrow((460, 91), (460, 112), ink=PINK),
        label(460, 128, "is answered after the step, or a later one", 12, anchor="start"),
        label(20, 178, "the model in a thread of its own", 14, anchor="start", weight="bold"),
        label(118, 247, "loop", 12, GREY, anchor="end"),
        label(118, 291, "engine", 12, GREY, anchor="end"),
        line(130, 243, 810, 243),
        *[_bar(x, 270, 165, ORANGE, "a step") for x in steps],
        *[_bar(x, 226, 18, BLUE) for x in (281, 353, 451, 621, 791)],
        arrow((350, 205), (350, 226), ink=PINK),
        label(345, 198, "a ping comes", 12, anchor="end"),
        arrow((374, 226), (374, 205), ink=PINK),
        label(379, 198, "is answered at once", 12, anchor="start"),
        label(470, 330, "time →", 12, GREY),
    ]
    return picture(840, 345, "One ping, one loop, one or two threads", parts)


def _bar(x: float, y: float, width: float, ink: str, words: str = "") -> str:
    """A stretch of time that a thread is busy for."""
    return (
        f"<rect x='{x}' y='{y}' width='{width}' height='34' rx='3' fill='{PALE[ink]}' "
        f"stroke='{ink}'/>" + label(x + width / 2, y + 22, words, 12)
    )


LANES = {"client": 110, "loop": 420, "engine": 750}


def sequence() -> str:
    """The life of a request across two threads, and a client that goes away."""
    heads = {"client": GREY, "loop": BLUE, "engine": GREEN}
    names = {"client": "client", "loop": "event loop", "engine": "engine's thread"}
    parts = []
    for lane, x in LANES.items():
        parts += [box(x - 75, 20, 150, 36, heads[lane], names[lane]), line(x, 56, x, 640, LINE)]
    parts += [
        _says("client", "loop", 90, "POST /v1/chat/completions"),
        _does("loop", 104, 42, BLUE, "body → request · 7.1"),
        _does("loop", 150, 30, BLUE, "is there room? · 7.5"),
        _says("loop", "client", 196, "no: 503, Retry-After", dash="5 4"),
        _says("loop", "engine", 222, "submit, and wake it"),
        _does("engine", 236, 60, ORANGE, "step: the prompt · 7.3"),
        _does("engine", 300, 26, GREEN, "id → text · 7.4"),
        _says("engine", "loop", 342, "call_soon_threadsafe: a piece"),
        _says("loop", "client", 366, 'data: {"choices": … "The"}'),
        _does("engine", 346, 54, ORANGE, "step: one token each"),
        _says("engine", "loop", 416, "a piece"),
        _says("loop", "client", 440, 'data: {"choices": … " capital"}'),
        label(100, 478, "either", 12, GREY, anchor="end", weight="bold"),
        _says("engine", "loop", 488, "the end: its reason"),
        _says("loop", "client", 508, "data: [DONE]"),
        line(20, 530, 850, 530, LINE, dash="3 5"),
        label(100, 556, "or", 12, GREY, anchor="end", weight="bold"),
        _says("client", "loop", 568, "it goes away: closed"),
        _says("loop", "engine", 588, "cancel"),
        _does("engine", 594, 34, ORANGE, "next step: room is free"),
    ]
    return picture(900, 655, "A request across two threads", parts)


def _says(who: str, whom: str, y: float, words: str, dash: str = "") -> str:
    """An arrow from one life line to another."""
    start, end = LANES[who], LANES[whom]
    side = 1 if end > start else -1
    path = arrow((start + 4 * side, y), (end - 4 * side, y))
    if dash:
        path = path.replace("fill='none'", f"fill='none' stroke-dasharray='{dash}'")
    return path + label((start + end) / 2, y - 6, words, 12, INK)


def _does(who: str, y: float, height: float, ink: str, words: str) -> str:
    """A stretch of a life line in which something is done."""
    x = LANES[who]
    return (
        f"<rect x='{x - 7}' y='{y}' width='14' height='{height}' fill='{PALE[ink]}' "
        f"stroke='{ink}'/>" + label(x + 14, y + height / 2 + 4, words, 12, GREY, anchor="start")
    )


def backpressure() -> str:
    """A queue without an end, and one that says no."""
    parts = []
    for top, bound, title in (
        (50, 17, "no bound: memory and waiting time grow as long as the load is above 1"),
        (200, 6, "a bound: whoever waits, waits for at most bound ÷ speed"),
    ):
        parts += [
            label(20, top - 18, title, 14, anchor="start", weight="bold"),
            box(20, top, 90, 50, GREY, "arrivals", "4.8 a second"),
            box(760, top, 110, 50, GREEN, "the engine", "4 a second"),
        ]
        first = 730 - 33 * bound
        parts += [_waiting(first + 33 * n, top + 8, bound < 10) for n in range(bound)]
        parts.append(arrow((732, top + 25), (758, top + 25)))
        parts.append(arrow((110, top + 25), (first - 6, top + 25)))
    parts += [
        label(445, 122, "after a minute 48 wait, after an hour 2,880", 12, GREY),
        arrow((300, 225), (300, 285)),
        label(300, 304, "full: 503 with Retry-After, at once", 13),
        label(631, 272, "6 wait: at most 1.5 s", 12, GREY),
    ]
    return picture(890, 322, "Load 1.2, with and without a bound", parts)


def _waiting(x: float, y: float, bounded: bool) -> str:
    """Somebody in the queue."""
    ink = BLUE if bounded else ORANGE
    return (
        f"<rect x='{x}' y='{y}' width='29' height='34' rx='3' fill='{PALE[ink]}' stroke='{ink}'/>"
    )


def health() -> str:
    """The states of a service, what leads from one to the next, what /health says in each."""
    parts = [
        box(20, 60, 150, 60, ORANGE, "warming", "503"),
        box(270, 60, 150, 60, GREEN, "ready", "200"),
        box(520, 60, 150, 60, BLUE, "draining", "503"),
        box(770, 60, 150, 60, GREY, "stopped", "exit code 0"),
        box(395, 195, 150, 60, PINK, "dead", "503"),
        arrow((170, 90), (268, 90)),
        arrow((420, 90), (518, 90)),
        arrow((670, 90), (768, 90)),
        label(219, 80, "first step done", 12, GREY),
        label(469, 80, "SIGTERM", 12, GREY),
        label(719, 80, "all over, or", 12, GREY),
        label(719, 108, "time is up", 12, GREY),
        box(170, 195, 150, 60, PINK, "stalled", "503"),
        arrow((305, 120), (305, 160), (245, 160), (245, 193)),
        arrow((375, 120), (375, 160), (450, 160), (450, 193)),
        arrow((595, 120), (595, 160), (490, 160), (490, 193)),
        label(95, 42, "nothing is taken yet", 12, GREY),
        label(345, 42, "takes requests", 12, GREY),
        label(595, 42, "refuses new, lets others finish", 12, GREY),
        label(160, 220, "a step takes too long;", 12, GREY, anchor="end"),
        label(160, 238, "with its end, ready again", 12, GREY, anchor="end"),
        label(560, 212, "the engine's thread raised:", 12, GREY, anchor="start"),
        label(560, 230, "all who wait or run", 12, GREY, anchor="start"),
        label(560, 248, "get the error", 12, GREY, anchor="start"),
    ]
    return picture(940, 275, "What the service is, and what it says of itself", parts)


if __name__ == "__main__":
    main()
