"""Text to rows, end to end: the same bytes whatever the workers, and a clear end whatever happens."""

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.command import Electra
from tests.data.samples import sentences
from tests.data.test_pack import read_rows

import electra_trainer
from electra_trainer.data.corpus import CorpusReport, PrepareSettings, documents
from electra_trainer.data.document import Place
from electra_trainer.data.encode import EncodedDocument
from electra_trainer.data.prepare import Progress, prepare, split_documents, train_tokenizer_from
from electra_trainer.data.store import Manifest, Store, StoreWriter
from electra_trainer.data.tokenizer import as_plain_text, load_tokenizer, tokenizer_sha256
from electra_trainer.data.vocabulary import train_tokenizer
from electra_trainer.errors import ConfigError, DataError, MissingInputError, StorageError
from electra_trainer.files.processes import WorkerDied, Workers


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def text_of(rows: Any) -> list[int]:
    return [token for piece in read_rows(rows) for part in piece for token in part]


def made(text: Path, tokenizer: Any, out: Path, *, length: int = 32, workers: int = 1, **options: Any) -> Manifest:
    """Rows of one file."""
    settings = PrepareSettings(workers=workers, **options)
    return prepare([text], tokenizer=tokenizer, sequence_length=length, out=out, settings=settings)


def test_rows_hold_the_text(text_file: Path, tokenizer: Any, tmp_path: Path) -> None:
    """Every document's ids, in order, are in the rows of one split."""
    seen: list[Progress] = []
    manifest = prepare(
        [text_file], tokenizer=tokenizer, sequence_length=64, out=tmp_path / "out",
        settings=PrepareSettings(workers=1, valid_fraction=0.1), progress=lambda state: seen.append(replace(state)),
    )  # fmt: skip
    store = Store.open(tmp_path / "out", verify=True)
    texts = {split: np.array(text_of(store.rows(split)), dtype="<u2").tobytes() for split in ("train", "valid")}
    plain, total, held_out = as_plain_text(tokenizer), 0, 0
    for document in documents([text_file], report=CorpusReport()):
        ids = [token for line in document for token in plain.encode(line, add_special_tokens=False).ids]
        data = np.array(ids, dtype="<u2").tobytes()
        assert data in texts["train"] or data in texts["valid"]
        held_out += data in texts["valid"]
        total += len(ids)
    assert total == manifest.train.text_tokens + manifest.valid.text_tokens == seen[-1].tokens
    assert seen[-1].fraction == 1.0 and Progress(CorpusReport()).fraction is None
    assert len(b"".join(texts.values())) == 2 * total
    assert manifest.train.documents + manifest.valid.documents == 300
    assert 10 <= manifest.valid.documents <= 60
    assert held_out >= manifest.valid.documents
    assert manifest.train.padding < 0.01


def test_the_same_bytes_whatever_the_workers(tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("electra_trainer.data.encode._PACKET_BYTES", 3000)
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join("\n".join(sentences(5, seed=number)) for number in range(400)))
    found = []
    for workers in (1, 2, 3):
        out = tmp_path / str(workers)
        made(path, tokenizer, out, workers=workers)
        found.append(contents(out))
    assert found[0] == found[1] == found[2]
    assert set(found[0]) == {
        "manifest.json", "train.bin", "valid.bin", "train.documents", "valid.documents", "documents.jsonl",
        "tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json", "tokenizer/vocab.txt",
    }  # fmt: skip
    assert str(tmp_path).encode() not in found[0]["manifest.json"]


FIRST_RELEASE = {  # the first digits of the SHA-256 of train.bin and valid.bin, as the first implementation wrote them
    32: ("6966a50eae96a2df84641834", "0bb495fb7644a47e30e8e69e"),
    64: ("b552f0de79144b50eaef4b27", "b37f80fd43bacc5b7030357f"),
    "wiki/valid": ("8021a9973bbe7b5343f8b6ae", "5d8ecf5a1df0bce48f549481"),
    "german/novels": ("4c82f039bd6de6a3f41f7d0e", "06dc9797ac7ef9a1dfe155ad"),
}


