"""A corpus that several machines prepare: the same documents are held out for any N, and the same bytes come out for any way of making them."""

import os
import random
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.command import Electra
from tests.data.samples import sentences
from tests.data.test_prepare import contents

from electra_trainer.data.corpus import PrepareSettings
from electra_trainer.data.prepare import merge, prepare
from electra_trainer.data.store import MARKER, Manifest, Store
from electra_trainer.errors import ConfigError, DataError, MissingInputError


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirteen files of different sizes, some of them with nothing in them."""
    folder, draw = tmp_path_factory.mktemp("corpus"), random.Random(2)
    for number in range(13):
        texts = [
            "\n".join(sentences(draw.randint(1, 6), seed=100 * number + one))
            for one in range(0 if number == 4 else draw.randint(1, 40))
        ]
        (folder / f"{number:02}.txt").write_text("\n\n".join(texts))
    return folder


def made(corpus: Path, tokenizer: Any, out: Path, shard: tuple[int, int] | None = None, **options: Any) -> Manifest:
    settings = PrepareSettings(workers=options.pop("workers", 1), valid_fraction=options.pop("valid_fraction", 0.1))
    return prepare(
        [corpus], tokenizer=tokenizer, sequence_length=32, out=out, settings=settings, shard=shard, **options
    )


def held_out(folder: Path) -> set[tuple[str, int]]:
    documents = Store.open(folder, verify=True).documents("valid")
    assert documents is not None
    return {(Path(place.file).name, place.number) for _, place in documents.all()}


@pytest.mark.parametrize("count", [1, 3, 8, 20])
def test_what_has_no_order_is_the_same(corpus: Path, tokenizer: Any, tmp_path: Path, count: int) -> None:
    whole = made(corpus, tokenizer, tmp_path / "whole")
    for number in range(1, count + 1):
        made(corpus, tokenizer, tmp_path / "shards", (number, count))
    merged = merge(tmp_path / "shards", out=tmp_path / "merged")
    assert merged.corpus == whole.corpus
    for split in ("train", "valid"):
        one, other = getattr(whole, split), getattr(merged, split)
        assert (one.documents, one.text_tokens) == (other.documents, other.text_tokens)
    assert held_out(tmp_path / "merged") == held_out(tmp_path / "whole") != set()
    store = Store.open(tmp_path / "merged", verify=True)
    documents = store.documents("train")
    assert documents is not None
    found = [place for row in range(merged.train.rows) for place in (one.place for one in documents.row(row))]
    assert len(set(found)) == merged.train.documents


def test_the_same_bytes_however_they_are_made(corpus: Path, tokenizer: Any, tmp_path: Path) -> None:
    """In order by one process; in disorder by several, one of them killed in the middle, one made twice, and a merge that was killed."""
    for number in (1, 2, 3):
        made(corpus, tokenizer, tmp_path / "a", (number, 3))
    merge(tmp_path / "a", out=tmp_path / "one")
    killed(lambda: made(corpus, tokenizer, tmp_path / "b", (2, 3), progress=at_document(20)))
    assert (tmp_path / "b/shard-00002-of-00003" / MARKER).exists()
    for number, workers in ((3, 2), (2, 1), (1, 3), (2, 2)):
        made(corpus, tokenizer, tmp_path / "b", (number, 3), workers=workers)
    killed(lambda: merge_two(tmp_path / "b", tmp_path / "two"))
    with pytest.raises(DataError, match="preparation did not finish"):
        Store.open(tmp_path / "two")
    merge(tmp_path / "b", out=tmp_path / "two")
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def merge_two(shards: Path, out: Path) -> None:
    """For a child process, which the third shard ends."""
    opened: Any = Store.open
    third: Any = lambda one, **how: os.kill(os.getpid(), 9) if "shard-00003" in str(one) else opened(one, **how)  # noqa: E731
    Store.open = third  # type: ignore[method-assign]
    merge(shards, out=out)


def at_document(count: int) -> Any:
    return lambda state: os.kill(os.getpid(), signal.SIGKILL) if state.documents == count else None


def killed(work: Any) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


def test_a_finished_shard_is_not_made_again(corpus: Path, tokenizer: Any, tmp_path: Path) -> None:
    first = made(corpus, tokenizer, tmp_path, (1, 2))
    path = tmp_path / "shard-00001-of-00002/train.bin"
    before = path.stat()
    assert made(corpus, tokenizer, tmp_path, (1, 2)) == first
    assert path.stat().st_mtime_ns == before.st_mtime_ns and path.stat().st_ino == before.st_ino
    with pytest.raises(ConfigError, match="holds prepared rows already"):
        made(corpus, tokenizer, tmp_path, (1, 2), valid_fraction=0.2)


def test_a_shard_is_not_trained_on(corpus: Path, tokenizer: Any, tmp_path: Path) -> None:
    made(corpus, tokenizer, tmp_path, (1, 2))
    with pytest.raises(DataError, match=r"is shard 1/2\. Put all together: electra merge .* --out DATA"):
        Store.open(tmp_path / "shard-00001-of-00002")


def test_what_cannot_be_put_together(corpus: Path, tokenizer: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(MissingInputError, match="no such file or folder"):
        merge(tmp_path / "nothing", out=out)
    with pytest.raises(MissingInputError, match=r"holds no shards\. Make them: electra prepare"):
        merge(corpus, out=out)
    shards = tmp_path / "shards"
    for number in (1, 3):
        made(corpus, tokenizer, shards, (number, 4))
    killed(lambda: made(corpus, tokenizer, shards, (2, 4), progress=at_document(1)))
    with pytest.raises(
        DataError, match=r"not finished again, and remove others: shard-00002-of-00004, shard-00004-of-00004"
    ):
        merge(shards, out=out)
    for number in (2, 4):
        made(corpus, tokenizer, shards, (number, 4))
    other = tmp_path / "elsewhere" / corpus.name
    shutil.copytree(corpus, other)
    (other / "05.txt").write_text("grown\n\nin between")
    shutil.rmtree(shards / "shard-00003-of-00004")
    made(other, tokenizer, shards, (3, 4))
    with pytest.raises(DataError, match="shard-00003-of-00004: is of other files, another tokenizer or other settings"):
        merge(shards, out=out)
    shutil.rmtree(shards / "shard-00003-of-00004")
    made(corpus, tokenizer, shards, (3, 4))
    rows = shards / "shard-00003-of-00004/train.bin"
    content = rows.read_bytes()
    rows.write_bytes(content[:-2] + b"\1\0" if content[-2:] != b"\1\0" else content[:-2] + b"\2\0")
    with pytest.raises(DataError, match=r"shard-00003-of-00004/train\.bin: its content has changed"):
        merge(shards, out=out)
    assert not out.exists() or not any(out.iterdir())
    rows.write_bytes(content)
    made(corpus, tokenizer, shards, (1, 2))
    with pytest.raises(DataError, match=r"expected 4 finished shards and no others.* shard-00001-of-00002"):
        merge(shards, out=out)


def test_nothing_to_hold_out(tmp_path: Path, tokenizer: Any) -> None:
    (tmp_path / "a.txt").write_text("one\n\ntwo\n\nthree")
    made(tmp_path / "a.txt", tokenizer, tmp_path / "shards", (1, 1), valid_fraction=1e-9)
    with pytest.raises(
        DataError, match=r"nothing is left to hold out, .* prepare shards again with a larger --valid-fraction"
    ):
        merge(tmp_path / "shards", out=tmp_path / "out")
    made(tmp_path / "a.txt", tokenizer, tmp_path / "again", (1, 1), valid_fraction=0.5)
    merge(tmp_path / "again", out=tmp_path / "out")


def test_the_verbs(electra: Electra, corpus: Path, tokenizer: Any, tmp_path: Path) -> None:
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    options = f"--tokenizer {tmp_path / 'tokenizer.json'} --seq-len 32 --out {tmp_path / 'shards'} --valid-fraction 0.1"
    words = ("prepare", corpus, *options.split())
    for number in (1, 2):
        code, out, err = electra(*words, "--shard", f"{number}/2")
        assert code == 0 and f"shard {number}/2 is ready" in out, err
    assert electra(*words, "--shard", "3/2")[0] == 78
    code, out, err = electra("merge", tmp_path / "shards", "--out", tmp_path / "data")
    assert code == 0 and "ready, of 2 shards" in out, err
    Store.open(tmp_path / "data", verify=True)
