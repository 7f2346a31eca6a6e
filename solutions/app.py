"""Chapter 07: the routes of the service, as a FastAPI application."""

import hmac
from collections.abc import Callable, Sequence
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from solutions.api_error import ApiError
from solutions.api_request import CHAT, COMPLETION
from solutions.described import BODIES, ERRORS, RESPONSES
from solutions.exchange import Exchange, send_error
from solutions.responses import error_body, to_json
from solutions.results import RUNNING
from solutions.service import Service
from solutions.settings import Settings

PAGES = Path(__file__).parent / "pages"
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
POLICY = (
    "default-src 'self'; style-src 'self'; script-src 'self'; img-src 'self' data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
TOLD = ["Retry-After", "X-Should-Retry", "Location", "X-Request-Id"]  # to scripts of other sites
KINDS = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}


def create_app(
    service: Service, settings: Settings, metrics: Callable[[], bytes] | None = None
) -> FastAPI:
    """The HTTP side of a service.

    Args:
        service: it is started and drained by the caller.
        settings: the key, web sites that may call, and bounds.
        metrics: gives the text of GET /metrics; without it there is no such route.
    """
    app = FastAPI(
        title="AI Engineering from Scratch",
        version="1",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # a redirect would name the host that the client has named
    )
    _add_api(app, service)
    _add_operations(app, service, metrics)
    _add_pages(app)
    _add_errors(app)
    if settings.api_key:
        app.add_middleware(NeedsKey, key=settings.api_key)
    app.add_middleware(AnswersHead)
    app.add_middleware(KnowsSites, origins=settings.cors_origins)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=TOLD,
        )
    return app


