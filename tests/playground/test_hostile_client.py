"""Clients that open many connections, or send half of a request: others are answered, and nothing stays."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib import error, request

import pytest

from electra_trainer.playground import server

HALF = b"POST /api/score HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 50\r\n"


class Fixed(server.Model):
    """A model that answers at once."""

    def __init__(self) -> None:
        pass

    def facts(self) -> dict[str, Any]:
        return {}


@contextmanager
def served(model: Fixed) -> Iterator[tuple[str, int]]:
    """The address and port of a server of this model."""
    serve, end, url = server.listen([model], host="127.0.0.1", port=0)
    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield url, int(url.rstrip("/").rpartition(":")[2])
    finally:
        end()
        thread.join()


def status(url: str, body: dict[str, Any] | None = None) -> int:
    """The status of an answer."""
    data = None if body is None else json.dumps(body).encode()
    try:
        with request.urlopen(request.Request(url, data, {"Content-Type": "application/json"}), timeout=20) as answer:
            answer.read()
            return answer.status
    except error.HTTPError as refused:
        return refused.code


def test_half_open_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silent, within the head, within the body, between two requests: each is closed in time, and the page is served meanwhile."""
    monkeypatch.setattr(server._Handler, "timeout", 0.5)
    whole = b"GET /api/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with served(Fixed()) as (url, port), ExitStack() as stack:
        opened = []
        for number in range(300):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
            one.sendall((b"", HALF[:40], HALF + b"\r\n{", whole + b"GET /")[number % 4])
            opened.append(one)
            if number % 100 == 50:
                assert status(url) == 200
        start = time.monotonic()
        assert status(url) == 200
        for one in opened:
            try:
                while one.recv(1 << 16):
                    pass
            except ConnectionResetError:
                pass
        assert time.monotonic() - start < 10
        assert status(url) == 200


def test_a_long_body_and_a_long_head() -> None:
    with served(Fixed()) as (url, port):
        assert status(f"{url}api/score", {"text": "a" * (1 << 20)}) == 413
        with socket.create_connection(("127.0.0.1", port), timeout=20) as one:
            one.sendall(b"GET / HTTP/1.1\r\nX: " + b"a" * (1 << 17))
            assert b"431" in one.recv(100)
