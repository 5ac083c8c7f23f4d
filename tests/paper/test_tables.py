"""Tables: our cells in the paper's rows, what is missing shown, three formats that parse back, links that lead somewhere."""

import json
import re
import shutil
from pathlib import Path

import pytest
from tests.paper.experiments import full_flops, write_cell, write_experiment

from electra_trainer.cli.main import main
from electra_trainer.errors import ConfigError, DataError
from electra_trainer.experiments.summary import summarize
from electra_trainer.files.wording import escape_tex
from electra_trainer.paper.paper_tables import ABSENT, PaperRow, PaperTable, build_table, write
from electra_trainer.paper.published import TABLES
from electra_trainer.presets.models import preset as make_preset
from electra_trainer.settings.config import changed


def build(number: int, *paths: Path, metrics: tuple[str, ...] = ()) -> PaperTable:
    return build_table(number, [summarize(path) for path in paths], metrics=metrics)


def ours(table: PaperTable) -> dict[str, PaperRow]:
    return {row.model: row for row in table.rows if row.source != "paper"}


def markdown(text: str) -> list[list[str]]:
    """Cells of a Markdown table, without the line of dashes."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return [rows[0], *rows[2:]]


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """Two arms of Table 4 done (three seeds, two), one not, and an arm that the table does not have."""
    path = write_experiment(tmp_path / "tiny one", arms=("electra", "mlm", "replace-mlm", "unigram"))
    for seed, accuracy in ((1, 0.80), (2, 0.82), (3, 0.84)):
        write_cell(path, "electra", seed, {"pos/accuracy": accuracy, "glue/average": accuracy / 2})
    for seed, accuracy in ((1, 0.70), (3, 0.74)):
        write_cell(path, "mlm", seed, {"pos/accuracy": accuracy, "held-out/generator_loss": 3.0})
    write_cell(path, "unigram", 1, {"pos/accuracy": 0.5})
    return path


def test_table_4_puts_arms_into_their_rows(tiny: Path) -> None:
    table = build(4, tiny)
    assert [row.model for row in table.rows if row.source == "paper"] == [
        "ELECTRA", "All-Tokens MLM", "Replace MLM", "ELECTRA 15%", "BERT",
    ]  # fmt: skip
    mine = ours(table)
    electra = mine["ELECTRA"]
    assert electra.values["pos/accuracy"].number == pytest.approx(0.82)
    assert electra.values["pos/accuracy"].sd == pytest.approx(0.02)
    assert electra.values["glue/average"].number == pytest.approx(41.0)  # in points, as the paper prints
    assert electra.seeds == (1, 2, 3)
    assert mine["BERT"].values["pos/accuracy"].number == pytest.approx(0.72)
    assert mine["BERT"].seeds == (1, 3)
    for name in ("All-Tokens MLM", "Replace MLM", "ELECTRA 15%"):
        assert mine[name].values == {} and mine[name].source == "ours"
    unigram = next(row for name, row in mine.items() if "unigram" in name)
    assert unigram is table.rows[-1] and unigram.model.startswith("tiny (ours)")
    assert any("replace-mlm: missing: seed 1, 2, 3" in note for note in table.notes)
    assert any(": all of it (electra − mlm), pos/accuracy: +0.100 (n = 2)" in note for note in table.notes)
    # each row of ours directly under the paper's
    assert [row.model for row in table.rows[:10]] == [model for model in list(mine)[:5] for _ in range(2)]


def test_table_1_places_by_preset_arm_and_share(tmp_path: Path, tiny: Path) -> None:
    full = full_flops("small")
    path = write_experiment(tmp_path / "small", preset="small")
    write_cell(path, "mlm", 1, {"glue/average": 0.75}, flops=1.097 * full)  # the authors' own BERT-Small
    paths = [path]
    shares = {1.0: "ELECTRA-Small", 0.5: "ELECTRA-Small, 50% trained", 0.0625: "ELECTRA-Small, 6.25% trained"}
    for share in shares:
        paths.append(write_experiment(tmp_path / f"share-{share}", preset="small", arms=("electra",), seeds=(1,)))
        write_cell(paths[-1], "electra", 1, {"glue/average": 0.7 + share / 10}, flops=share * full)
    paths.append(write_experiment(tmp_path / "odd", preset="small", arms=("electra",), seeds=(1,)))
    write_cell(paths[-1], "electra", 1, {"glue/average": 0.6}, flops=0.75 * full)
    small = make_preset("small")
    halved = {"electra": changed(small, batch={"size": 64})}
    paths.append(write_experiment(tmp_path / "halved", preset="small", arms=(), configs=halved, seeds=(1,)))
    write_cell(paths[-1], "electra", 1, {"glue/average": 0.5}, flops=full)
    mine = ours(build(1, *paths, tiny))
    assert mine["small (ours): electra"].values["glue/average"].number == pytest.approx(50.0)  # no row of the paper
    assert mine["BERT-Small"].values["glue/average"].number == pytest.approx(75.0)
    for share, model in shares.items():
        assert mine[model].values["glue/average"].number == pytest.approx(100 * (0.7 + share / 10)), model
    assert mine["ELECTRA-Small, 25% trained"].values == {}
    assert mine["ELECTRA-Base"].values == {} and mine["BERT-Base"].values == {}
    odd = mine["small (ours): electra, 75% trained"]  # three quarters are no row of the paper
    assert odd.values["glue/average"].number == pytest.approx(60.0)
    assert odd.values["parameters"].number == pytest.approx(13_549_057)
    assert odd.values["infer_flops"].number == pytest.approx(3.7e9, rel=0.01)
    assert str(odd.values["time_and_hardware"].words).endswith("(threads: 2)")
    assert any(name.startswith("tiny (ours): electra") for name in mine)


def test_test_sets_have_their_own_scores(tmp_path: Path) -> None:
    path = write_experiment(tmp_path / "large", preset="large", arms=("electra",), seeds=(1,))
    write_cell(
        path, "electra", 1, {"glue/cola": 0.69, "glue-test/cola": 0.68, "squad2/em": 0.87}, flops=full_flops("large")
    )
    dev, test = (row for row in build(2, path).rows if row.source.startswith("ours (large"))
    assert (dev.split, test.split) == ("dev", "test")
    assert dev.values["glue/cola"].number == pytest.approx(69.0)
    assert test.values["glue/cola"].number == pytest.approx(68.0)
    electra = ours(build(3, path))["ELECTRA"]
    assert electra.values["squad2/em"].number == pytest.approx(87.0)
    assert "squad1/em" not in electra.values


def test_several_experiments_stand_under_one_row(tmp_path: Path, tiny: Path) -> None:
    other = write_experiment(tmp_path / "other", arms=("electra",), seeds=(1,))
    write_cell(other, "electra", 1, {"pos/accuracy": 0.9})
    rows = [row for row in build(4, tiny, other).rows if row.model == "ELECTRA"]
    ours = [f"ours (tiny, {name}, 50 % masked)" for name in ("tiny one", "other")]
    assert [row.source for row in rows] == ["paper", *ours]


@pytest.mark.parametrize("number", TABLES)
def test_formats_parse_back(tiny: Path, tmp_path: Path, number: int) -> None:
    table = build(number, tiny)
    rows = markdown(write(table, ".md"))
    assert len({len(row) for row in rows}) == 1
    assert len(rows) == 1 + len(table.rows)
    assert all(cell for row in rows for cell in row), "a blank cell"
    tex = write(table, ".tex")
    body = tex[tex.index(r"\midrule") : tex.index(r"\bottomrule")].splitlines()[1:]
    assert {len(re.findall(r"(?<!\\)&", line)) for line in body} == {len(rows[0]) - 1}
    assert all(line.endswith(r" \\") for line in body)
    assert len(re.findall(r"(?<!\\)\{", tex)) == len(re.findall(r"(?<!\\)\}", tex))
    columns = re.search(r"begin\{tabular\}\{([lr]+)\}", tex)
    assert columns and len(columns[1]) == len(rows[0])
    assert ABSENT not in tex and "---" in tex


def test_what_the_cells_say(tiny: Path, tmp_path: Path) -> None:
    rows = {(row[0], row[1]): row for row in markdown(write(build(4, tiny), ".md"))}
    titles = rows["Model", "From"]
    electra = dict(zip(titles, rows["ELECTRA", "ours (tiny, 50 % masked)"], strict=True))
    assert electra["GLUE score"] == "41.0 ± 1.0"
    assert electra["pos/accuracy"] == "0.820 ± 0.020"
    assert electra["Train FLOPs"] == "1.0e12"
    assert electra["seeds"] == "3"
    unigram = next(row for row in rows.values() if "unigram" in row[0])
    assert unigram[titles.index("pos/accuracy")] == "0.500", "one seed has no deviation"
    assert set(rows["Replace MLM", "ours"][2:]) == {ABSENT}
    assert rows["ELECTRA", "paper"][2] == "85.0"


def test_seeds_are_named(tiny: Path) -> None:
    shutil.rmtree(tiny / "cells/unigram/seed-1/run")  # results outlive their runs
    table = build(4, tiny)
    for cells, row in zip(markdown(write(table, ".md"))[1:], table.rows, strict=True):
        assert tuple(map(int, cells[-1].replace("—", "").split())) == row.seeds, cells


def keys(number: int, *paths: Path, metrics: tuple[str, ...] = ()) -> list[str]:
    return [column.key for column in build(number, *paths, metrics=metrics).columns]


def test_metrics_are_chosen(tiny: Path) -> None:
    """The declared ones; all others where a pattern asks for them."""
    assert keys(4, tiny) == ["glue/average", "train_flops", "pos/accuracy"]
    assert keys(4, tiny, metrics=("held-out/*",)) == ["glue/average", "train_flops", "held-out/generator_loss"]
    with pytest.raises(ConfigError, match="Did you mean 'pos/accuracy'"):
        build(4, tiny, metrics=("pos/accurcy",))


def test_tasks_of_glue_are_shown_where_they_are_asked_for_or_have_no_average(tmp_path: Path) -> None:
    """In points under the paper's name, in a table that has only the average; another experiment may have that."""
    some, all_eight = (write_experiment(tmp_path / name, seeds=(1,)) for name in ("some", "all"))
    write_cell(some, "electra", 1, {"glue/rte": 0.6})
    write_cell(all_eight, "electra", 1, {"glue/average": 0.8, "glue/sst": 0.9})
    for path, metric in ((some, "glue/rte"), (all_eight, "glue/sst")):
        declared = json.loads((path / "experiment.json").read_text())
        declared["rows"]["electra"]["metrics"] = [metric, "glue/average"]
        (path / "experiment.json").write_text(json.dumps(declared))
    assert keys(4, all_eight) == ["glue/average", "train_flops"]
    assert keys(4, all_eight, metrics=("glue/*",))[2:] == ["glue/sst"]
    table = build(4, some, all_eight)
    shown = table.columns[-1]
    assert (shown.key, shown.title, shown.kind) == ("glue/rte", "RTE", "score")
    assert 60.0 in [row.values["glue/rte"].number for row in table.rows if "glue/rte" in row.values]