@pytest.mark.parametrize("length", [32, 64])
@pytest.mark.parametrize("workers", [1, 3])
def test_the_rows_are_those_of_the_first_release(
    text_file: Path, tokenizer: Any, tmp_path: Path, length: int, workers: int
) -> None:
    found = made(text_file, tokenizer, tmp_path / "out", length=length, workers=workers, valid_fraction=0.1)
    assert (found.train.sha256[:24], found.valid.sha256[:24]) == FIRST_RELEASE[length]


@pytest.mark.parametrize(("name", "cased"), [("wiki/valid", False), ("german/novels", True)])
def test_real_rows_are_those_of_the_first_release(shared: Path, tmp_path: Path, name: str, cased: bool) -> None:
    vocab = shared / f"data/vocab/bert-base-{'cased' if cased else 'uncased'}-vocab.txt"
    path = shared / f"data/corpora/{name}.txt.xz"
    made = prepare([path], tokenizer=load_tokenizer(vocab, cased=cased), sequence_length=128, out=tmp_path / "out")
    assert (made.train.sha256[:24], made.valid.sha256[:24]) == FIRST_RELEASE[name]
    assert made.specials.cls == 101 and made.train.padding < 0.01 and made.corpus["bad_text"] == {}
    rows = Store.open(tmp_path / "out", verify=True).rows("train")
    assert (rows[:, 0] == 101).all() and (rows == 100).mean() < 0.01


def test_settings_decide_the_bytes(text_file: Path, tokenizer: Any, tmp_path: Path) -> None:
    def rows(name: str, **options: Any) -> bytes:
        made(text_file, tokenizer, tmp_path / name, **options)
        return (tmp_path / name / "train.bin").read_bytes()

    assert rows("a") == rows("b") != rows("c", seed=2)
    assert rows("d", boundary="line") != rows("e", boundary="file", max_document_chars=1000)


def test_copies_are_on_one_side() -> None:
    def document(index: int, share: float) -> EncodedDocument:
        place = Place("a.txt", index + 1, index + 1, index + 1)
        return EncodedDocument(share, index, np.zeros(1, dtype=np.uint32), np.ones(1, dtype=np.uint32), place)

    def split(*shares: float) -> list[tuple[str, int]]:
        found = list(split_documents((document(*item) for item in enumerate(shares)), 0.1))
        assert all(one.place.number == one.index + 1 for _, one in found)
        return [(side, one.index) for side, one in found]

    assert split(0.5, 0.05, 0.6, 0.05) == [("valid", 1), ("train", 0), ("train", 2), ("valid", 3)]
    assert split(0.5, 0.6, 0.5) == [("train", 1), ("valid", 0), ("valid", 2)]
    assert split(0.5, 0.5, 0.4, 0.9) == [("train", 0), ("train", 1), ("train", 3), ("valid", 2)]
    assert split(0.5) == [("valid", 0)]
    assert split() == []