class AnswersHead:
    """Takes HEAD for GET; the HTTP server leaves the body out. Load balancers ask in this way."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send) -> None:
        """As ASGI calls it."""
        if scope["type"] == "http" and scope["method"] == "HEAD":
            scope = scope | {"method": "GET"}  # a copy: the HTTP server still knows
        await self.app(scope, receive, send)


class NeedsKey:
    """Lets nobody to /v1/ who does not send the key: `Authorization: Bearer KEY`."""

    def __init__(self, app, key: str):
        self.app, self.key = app, key.encode()

    async def __call__(self, scope, receive, send) -> None:
        """As ASGI calls it."""
        if scope["type"] == "http" and scope["path"].startswith("/v1/"):
            given = dict(scope["headers"]).get(b"authorization", b"")
            scheme, _, key = given.partition(b" ")
            is_key = hmac.compare_digest(key, self.key)  # takes as long, however near it is
            if scheme.lower() != b"bearer" or not is_key:
                said = "a valid API key is needed: Authorization: Bearer KEY"
                return await send_error(send, ApiError(401, said, None, "invalid_api_key"))
        return await self.app(scope, receive, send)


class KnowsSites:
    """Refuses what a page of another web site sends, unless that site is listed.

    CORS alone only keeps the answer from such a page: a POST of plain text is sent, and computed.
    Browsers say where a request comes from (Fetch Metadata); programs send no such header.
    """

    def __init__(self, app, origins: Sequence[str]):
        self.app, self.origins = app, {origin.encode() for origin in origins}

    async def __call__(self, scope, receive, send) -> None:
        """As ASGI calls it."""
        if scope["type"] == "http" and scope["method"] == "POST" and self._is_strange(scope):
            said = "a page of another web site may not ask; LLM_CORS_ORIGINS lists those that may"
            return await send_error(send, ApiError(403, said, None, "cross_site"))
        return await self.app(scope, receive, send)

    def _is_strange(self, scope) -> bool:
        headers = dict(scope["headers"])
        is_other = headers.get(b"sec-fetch-site") in (b"cross-site", b"same-site")
        return is_other and not self.origins & {b"*", headers.get(b"origin")}


def _add_api(app: FastAPI, service: Service) -> None:
    card = {"id": service.model, "object": "model", "created": service.made, "owned_by": "course"}

    @app.get("/v1/models")
    async def models() -> dict:
        """The one model that is served."""
        return {"object": "list", "data": [card]}

    @app.get("/v1/models/{name:path}", responses=ERRORS)
    async def model(name: str):
        """The model of that name."""
        if name != service.model:
            said = f"there is no model {name[:100]!r} here"
            raise ApiError(404, said, "model", "model_not_found")
        return card

    @app.post("/v1/completions", openapi_extra=BODIES[COMPLETION], responses=RESPONSES)
    async def completions() -> Response:
        """Continue a prompt."""
        return Exchange(service, COMPLETION)

    @app.post("/v1/chat/completions", openapi_extra=BODIES[CHAT], responses=RESPONSES)
    async def chat() -> Response:
        """Answer in a conversation."""
        return Exchange(service, CHAT)

    @app.get("/v1/results/{id}", responses=ERRORS | {202: {"description": "it runs"}})
    async def result(id: str) -> Response:
        """A result once more, for a while after its end."""
        found = service.results.get(id)
        if found is None:
            raise ApiError(404, f"there is no result {id[:100]!r} (any more)", None, "not_found")
        if found == RUNNING:
            body = to_json({"id": id, "object": "result", "status": RUNNING})
            headers = {"retry-after": "1"}
            return Response(body, 202, headers, "application/json")
        return Response(found.body, found.status, media_type="application/json")


def _add_operations(app: FastAPI, service: Service, metrics: Callable[[], bytes] | None) -> None:
    @app.get("/health", responses={503: {"description": "it cannot serve"}})
    async def health() -> Response:
        """200 when a request that comes now will be computed."""
        status, body = service.health()
        return Response(to_json(body), status, media_type="application/json")

    if metrics is not None:

        @app.get("/metrics", include_in_schema=False)
        async def exposition() -> Response:
            body = metrics() + readiness(service)
            return Response(body, headers={"content-type": METRICS_TYPE})


def readiness(service: Service) -> bytes:
    """One more series, which says what /health says: `up` is 1 when only the engine is dead."""
    status, _ = service.health()
    model = service.model.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    lines = [
        "# HELP llm_ready Whether a request that comes now will be computed",
        "# TYPE llm_ready gauge",
        f'llm_ready{{model_name="{model}"}} {float(status == 200)}',
    ]
    return "\n".join([*lines, ""]).encode()


def _add_pages(app: FastAPI) -> None:
    """The pages that are there; a name that is none of theirs leads nowhere."""
    files = {path.name: path for path in PAGES.glob("*") if path.suffix in KINDS}

    def page(name: str) -> Response:
        if name not in files:
            raise HTTPException(404)
        headers = {"content-security-policy": POLICY, "x-content-type-options": "nosniff"}
        kind = KINDS[files[name].suffix]
        return Response(files[name].read_bytes(), headers=headers, media_type=kind)

    @app.get("/", include_in_schema=False)
    async def home() -> Response:
        return page("chat.html")

    @app.get("/dashboard", include_in_schema=False)
    async def dashboard() -> Response:
        return page("dashboard.html")

    @app.get("/pages/{name}", include_in_schema=False)
    async def other(name: str) -> Response:
        return page(name)


def _add_errors(app: FastAPI) -> None:
    """Whatever goes wrong has the shape that clients read."""

    @app.exception_handler(ApiError)
    async def known(request: Request, error: ApiError) -> Response:
        return _as_response(error)

    @app.exception_handler(HTTPException)
    async def by_status(request: Request, error: HTTPException) -> Response:
        said = f"{request.method} {request.url.path[:100]}: {error.detail}"
        response = _as_response(ApiError(error.status_code, said))
        response.headers.update(error.headers or {})
        return response

    @app.exception_handler(Exception)
    async def unknown(request: Request, error: Exception) -> Response:
        return _as_response(ApiError(500, f"the server failed ({type(error).__name__})"))


def _as_response(error: ApiError) -> Response:
    return Response(to_json(error_body(error)), error.status, media_type="application/json")
