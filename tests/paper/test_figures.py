"""Figures 1, 3 and 4: made from any state of an experiment, with the arms' names in the picture."""

import itertools
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.paper.experiments import with_width, write_cell, write_experiment

from electra_trainer.cli.main import main
from electra_trainer.errors import ConfigError, DataError
from electra_trainer.experiments.summary import summarize
from electra_trainer.paper import figures
from electra_trainer.paper.figures import draw_figure, generator_size
from electra_trainer.paper.paper_tables import choose_metric, entries
from electra_trainer.paper.published import published_points

AUC = "held-out/discriminator_auc"


def words(svg: bytes) -> str:
    """All texts of a picture."""
    return " ".join(
        "".join(node.itertext()) for node in ElementTree.fromstring(svg).iter() if node.tag.endswith("text")
    )


def draw(number: int, *paths: Path, metric: str | None = None) -> str:
    shown = words(draw_figure(number, [summarize(path) for path in paths], metric=metric, form="svg"))
    assert "mathdefault" not in shown
    return shown


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = write_experiment(
        tmp_path / "tiny",
        arms=("electra", "mlm", "two-stage", "adversarial", "unigram", "same-size", "warm-sampling"),
        configs={"narrow": with_width(0.25)},
    )
    arms = ("electra", "mlm", "two-stage", "unigram", "same-size", "narrow", "warm-sampling")
    for index, arm in enumerate(arms):
        for seed in (1, 2, 3):
            metrics = {"pos/accuracy": 0.7 + index / 100 + seed / 1000} | (
                {} if arm == "mlm" else {AUC: 0.6 + index / 50}
            )
            write_cell(path, arm, seed, metrics, curve=[(0.1, 0.5), (0.5, 0.55), (1.0, 0.6)])
    return path


def test_every_figure_names_its_arms(tiny: Path) -> None:
    first = draw(1, tiny)
    for arm in ("electra", "mlm", "two-stage", "unigram", "same-size", "narrow", "warm-sampling"):
        assert re.search(rf"(?<![\w-]){arm}(?![\w-])", first), arm
    third = draw(3, tiny)
    assert "Generator sizes" in third and "32 (0.25x) 1 of 3" in third and "two-stage" in third
    fourth = draw(4, tiny)
    assert "ELECTRA minus BERT" in fourth and "tiny" in fourth


def test_only_panels_with_data_are_drawn(tmp_path: Path) -> None:
    """Figures 3 and 4 have a panel less where nothing belongs into it."""
    sizes = write_experiment(tmp_path / "sizes", arms=("unigram", "same-size"), seeds=(1,))
    algorithms = write_experiment(tmp_path / "algorithms", arms=("mlm", "two-stage"), seeds=(1,))
    other = write_experiment(tmp_path / "other", arms=("electra-15",), seeds=(1,))
    for path, arms in ((sizes, ("unigram", "same-size")), (algorithms, ("mlm", "two-stage")), (other, ("electra-15",))):
        for arm in arms:
            write_cell(path, arm, 1)
    for path, shown, hidden in (
        (sizes, "Generator sizes", "Training algorithms"), (algorithms, "Training algorithms", "Generator sizes")
    ):  # fmt: skip
        text = draw(3, path)
        assert shown in text and hidden not in text and "missing" not in text
    assert "ELECTRA minus BERT" not in draw(4, algorithms)
    with pytest.raises(DataError, match="figure 3: no arm is a size of the generator, or one of electra, mlm"):
        draw(3, other)


@pytest.mark.parametrize("number", [1, 3, 4])
@pytest.mark.parametrize("seeds", [1, 2])
def test_any_number_of_seeds_and_no_curves(tmp_path: Path, number: int, seeds: int) -> None:
    path = write_experiment(tmp_path / "e", arms=("electra", "mlm"), seeds=(1, 2))
    for seed in range(1, seeds + 1):
        write_cell(path, "electra", seed)
    assert "electra" in draw(number, path)


@pytest.mark.parametrize("number", [1, 3, 4])
def test_several_sizes(tmp_path: Path, tiny: Path, number: int) -> None:
    """Also where two arms of one experiment have a generator of the same size."""
    twins = {"electra": with_width(0.5), "twin": with_width(0.5)}
    small = write_experiment(tmp_path / "small", preset="small", arms=(), configs=twins, seeds=(1,))
    for arm in twins:
        write_cell(small, arm, 1, {"pos/accuracy": 0.9}, flops=1e15)
    assert "small" in draw(number, tiny, small)


def test_budgets_of_an_arm_are_one_line(tmp_path: Path) -> None:
    folders = [write_experiment(tmp_path / name, arms=("electra",), seeds=(1,)) for name in ("less", "more")]
    for folder, flops in zip(folders, (1e12, 2e12), strict=True):
        write_cell(folder, "electra", 1, {"pos/accuracy": flops / 4e12}, flops=flops)
    shown = draw(1, *folders)
    assert shown.count("electra") == 1
    assert "(less)" not in shown


