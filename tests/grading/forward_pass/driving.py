"""Asking a scenario of tests/scenarios, and reading what it says about a call that should fail."""

from course.cases import Wrong


def drive(learner, name: str, *args):
    """What the scenario answers; Wrong, in the scenario's own words, when it could not go on."""
    found = learner.scenario(name, *args)
    if isinstance(found, dict) and "unusable" in found:
        raise Wrong(found["unusable"])
    return found


def expect_failure(found: dict, kind: str, what: str) -> None:
    """The call did fail, with the right exception and the right names in its message."""
    if not isinstance(found, dict) or "raised" not in found:
        raise Wrong(f"{what} raised nothing, expected {kind}")
    if kind not in found["raised"]:
        raise Wrong(f"{what} raised {found['raised'][0]}, expected {kind}")
    if found["unnamed"]:
        names = " and ".join(map(str, found["unnamed"]))
        raise Wrong(f"the message of the {kind} of {what} does not name {names}")
