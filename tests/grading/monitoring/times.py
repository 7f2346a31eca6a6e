"""8.1 Timeline, Timings, percentile."""

import itertools

from course.cases import Wrong, case, expect_equal, expect_raises
from tests.grading.forward_pass.driving import drive
from tests.grading.monitoring.making import (
    admitted,
    arrived,
    expect_near,
    finished,
    life,
    rejected,
    rising,
    sent,
    stepped,
    token,
)
from tests.oracles import monitoring as oracle

NOTHING = {
    "queue": None,
    "first_token": None,
    "gap": None,
    "inter_token": [],
    "e2e": None,
    "tokens_per_second": None,
}


def answers(learner, request: dict, events: list) -> list:
    """What a timeline answers at first and after each event."""
    return drive(learner, "timeline_session", request, events)


@case("8.1")
def timeline_by_hand(learner, rng):
    """Arrived at 10, admitted at 12, tokens at 13, 13.5 and 15, over at 15.25: all six numbers,
    after each event.
    """
    _, *events = life("a", 10.0, [13.0, 13.5, 15.0], 15.25)
    events[0] = admitted("a", 12.0)
    waited = NOTHING | {"queue": 2.0}
    first = waited | {"first_token": 3.0}
    second = first | {"gap": 0.5, "inter_token": [0.5], "tokens_per_second": 2.0}
    third = second | {"gap": 1.5, "inter_token": [0.5, 1.5], "tokens_per_second": 1.0}
    expected = [NOTHING, waited, first, second, third, third | {"e2e": 5.25}]
    for number, found in enumerate(answers(learner, arrived("a", 10.0), events)):
        expect_near(found, expected[number], f"the timeline after {number} events")


@case("8.1")
def timeline_of_any_length(learner, rng):
    """Random moments: differences of the right two, whatever the clock's zero is."""
    for count in (2, 5, 30):
        start = rng.uniform(-50, 50)
        moments = rising(rng, count + 2, start)
        enter, *tokens, end = moments
        events = [admitted("r", enter), *(token("r", at) for at in tokens)]
        found = answers(learner, arrived("r", start), [*events, finished("r", end)])[-1]
        gaps = [b - a for a, b in itertools.pairwise(tokens)]
        expected = {
            "queue": enter - start,
            "first_token": tokens[0] - start,
            "gap": gaps[-1],
            "inter_token": gaps,
            "e2e": end - start,
            "tokens_per_second": (count - 1) / (tokens[-1] - tokens[0]),
        }
        expect_near(found, expected, f"the timeline with {count} tokens")


@case("8.1")
def timeline_that_ended_early(learner, rng):
    """Over while it waited, over without a token, over with one: what never came is None."""
    end = rng.uniform(3, 9)
    gone = NOTHING | {"e2e": end - 1}
    for events, expected in (
        ([], gone),
        ([admitted("a", 2.0)], gone | {"queue": 1.0}),
        (
            [admitted("a", 2.0), token("a", 2.5)],
            gone | {"queue": 1.0, "first_token": 1.5},
        ),
    ):
        ended = finished("a", end, "cancelled")
        found = answers(learner, arrived("a", 1.0), [*events, ended])[-1]
        expect_near(found, expected, f"the timeline of a request with {len(events)} events")


@case("8.1")
def timeline_at_the_same_moment(learner, rng):
    """All at once is 0 seconds, not None; only a speed over no time at all is None."""
    at = rng.choice([0.0, 5.0])
    events = [admitted("a", at), token("a", at), token("a", at), token("a", at)]
    found = answers(learner, arrived("a", at), [*events, finished("a", at)])[-1]
    zero = {"queue": 0.0, "first_token": 0.0, "gap": 0.0, "inter_token": [0.0, 0.0], "e2e": 0.0}
    expect_near(found, zero | {"tokens_per_second": None}, "the timeline")


@case("8.1")
def timeline_admitted_again(learner, rng):
    """Only the first admission counts; an Arrived, and what else there is, changes nothing."""
    first = rng.uniform(1, 2)
    events = [admitted("a", first), token("a", 3.0), admitted("a", 7.0), arrived("a", 8.0)]
    events += [stepped(9.0), sent("a", 9.0, 1.0), rejected(9.0)]
    for number, found in enumerate(answers(learner, arrived("a", 0.0), events)[2:], 2):
        expected = NOTHING | {"queue": first, "first_token": 3.0}
        expect_near(found, expected, f"the timeline after {number} events")


