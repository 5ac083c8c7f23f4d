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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import BoundedSemaphore, Lock
from typing import Any

from torch.nn.modules.module import register_module_forward_pre_hook

from electra_trainer.errors import ConfigError, DataError, as_known
from electra_trainer.files.reading import json_object
from electra_trainer.playground.answers import FinetunedModel, Model, PretrainedModel
from electra_trainer.settings import records

PAGE = Path(__file__).with_name("page")
_KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

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
_MOST_READ = 1 << 22
"""Bytes of a longer request that are read nevertheless, so that the browser reads the refusal."""
_MOST_WAITING = 8
"""Questions that wait for an answer or are being computed, one at a time; a page asks one or two."""
_LONGEST_ANSWER = 30.0
"""Seconds for the computation of an answer."""


class Server(ThreadingHTTPServer):
    """Models on one page, with a thread for each connection. `serve_forever` answers browsers, until Ctrl-C or
    `shutdown`; what is being answered then is answered, since a thread that is still at work as Python ends aborts it.
    """

    daemon_threads = False
    request_queue_size = 100

    def __init__(self, models: Sequence[Model], host: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.models, self.waiting = models, BoundedSemaphore(_MOST_WAITING)
        self.one_at_a_time = Lock()  # a tokenizer is set one way to score and another to fill
        self.hosts = {host, f"[{host}]", "127.0.0.1", "localhost"}
        self.pages = {f"/{path.name}": (_KINDS[path.suffix], path.read_bytes()) for path in PAGE.iterdir()}
        self.pages["/"] = self.pages["/index.html"]
        super().__init__((host, port), _Handler)
        name = "127.0.0.1" if host == "0.0.0.0" else f"[{host}]" if ":" in host else host
        self.url = f"http://{name}:{self.server_address[1]}/"
        """Address of the page."""

    def server_bind(self) -> None:
        """Bind without asking for the host's name, which may take long."""
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that left before their answer."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@dataclass(frozen=True, kw_only=True)
class _Question:
    """The fields of a request."""

    model: int
    text: str
    second: str = ""
    step: int | None = None
    top: int = 10


class _Handler(BaseHTTPRequestHandler):
    """The page and its three questions: score, fill, predict."""

    server: Server
    timeout = 5.0
    """Seconds of silence after which a connection is closed."""
    server_version, sys_version = "electra", ""

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
            self._reply(404, {"error": "not found."})

    def do_POST(self) -> None:
        """The answer to a question."""
        length = int(self.headers["Content-Length"]) if str(self.headers["Content-Length"]).isdecimal() else 0
        body = self.rfile.read(min(length, _MOST_READ))
        if not self._names_us():
            return
        if (kind := self.headers.get_content_type()) != "application/json":
            self._reply(415, {"error": f"expected Content-Type: application/json, found {kind}."})
        elif length > _MOST:
            self._reply(413, {"error": f"the text has more than {_MOST:,} bytes. Shorten it."})
        elif not self.server.waiting.acquire(blocking=False):
            self._reply(503, {"error": "too many questions at a time. Try again in a second."})
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
            self._reply(400, {"error": "Invalid host header."})
        elif not ours:
            self._reply(403, {"error": "this page is not for other sites."})
        return known and ours

    def _left(self) -> bool:
        """Whether the client is gone: the page asks anew with each letter."""
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)

    def _answer(self, what: str, body: bytes) -> Any:
        """The answer to a question, as JSON. Raises ElectraError: something in it is wrong, it takes too long, or its
        client leaves.
        """
        again, models, end = "Load the page again.", self.server.models, time.monotonic() + _LONGEST_ANSWER
        table = json_object(body, where="the request", remedy=again)
        asked = records.read(_Question, table, where="the request", error=DataError, remedy=again)
        if not 0 <= asked.model < len(models):
            raise DataError(f"model {asked.model}: expected 0 to {len(models) - 1}. {again}")

        def check(*_: object) -> None:
            if time.monotonic() > end or self._left():
                raise DataError(f"the answer takes more than {_LONGEST_ANSWER:.0f} seconds. Shorten the text.")

        model = models[asked.model]
        with register_module_forward_pre_hook(check):  # before each layer
            if what == "score" and isinstance(model, PretrainedModel):
                return model.score(asked.text, step=asked.step)
            if what == "fill" and isinstance(model, PretrainedModel):
                return {"gaps": model.fill(asked.text, step=asked.step, top=asked.top)}
            if what == "predict" and isinstance(model, FinetunedModel):
                return model.predict(asked.text, asked.second)
        raise DataError(f"{what}: this model has no answer to that. {again}")

    def _reply(self, status: int, content: Any) -> None:
        self._send(status, "application/json", json.dumps(content).encode())

    def _send(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8" if kind.startswith("text/") else kind)
        self.send_header("Content-Length", str(len(content)))
        if status == 503:
            self.send_header("Retry-After", "1")
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """No line for a request."""


def _answered(question: Callable[[], Any]) -> tuple[int, Any]:
    """Status and answer; or the sentence on an error, and for a bug a traceback on standard error."""
    try:
        return 200, question()
    except Exception as error:
        if (known := as_known(error)) is None:
            traceback.print_exc(file=sys.stderr)
            sentence = "a bug in electra-trainer; the terminal has the details. Please report them."
            return 500, {"error": sentence}
        return 400, {"error": str(known)}


def listen(models: Sequence[Model], *, host: str, port: int) -> Server:
    """Begin to listen.

    Args:
        models: the models on the page, from left to right.
        host: address or name to listen on.
        port: 0 takes a free one.

    Raises:
        ConfigError: the port is taken, or the host is not this machine's.
    """
    try:
        return Server(models, host, port)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"playground: cannot listen on {host}, port {port} ({why}). Choose another --port, or --host 127.0.0.1."
        ) from None
