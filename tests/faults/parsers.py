"""Every reader as a function of bytes, with a sound document to mutate."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from tests.faults.materials import COLA, SQUAD, TREEBANK
from tests.finetuning.own_files import rows
from tests.prepared import small_config

from electra_trainer.cli.predict import read_context
from electra_trainer.data.conllu import read_conllu
from electra_trainer.data.corpus import CorpusReport, Reading, documents
from electra_trainer.data.store import NAMES, VERSION, DocumentFiles, FileInfo, Manifest, RowDocuments, SplitInfo
from electra_trainer.data.tokenizer import (
    SPECIAL_TOKENS,
    Specials,
    from_json,
    read_vocab,
    specials_of,
    tokenizer_sha256,
    vocab_size_of,
    word_piece,
)
from electra_trainer.errors import DataError
from electra_trainer.files.rows import read_rows
from electra_trainer.files.tables import labels, numbers, texts
from electra_trainer.finetuning.model_folder import task_from
from electra_trainer.inspection.report import read_run
from electra_trainer.model.encoder import Encoder
from electra_trainer.paper.minimal_pairs import read_pairs
from electra_trainer.pretrained.export import shape_table
from electra_trainer.pretrained.read_back import architecture, read_encoder, read_tensors
from electra_trainer.runs.checkpoint import save
from electra_trainer.runs.metrics import readable_rows, truncated
from electra_trainer.runs.run_folder import RunFolder
from electra_trainer.runs.verified import Origin, Saved, read, sealed
from electra_trainer.settings.config import Config, Model, Optimizer
from electra_trainer.settings.records import overlay, read_table, to_dict
from electra_trainer.tasks.glue_tasks import ROWS, parse
from electra_trainer.tasks.squad_files import read_squad
from electra_trainer.tasks.tagged_files import read_tagged
from electra_trainer.train.weights import check_optimizer_tensors, restore, stored

_SHAPE = Model(
    vocab_size=8, embedding_size=4, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
)
Read = Callable[[Path], Any]


@dataclass(frozen=True)
class Parser:
    """A reader of one file."""

    name: str
    file: str
    """Where the file is, in a separate folder."""
    sound: bytes
    read: Read


def _table(path: Path) -> None:
    table = read_rows(path)
    assert len(table.rows) == len(table.lines)
    texts(table, table.columns[0])
    with contextlib.suppress(DataError):
        numbers(table, table.columns[-1])
    labels(table, table.columns[-1])


def _shape(path: Path) -> None:
    """A config.json beside the weights that belong to the sound one."""
    (path.parent / "model.safetensors").write_bytes(_weights())
    architecture(read_table(path))
    read_encoder(path.parent)


@functools.cache
def _weights() -> bytes:
    return safetensors.torch.save(Encoder(_SHAPE).state_dict())


def _tokenizer(path: Path) -> None:
    tokenizer = from_json(path.read_bytes(), where="file")
    specials_of(tokenizer)
    vocab_size_of(tokenizer)
    tokenizer_sha256(tokenizer)


def _manifest() -> bytes:
    split = SplitInfo(rows=2, tokens=60, text_tokens=50, documents=3, bytes=128, padding=0.1, sha256="0")
    specials, info = Specials(pad=0, unk=1, cls=2, sep=3, mask=4), FileInfo(bytes=40, sha256="0")
    return Manifest(
        version=VERSION, sequence_length=32, vocab_size=99, dtype="<u2", specials=specials, tokenizer_sha256="0", train=split, valid=split,
        documents=DocumentFiles(names=info, train=info, valid=info), corpus={"files": 1}, settings={"seed": 1},
    ).to_json().encode()  # fmt: skip


def _lines(*objects: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in objects)


def _corpus(path: Path) -> None:
    for document in documents([path], report=CorpusReport(), reading=Reading(max_document_chars=1000)):
        "\n".join(document).encode()


_ENTRIES = [[0, 0, 1, 1, 0], [8, 1, 1, 5, 2], [20, 0, 2, 900, 0], [70_000, 1, 2, 70_000, 9]]


def _row_documents(path: Path) -> None:
    for name, content in (("train.documents", np.array(_ENTRIES, "<i8").tobytes()), (NAMES, b'"a.txt"\n"b.txt"\n')):
        if name != path.name:
            (path.parent / name).write_bytes(content)
    documents = RowDocuments(path.parent, "train", sequence_length=8, rows=10_000)
    for row in (0, 2, 8_750, 9_999):
        assert documents.row(row)


@functools.cache
def parsers() -> tuple[Parser, ...]:
    vocab = "".join(f"{token}\n" for token in (*SPECIAL_TOKENS, "a", "##b", "c")).encode()
    tokenizer = word_piece({t: i for i, t in enumerate((*SPECIAL_TOKENS, "a", "##b"))}, cased=False, keep_accents=None)
    table = shape_table(_SHAPE, pad_id=0, layers=torch.nn.ModuleList())  # building them imports PyTorch's compiler
    shape = json.dumps({"architectures": ["ElectraModel"], **table}).encode()
    csv = b"text,label\n" + b"".join(f'"{text}",{label}\n'.encode() for text, label in rows(4))
    objects = _lines(*({"text": text, "label": label} for text, label in rows(4)))
    pair = {"sentence_good": "a b", "sentence_bad": "b a", "UID": "x", "field": "syntax"}
    tensors = safetensors.torch.save({"a": torch.zeros(3), "b": torch.ones(2, 2)})
    metrics = _lines(
        {"step": 1, "split": "train", "loss": 2.5}, {"step": 2, "split": "valid", "discriminator_loss": 0.4}
    )
    task = json.dumps({"kind": "Classification", "labels": ["a", "b"], "metrics": ["accuracy"]}).encode()
    layout = ROWS["cola"].layout
    return (
        Parser("corpus .txt", "a.txt", b"one line\nand two\n\nthe next\n", _corpus),
        Parser("corpus .jsonl", "a.jsonl", objects, _corpus),
        Parser("vocabulary", "vocab.txt", vocab, lambda path: read_vocab(path.read_bytes(), where="file")),
        Parser("tokenizer", "tokenizer.json", tokenizer.to_str().encode(), _tokenizer),
        Parser("manifest", "manifest.json", _manifest(), lambda path: Manifest.from_json(path.read_bytes(), where="file")),
        Parser("documents of rows", "train.documents", np.array(_ENTRIES, "<i8").tobytes(), _row_documents),
        Parser("names of documents", NAMES, b'"a.txt"\n"b.txt"\n', _row_documents),
        Parser("config .json", "c.json", json.dumps(to_dict(small_config())).encode(), lambda path: overlay(Config(), path)),
        Parser("config .toml", "c.toml", b'seed = 3\n[batch]\nsize = 8\n[objective]\nkind = "rtd"\n', lambda path: overlay(Config(), path)),
        Parser("GLUE", "train.tsv", COLA.encode(), lambda path: parse(path.read_bytes(), layout, path=path, labelled=True)),
        Parser("SQuAD", "s.json", json.dumps(SQUAD).encode(), lambda path: read_squad(path, version=2)),
        Parser("CoNLL-U", "t.conllu", TREEBANK.encode(), read_conllu),
        Parser("columns", "t.conll", b"a X\nb O\n\nc X\n", read_tagged),
        Parser("tagged objects", "t.jsonl", b'{"text": "Ann in Bonn", "label": [[0, 3, "PER"], [7, 11, "LOC"]]}\n', read_tagged),
        Parser(".csv", "t.csv", csv, _table),
        Parser(".tsv", "t.tsv", csv.replace(b",", b"\t"), _table),
        Parser(".jsonl", "t.jsonl", objects, _table),
        Parser("minimal pairs", "p.jsonl", _lines(pair, pair), read_pairs),
        Parser("shape", "config.json", shape, _shape),
        Parser("tensors", "a.safetensors", tensors, read_tensors),
        Parser("task", "task.json", task, lambda path: task_from(read_table(path))),
        Parser("metrics", "metrics.jsonl", metrics, lambda path: (truncated(path, 1)[0], list(readable_rows(path)), read_run(path.parent))),
        Parser("run's facts", "environment.json", b'{"run_id": "x", "data": {"tokenizer_sha256": "y", "rows": 3}}', _facts),
        Parser("context", "page.txt", "A page of text – short.".encode(), lambda path: read_context(f"@{path}")),
        *_checkpoint_parsers(),
    )  # fmt: skip


_ORIGIN = Origin(run_id="run", config_sha256="1" * 64, data_sha256="2" * 64, config={"seed": 3, "batch": {"size": 8}})
_STEP = "step-00000002"
CHECKPOINT_FILES = ("manifest.json", "state.json", "weights.safetensors", "optimizer.safetensors")


@functools.cache
def _network() -> torch.nn.Module:
    return torch.nn.Linear(3, 2)


@functools.cache
def _checkpoint() -> dict[str, bytes]:
    """The files of a sound one."""
    network = _network()
    parameters = dict(network.named_parameters())
    slots = {
        f"{name}/{slot}": torch.full_like(one, 0.5)
        for name, one in parameters.items()
        for slot in ("exp_avg", "exp_avg_sq")
    }
    moments = {**slots, **{f"{name}/step": torch.tensor(2.0) for name in parameters}}
    saved = Saved(step=2, weights=stored(network), optimizer=moments, state={"seconds": 1.5, "bad_steps": 0})
    with tempfile.TemporaryDirectory() as folder:
        path = save(Path(folder), saved, origin=_ORIGIN, keep=1)
        return {name: (path / name).read_bytes() for name in CHECKPOINT_FILES}


def _read_checkpoint(path: Path, *, fits: bool) -> None:
    """A checkpoint of which one file is this, as a resume takes it; `fits`: with a manifest that was made to fit."""
    folder = path.parent / _STEP
    folder.mkdir(exist_ok=True)
    contents = {**_checkpoint(), path.name: path.read_bytes()}
    if fits:
        contents["manifest.json"] = _fitting(contents)
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    network = _network()
    saved = read(folder, origin=_ORIGIN, network=_network, timed=True)
    restore(network, saved.weights)
    check_optimizer_tensors(network, saved.optimizer, Optimizer())
    assert all(bool(torch.isfinite(one).all()) for one in network.parameters())
    assert saved.state["seconds"] + saved.state.get("bad_steps", 0) >= 0 and saved.step == 2


def _fitting(contents: dict[str, bytes]) -> bytes:
    """The manifest with a seal that fits, and where another file was changed with that file's size and hash."""
    with contextlib.suppress(ValueError, RecursionError):
        body = json.loads(contents["manifest.json"])
        if isinstance(body, dict):
            body.pop("sha256", None)
            if contents["manifest.json"] == _checkpoint()["manifest.json"]:
                for name, entry in body["files"].items():
                    entry.update(bytes=len(contents[name]), sha256=hashlib.sha256(contents[name]).hexdigest())
            return sealed(body)
    return contents["manifest.json"]


def _checkpoint_parsers() -> tuple[Parser, ...]:
    return tuple(
        Parser(
            f"checkpoint {name}{', sealed' if fits else ''}",
            name,
            _checkpoint()[name],
            functools.partial(_read_checkpoint, fits=fits),
        )
        for name in CHECKPOINT_FILES
        for fits in (False, True)
    )


def _facts(path: Path) -> None:
    (path.parent / "metrics.jsonl").write_bytes(b'{"step": 1}\n')
    read_run(path.parent)
    folder = RunFolder(path.parent)
    assert None not in (folder.fact(str, "run_id"), folder.fact(str, "data", "tokenizer_sha256"))
