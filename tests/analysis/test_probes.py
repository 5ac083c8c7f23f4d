"""The seams of the probes."""

import json
from pathlib import Path

import pytest
from tests.prepared import small_config, write_store

from electra_trainer.analysis.minimal_pairs import minimal_pairs
from electra_trainer.analysis.probes import PROBES, Subject, fingerprint, probe
from electra_trainer.errors import DataError, MissingInputError
from electra_trainer.score import load
from electra_trainer.train.loop import pretrain


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    folder = tmp_path_factory.mktemp("probes")
    write_store(folder / "data")
    pretrain(small_config(steps=3), folder / "data", out=folder / "run", device="cpu", quiet=True)
    return Subject(run=folder / "run", data=folder / "data", folder=None, seed=1, device="cpu", sentences=10, pairs=2)


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
    monkeypatch.setitem(PROBES, "mine", lambda given: {"seed": given.seed, "name": len(str(given.folder))})
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
    with pytest.raises(MissingInputError, match=r"holds no \.jsonl file"):
        fingerprint("minimal-pairs", tmp_path / "empty")


def test_minimal_pairs_are_read_before_anything_is_trained(tmp_path: Path) -> None:
    """What the probe would refuse after training is refused at once: files in folders below, lines that are no pairs."""
    (tmp_path / "above/below").mkdir(parents=True)
    (tmp_path / "above/below/a.jsonl").write_text('{"sentence_good": "a value"}\n')
    with pytest.raises(MissingInputError, match=r"holds no \.jsonl file"):
        fingerprint("minimal-pairs", tmp_path / "above")
    with pytest.raises(DataError, match=r"a\.jsonl:1: has no 'sentence_bad'"):
        fingerprint("minimal-pairs", tmp_path / "above/below")
