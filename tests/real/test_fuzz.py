"""schemathesis against the server's own OpenAPI description: whatever comes, no 500.

What fits the description and what does not, both; with a fixed seed, so that a failure is the same
every time. FUZZ_EXAMPLES says how many of each.
"""

import os
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, seed, settings

from tests.real.conftest import Server, start_server

try:
    import schemathesis
    from schemathesis.generation import GenerationMode
except ImportError:
    pytest.fail("the package schemathesis is missing: type `python -m course dev`", pytrace=False)

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "25"))
PATIENCE = 120  # seconds; only a guard against waiting for ever
ROUTES = {
    "/health",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/models",
    "/v1/models/{name}",
    "/v1/results/{id}",
}
FINE = (503, 504)  # an answer that is not there in time is no fault of the code


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Iterator[Server]:
    """A server whose answers end soon, whatever is asked of it."""
    running = start_server(tmp_path_factory.mktemp("fuzz") / "log.txt", max_context=48)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def description(small) -> dict:
    """The document, as clients read it."""
    return small.get("/openapi.json").json()


def test_the_description_names_every_route(description):
    assert set(description["paths"]) == ROUTES


FITS, DOES_NOT = GenerationMode.POSITIVE, GenerationMode.NEGATIVE
CASES = [(route, FITS) for route in sorted(ROUTES)]
CASES += [(route, DOES_NOT) for route in sorted(ROUTES) if route.endswith("completions")]


@pytest.mark.parametrize(("route", "mode"), CASES, ids=str)
def test_no_500(small, description, route, mode):
    """What fits is answered at times; what does not is not only refused by accident."""
    schema = schemathesis.openapi.from_dict(description).include(path=route)
    (operation,) = [found.ok() for found in schema.get_all_operations()]
    statuses = fuzz(small, operation, mode)
    print(f"\n{operation.label}: {sorted(statuses.items())}")
    if mode is DOES_NOT:
        assert statuses.keys() >= {400}
    elif "{" not in route:
        assert statuses.keys() >= {200}
    assert small.get("/health").status_code == 200
    assert "Traceback" not in small.log.read_text(encoding="utf-8")


def fuzz(server, operation, mode) -> Counter:
    """So many requests to one operation; how often each status came."""
    statuses = Counter()

    @seed(0)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case) -> None:
        if isinstance(case.body, dict):
            case.body.pop("model", None)  # another name is a 404, and nothing else is looked at
        answer = case.call(base_url=server.url, timeout=PATIENCE)
        statuses[answer.status_code] += 1
        said = f"{case.as_curl_command()}\n{answer.status_code} {answer.text[:500]}"
        assert answer.status_code < 500 or answer.status_code in FINE, said
        if answer.status_code >= 400 and case.path.startswith("/v1/"):
            assert set(answer.json()["error"]) == {"message", "type", "param", "code"}, said

    ask()
    return statuses