@case("8.1")
def timelines_share_nothing(learner, rng):
    """What one timeline notes does not show in another."""
    one, other = drive(learner, "timeline_pair", arrived("a", 0.0), token("a", 2.0))
    expect_near(one["first_token"], 2.0, "first_token of the one")
    expect_near(other, NOTHING, "the other")


@case("8.1")
def timeline_of_a_long_answer(learner, rng):
    """gap does not go through a long answer."""
    expect_equal(
        drive(learner, "gap_bytes", arrived("a", 0.0), 20_000),
        [1.0, True],
        "[gap, whether it took less memory than a byte a token]",
    )


def stand(id: str, at: float, tokens=(), admitted=None, ended=False) -> dict:
    """What timings_session says about a timeline."""
    return {
        "request": id,
        "arrived": at,
        "tokens": list(tokens),
        "admitted": admitted,
        "ended": ended,
    }


@case("8.1")
def timings_by_request(learner, rng):
    """Events of several requests, mixed: each goes to its own timeline, which is given back."""
    steps = [
        arrived("a", 1.0),
        arrived("b", 2.0),
        admitted("a", 3.0),
        token("a", 4.0),
        admitted("b", 4.5),
        token("b", 5.0),
        token("a", 6.0),
    ]
    expected = [
        stand("a", 1.0),
        stand("b", 2.0),
        stand("a", 1.0, admitted=3.0),
        stand("a", 1.0, [4.0], 3.0),
        stand("b", 2.0, admitted=4.5),
        stand("b", 2.0, [5.0], 4.5),
        stand("a", 1.0, [4.0, 6.0], 3.0),
    ]
    expect_equal(drive(learner, "timings_session", None, steps), expected, "what watch gave")


@case("8.1")
def timings_forget_what_is_over(learner, rng):
    """Finished gives the timeline a last time; after it the request is not known any more."""
    end = rng.uniform(3, 4)
    steps = [arrived("a", 1.0), token("a", 2.0), finished("a", end), "count"]
    steps += [token("a", 5.0), admitted("a", 5.0), finished("a", 6.0), "count", "forgotten"]
    found = drive(learner, "timings_session", None, steps)
    expect_equal(found[2], stand("a", 1.0, [2.0], ended=True), "what watch gave for Finished")
    expect_equal(found[3:], [[0, 0], None, None, None, [0, 0], 0], "what came later")


@case("8.1")
def timings_of_nobody(learner, rng):
    """Events of no request, or of one that was never seen, give None and leave nothing behind."""
    steps = [token("x", 1.0), finished("y", 1.0), admitted("z", 1.0), rejected(2.0), stepped(3.0)]
    found = drive(learner, "timings_session", None, [*steps, sent("w", 4.0, 1.0), "count"])
    expect_equal(found, [None] * 6 + [[0, 0]], "what was given")


@case("8.1")
def timings_count(learner, rng):
    """(running, waiting): those that were admitted, and those that were not, of all not over."""
    steps, expected, running, waiting = [], [], set(), set()
    for number in range(40):
        at = float(number)
        if waiting and rng.random() < 0.4:
            who = rng.choice(sorted(waiting))
            waiting.remove(who)
            running.add(who)
            steps.append(admitted(who, at))
        elif running | waiting and rng.random() < 0.4:
            who = rng.choice(sorted(running | waiting))
            running.discard(who)
            waiting.discard(who)
            steps.append(finished(who, at))
        else:
            waiting.add(f"r{number}")
            steps.append(arrived(f"r{number}", at))
        steps.append("count")
        expected.append([len(running), len(waiting)])
    found = drive(learner, "timings_session", None, steps)
    expect_equal(found[1::2], expected, "(running, waiting) after each event")