def test_points_where_a_share_belongs_are_refused(tmp_path: Path) -> None:
    path = write_experiment(tmp_path, arms=("electra",), seeds=(1,))
    write_cell(path, "electra", 1, {"glue/average": 79.9})
    with pytest.raises(DataError, match=r"glue/average = 79\.9.*share"):
        build(4, path)


def test_hostile_names_are_escaped(tmp_path: Path) -> None:
    name = r"a|b_c%d&e\f{g}#$^~[x](y)"
    path = write_experiment(tmp_path / "e", arms=("electra",))
    write_cell(path, "electra", 1, {name: 0.5})
    table = build(4, path, metrics=("*",))
    rows = markdown(write(table, ".md"))
    assert len({len(row) for row in rows}) == 1
    tex = write(table, ".tex")
    assert escape_tex(name) in tex and name not in tex
    for line in tex[tex.index(r"\toprule") :].splitlines():
        text = re.sub(r"\\href\{.*?\}", "", line).replace(r"$\pm$", "").replace(r"\end{tabular}}", "")
        assert not re.search(r"(?<!\\)[%#$_]", text), line


def test_the_verb(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["table", "4", str(tiny)]) == 0
    assert capsys.readouterr().out.startswith("**Table 4.**")
    for name, begins in (("out/t.tex", "% needs"), ("t.md", "**Table 4.**")):
        assert main(["table", "4", str(tiny), "--out", name]) == 0
        assert capsys.readouterr().out == f"{name}\n" and (tmp_path / name).read_text().startswith(begins)
    for code, said, words in (
        (78, "expected one of 1, 2, 3, 4, 7", ["6", str(tiny)]),
        (78, "a name that ends in .md or .tex", ["4", str(tiny), "--out", "t.docx"]),
        (78, "at least one experiment folder", ["4"]),
        (66, "nowhere", ["4", str(tmp_path / "nowhere")]),
    ):
        assert main(["table", *words]) == code and said in capsys.readouterr().err
