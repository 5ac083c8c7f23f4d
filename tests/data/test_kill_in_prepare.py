"""`prepare`, a shard, `merge` and `tokenizer` killed before each change of a file: the same call ends with the bytes of an undisturbed one."""

import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.prepared import write_text
from tests.reliability.children import in_a_child
from tests.reliability.operations import Operations, killing
from tokenizers import Tokenizer

from electra_trainer.data.corpus import PrepareSettings
from electra_trainer.data.prepare import prepare, train_tokenizer_from
from electra_trainer.data.shards import merge
from electra_trainer.data.tokenizer import require_new, save_new_tokenizer
from electra_trainer.errors import ConfigError

SETTINGS = PrepareSettings(valid_fraction=0.3, workers=1)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("text")
    whole = write_text(folder / "whole", documents=16).read_text().split("\n\n")
    files = [folder / "one.txt", folder / "two.txt"]
    for file, documents in zip(files, (whole[:8], whole[8:]), strict=True):
        file.write_text("\n\n".join(document[:600] for document in documents))
    return files


@pytest.fixture(scope="module")
def tokenizer(text: list[Path]) -> Tokenizer:
    return train_tokenizer_from(text, vocab_size=256)[0]


def tree(folder: Path) -> dict[str, bytes | None]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")
    }


def killed_at_each(work: Callable[[Path], object], folder: Path, *, there: Path | None = None) -> int:
    """Number of kills; after each `work` ended as if nothing had been. A copy of the folder `there` is in its place at first."""

    def begun(place: Path) -> None:
        place.mkdir(parents=True)
        if there is not None:
            shutil.copytree(there, place / "out")

    begun(folder / "whole")
    work(folder / "whole" / "out")
    whole = tree(folder / "whole")
    for kill in range(1, 1000):
        place = folder / f"killed-{kill}"
        begun(place)

        def doomed(kill: int = kill, place: Path = place) -> None:
            with Operations(place, killing(kill), sync=False):
                work(place / "out")

        if (status := in_a_child(doomed)) == 0:
            return kill - 1
        assert status == -signal.SIGKILL
        with Operations(place, lambda _: None, sync=False):
            work(place / "out")
        assert tree(place) == whole, kill
    raise AssertionError("it never ended")


def test_prepare(text: list[Path], tokenizer: Tokenizer, tmp_path: Path) -> None:
    def work(out: Path) -> None:
        prepare(text, tokenizer=tokenizer, sequence_length=16, out=out, settings=SETTINGS)

    assert killed_at_each(work, tmp_path) > 30


def test_prepare_over_other_rows(text: list[Path], tokenizer: Tokenizer, tmp_path: Path) -> None:
    def work(out: Path) -> None:
        prepare(text, tokenizer=tokenizer, sequence_length=16, out=out, settings=SETTINGS, overwrite=True)

    prepare(text[:1], tokenizer=tokenizer, sequence_length=8, out=tmp_path / "other", settings=SETTINGS)
    assert killed_at_each(work, tmp_path / "work", there=tmp_path / "other") > 30


def test_shards_and_their_merge(text: list[Path], tokenizer: Tokenizer, tmp_path: Path) -> None:
    def shard(out: Path) -> None:
        prepare(text, tokenizer=tokenizer, sequence_length=16, out=out, settings=SETTINGS, shard=(1, 2))

    assert killed_at_each(shard, tmp_path / "shard") > 30
    for number in (1, 2):
        prepare(
            text, tokenizer=tokenizer, sequence_length=16, out=tmp_path / "all", settings=SETTINGS, shard=(number, 2)
        )
    assert killed_at_each(lambda out: merge(tmp_path / "all", out=out), tmp_path / "merge") > 30


def test_a_tokenizer(tokenizer: Tokenizer, tmp_path: Path) -> None:
    def work(out: Path) -> None:
        require_new(out)
        save_new_tokenizer(tokenizer, out, max_length=16)

    assert killed_at_each(work, tmp_path) > 10
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "vocab.txt").write_text("[PAD]\n")
    with pytest.raises(ConfigError, match="not an empty folder"):
        work(mine)
