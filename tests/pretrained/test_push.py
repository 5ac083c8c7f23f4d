"""`electra push` against a stand-in for the Hub's API on this machine: what arrives there is the folder, and nothing else."""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.command import Electra

from electra_trainer.errors import ConfigError, DataError, MissingInputError, StorageError
from electra_trainer.pretrained.model_card import CardFields
from electra_trainer.pretrained.pretrained import export_run

COMMIT = "c0ffee" + "0" * 34
TOKEN = "hf_valid"
LARGE = (".safetensors", ".onnx")


class Hub(http.server.ThreadingHTTPServer):
    """Repositories by name -> files; what is asked of it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repos: dict[str, dict[str, bytes]] = {}
        self.private: dict[str, bool] = {}
        self.large: dict[str, bytes] = {}
        self.asked: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self, code: int, body: object, **headers: str) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        for key, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}.items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        self.server.asked.append(f"{self.command} {path}")
        if self.command == "PUT":  # an address of its own, which needs no token
            self.server.large[path.rpartition("/")[2]] = body
            self._answer(200, {})
        elif path == "/api/validate-yaml":
            self._answer(200, {"errors": [], "warnings": []})
        elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._answer(
                401, {"error": "Invalid credentials"}, X_Error_Message="Invalid credentials in Authorization header"
            )
        elif path == "/api/repos/create":
            self._create(json.loads(body))
        else:
            self._of_repo(path, body)

    do_GET = do_POST = do_PUT = _handle

    def _create(self, asked: dict[str, Any]) -> None:
        name = f"{asked['organization']}/{asked['name']}"
        if asked["organization"] != "me":
            self._answer(403, {"error": "You don't have the rights to create a model under this namespace"})
            return
        known = name in self.server.repos
        self.server.repos.setdefault(name, {})
        self.server.private.setdefault(name, asked.get("visibility") == "private" or bool(asked.get("private")))
        self._answer(409 if known else 200, {"url": f"{self.server.address}/{name}", "name": name})

    def _of_repo(self, path: str, body: bytes) -> None:
        found = re.fullmatch(r"(?:/api/models)?/(me/[\w.-]+?)(?:\.git)?(/.*)?", path)
        name, rest = (found[1], found[2] or "") if found else ("", "")
        if name not in self.server.repos:
            self._answer(404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
            return
        files = self.server.repos[name]
        if rest == "":
            self._answer(
                200,
                {
                    "_id": "1",
                    "id": name,
                    "sha": COMMIT,
                    "private": self.server.private[name],
                    "tags": [],
                    "siblings": [],
                },
            )
        elif rest.startswith("/tree/"):
            self._answer(
                200, [{"type": "file", "path": one, "oid": "0" * 40, "size": len(data)} for one, data in files.items()]
            )
        elif rest.startswith("/preupload/"):
            kinds = [
                {
                    "path": one["path"],
                    "uploadMode": "lfs" if one["path"].endswith(LARGE) else "regular",
                    "shouldIgnore": False,
                }
                for one in json.loads(body)["files"]
            ]
            self._answer(200, {"files": kinds})
        elif rest == "/info/lfs/objects/batch":
            objects = [
                {**one, "actions": {"upload": {"href": f"{self.server.address}/large/{one['oid']}"}}}
                for one in json.loads(body)["objects"]
            ]
            self._answer(200, {"transfer": "basic", "objects": objects})
        elif rest.startswith("/commit/"):
            self._commit(name, [json.loads(line) for line in body.splitlines()])
        else:
            self._answer(404, {"error": path})

    def _commit(self, name: str, lines: list[dict[str, Any]]) -> None:
        files = self.server.repos[name]
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                data = self.server.large[value["oid"]]
                assert hashlib.sha256(data).hexdigest() == value["oid"] and len(data) == value["size"]
                files[value["path"]] = data
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        self._answer(
            200, {"success": True, "commitOid": COMMIT, "commitUrl": f"{self.server.address}/{name}/commit/{COMMIT}"}
        )


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """Commands in this process ask it, with a token."""
    import huggingface_hub.constants as constants

    server = Hub()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(constants, "ENDPOINT", server.address)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True, raising=False)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def licensed(run: Path) -> Path:
    export_run(run, run.parent / "licensed", card=CardFields(license="mit", name="me/electra-tr"))
    return run.parent / "licensed"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_exactly_the_folders_arrive(hub: Hub, licensed: Path, tmp_path: Path) -> None:
    """As a user types it, with HF_ENDPOINT. Files of an earlier export go, and what somebody else put there stays."""
    hub.repos["me/electra-tr-generator"] = {"onnx/model.onnx": b"old", "notes.md": b"mine", "README.md": b"old"}
    hub.private["me/electra-tr-generator"] = False
    (licensed / "generator" / ".DS_Store").write_bytes(b"hidden")
    environment = {
        **os.environ, "HF_ENDPOINT": hub.address, "HF_TOKEN": TOKEN, "HF_HOME": str(tmp_path), "HF_HUB_DISABLE_XET": "1", "HF_HUB_OFFLINE": "0",
        "PYTHONPATH": str(Path(__file__).parents[2] / "src"),
    }  # fmt: skip
    words = [sys.executable, "-m", "electra_trainer", "push", str(licensed), "--repo", "me/electra-tr"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    (licensed / "generator" / ".DS_Store").unlink()
    assert done.returncode == 0, done.stderr
    assert hub.repos == {
        "me/electra-tr-discriminator": contents(licensed / "discriminator"),
        "me/electra-tr-generator": {**contents(licensed / "generator"), "notes.md": b"mine"},
    }
    size = sum(map(len, contents(licensed / "generator").values()))
    assert f"-> me/electra-tr-generator: 6 files, {size:,} bytes, license mit\n" in done.stdout
    assert done.stdout.endswith(f"{hub.address}/me/electra-tr-discriminator\n{hub.address}/me/electra-tr-generator\n")
    assert "note:" not in done.stdout


def test_one_network_and_a_dry_run(hub: Hub, licensed: Path, electra: Electra) -> None:
    code, said, _ = electra("push", licensed, "--repo", "me/other", "--dry-run")
    assert code == 0 and hub.asked == [] and said.endswith("Nothing was uploaded (--dry-run).\n")
    assert said.count("note: the examples in README.md do not have the name me/other") == 2
    code, said, err = electra("push", licensed / "discriminator", "--repo", "me/electra-tr-discriminator", "--private")
    assert code == 0, err
    assert hub.repos == {"me/electra-tr-discriminator": contents(licensed / "discriminator")}
    assert hub.private == {"me/electra-tr-discriminator": True} and "note:" not in said


def test_without_a_license_nothing_is_asked(hub: Hub, exported: Path, tmp_path: Path, electra: Electra) -> None:
    """And the remedy works: the line is added, and the same command goes through. The folder is found as `electra finetune` leaves it."""
    folder = tmp_path / "mine" / "model"
    for name, data in contents(exported / "generator").items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    code, _, err = electra("push", tmp_path / "mine", "--repo", "me/mine")
    assert code == ConfigError.exit_code and "names no license" in err and "--license mit" in err and hub.asked == []
    card = (folder / "README.md").read_text()
    (folder / "README.md").write_text(card.replace("---\n", "---\nlicense: mit\n", 1))
    assert electra("push", tmp_path / "mine", "--repo", "me/mine")[0] == 0
    assert hub.repos["me/mine"] == contents(folder)


def test_what_is_not_an_export(hub: Hub, licensed: Path, run: Path, tmp_path: Path, electra: Electra) -> None:
    made = tmp_path / "made"
    made.mkdir()
    (made / "config.json").write_text("{}")
    refused = [
        (tmp_path / "nothing", MissingInputError, "no such folder"),
        (tmp_path, ConfigError, "not an exported model (a config.json, and a README.md with the tag"),
        (run, ConfigError, "not an exported model"),
        (made, ConfigError, "Make one of a run: electra export RUN --out DIR --license mit"),
    ]
    for folder, error, words in refused:
        code, _, err = electra("push", folder, "--repo", "me/x")
        assert (code, words in err) == (error.exit_code, True), err
    card = (licensed / "generator" / "README.md").read_text()
    (made / "README.md").write_text(card)
    (made / "notes").symlink_to("/etc/passwd")
    code, _, err = electra("push", made, "--repo", "me/x")
    assert code == DataError.exit_code and "notes: is a link" in err
    (made / "README.md").write_text(card.replace("tags:", "tags: ["))
    code, _, err = electra("push", made, "--repo", "me/x")
    assert code == DataError.exit_code and "its header is not YAML" in err
    code, _, err = electra("push", licensed, "--repo", "electra")
    assert code == ConfigError.exit_code and "--repo 'electra': expected OWNER/NAME" in err
    assert hub.asked == []


def test_answers_of_the_hub_are_sentences(
    hub: Hub, licensed: Path, electra: Electra, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = licensed / "generator"
    hub.repos["me/public"], hub.private["me/public"] = {}, False
    code, _, err = electra("push", one, "--repo", "me/public", "--private")
    assert code == ConfigError.exit_code and "me/public: is there, and public" in err and hub.repos["me/public"] == {}
    code, _, err = electra("push", one, "--repo", "google/electra")
    assert code == ConfigError.exit_code and "google/electra: the Hub does not let the token write there" in err
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    code, _, err = electra("push", one, "--repo", "me/x")
    assert (
        code == ConfigError.exit_code
        and "the Hub does not accept the token. Check the owner's name and the token. Type `hf auth login`" in err
    )
    monkeypatch.delenv("HF_TOKEN")
    asked = len(hub.asked)
    code, _, err = electra("push", one, "--repo", "me/x")
    assert code == ConfigError.exit_code and "there is no token for the Hub" in err and len(hub.asked) == asked
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    code, _, err = electra("push", one, "--repo", "me/x")
    assert code == StorageError.exit_code and "me/x: was not uploaded (" in err and "Check the network" in err
    assert set(hub.repos) == {"me/public"}
