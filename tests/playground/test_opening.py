"""The page opens with a sentence in which one word was exchanged: a held-out one of the run, or a built-in one."""

import shutil
from pathlib import Path

from electra_trainer.data.store import Store
from electra_trainer.playground.answers import PretrainedModel
from electra_trainer.pretrained.pretrained import export_run


def held_out(data: Path) -> str:
    store = Store.open(data)
    return " ".join(store.tokenizer().decode(list(map(int, row))) for row in store.rows("valid"))


def test_with_a_held_out_sentence(run: Path) -> None:
    first = PretrainedModel(str(run)).facts()["examples"][0]
    written, read = first["written"].split(), first["read"].split()
    assert len(written) == len(read) > 5 and sum(one != two for one, two in zip(written, read, strict=True)) == 1
    assert first["written"] in held_out(run.parent / "data")


def test_without_the_rows_of_the_run(run: Path, tmp_path: Path) -> None:
    model = PretrainedModel(str(run))
    moved = Path(shutil.move(run.parent / "data", tmp_path / "data"))
    try:
        assert model.facts()["examples"] == []
    finally:
        shutil.move(moved, run.parent / "data")


def test_with_a_sentence_of_ours(run: Path, tmp_path: Path) -> None:
    export_run(run, tmp_path / "export")
    model = PretrainedModel(str(tmp_path / "export"))
    facts = model.facts()
    assert facts["examples"] == [] and "flew" in facts["opening"] and model.score(facts["opening"])["words"]
