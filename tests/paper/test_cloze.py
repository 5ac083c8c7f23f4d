"""`cloze` from a run folder: what is reported, for which runs, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.prepared import VOCAB_SIZE, write_store

from electra_trainer.cli.main import main
from electra_trainer.data.store import Store
from electra_trainer.errors import ConfigError, DataError
from electra_trainer.paper.cloze import cloze
from electra_trainer.pretrained.pretrained import Pretrained, export_run, load

Loud = Callable[[str], Pretrained]


def test_reports_both_predictions_the_bound_and_paired_differences(trained: Path, loud: Loud) -> None:
    run = loud("electra")
    found = cloze(run, trained / "data", against=loud("mlm"), rows=12, per_row=3, top=20, seed=4)
    assert list(found.accuracy) == ["generator", "appendix-g", "against"]
    assert found.positions == len(found.sites.truth_K) == 36 and found.rows == 12 and found.p_mask == 4 / 32
    rows = Store.open(trained / "data").rows("valid")
    assert np.array_equal(rows[found.sites.row_K, found.sites.column_K], found.sites.truth_K)
    for name, estimate in found.accuracy.items():
        assert estimate.value == pytest.approx((found.predicted[name] == found.sites.truth_K).mean())
    for name, estimate in found.difference.items():
        second, first = name.split(" - ")
        assert estimate.value == pytest.approx(found.accuracy[second].value - found.accuracy[first].value)
    assert not np.array_equal(found.predicted["generator"], found.predicted["appendix-g"])
    assert found.among_top is not None and found.among_top.value >= found.accuracy["appendix-g"].value
    again = cloze(loud("electra"), trained / "data", rows=12, per_row=3, top=20, seed=4)
    assert np.array_equal(again.predicted["appendix-g"], found.predicted["appendix-g"])
    whole = cloze(loud("electra"), trained / "data", rows=4, per_row=2, top=10 * VOCAB_SIZE, seed=4)
    assert whole.among_top is not None and whole.among_top.value == 1 and whole.top == VOCAB_SIZE


def test_against_is_the_other_runs_own_argmax(trained: Path, loud: Loud) -> None:
    """At the very words that the first run was asked for; test_predict_words.py has the passes one by one."""
    mlm = loud("mlm")
    found = cloze(loud("electra"), trained / "data", against=mlm, rows=5, per_row=2, top=3)
    alone = cloze(mlm, trained / "data", rows=5, per_row=2)
    assert list(alone.accuracy) == ["encoder"] and alone.among_top is None and alone.p_mask is None
    assert np.array_equal(alone.predicted["encoder"], found.predicted["against"])


def test_runs_with_an_encoder_and_a_generator_report_both(trained: Path, loud: Loud) -> None:
    found = cloze(loud("replace-mlm"), trained / "data", rows=3)
    assert list(found.accuracy) == ["generator", "encoder"] and "appendix-g" not in found.accuracy


def test_an_export_needs_p_mask(trained: Path, tmp_path: Path) -> None:
    export_run(trained / "electra", tmp_path / "export")
    without = cloze(load(tmp_path / "export"), trained / "data", rows=3, top=9)
    assert list(without.accuracy) == ["generator"] and "--p-mask" in without.notes[0]
    given = cloze(load(tmp_path / "export"), trained / "data", rows=3, top=9, p_mask=4 / 32)
    run = cloze(load(trained / "electra"), trained / "data", rows=3, top=9)
    assert np.array_equal(given.predicted["appendix-g"], run.predicted["appendix-g"])
    with pytest.raises(ConfigError, match="no generator"):
        cloze(load(tmp_path / "export" / "discriminator"), trained / "data")


def test_wrong_input_is_refused(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="RUN has no generator network"):
        cloze(load(trained / "unigram"), trained / "data")
    with pytest.raises(ConfigError, match="--against has no generator network"):
        cloze(load(trained / "mlm"), trained / "data", against=load(trained / "unigram"))
    for name in ("rows", "per_row", "top"):
        with pytest.raises(ConfigError, match=f"--{name.replace('_', '-')} = 0"):
            cloze(load(trained / "mlm"), trained / "data", **{name: 0})
    other = write_store(tmp_path / "other", vocab_size=300)
    with pytest.raises(DataError, match="another tokenizer"):
        cloze(load(trained / "mlm"), other)


def test_the_command(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["cloze", str(trained / "electra"), str(trained / "data"), "--rows", "4", "--per-row", "1", "--top", "5"]
    assert main([*words, "--json", "--against", str(trained / "mlm")]) == 0
    table = json.loads(capsys.readouterr().out)
    assert set(table["accuracy"]) == {"generator", "appendix-g", "against"}
    assert set(table["accuracy"]["generator"]) == {"value", "standard_error", "low", "high"}
    assert (table["positions"], table["rows"], table["per_row"], table["top"]) == (4, 4, 1, 5)
    assert main([*words, "--rows", "1"]) == 0
    assert "1 held-out words in 1 rows" in capsys.readouterr().out
    assert main([*words, "--rows", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["among_top"]["standard_error"] is None  # JSON has no NaN
    assert main(["cloze", str(trained / "unigram"), str(trained / "data")]) == 78
    assert main(["cloze", str(trained / "electra"), "nowhere"]) == 66
