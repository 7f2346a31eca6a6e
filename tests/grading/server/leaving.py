"""7.7 while_connected."""

from course.cases import case, expect_equal
from tests.grading.forward_pass.driving import drive


def ended(learner, setting: dict, expected: dict, happened: list) -> None:
    """while_connected ends like this; this happened to the work; nothing is left."""
    found = drive(learner, "connections", setting)
    got = {name: found.get(name) for name in expected}
    expect_equal(got, expected, f"how it ended with {setting}")
    expect_equal(found["happened"], happened, f"what happened to the work with {setting}")
    expect_equal(found["left"], 0, f"tasks that are left with {setting}")


@case("7.7")
def connected_to_the_end(learner, rng):
    """A client that stays gets what the work gives; nobody waits for receive any more then."""
    for takes in (0.0, 3.0):
        done = [["began", 0.0], ["done", takes]]
        ended(learner, {"takes": takes}, {"gave": "the answer", "at": takes}, done)


@case("7.7")
def connected_and_failing(learner, rng):
    """What the work raises is raised."""
    setting = {"takes": 2.0, "fails": True}
    ended(learner, setting, {"raised": "LookupError", "at": 2.0}, [["began", 0.0]])


@case("7.7")
def client_leaves(learner, rng):
    """A client that goes away, sooner or later: the work is cancelled at that moment."""
    for at in (0.0, 1.0, 50.0):
        setting = {"takes": None, "messages": [[at, "http.disconnect"]]}
        expected = {"raised": "ClientGone", "at": at}
        found = drive(learner, "connections", setting)
        got = {name: found.get(name) for name in expected}
        expect_equal(got, expected, f"how it ended with {setting}")
        happened = [entry for entry in found["happened"] if entry[0] != "began"]
        if found["happened"]:  # it may have been cancelled before it could begin
            expect_equal(happened, [["cancelled", at]], f"what happened to the work at {at}")
        expect_equal(found["left"], 0, "tasks that are left")


@case("7.7")
def client_says_other_things(learner, rng):
    """Only http.disconnect means that the client has gone."""
    messages = [[1.0, "http.request"], [2.0, "something.else"], [4.0, "http.disconnect"]]
    done = [["began", 0.0], ["done", 3.0]]
    setting = {"takes": 3.0, "messages": messages}
    ended(learner, setting, {"gave": "the answer", "at": 3.0}, done)
    happened = [["began", 0.0], ["cancelled", 4.0]]
    setting = {"takes": 9.0, "messages": messages}
    ended(learner, setting, {"raised": "ClientGone", "at": 4.0}, happened)


@case("7.7")
def client_leaves_and_work_tidies_up(learner, rng):
    """When ClientGone is raised, the work has ended, though it took its time to do so."""
    setting = {"takes": None, "messages": [[1.0, "http.disconnect"]], "tidies": 2.0}
    happened = [["began", 0.0], ["cancelled", 3.0]]
    ended(learner, setting, {"raised": "ClientGone", "at": 3.0}, happened)


@case("7.7")
def connection_is_cancelled(learner, rng):
    """Whoever cancels while_connected cancels the work; nothing goes on behind his back."""
    happened = [["began", 0.0], ["cancelled", 2.0]]
    setting = {"takes": None, "cancel_at": 2.0}
    ended(learner, setting, {"raised": "CancelledError", "at": 2.0}, happened)
