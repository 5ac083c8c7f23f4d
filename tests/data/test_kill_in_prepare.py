"""`prepare`, a shard, `merge` and `tokenizer` killed before each change of a file: the same call ends with the bytes of an undisturbed one."""

from pathlib import Path

import pytest
from tests.prepared import write_text
from tests.reliability.killed import killed_at_each
from tokenizers import Tokenizer

from electra_trainer.data.corpus import PrepareSettings
from electra_trainer.data.prepare import merge, prepare, train_tokenizer_from
from electra_trainer.data.tokenizer import require_new, save_new_tokenizer
from electra_trainer.errors import ConfigError

SETTINGS = PrepareSettings(valid_fraction=0.3, workers=1)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("text")
    whole = write_text(folder / "whole", documents=16).read_text().split("\n\n")
    files = [folder / "one.txt", folder / "two.txt"]
    for file, documents in zip(files, (whole[:8], whole[8:]), strict=True):
        file.write_text("\n\n".join(document[:240] for document in documents))
    return files


@pytest.fixture(scope="module")
def tokenizer(text: list[Path]) -> Tokenizer:
    return train_tokenizer_from(text, vocab_size=256)[0]


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
