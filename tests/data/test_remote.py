"""Text that is elsewhere: data sets, URLs, the memory of a program; the same rows every time, and nothing imported that is not named."""

import functools
import gzip
import http.server
import importlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.data.hub import COMMIT, hub
from tests.data.samples import sentences

from electra_trainer.data.corpus import CorpusReport, PrepareSettings, Reading, documents
from electra_trainer.data.document import Document, Place
from electra_trainer.data.prepare import prepare
from electra_trainer.data.store import Store
from electra_trainer.errors import ConfigError, DataError, MissingInputError
from electra_trainer.files import sources

TEXTS = ["\n".join(line.strip() or "word" for line in sentences(3, seed=number)) for number in range(40)]


def package(name: str) -> Any:
    return pytest.importorskip(name, reason=f"needs the extra [hub]: {name}")


def read(*paths: Any, **options: Any) -> list[Document]:
    return list(documents(paths, report=CorpusReport(), reading=Reading(**options)))


def texts(*paths: Any, **options: Any) -> list[str]:
    return ["\n".join(found) for found in read(*paths, **options)]


def test_folders_of_save_to_disk(tmp_path: Path) -> None:
    """Each split is one; the remedy names the first."""
    train = package("datasets").Dataset.from_dict({"text": TEXTS})
    package("datasets").DatasetDict({"train": train}).save_to_disk(str(tmp_path / "in" / "saved"))
    with pytest.raises(DataError, match=r"saved/train: is a folder of `save_to_disk`\. .*saved/train'\)\.to_parquet"):
        read(tmp_path / "in")


def test_the_rows_do_not_depend_on_the_format(tokenizer: Any, tmp_path: Path) -> None:
    pa, parquet = package("pyarrow"), importlib.import_module("pyarrow.parquet")
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    parquet.write_table(pa.table({"text": TEXTS, "other": ["x" * 99] * 40}), tmp_path / "a.parquet", row_group_size=7)
    made = []
    for number, given in enumerate(
        [tmp_path / "a.jsonl", tmp_path / "a.parquet", tmp_path / "a.parquet", sources.Texts(TEXTS)]
    ):
        out = tmp_path / f"out{number}"
        settings = PrepareSettings(workers=1, valid_fraction=0.2)
        made.append(prepare([given], tokenizer=tokenizer, sequence_length=32, out=out, settings=settings))
    assert len({(one.train.sha256, one.valid.sha256) for one in made}) == 1
    passages = Store.open(tmp_path / "out1", verify=True).documents("train")
    assert passages is not None
    place = passages.row(0)[0].place
    assert place.file == str(tmp_path / "a.parquet") and place.line == place.last == place.number


def test_rows_without_text_are_counted(tmp_path: Path) -> None:
    pa, parquet = package("pyarrow"), importlib.import_module("pyarrow.parquet")
    parquet.write_table(pa.table({"text": ["a", None, " ", "b\0c", "d\n\ne"]}), tmp_path / "a.parquet")
    report = CorpusReport()
    found = list(documents([tmp_path / "a.parquet"], report=report, reading=Reading(on_bad_text="skip")))
    assert found == [("a",), ("d", "e")]
    assert [one.place.line for one in found] == [1, 5]
    assert report.empty_documents == 2 and report.bad_text == {"NUL characters": 1}
    with pytest.raises(DataError, match=r"a\.parquet:4: NUL characters\. .*--on-bad-text skip"):
        read(tmp_path / "a.parquet")


def test_damaged_zstd(tmp_path: Path) -> None:
    pa = package("pyarrow")
    path = tmp_path / "a.txt.zst"
    with path.open("wb") as file, pa.CompressedOutputStream(pa.PythonFile(file, mode="w"), "zstd") as stream:
        stream.write("\n\n".join(TEXTS * 50).encode())
    whole = path.read_bytes()
    for data in (whole[:-20], b"not compressed"):
        path.write_bytes(data)
        with pytest.raises(DataError, match=r"a\.txt\.zst: is damaged"):
            read(path)


@pytest.fixture
def memory() -> Iterator[Any]:
    fsspec = package("fsspec")
    system = fsspec.filesystem("memory")
    yield system
    system.rm("/", recursive=True)