def test_too_little_text(tokenizer: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    for text in ("", "bara bara", "bara\n\nbara", "\u200b"):
        path.write_text(text)
        with pytest.raises(DataError, match="two different" if text else "no text"):
            made(path, tokenizer, tmp_path / "out")
    path.write_text("bara\n\nlora")
    manifest = made(path, tokenizer, tmp_path / "out")
    assert (manifest.train.rows, manifest.valid.rows) == (1, 1)


def test_again_and_over(text_file: Path, tokenizer: Any, tmp_path: Path) -> None:
    out, shard = tmp_path / "out", {"out": tmp_path / "shard", "shard": (1, 1)}
    text = tmp_path / "mine.txt"
    text.write_bytes(text_file.read_bytes())

    def go(seed: int = 1, **options: Any) -> Manifest:
        settings = PrepareSettings(workers=1, seed=seed)
        where = {"out": out} | options
        return prepare([text], tokenizer=tokenizer, sequence_length=32, settings=settings, **where)

    assert go(**shard) == go(**shard)
    made = go()
    first = contents(out)
    assert go() == made  # is there already
    with pytest.raises(ConfigError, match="holds prepared rows already"):
        go(seed=2)
    content = text.read_bytes()
    text.write_bytes(content.swapcase())  # as long as before
    for where in ({}, shard):
        with pytest.raises(ConfigError, match="holds prepared rows already"):
            go(**where)
    text.write_bytes(content)
    (out / "train.bin").write_bytes(b"")
    with pytest.raises(DataError, match=r"train\.bin: has 0 bytes"):
        go()
    shutil.rmtree(out)
    go()
    assert contents(out) == first


def test_bad_input_leaves_nothing_behind(tokenizer: Any, tmp_path: Path) -> None:
    with pytest.raises(MissingInputError):
        prepare([tmp_path / "no.txt"], tokenizer=tokenizer, sequence_length=32, out=tmp_path / "out")
    for options in ({"sequence_length": 7}, {"sequence_length": 1 << 16}):
        with pytest.raises(ConfigError, match="sequence_length"):
            prepare(["docstrings"], tokenizer=tokenizer, out=tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
    for options in ({"valid_fraction": 0}, {"valid_fraction": 0.9}, {"seed": -1}, {"workers": 0}):
        with pytest.raises(ConfigError, match=next(iter(options))):
            PrepareSettings(**options)  # type: ignore[arg-type]


def test_full_disk_then_the_same_command_again(
    text_file: Path, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"

    def full(self: StoreWriter, split: str, rows: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for workers in (1, 2):
        with monkeypatch.context() as patch:
            patch.setattr(StoreWriter, "write", full)
            with pytest.raises(StorageError, match="the disk is full"):
                made(text_file, tokenizer, out, workers=workers)
        with pytest.raises(DataError, match="did not finish"):
            Store.open(out)
    made(text_file, tokenizer, out, workers=2)
    Store.open(out, verify=True)


def test_large_vocabularies_take_four_bytes(text_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    letters = sorted({letter for word in sentences(300) for letter in word.lower() if letter.strip()})
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"[unused{number}]" for number in range(66_000))]
    path.write_text("\n".join([*tokens, *letters, *(f"##{letter}" for letter in letters)]))
    made(text_file, load_tokenizer(path), tmp_path / "out")
    rows = Store.open(tmp_path / "out", verify=True).rows("train")
    assert rows.dtype == np.uint32
    assert rows.max() > 66_000


def test_a_worker_that_is_killed_is_reported(
    text_file: Path, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence, and no hang."""
    real = Workers.map

    def killed(self: Workers, requests: Any) -> Any:
        self.children[0].process.kill()
        return real(self, requests)

    monkeypatch.setattr(Workers, "map", killed)
    with pytest.raises(WorkerDied, match=r"A worker process died \(exit status -9\)"):
        made(text_file, tokenizer, tmp_path / "out", workers=2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_their_parent(number: int, tokenizer: Any, tmp_path: Path) -> None:
    code = (
        "from electra_trainer.files.processes import Workers\n"
        "import signal, sys, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background jobs are born deaf to it
        "with Workers('electra_trainer.data.docstrings:_serve', setup=b'', count=2) as pool:\n"
        "    list(pool.map([b'[]', b'[]']))\n"
        "    print(*(child.process.pid for child in pool.children), flush=True)\n"
        "    time.sleep(60)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as parent:
        assert parent.stdout is not None
        children = [int(word) for word in parent.stdout.readline().split()]
        assert len(children) == 2
        os.kill(parent.pid, number)
        parent.wait(timeout=20)
    until = time.monotonic() + 10
    while any(is_alive(child) for child in children) and time.monotonic() < until:
        time.sleep(0.05)
    assert not [child for child in children if is_alive(child)]


def is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[:1]
    except OSError:
        return False


def test_a_vocabulary_from_files(text_file: Path) -> None:
    found, report = train_tokenizer_from([text_file], vocab_size=256)
    lines = [line for document in documents([text_file], report=CorpusReport()) for line in document]
    assert tokenizer_sha256(found) == tokenizer_sha256(train_tokenizer(lines, vocab_size=256))
    assert (report.documents, report.lines) == (300, len(lines))
    _, report = train_tokenizer_from([text_file], vocab_size=256, max_characters=40_000)
    assert 40_000 <= report.characters < 60_000


def test_from_python(text_file: Path, tmp_path: Path) -> None:
    """Documents in memory give the rows of the file that holds them; a generator is read to its end twice for a vocabulary."""
    texts = ["\n".join(one) for one in documents([text_file], report=CorpusReport())]
    whole = electra_trainer.train_tokenizer(text_file, vocab_size=256)
    known = electra_trainer.train_tokenizer(documents=(text for text in texts), vocab_size=256, out=tmp_path / "tok")
    assert tokenizer_sha256(known) == tokenizer_sha256(whole)
    made = [
        electra_trainer.prepare(**given, out=tmp_path / str(number), seq_len=32, workers=1, valid_fraction=0.1)
        for number, given in enumerate(
            (
                {"files": [text_file], "tokenizer": tmp_path / "tok"},
                {"documents": ({"body": text} for text in texts), "tokenizer": known, "text_field": "body"},
                {"documents": [text.split("\n") for text in texts], "tokenizer": whole},
            )
        )
    ]
    assert len({(one.train.sha256, one.valid.sha256) for one in made}) == 1
    assert made[1].settings["inputs"] == ["documents"]
    with pytest.raises(ConfigError, match="give files, or documents="):
        electra_trainer.prepare(tokenizer=known, out=tmp_path / "none")
    for table in (type("DataFrame", (list,), {"columns": ["text"]})(texts), dict.fromkeys(texts)):
        with pytest.raises(ConfigError, match=r'is a (DataFrame|dict)\. Give its texts, for example df\["text"\]'):
            electra_trainer.prepare(documents=table, tokenizer=known, out=tmp_path / "none")
    with pytest.raises(ConfigError, match="is one text"):
        electra_trainer.prepare(documents="a text", tokenizer=known, out=tmp_path / "none")
    with pytest.raises(ConfigError, match="is not an empty folder"):
        electra_trainer.train_tokenizer(text_file, out=tmp_path / "tok")
    assert not (tmp_path / "none").exists()


def test_the_page_on_data_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs/data.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for code in re.findall(r"```python\n(.*?)```", page, re.S):
        exec(code, {})
    assert re.fullmatch(r"\d+ \d+\n", capsys.readouterr().out)
    assert Store.open("data/topics").manifest.settings["inputs"] == ["documents"]


def test_the_verbs_take_tables_and_refuse_archives(electra: Electra, tmp_path: Path) -> None:
    rows = "".join(f'{number},"{line}"\n' for number, line in enumerate(sentences(300)))
    (tmp_path / "a.csv").write_text(f"id,body\n{rows}")
    tok, data = tmp_path / "tok", tmp_path / "data"
    code, _, err = electra("tokenizer", tmp_path / "a.csv", "--vocab-size", 256, "--out", tok)
    assert code == 65 and "has no column 'text'" in err and "--text-field" in err
    assert electra("tokenizer", tmp_path / "a.csv", "--text-field", "body", "--vocab-size", 256, "--out", tok)[0] == 0
    words = ("--tokenizer", tok, "--seq-len", 32, "--out", data, "--valid-fraction", 0.1)
    code, out, _ = electra("prepare", tmp_path / "a.csv", "--text-field", "body", *words)
    assert code == 0 and "300 documents" in out
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "a.csv", "a.csv")
    for policy in ("error", "skip"):
        code, _, err = electra("prepare", tmp_path / "a.tar.gz", *words, "--on-bad-text", policy, "--documents", "line")
        assert code == 65 and "is an archive" in err
    assert Store.open(data, verify=True).manifest.settings["inputs"] == ["a.csv"]  # nothing was replaced


def test_what_is_missing_is_named(electra: Electra, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n\nb")
    code, _, err = electra(
        "prepare", tmp_path / "a.txt", "--tokenizer", "bert-base-uncased", "--out", tmp_path / "data"
    )
    assert code == 66 and "bert-base-uncased: no such file or folder" in err
    code, _, err = electra("tokenizer", "-", "--out", tmp_path / "tok")
    assert code == 66 and "-: no such file or folder" in err
