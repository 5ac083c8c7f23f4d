"""The seams of the probes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.prepared import small_config, write_store
from tests.tasks.glue_samples import write_glue

from electra_trainer.errors import DataError, MissingInputError
from electra_trainer.experiments.cell import read_result
from electra_trainer.paper.minimal_pairs import minimal_pairs
from electra_trainer.paper.probes import PROBES, Probe, Subject, fingerprint, probe
from electra_trainer.pretrained.pretrained import load
from electra_trainer.train.loop import pretrain


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    folder = tmp_path_factory.mktemp("probes")
    write_store(folder / "data")
    pretrain(small_config(steps=3), folder / "data", out=folder / "run", device="cpu", quiet=True)
    return Subject(run=folder / "run", data=folder / "data", seed=1, device="cpu", sentences=10, pairs=2)


def test_minimal_pairs_are_those_of_the_analysis(subject: Subject, tmp_path: Path) -> None:
    """The first `pairs` of each paradigm, each score that the run has; the same means as asked for directly."""
    for paradigm in ("one", "two"):
        pairs = [
            (f"the value of {n} is an object", f"the value {n} of object an is")
            for n in ("x", "list", "name", "module")
        ]
        lines = [json.dumps({"sentence_good": good, "sentence_bad": bad, "UID": paradigm}) for good, bad in pairs]
        (tmp_path / f"{paradigm}.jsonl").write_text("\n".join(lines) + "\n")
    found = probe({"minimal-pairs": str(tmp_path)}, subject)
    expected = minimal_pairs(load(subject.run), tmp_path, limit=2)
    assert expected.pairs == 4
    assert found == {f"minimal-pairs/{name}": score.mean for name, score in expected.scores.items()}
    assert set(expected.scores) == {"discriminator", "appendix-g", "generator"}


def test_a_probe_of_ones_own(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROBES, "mine", Probe(lambda given: {"seed": given.seed, "name": len(str(given.folder))}))
    assert probe({"mine": "abc"}, subject) == {"mine/seed": 1, "mine/name": 3}


def test_fingerprints_follow_contents_not_places(tmp_path: Path) -> None:
    pair = {"sentence_good": "a value", "sentence_bad": "value a"}
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.jsonl").write_text(json.dumps(pair) + "\n")
    first = fingerprint("minimal-pairs", tmp_path / "one")
    assert first is not None and first == fingerprint("minimal-pairs", tmp_path / "two")
    (tmp_path / "two/a.jsonl").write_text(json.dumps({**pair, "UID": "order"}) + "\n")
    assert first != fingerprint("minimal-pairs", tmp_path / "two")
    assert fingerprint("held-out", None) is None
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no pairs"):
        fingerprint("minimal-pairs", tmp_path / "empty")


def test_minimal_pairs_are_read_before_anything_is_trained(tmp_path: Path) -> None:
    """Folders that the probe would refuse after training are refused at once: files in folders below, lines that are no pairs."""
    (tmp_path / "above/below").mkdir(parents=True)
    (tmp_path / "above/below/a.jsonl").write_text('{"sentence_good": "a value"}\n')
    with pytest.raises(DataError, match="holds no pairs"):
        fingerprint("minimal-pairs", tmp_path / "above")
    with pytest.raises(DataError, match=r"a\.jsonl:1: .*not a pair"):
        fingerprint("minimal-pairs", tmp_path / "above/below")


def test_glue_is_fine_tuned_with_the_papers_recipe(subject: Subject, tmp_path: Path) -> None:
    """The tasks that are in the folder, by the names of the paper's columns, in run folders next to the cell's run; once."""
    folder = write_glue(tmp_path / "glue", ["rte", "stsb", "wnli"], train=40, test=2)
    subject = replace(subject, seed=3)
    found = probe({"glue": str(folder)}, subject)
    beside = subject.run.parent / "glue"
    rte, stsb = (read_result(beside / task) for task in ("rte", "stsb"))
    assert found == {"glue/sts": stsb.scores["dev/spearman"], "glue/rte": rte.scores["dev/accuracy"]}
    assert {name.removeprefix("glue/") for name in found} <= set(PROBES["glue"].metrics)
    config = json.loads((beside / "rte/config.json").read_text())
    assert (
        config["seed"] == subject.seed
        and config["recipe"]["epochs"] == 10
        and config["recipe"]["learning_rate"] == 3e-4
    )
    assert sorted(path.name for path in beside.iterdir()) == ["rte", "stsb"]  # the paper leaves out WNLI
    assert not (beside / "rte/predictions/test.jsonl").exists()
    steps = (beside / "rte/metrics.jsonl").read_bytes()
    assert probe({"glue": str(folder)}, subject) == found
    assert (beside / "rte/metrics.jsonl").read_bytes() == steps


def test_glue_is_read_before_anything_is_trained(tmp_path: Path) -> None:
    folder = write_glue(tmp_path / "one", ["rte", "cola"], test=2)
    first = fingerprint("glue", folder)
    (folder / "RTE/test.tsv").unlink()  # which the probe does not read
    assert fingerprint("glue", folder.rename(tmp_path / "two")) == first
    changed = tmp_path / "two/CoLA/dev.tsv"
    changed.write_text(changed.read_text().replace("sails", "snails"))
    assert fingerprint("glue", tmp_path / "two") != first
    changed.write_text("gj04\t3\t\tsails\n")
    with pytest.raises(DataError, match=r"CoLA/dev.tsv:1: unknown label '3'"):
        fingerprint("glue", tmp_path / "two")
    (tmp_path / "empty").mkdir()
    with pytest.raises(MissingInputError, match=r"--probe glue=.*empty: holds no task of GLUE"):
        fingerprint("glue", tmp_path / "empty")