def test_file_systems_of_fsspec(memory: Any, tmp_path: Path) -> None:
    memory.pipe("/in/b.txt", "\n\n".join(TEXTS[:5]).encode())
    memory.pipe(
        "/in/a.jsonl.gz", gzip.compress("".join(json.dumps({"text": text}) + "\n" for text in TEXTS[5:9]).encode())
    )
    memory.pipe("/in/notes.json", b"{}")
    assert texts("memory://in/b.txt") == TEXTS[:5]
    assert texts("memory://in") == TEXTS[5:9] + TEXTS[:5]  # sorted
    assert texts("memory://in/*.txt", "memory://in/b.txt") == TEXTS[:5]
    assert read("memory://in/b.txt")[1].place == Place("memory:///in/b.txt", 2, 5, 7)
    for missing in ("memory://in/c.txt", "memory://in/*.csv", "memory://nothing"):
        with pytest.raises(MissingInputError):
            read(missing)


def test_remote_parquet_and_kinds(memory: Any, tmp_path: Path) -> None:
    pa, parquet = package("pyarrow"), importlib.import_module("pyarrow.parquet")
    parquet.write_table(pa.table({"text": TEXTS}), tmp_path / "a.parquet")
    memory.pipe("/a.txt", b"%PDF-1.4 \n")
    assert texts((tmp_path / "a.parquet").as_uri()) == TEXTS  # a child process opens it
    with pytest.raises(DataError, match="is a PDF"):
        read("memory://a.txt")


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


def test_http(tmp_path: Path) -> None:
    package("aiohttp")
    (tmp_path / "a.txt").write_text("\n\n".join(TEXTS))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    try:
        assert texts(f"{address}/a.txt") == TEXTS
        assert texts(f"{address}/a.txt?download=true") == TEXTS
        with pytest.raises(MissingInputError, match="nothing is there"):
            read(f"{address}/b.txt")
    finally:
        server.shutdown()
        server.server_close()
    with pytest.raises(MissingInputError, match=r"cannot be reached.*Cannot connect"):
        read(f"{address}/a.txt")


def test_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokenizer: Any) -> None:
    """A stand-in for the Hub: the commit is settled once, and asked for by every pass."""
    datasets, huggingface_hub = package("datasets"), package("huggingface_hub")
    data = datasets.Dataset.from_dict({"title": ["t"] * 40, "text": TEXTS})
    data.to_parquet(str(tmp_path / "a.parquet"))
    asked: list[tuple[Any, ...]] = []
    commits = iter(["c0ffee", "later"])

    class Api:
        def dataset_info(self, name: str, revision: str | None) -> Any:
            return SimpleNamespace(sha=next(commits))

    whole = datasets.load_dataset

    def load(name: str, config: str | None, *, split: str, revision: str, streaming: bool) -> Any:
        asked.append((name, config, split, revision, streaming))
        return whole("parquet", data_files={split: [str(tmp_path / "a.parquet")]}, split=split, streaming=streaming)

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setattr(datasets, "load_dataset", load)
    sources._commit.cache_clear()
    assert texts("me/texts:en") == texts("me/texts:en") == TEXTS
    assert texts("me/texts@c0ffee:en:train") == TEXTS  # as documents.jsonl names it
    assert set(asked) == {("me/texts", "en", "train", "c0ffee", True), ("me/texts", "en", "train", "later", True)}
    assert read("me/texts:en")[2].place == Place("me/texts@c0ffee:en:train", 3, 3, 3)
    one, out = PrepareSettings(workers=1), tmp_path / "out"
    made = prepare(["me/texts:en"], tokenizer=tokenizer, sequence_length=32, out=out, settings=one)
    assert made.settings["inputs"] == ["me/texts@c0ffee:en:train"]


