"""The page's server: it listens on this machine, answers requests of the page alone, and calls the functions of
`electra score` and `electra fill`.

A page of another site can neither read an answer (no CORS header) nor ask at all: a request has to be JSON, which a
browser sends to another site only with permission, and to name one of our hosts, which a name that was rebound to
127.0.0.1 does not.
"""

import json
import select
import socket
import socketserver
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import BoundedSemaphore, Lock, active_count
from typing import Any

from torch.nn.modules.module import register_module_forward_pre_hook

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
_MOST_READ = 1 << 24
"""Bytes of a longer request that are read and dropped, so that the browser reads the refusal."""
_MOST_CANDIDATES = 50
_MOST_WAITING = 8
"""Questions that wait for an answer or are being computed, one at a time; a page asks one or two."""
_MOST_CONNECTIONS = 400
_LONGEST_READ, _LONGEST_ANSWER = 10.0, 30.0
"""Seconds for the head and body of a request, and for the computation of its answer."""


class _Server(ThreadingHTTPServer):
    """Models on one page, with a thread for each connection."""

    daemon_threads = True
    request_queue_size = 100

    def __init__(self, models: Sequence[Model], host: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.models, self.waiting = models, BoundedSemaphore(_MOST_WAITING)
        self.one_at_a_time = Lock()  # a tokenizer is set one way to score and another to fill
        self.hosts = {host, f"[{host}]", "127.0.0.1", "localhost"}
        self.pages = {f"/{name}": (kind, (PAGE / name).read_bytes()) for name, kind in FILES.items()}
        self.pages["/"] = self.pages["/index.html"]
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Bind without asking for the host's name, which may take long."""
        socketserver.TCPServer.server_bind(self)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Refuse a connection where there are too many, each with its thread."""
        if active_count() <= _MOST_CONNECTIONS:
            return True
        request.sendall(b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n")
        return False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that left before their answer."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """The page and its three questions: score, fill, predict."""

    server: _Server
    timeout = 5.0
    """Seconds of silence after which a connection is closed."""
    server_version, sys_version = "electra", ""

    def setup(self) -> None:
        """Read head and body until their time is over."""
        super().setup()
        raw: Any = self.rfile.raw  # type: ignore[attr-defined]
        read, end = raw.readinto, time.monotonic() + _LONGEST_READ

        def timed(buffer: Any) -> Any:
            self.connection.settimeout(max(1e-3, min(self.timeout, end - time.monotonic())))
            return read(buffer)

        raw.readinto = timed

    def do_GET(self) -> None:
        """A file of the page, or what it shows."""
        path = self.path.partition("?")[0]
        if not self._names_us():
            return
        if path == "/api/models":
            self._reply(*_answered(lambda: {"models": [model.facts() for model in self.server.models]}))
        elif path in self.server.pages:
            self._send(200, *self.server.pages[path])
        else:
            self._refuse(404, "not found.")

    def do_POST(self) -> None:
        """The answer to a question."""
        length = int(self.headers["Content-Length"]) if str(self.headers["Content-Length"]).isdecimal() else 0
        body = self.rfile.read(min(length, _MOST))
        rest = min(length, _MOST_READ) - len(body)
        while rest > 0 and (dropped := self.rfile.read(min(rest, _MOST))):
            rest -= len(dropped)
        kind = self.headers.get("Content-Type", "").partition(";")[0].strip()
        if not self._names_us():
            return
        if kind != "application/json":
            self._refuse(415, f"expected Content-Type: application/json, found {kind or 'none'}.")
        elif length > _MOST:
            self._refuse(413, f"the text has more than {_MOST:,} bytes. Shorten it.")
        elif not self.server.waiting.acquire(blocking=False):
            self._refuse(503, "too many questions at a time. Try again in a second.", {"Retry-After": "1"})
        else:
            what = self.path.partition("?")[0].removeprefix("/api/")
            try:
                with self.server.one_at_a_time:
                    if not self._left():
                        self._reply(*_answered(lambda: self._answer(what, body)))
            finally:
                self.server.waiting.release()

    def _names_us(self) -> bool:
        """Whether the request names one of our hosts, and is of no other page; refuses it otherwise."""
        name = self.headers.get("Host", "")
        known = (name.rpartition(":")[0] if name.rpartition(":")[2].isdecimal() else name) in self.server.hosts
        ours = self.headers.get("Origin", f"http://{name}").partition("://")[2] == name
        if not known:
            self._refuse(400, "Invalid host header.")
        elif not ours:
            self._refuse(403, "this page is not for other sites.")
        return known and ours

    def _left(self) -> bool:
        """Whether the client is gone: the page asks anew with each letter."""
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)

    def _answer(self, what: str, body: bytes) -> Any:
        """The answer to a question, unless it takes too long or its client leaves. Raises ElectraError."""
        end = time.monotonic() + _LONGEST_ANSWER

        def check(*_: object) -> None:
            if time.monotonic() > end or self._left():
                raise DataError(f"the answer takes more than {_LONGEST_ANSWER:.0f} seconds. Shorten the text.")

        with register_module_forward_pre_hook(check):  # before each layer
            return _answer(self.server.models, what, body)

    def _reply(self, status: int, content: Any, headers: Mapping[str, str] | None = None) -> None:
        self._send(status, "application/json", json.dumps(content).encode(), headers or {})

    def _refuse(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        self._reply(status, {"error": sentence}, headers)

    def _send(self, status: int, kind: str, content: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.connection.settimeout(self.timeout)
        self.send_response(status)
        charset = "; charset=utf-8" if kind.startswith("text/") else ""
        for name, value in {"Content-Type": kind + charset, "Content-Length": len(content), **(headers or {})}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(content)

    def end_headers(self) -> None:
        """Tell the browser, with every response, how to treat it."""
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, *_: Any) -> None:
        """No line for a request."""


def _answer(models: Sequence[Model], what: str, body: bytes) -> Any:
    """The answer to a question, as JSON. Raises ElectraError with what is wrong in it."""
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


def _answered(question: Callable[[], Any]) -> tuple[int, Any]:
    """Status and answer; or the sentence on an error, and for a bug a traceback on standard error."""
    try:
        return 200, question()
    except Exception as error:
        known = as_known(error)
        if known is None:
            traceback.print_exc(file=sys.stderr)
            sentence = "a bug in electra-trainer; the terminal has the details. Please report them."
            return 500, {"error": sentence}
        return 400, {"error": str(known)}


def listen(models: Sequence[Model], *, host: str, port: int) -> tuple[Callable[[], None], Callable[[], None], str]:
    """Begin to listen; browsers are answered once the first returned function is called, which ends on Ctrl-C or by
    the second.

    Args:
        models: the models on the page, from left to right.
        host: address or name to listen on.
        port: 0 takes a free one.

    Returns:
        The function that serves, the one that ends it, and the page's address.

    Raises:
        ConfigError: the port is taken, or the host is not this machine's.
    """
    try:
        server = _Server(models, host, port)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"playground: cannot listen on {host}, port {port} ({why}). Choose another --port, or --host 127.0.0.1."
        ) from None
    name = "127.0.0.1" if host == "0.0.0.0" else f"[{host}]" if ":" in host else host
    return partial(_serve, server), server.shutdown, f"http://{name}:{server.server_address[1]}/"


def _serve(server: _Server) -> None:
    with server:
        server.serve_forever(poll_interval=0.1)
