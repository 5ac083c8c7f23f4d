"""The page's server: it listens on this machine, answers requests of its own page, and calls what `electra score` and
`fill` call.

A page of another site can neither read an answer (no CORS header) nor ask at all: a request has to be JSON, which a
browser sends to another site only with leave, and to name one of our hosts, which a name that was rebound to 127.0.0.1
does not.
"""

import asyncio
import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import h11
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from electra_trainer.errors import ConfigError, DataError, as_known
from electra_trainer.files.reading import json_object, short
from electra_trainer.playground import FILES, PAGE
from electra_trainer.playground.answers import FinetunedModel, Model, PretrainedModel

_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_MOST = 1 << 16
"""Bytes of a request: a text of some pages."""
_MOST_CANDIDATES = 50
_MOST_CONNECTIONS = 100
"""A browser opens six."""
_MOST_WAITING = 8
"""Questions that wait for an answer or are being computed, one at a time; a page asks one or two."""
_PATIENCE = 5.0
"""Seconds in which the head, and then the body of a request have to arrive."""


def application(models: Sequence[Model], *, hosts: Sequence[str]) -> Starlette:
    """The page and its three questions: score, fill, predict.

    Args:
        models: what is shown, from left to right.
        hosts: names that requests may address, without a port.
    """
    one_at_a_time, waiting = asyncio.Lock(), set[Request]()  # a tokenizer is set one way to score and another to fill

    async def answered(request: Request, question: Callable[[], Any]) -> Response:
        if len(waiting) >= _MOST_WAITING:
            return _refused(503, "too many questions at a time. Try again in a second.", {"Retry-After": "1"})
        waiting.add(request)
        try:
            async with one_at_a_time:
                if await request.is_disconnected():  # the page asks anew with each letter
                    return Response()
                return await run_in_threadpool(_as_response, question)
        finally:
            waiting.discard(request)

    async def about(_: Request) -> Response:
        return await run_in_threadpool(_as_response, lambda: {"models": [model.facts() for model in models]})

    async def asked(request: Request) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip()
        if kind != "application/json":
            return _refused(415, f"expected Content-Type: application/json, found {kind or 'none'}.")
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > _MOST:
                return _refused(413, f"the text has more than {_MOST:,} bytes. Shorten it.")
        return await answered(request, lambda: _answer(models, request.path_params["what"], body))

    def page(name: str, kind: str, content: bytes) -> Route:
        async def sent(_: Request) -> Response:  # not in a thread: those are for questions
            return Response(content, media_type=kind)

        return Route(f"/{name}", sent)

    files = [page(name, kind, (PAGE / name).read_bytes()) for name, kind in FILES.items()]
    start = page("", FILES["index.html"], (PAGE / "index.html").read_bytes())
    engine = page("engine.js", "text/javascript", (PAGE / "over_http.js").read_bytes())
    api = [Route("/api/models", about), Route("/api/{what}", asked, methods=["POST"])]
    guard = [Middleware(_WithHeaders), Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False)]
    return Starlette(routes=[start, engine, *files, *api], middleware=guard)


class _Bounded(H11Protocol):
    """uvicorn's connection, which ends when a request does not arrive; the longest waiting one ends for a new one
    beyond the limit.

    uvicorn has a limit of requests, which would refuse everybody, and a limit for silence after a response, but none
    before a request.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to watch it."""
        super().connection_made(transport)
        self._began = self.loop.time()
        if len(self.connections) > _MOST_CONNECTIONS:
            idle = [one for one in self.connections if isinstance(one, _Bounded) and one._lacks_request]
            min(idle, key=lambda one: one._began).transport.abort()  # this one is among them
        self._watch()

    @property
    def _lacks_request(self) -> bool:
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    def _watch(self, before: tuple[object, object] | None = None) -> None:
        """Compare its state with that of some seconds ago."""
        state = (self.cycle, self.conn.their_state)
        if self._lacks_request and state == before:
            self.transport.abort()
        elif not self.transport.is_closing():
            self._timer = self.loop.call_later(_PATIENCE, self._watch, state)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the watch."""
        self._timer.cancel()
        super().connection_lost(exc)


class _WithHeaders:
    """Every response, a refusal too, says what a browser may do with it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        await self._app(scope, receive, with_headers)


def _answer(models: Sequence[Model], what: str, body: bytes) -> Any:
    """The answer to a question, as JSON; ElectraError says what is wrong with it."""
    asked = json_object(body, where="the request", remedy="Load the page again.")
    number, step, text = asked.get("model"), asked.get("step"), asked.get("text")
    if type(number) is not int or not 0 <= number < len(models):
        raise DataError(f"model {short(number)}: expected 0 to {len(models) - 1}. Load the page again.")
    if not isinstance(text, str) or not isinstance(second := asked.get("second", ""), str):
        raise DataError("text: expected a string. Load the page again.")
    if step is not None and type(step) is not int:
        raise DataError(f"step {short(step)}: expected a whole number. Load the page again.")
    model = models[number]
    if what == "score" and isinstance(model, PretrainedModel):
        return model.score(text, step=step)
    if what == "fill" and isinstance(model, PretrainedModel):
        top = asked.get("top", 10)
        if type(top) is not int or not 1 <= top <= _MOST_CANDIDATES:
            raise DataError(f"top {short(top)}: expected 1 to {_MOST_CANDIDATES}.")
        return {"gaps": model.fill(text, step=step, top=top)}
    if what == "predict" and isinstance(model, FinetunedModel):
        return model.predict(text, second)
    raise DataError(f"{what}: this model has no answer to that. Load the page again.")


def _as_response(question: Callable[[], Any]) -> Response:
    """What it returns; or the sentence on its error, and for a bug a traceback here."""
    try:
        return JSONResponse(question())
    except Exception as error:
        known = as_known(error)
        if known is None:
            traceback.print_exc(file=sys.stderr)
            return _refused(500, "a bug in electra-trainer; the terminal has the details. Please report them.")
        return _refused(400, str(known))


def _refused(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"error": sentence}, status_code=status, headers=headers)


def listen(models: Sequence[Model], *, host: str, port: int) -> tuple[Callable[[], None], Callable[[], None], str]:
    """Begin to listen; browsers are answered once the first of what is returned is called, which ends on Ctrl-C or by
    the second.

    Args:
        models: what is shown, from left to right.
        host: address or name to listen on.
        port: 0 takes a free one.

    Returns:
        What serves, what ends it, and the page's address.

    Raises:
        ConfigError: the port is taken, or the host is not this machine's.
    """
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"playground: cannot listen on {host}, port {port} ({why}). Choose another --port, or --host 127.0.0.1."
        ) from None
    name = f"[{host}]" if ":" in host else host
    app = application(models, hosts=sorted({host, name, "127.0.0.1", "localhost"}))
    limits: Any = {"http": _Bounded, "ws": "none", "backlog": _MOST_CONNECTIONS, "timeout_keep_alive": 5}
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False, server_header=False, **limits))
    url = f"http://{'127.0.0.1' if host == '0.0.0.0' else name}:{listening.getsockname()[1]}/"
    return partial(server.run, sockets=[listening]), partial(setattr, server, "should_exit", True), url