def test_the_hubs_own_libraries(tmp_path: Path) -> None:
    """huggingface_hub and datasets as they are, against a Hub on this machine, in a separate process."""
    package("datasets")
    pa, parquet = package("pyarrow"), importlib.import_module("pyarrow.parquet")
    repository = tmp_path / "repository"
    for config, some in (("en", TEXTS), ("de", TEXTS[:3])):
        (repository / config).mkdir(parents=True)
        parquet.write_table(pa.table({"id": range(len(some)), "text": some}), repository / config / "train.parquet")
    parts = "".join(f"- config_name: {config}\n  data_files: {config}/*.parquet\n" for config in ("en", "de"))
    (repository / "README.md").write_text(f"---\nconfigs:\n{parts}---\n")
    files = "hf://datasets/me/texts/de"
    names = ["me/texts:en", "me/texts:de:train", f"{files}/train.parquet", files, "me/texts", "me/none"]
    code = (
        "import json, sys; from electra_trainer.data.corpus import *\n"
        "for name in sys.argv[1:]:\n"
        "    try: said = [[*one, *one.place] for one in documents([name], report=CorpusReport())]\n"
        "    except ElectraError as error: said = f'{type(error).__name__}: {error}'\n"
        "    print(json.dumps(said))"
    ).replace("import *", "import *; from electra_trainer.errors import ElectraError")
    with hub(repository, "me/texts") as address:
        environment = {
            **os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src"), "HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "home"),
            "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_TELEMETRY": "1",
        }  # fmt: skip
        words = [sys.executable, "-c", code, *names]
        done = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    english, german, file, folder, unnamed, missing = map(json.loads, done.stdout.splitlines())
    assert ["\n".join(one[:-4]) for one in english] == TEXTS
    assert english[-1][-4:] == [f"me/texts@{COMMIT}:en:train", 40, 40, 40]
    assert ["\n".join(one[:-4]) for one in german] == TEXTS[:3] == ["\n".join(one[:-4]) for one in file]
    assert file == folder and file[0][-4] == "hf://datasets/me/texts/de/train.parquet"
    assert re.search(r"available configs: \['en', 'de'\].*OWNER/NAME:CONFIG", unnamed), unnamed
    assert "the Hub gave no data set of this name" in missing and "404" in missing


def test_names_that_the_hub_does_not_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("corpus").mkdir()
    for name in "corpus/nothing nowhere/a.txt nowhere/a.txt.gz nowhere/a.parquet a/b/c ../x nothing".split():
        with pytest.raises(MissingInputError, match="no such file or folder"):
            read(name)


@pytest.mark.parametrize(
    ("given", "missing", "words"),
    [
        ("a.parquet", "pyarrow", "a.parquet needs pyarrow"),
        ("a.txt.zst", "pyarrow", ".zst needs pyarrow"),
        ("memory://x.txt", "fsspec", "memory://x.txt needs fsspec"),
        ("some/name", "huggingface_hub", "is not on this disk; reading it from the Hub needs huggingface_hub"),
    ],
)
def test_a_missing_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, missing: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.parquet").write_bytes(b"PAR1....PAR1")
    Path("a.txt.zst").write_bytes(b"\x28\xb5\x2f\xfd")
    monkeypatch.setitem(sys.modules, missing, None)
    sources._commit.cache_clear()
    with pytest.raises(ConfigError) as refused:
        read(given)
    assert words in str(refused.value)
    assert str(refused.value).endswith("in the clone of electra-trainer: pip install -c constraints.txt '.[hub]'")


def test_a_protocol_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    package("fsspec")
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(ConfigError, match=r"s3:// cannot be read \(Install s3fs"):
        read("s3://bucket/a.txt")
    with pytest.raises(ConfigError, match="s4:// cannot be read"):
        read("s4://bucket/a.txt")


def test_texts_of_a_program() -> None:
    items: list[Any] = ["a\nb", ["c", "d"], {"text": "e"}, {"text": ["f", "g"], "id": 1}, " ", None]
    assert read(sources.Texts(items)) == [("a", "b"), ("c", "d"), ("e",), ("f", "g")]
    assert read(sources.Texts(iter(["a"])))[0].place == Place("documents", 1, 1, 1)
    with pytest.raises(DataError, match="documents:2: has no column 'text'"):
        read(sources.Texts(["a", {"body": "b"}]))
    with pytest.raises(DataError, match="documents:1: not a text: 3"):
        read(sources.Texts([3]))


def test_a_data_set_of_a_program() -> None:
    data = package("datasets").Dataset.from_dict({"id": list(range(40)), "text": TEXTS})
    assert texts(sources.Texts(data)) == texts(sources.Texts(data.to_iterable_dataset())) == TEXTS
    with pytest.raises(DataError, match="has no column 'body'"):
        read(sources.Texts(data), text_field="body")


def test_nothing_is_imported_that_is_not_named(text_file: Path, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text\na\nb\n")
    code = (
        "import sys; from electra_trainer.data.corpus import *; from electra_trainer.data import prepare\n"
        "print(len(list(documents(sys.argv[1:], report=CorpusReport()))))\n"
        "print([n for n in ('datasets', 'pyarrow', 'fsspec', 'pandas', 'huggingface_hub', 'torch') if n in sys.modules])"
    )
    words = [sys.executable, "-c", code, str(text_file), str(tmp_path / "a.csv")]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["302", "[]"]
