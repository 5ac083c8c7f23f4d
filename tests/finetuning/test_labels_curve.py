"""Labels against score: what is drawn, the experiment's rows, the same command again, and the sentence."""

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.command import Electra
from tests.finetuning.own_files import rows, write_csv, write_encoder

from electra_trainer.errors import ConfigError
from electra_trainer.experiments.statistics import Paired
from electra_trainer.finetuning.labels_curve import LabelsCurve, draw, parse_counts
from electra_trainer.tasks.examples import TextExample

ASKED = ("finetune", "encoder", "--train", "train.csv", "--device", "cpu", "--parallel", "1", "--epochs", "1")


def test_a_draw_is_nested_stratified_and_has_every_class() -> None:
    train = [TextExample(text=str(n), label="rare" if n < 4 else "bc"[n % 2]) for n in range(200)]
    found = {count: draw(train, count, seed=1) for count in (3, 20, 100, 200)}
    assert {one.label for one in found[3]} == {"rare", "b", "c"} and found[200] == train
    assert set(found[3]) < set(found[20]) < set(found[100])
    assert Counter(one.label for one in found[100]) == {"rare": 2, "b": 49, "c": 49}
    assert found[20] == sorted(found[20], key=train.index) != draw(train, 20, seed=2)
    values = [TextExample(text=str(n), value=float(n)) for n in range(200)]
    assert sum(one.value < 100 for one in draw(values, 20, seed=3)) == 10  # type: ignore[operator]


def test_a_curve_of_own_files(tmp_path: Path, electra: Electra, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_encoder(tmp_path / "encoder")
    write_csv(tmp_path / "train.csv", rows(80))
    first = (*ASKED, "--out", "curve", "--labels-curve", "8,24", "--seeds", "2")
    code, out, err = electra(*first)
    assert code == 0, err
    cells = tmp_path / "curve" / "cells"
    assert {path.name for path in cells.iterdir()} == {
        f"classification+labels={count}{end}" for count in (8, 24) for end in ("", "+tf_idf")
    }
    table = json.loads((tmp_path / "curve" / "summary.json").read_text())
    assert len(table["cells"]) == 8 and {one["state"] for one in table["cells"]} == {"done"}
    assert "labels" in out and "TF-IDF" in out and "labels_curve.svg" in out
    assert (
        "recipe `auto`, 8 training rows: learning-rate 0.001, layer-decay 1, epochs 200, batch-size 16, pooling mean, "
        "bias-correction true, zero-head true. --recipe paper" in out
    )
    steps = [json.loads((cells / f"classification+labels={n}/seed-1/result.json").read_text()) for n in (8, 24)]
    assert [one["facts"]["rows"] for one in steps] == [8, 24]
    before = {path: path.read_bytes() for path in (tmp_path / "curve").rglob("*") if path.is_file()}
    page = (tmp_path / "curve" / "labels_curve.svg").read_bytes()
    code, again, _ = electra(*first)
    assert (code, again) == (0, out) and (tmp_path / "curve" / "labels_curve.svg").read_bytes() == page
    assert {path: path.read_bytes() for path in (tmp_path / "curve").rglob("*") if path.is_file()} == before
    code, out, _ = electra(*first[:-3], "8", "--seeds", "2", "--baselines", "--json")
    assert code == 0 and json.loads(out)["says"].startswith("The encoder is above TF-IDF at no number of labels")
    named = {path.name.partition("+")[2] for path in cells.iterdir()}
    assert {"labels=8+majority", "labels=8+untrained", "labels=8+tf_idf"} < named
    code, _, err = electra(*ASKED, "--out", "curve")
    assert code == 78 and "began with other settings" in err


def test_numbers_of_labels() -> None:
    for text in ("", "50,x", "50,50", "1,20", "-3"):
        with pytest.raises(ConfigError, match="--labels-curve"):
            parse_counts(text)
    assert parse_counts("200, 50") == (50, 200)


@pytest.mark.parametrize(
    ("intervals", "says"),
    [
        ({50: (-0.1, 0.1), 100: (-0.2, -0.1), 1000: (-0.3, -0.1)}, "From 100 labels on the encoder is above TF-IDF, not clearly either at 50 ("),
        ({50: (-0.2, -0.1), 100: (-0.1, -0.01), 500: (0.01, 0.2)}, "The encoder is above TF-IDF at 50 and 100 labels, below it at 500 ("),
        ({50: None, 500: (0.1, 0.2)}, "The encoder is above TF-IDF at no number of labels, below it at 500, not clearly either at 50 ("),
    ],
)  # fmt: skip
def test_the_sentence(intervals: dict[int, tuple[float, float] | None], says: str) -> None:
    """Intervals are those of TF-IDF less the encoder."""
    curve = LabelsCurve(summary=SimpleNamespace(metrics=("dev/accuracy",)), notes=())  # type: ignore[arg-type]
    vars(curve)["contrasts"] = {
        count: SimpleNamespace(found=Paired(n=5, mean=0.0, t_interval=one), over_rows=None)
        for count, one in intervals.items()
    }
    assert curve.says == f"{says}accuracy; 95 % intervals of the difference over paired draws)."


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--labels-curve", "8,2000"), "--labels-curve 2000: expected from 2"),
        (("--labels-curve", "8", "--predict", "train.csv"), "--predict: --labels-curve exports no model"),
        (("--labels-curve", "8", "--task", "tagging"), "--labels-curve: expected --task classification"),
    ],
)
def test_what_has_no_curve(
    tmp_path: Path, electra: Electra, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_encoder(tmp_path / "encoder")
    write_csv(tmp_path / "train.csv", rows(80))
    code, _, err = electra(*ASKED, "--out", "curve", *more)
    assert code == 78 and says in err and not (tmp_path / "curve").exists()