@case("8.1")
def timings_are_bounded(learner, rng):
    """Beyond the limit the one that arrived first is forgotten, whatever happened to it since; the
    others are still known.
    """
    limit = rng.randrange(3, 6)
    steps = [arrived(f"r{n}", float(n)) for n in range(limit)]
    steps += [admitted("r0", 10.0), token("r0", 11.0), "forgotten", arrived("new", 12.0)]
    steps += ["forgotten", "count", token("r0", 13.0), token("r1", 14.0), token("new", 15.0)]
    found = drive(learner, "timings_session", limit, steps)[limit + 2 :]
    expect_equal([found[0], *found[2:4]], [0, 1, [0, limit]], "[forgotten, forgotten, count]")
    expect_equal(found[4], None, "what watch gave for a Token of the one that arrived first")
    expect_equal(found[5], stand("r1", 1.0, [14.0]), "what watch gave for the next one's Token")
    expect_equal(found[6], stand("new", 12.0, [15.0]), "what watch gave for the newest one's")
    steps = [arrived(f"r{n}", float(n)) for n in range(5 * limit)]
    found = drive(learner, "timings_session", limit, [*steps, "count", "forgotten"])
    expect_equal(found[-2:], [[0, limit], 4 * limit], "[count, forgotten] after many arrivals")


@case("8.1")
def timings_make_room_only_when_full(learner, rng):
    """At the limit nobody is forgotten, nor is anybody when somebody left before."""
    limit = rng.randrange(2, 5)
    steps = [arrived(f"r{n}", float(n)) for n in range(limit)]
    steps += ["forgotten", finished("r1", 8.0), arrived("new", 9.0), "forgotten", "count"]
    found = drive(learner, "timings_session", limit, steps)
    expect_equal([found[limit], *found[-2:]], [0, 0, [0, limit]], "[forgotten, forgotten, count]")


@case("8.1")
def timings_begin_anew(learner, rng):
    """Arrived with a known id begins a new timeline, which is the newest; nobody is dropped."""
    steps = [arrived("a", 1.0), arrived("b", 2.0), admitted("a", 3.0), arrived("a", 4.0), "count"]
    steps += ["forgotten", token("a", 5.0), arrived("c", 6.0), token("b", 7.0), token("a", 8.0)]
    found = drive(learner, "timings_session", 2, steps)
    expect_equal(found[3], stand("a", 4.0), "the timeline of the second Arrived")
    expect_equal(found[4:6], [[0, 2], 0], "[count, forgotten]")
    expect_equal(found[6], stand("a", 4.0, [5.0]), "the timeline with a Token")
    expect_equal(found[8], None, "what watch gave for the oldest, after another arrived")
    expect_equal(found[9], stand("a", 4.0, [5.0, 8.0]), "the one that began anew")


@case("8.1")
def percentile_by_hand(learner, rng):
    """Of ten values the 50th percentile is the fifth, the 95th and the 91st the tenth, the 90th the
    ninth.
    """
    values = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
    rng.shuffle(values)
    for percent, expected in (
        (50, 50),
        (95, 100),
        (91, 100),
        (90, 90),
        (1, 10),
        (10, 10),
        (11, 20),
    ):
        expect_near(learner.percentile(values, percent), expected, f"percentile {percent}")
    hundred = list(range(1, 101))
    for percent in (7, 28, 55, 95):  # 0.07 * 100 is more than 7
        expect_near(
            learner.percentile(hundred, percent), percent, f"percentile {percent} of 1..100"
        )
    expect_near(learner.percentile([7.5], 1), 7.5, "the 1st percentile of one value")
    expect_near(learner.percentile([2.0, 9.0], 50), 2.0, "the median of two values")
    expect_near(learner.percentile([2.0, 9.0], 50.1), 9.0, "percentile 50.1 of two values")


@case("8.1")
def percentile_of_many(learner, rng):
    """Random values, with doubles: against a count of how many values are not exceeded."""
    for count in (3, 7, 20, 100, 101):
        values = [round(rng.expovariate(1.0), 1) for _ in range(count)]
        for percent in (1, 7, 25, 50, 75, 90, 95, 99, 99.9, 100):
            found = learner.percentile(values, percent)
            what = f"percentile {percent} of {count} values"
            expect_near(found, oracle.nearest_rank(values, percent), what)
            if found not in values:
                raise Wrong(f"{what} is {found}, which is none of the values")


@case("8.1")
def percentile_refuses(learner, rng):
    """No values, and a percent that is not above 0 and up to 100: ValueError."""
    for values, percent in (([], 50), ([1.0], 0), ([1.0], -5), ([1.0, 2.0], 100.5)):
        with expect_raises("ValueError"):
            learner.percentile(values, percent)
    with expect_raises("ValueError"):
        learner.percentile([1.0, 2.0], float("nan"))
