"""A stand-in for the Hub on this machine: one data set, served as huggingface_hub and datasets ask for it."""

import hashlib
import http.server
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

COMMIT = "c0ffee" + "0" * 34


@contextmanager
def hub(folder: Path, name: str) -> Iterator[str]:
    """The address of a Hub that has the files of a folder as the data set `name`, at one commit."""

    class Handler(_Handler):
        pass

    Handler.folder, Handler.name = folder, name
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    folder: Path
    name: str

    def log_message(self, *_: Any) -> None:
        pass

    def _entry(self, path: Path) -> dict[str, object]:
        where = str(path.relative_to(self.folder))
        if path.is_dir():
            return {"type": "directory", "path": where, "oid": "0" * 40, "size": 0}
        return {"type": "file", "path": where, "oid": _oid(path.read_bytes()), "size": path.stat().st_size}

    def _answer(self, code: int, body: object, **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        paths = json.loads(body)["paths"] if body.startswith(b"{") else parse_qs(body.decode())["paths"]
        self._answer(200, [self._entry(self.folder / path) for path in paths if (self.folder / path).exists()])

    def do_GET(self) -> None:
        path = unquote(self.path.partition("?")[0])
        about = re.fullmatch(rf"/api/datasets/{self.name}(/revision/.+)?", path)
        listed = re.fullmatch(rf"/api/datasets/{self.name}/tree/[^/]+/?(.*)", path)
        content = re.fullmatch(rf"/datasets/{self.name}/resolve/[^/]+/(.*)", path)
        if about:
            names = [str(one.relative_to(self.folder)) for one in sorted(self.folder.rglob("*")) if one.is_file()]
            facts = {"_id": "1", "id": self.name, "sha": COMMIT, "private": False, "tags": []}
            self._answer(200, facts | {"siblings": [{"rfilename": name} for name in names]})
        elif listed and (place := self.folder / listed[1]).is_dir():
            inside = place.rglob("*") if "recursive=true" in self.path.lower() else place.iterdir()
            self._answer(200, [self._entry(one) for one in sorted(inside)])
        elif content and (place := self.folder / content[1]).is_file():
            self._content(place.read_bytes())
        else:
            self._answer(404, b"", X_Error_Code="EntryNotFound" if self.name in path else "RepoNotFound")

    def _content(self, data: bytes) -> None:
        headers = {"ETag": f'"{_oid(data)}"', "X_Repo_Commit": COMMIT, "Accept_Ranges": "bytes"}
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if asked is None:
            self._answer(200, data, **headers)
            return
        first, last = int(asked[1]), min(int(asked[2] or len(data) - 1), len(data) - 1)
        self._answer(206, data[first : last + 1], Content_Range=f"bytes {first}-{last}/{len(data)}", **headers)


def _oid(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()
