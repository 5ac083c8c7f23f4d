"""Clients that open many connections, send half of a request or ask much at once: others are answered, and nothing stays."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib import error, request

import pytest
import torch

from electra_trainer.data.tokenizer import SPECIAL_TOKENS, word_piece
from electra_trainer.errors import DataError
from electra_trainer.playground import answers, server

HALF = b"POST /api/score HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 50\r\n"


class Slow(server.PretrainedModel):
    """A model that answers when it may."""

    def __init__(self) -> None:
        self.may, self.asked = threading.Event(), 0

    def facts(self) -> dict[str, Any]:
        return {"kind": "pretrained"}

    def score(self, text: str, *, step: int | None = None) -> dict[str, Any]:
        self.asked += 1
        assert self.may.wait(30)
        return {"words": [], "after": text}


@contextmanager
def served(model: Slow) -> Iterator[tuple[str, int]]:
    """The address and port of a server of this model."""
    with server.listen([model], host="127.0.0.1", port=0) as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.1,))
        thread.start()
        try:
            yield listening.url, listening.server_address[1]
        finally:
            model.may.set()
            listening.shutdown()
            thread.join()


class Layers(Slow):
    """A model that computes for a minute, a layer at a time."""

    def score(self, text: str, *, step: int | None = None) -> dict[str, Any]:
        layer = torch.nn.Identity()
        for self.asked in range(6000):
            layer(torch.zeros(1))
            time.sleep(0.01)
        return {}


def status(url: str, body: dict[str, Any] | None = None, **headers: str) -> tuple[int, str | None]:
    """The status of an answer, and when to try again."""
    data = None if body is None else json.dumps(body).encode()
    headers |= {"Content-Type": "application/json"}
    try:
        with request.urlopen(request.Request(url, data, headers), timeout=20) as answer:
            answer.read()
            return answer.status, None
    except error.HTTPError as refused:
        return refused.code, refused.headers["Retry-After"]


def test_half_open_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silent, within the head, within the body, between two requests: each is closed in time, and the page is served meanwhile."""
    monkeypatch.setattr(server._Handler, "timeout", 0.5)
    whole = b"GET /api/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with served(Slow()) as (url, port), ExitStack() as stack:
        opened = []
        for number in range(300):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
            one.sendall((b"", HALF[:40], HALF + b"\r\n{", whole + b"GET /")[number % 4])
            opened.append(one)
            if number % 100 == 50:
                assert status(url) == (200, None)
        start = time.monotonic()
        assert status(url) == (200, None)
        for one in opened:
            try:
                while one.recv(1 << 16):
                    pass
            except ConnectionResetError:
                pass
        assert time.monotonic() - start < 10
        assert status(url) == (200, None)


def test_a_queue_of_bounded_length() -> None:
    """Beyond it 503 and Retry-After, at once; what nobody waits for any more is not computed; the page is served meanwhile."""
    model, many = Slow(), 40
    question = {"model": 0, "text": "a"}
    with served(model) as (url, port), ThreadPoolExecutor(many) as pool:
        first = [pool.submit(status, f"{url}api/score", question) for _ in range(many)]
        while sum(one.done() for one in first) < many - server._MOST_WAITING:
            time.sleep(0.01)
        start = time.monotonic()
        assert status(url) == (200, None) and status(f"{url}api/models") == (200, None)
        assert status(f"{url}api/score", question) == (503, "1")
        assert time.monotonic() - start < 5
        model.may.set()
        answered = server._MOST_WAITING
        assert Counter(one.result()[0] for one in first) == {200: answered, 503: many - answered}
        model.may.clear()
        body = json.dumps(question).encode()
        head = HALF.replace(b"50", str(len(body)).encode()) + b"\r\n"
        asked = model.asked
        for _ in range(4):
            with socket.create_connection(("127.0.0.1", port)) as one:
                one.sendall(head + body)
                time.sleep(0.1)
        model.may.set()
        assert status(f"{url}api/score", question) == (200, None)
        assert model.asked == asked + 2  # the first of the four had begun


def test_a_long_body_and_a_long_head() -> None:
    with served(Slow()) as (url, port):
        assert status(f"{url}api/score", {"text": "a" * (1 << 20)})[0] == 413
        with socket.create_connection(("127.0.0.1", port), timeout=20) as one:
            one.sendall(b"GET / HTTP/1.1\r\nX: " + b"a" * (1 << 17))
            assert b"431" in one.recv(100)


def test_pages_of_other_sites() -> None:
    with served(Slow()) as (url, port):
        for origin in ("http://evil.com", "null", "http://127.0.0.1", f"http://localhost:{port}"):
            assert status(url, Origin=origin) == status(f"{url}api/score", {}, Origin=origin) == (403, None)
        assert status(url, Origin=url.rstrip("/")) == (200, None)


def test_a_computation_ends_with_its_client_and_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model, question = Layers(), {"model": 0, "text": "a"}
    body = json.dumps(question).encode()
    with served(model) as (url, port):
        with socket.create_connection(("127.0.0.1", port)) as one:
            one.sendall(HALF.replace(b"50", str(len(body)).encode()) + b"\r\n" + body)
            while model.asked < 3:
                time.sleep(0.01)
        monkeypatch.setattr(server, "_LONGEST_ANSWER", 0.2)
        start = time.monotonic()
        assert status(f"{url}api/score", question) == (400, None)
        assert time.monotonic() - start < 5


def test_a_text_of_many_tokens() -> None:
    """A longer text is refused; below that the time grows as the text does."""
    tokenizer = word_piece(
        {name: number for number, name in enumerate([*SPECIAL_TOKENS, "a"])}, cased=False, keep_accents=None
    )
    with pytest.raises(DataError, match=r"has 2\d,\d\d\d tokens\. Expected at most 4,096"):
        answers._limit(tokenizer, "[MASK] " * 9000)
    answers._limit(tokenizer, "a " * 4000)
    start = time.process_time()
    assert len(answers.words_of(tokenizer, "a " * 10_000, [])["words"]) == 10_000
    assert time.process_time() - start < 2