def test_glue_has_the_papers_points_on_its_axes(tmp_path: Path) -> None:
    path = write_experiment(tmp_path / "e", arms=("electra",), seeds=(1,))
    write_cell(path, "electra", 1, {"glue/average": 0.6})
    shown = draw(1, path)
    assert shown.count("training FLOPs") == 2 and "The dashed box, enlarged" in shown
    assert "ELECTRA (paper)" in shown and shown.count("GPT") == 1  # which lies outside of the box
    assert entries([summarize(path)])[0].by_seed("glue/average") == {1: pytest.approx(60.0)}


def test_choice_of_the_metric(tiny: Path, tmp_path: Path) -> None:
    experiment = summarize(tiny)
    assert choose_metric([experiment], None) == "pos/accuracy"  # all arms share it; the AUC one has not
    assert choose_metric([experiment], AUC) == AUC
    with pytest.raises(ConfigError, match="Did you mean 'pos/accuracy'"):
        choose_metric([experiment], "pos/acuracy")
    apart = write_experiment(tmp_path / "apart", arms=("electra", "mlm"), seeds=(1,))
    for arm in ("electra", "mlm"):
        write_cell(apart, arm, 1, {"held-out/generator_accuracy": 0.5})
    with pytest.raises(ConfigError, match="share no metric that compares them"):
        choose_metric([summarize(apart)], None)
    empty = summarize(write_experiment(tmp_path / "empty"))
    with pytest.raises(DataError, match="electra compare"):
        choose_metric([empty], None)


def test_curves_are_read_from_the_runs(tiny: Path) -> None:
    entry = entries([summarize(tiny)])[0]
    assert entry.arm == "electra" and {*entry.by_seed("flops_paper").values()} == {1e12}
    assert entry.curves(AUC)[0] == [(1e11, 0.5), (5e11, 0.55), (1e12, 0.6)]
    assert entry.curves("pos/accuracy") == [[], [], []]  # not measured on the way


def test_generator_sizes_keep_to_one_difference(tiny: Path) -> None:
    sizes = {entry.arm: generator_size(entry.config) for entry in entries([summarize(tiny)])}
    orders = {arm: size[0] for arm, size in sizes.items() if size is not None}
    assert orders == {"electra": 64, "unigram": -1, "same-size": 128, "narrow": 32}


def test_labels_of_eight_generators_do_not_overlap(tmp_path: Path) -> None:
    """As many as the paper's figure has for one discriminator, each with the longest label: part of the layers."""
    widths = {f"w{i}": with_width(i / 4) for i in range(1, 8)}
    path = write_experiment(tmp_path / "e", arms=("unigram",), configs=widths, seeds=(1,))
    for arm in ("unigram", *widths):
        write_cell(path, arm, 1)
    experiments = [summarize(path)]
    figure = figures.FIGURES[3](entries(experiments), "pos/accuracy")
    figure.canvas.draw()
    boxes = [label.get_window_extent() for label in figure.axes[0].get_xticklabels()]
    assert len(boxes) == 8 and not any(one.overlaps(other) for one, other in itertools.pairwise(boxes))


def test_published_points() -> None:
    points = published_points()
    assert [score for _, score, _ in points["ELECTRA"]] == [74.1, 76.0, 77.7, 79.0, 79.9, 85.1, 89.0]
    names = [name.removeprefix("BERT-") for _, _, name in points["BERT"]]
    assert names == ["Small", "Base", "Large", "Large (paper's own)"]
    assert {name for _, _, name in points["others"]} == {"ELMo", "GPT", "RoBERTa-100K", "XLNet", "RoBERTa"}


def test_same_input_same_picture(tiny: Path) -> None:
    experiments = [summarize(tiny)]
    pictures = [draw_figure(1, experiments, metric=None, form="svg") for _ in range(2)]
    assert pictures[0] == pictures[1]


def test_names_are_not_mathematics(tmp_path: Path) -> None:
    path = write_experiment(tmp_path / "$x_{1$", arms=(), configs={"$\\frac$": with_width(0.5)}, seeds=(1,))
    with pytest.raises(DataError, match="not a row"):  # a backslash could be a path
        summarize(path)
    path = write_experiment(tmp_path / "$y_{1$", arms=(), configs={"$a_{b$": with_width(0.5)}, seeds=(1,))
    write_cell(path, "$a_{b$", 1, {"m$_{$": 0.5})
    assert "$a_{b$" in draw(1, path)


def test_the_verb(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["figure", "1", str(tiny)]) == 0
    assert Path(capsys.readouterr().out.strip()) == tiny / "figure-1.svg"
    for name, begins in (("a.png", b"\x89PNG"), ("b.pdf", b"%PDF"), ("deep/c.svg", b"<?xml")):
        assert main(["figure", "4", str(tiny), "--out", str(tmp_path / name), "--metric", "pos/accuracy"]) == 0
        assert (tmp_path / name).read_bytes().startswith(begins)
    for wrong in (["5"], ["1", "--out", str(tmp_path / "x.gif")], ["1", "--metric", "no"]):
        assert main(["figure", wrong[0], str(tiny), *wrong[1:]]) == ConfigError.exit_code, wrong
    assert main(["figure", "1"]) == ConfigError.exit_code
