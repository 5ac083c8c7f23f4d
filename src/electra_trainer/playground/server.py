"""The page's server: it listens on this machine, answers requests of the page alone, and calls the functions of
`electra score` and `electra fill`.

A page of another site can neither read an answer (no CORS header) nor ask at all: a request has to be JSON, which a
browser sends to another site only with permission, and to name one of our hosts, which a name that was rebound to
127.0.0.1 does not.
"""

import json
import socketserver
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from mimetypes import guess_type
from pathlib import Path
from threading import Lock
from typing import Any

from electra_trainer.errors import ConfigError, DataError, as_known
from electra_trainer.files.reading import json_object
from electra_trainer.playground.answers import Model

_PAGE = Path(__file__).with_name("page")
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
"""Bytes of a longer request that are read, so that the browser reads the refusal."""
_MOST_CANDIDATES = 50


class _Server(ThreadingHTTPServer):
    """Models on one page, with a thread for each connection."""

    daemon_threads = True
    request_queue_size = 100

    def __init__(self, models: Sequence[Model], host: str, port: int) -> None:
        self.models = models
        self.one_at_a_time = Lock()  # a tokenizer is set one way to score and another to fill
        self.hosts = {host, "127.0.0.1", "localhost"}
        files = (path for path in _PAGE.iterdir() if path.is_file())
        self.pages = {f"/{path.name}": (str(guess_type(path.name)[0]), path.read_bytes()) for path in files}
        self.pages["/"] = self.pages["/index.html"]
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Bind without asking for the host's name, which may take long."""
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that left before their answer."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """The page and its two questions: score and fill."""

    server: _Server
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
            self._refuse(404, "not found.")

    def do_POST(self) -> None:
        """The answer to a question."""
        length = int(self.headers["Content-Length"]) if str(self.headers["Content-Length"]).isdecimal() else 0
        body = self.rfile.read(min(length, _MOST_READ))
        kind = self.headers.get("Content-Type", "").partition(";")[0].strip()
        if not self._names_us():
            return
        if kind != "application/json":
            self._refuse(415, f"expected Content-Type: application/json, found {kind or 'none'}.")
        elif length > _MOST:
            self._refuse(413, f"the text has more than {_MOST:,} bytes. Shorten it.")
        else:
            what = self.path.partition("?")[0].removeprefix("/api/")
            with self.server.one_at_a_time:
                answer = _answered(lambda: _answer(self.server.models, what, body))
            self._reply(*answer)

    def _names_us(self) -> bool:
        """Whether the request names one of our hosts; refuses it otherwise."""
        name = self.headers.get("Host", "")
        known = (name.rpartition(":")[0] if name.rpartition(":")[2].isdecimal() else name) in self.server.hosts
        if not known:
            self._refuse(400, "Invalid host header.")
        return known

    def _reply(self, status: int, content: Any) -> None:
        self._send(status, "application/json", json.dumps(content).encode())

    def _refuse(self, status: int, sentence: str) -> None:
        self._reply(status, {"error": sentence})

    def _send(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind + ("; charset=utf-8" if kind.startswith("text/") else ""))
        self.send_header("Content-Length", str(len(content)))
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
    """The answer to a question, as JSON; ElectraError says what is wrong with it."""
    asked = json_object(body, where="the request", remedy="Load the page again.")
    number, step, text = asked.get("model", -1), asked.get("step"), asked.get("text", None)
    top = asked.get("top", 10)
    known = type(number) is int and 0 <= number < len(models) and type(step) in (int, type(None))
    if not (known and isinstance(text, str) and top in range(1, _MOST_CANDIDATES + 1)):
        raise DataError("the request is not one of this page's. Load the page again.")
    if what == "score":
        return models[number].score(text, step=step)
    if what == "fill":
        return {"gaps": models[number].fill(text, step=step, top=top)}
    raise DataError(f"{what}: no question of this page. Load it again.")


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
    return partial(_serve, server), server.shutdown, f"http://{host}:{server.server_address[1]}/"


def _serve(server: _Server) -> None:
    with server:
        server.serve_forever(poll_interval=0.1)
