"""The report: synthetic run folders in, a page and pictures out."""

from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from electra_trainer.errors import DataError, MissingInputError, StorageError
from electra_trainer.files.wording import render
from electra_trainer.inspection import report
from electra_trainer.inspection.report import further, health, read_run, rendered, tokens_of, write_report

pytestmark = pytest.mark.draws
TEXT = ["[CLS]", *"the chef cooked the meal and the guests wash ##ed the dishes in the kitchen .".split(), "[SEP]"]


def metric(step: int, *, noise: float, mlm: bool = False, speed: float = 1.0) -> dict[str, Any]:
    """A plausible row of metrics.jsonl."""
    done = 1 - math.exp(-speed * step / 900)
    rate = 0.135 - 0.04 * done + 0.003 * noise
    guess = -rate * math.log(rate) - (1 - rate) * math.log(1 - rate)
    row = {
        "step": step, "tokens": step * 4096, "flops": step * 2.3e10, "seconds": step * 0.08,
        "loss": 20.0, "generator_loss": 8.3 - 4.2 * done + 0.12 * noise, "generator_accuracy": 0.3 * done + 0.01 * noise,
        "generator_entropy": 8.2 - 3.9 * done + 0.1 * noise, "learning_rate": 1.5e-3 * min(step / 300, (3000 - step) / 2700),
        "gradient_norm": 1.5 + 6 * math.exp(-step / 100) * abs(noise), "tokens_per_second": 51000 + 900 * noise,
    }  # fmt: skip
    if not mlm:
        row |= {
            "discriminator_loss": guess * (1.02 - 0.16 * done * speed) + 0.006 * noise,
            "fake_rate": rate, "discriminator_auc": 0.5 + 0.29 * done * speed + 0.012 * noise,
            "discriminator_standard_auc": 0.5 + 0.1 * done,
        }  # fmt: skip
    return row


def example(rng: np.random.Generator, *, mlm: bool = False) -> dict[str, Any]:
    """A row of examples.jsonl."""
    masked = [token not in ("[CLS]", "[SEP]") and bool(rng.random() < 0.2) for token in TEXT]
    replaced = [chosen and bool(rng.random() < 0.7) and not mlm for chosen in masked]
    words = ["river", "##ing", "of", "player", "had"]
    read = [str(rng.choice(words)) if fake else token for fake, token in zip(replaced, TEXT, strict=True)]
    row = {"original": TEXT, "input": read, "masked": masked}
    if mlm:
        return row
    chance = [float(rng.beta(3, 2) if fake else rng.beta(1, 9)) for fake in replaced]
    return row | {"replaced": replaced, "probability": chance}


def make_run(folder: Path, *, seed: int = 0, mlm: bool = False, speed: float = 1.0, steps: int = 3000) -> Path:
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    rows = [metric(step, noise=float(rng.normal()), mlm=mlm, speed=speed) for step in range(25, steps + 1, 25)]
    for step in range(250, steps + 1, 250):
        row = metric(step, noise=0.1 * float(rng.normal()), mlm=mlm, speed=speed) | {"split": "valid"}
        del row["learning_rate"], row["gradient_norm"]
        if not mlm:
            rate = row["fake_rate"]
            row["discriminator_constant_loss"] = -rate * math.log(rate) - (1 - rate) * math.log(1 - rate)
        rows.append(row)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    shape = {"vocab_size": 4096, "hidden_size": 128}
    objective = {"type": "MLM"} if mlm else {"type": "RTD", "weight": 50.0}
    config = {"preset": "tiny", "seed": seed, "model": shape, "objective": objective, "betas": [0.9, 0.999]}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "environment.json").write_text(json.dumps({"torch": "2.13.0", "python": "3.11.7", "cpu": {"cores": 2}}))
    examples = [{"step": step, "rows": [example(rng, mlm=mlm) for _ in range(6)]} for step in (250, steps)]
    (folder / "examples.jsonl").write_text("".join(json.dumps(line) + "\n" for line in examples))
    return folder


class Tags(HTMLParser):
    """Collects tags and addresses, and checks that tags close in order."""

    VOID = ("meta", "img", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.sources: list[str] = []
        self.ids: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.sources += [value or "" for name, value in attrs if name in ("src", "href", "data")]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of the page's words: drawing takes most of the time."""
    monkeypatch.setattr("electra_trainer.inspection.report.draw", lambda *_: {})


def test_a_run_gives_a_self_contained_page_and_pictures(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    page = write_report([run])
    assert page == run / "report.html"
    text = page.read_text(encoding="utf-8")
    tags = Tags(text)
    assert "script" not in tags.seen and "link" not in tags.seen
    assert tags.sources == [] and len(tags.ids) == len(set(tags.ids)), "ids of two pictures collide"
    used = re.findall(r'(?:url\(|href=")#([^")]+)', text)
    assert used and set(used) <= {*tags.ids}
    pictures = sorted((run / "figures").iterdir())
    assert len(pictures) == tags.seen.count("svg") == 9 and {path.suffix for path in pictures} == {".svg"}
    assert 'aria-label="Learning rate, step size. run: 0.000125 at step 25, 0 at step 3,000"' in text
    for words in (
        "Learning. Of a",
        "12.3M",
        "Sentences at step 3,000",
        "objective.weight",
        "2.13.0",
        "this run<br>0.5",
    ):
        assert words in text
    assert not list(run.rglob(".*")), "temporary files were left"


def test_two_runs_are_compared(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "fast"), make_run(tmp_path / "_slow $x_$", seed=1, speed=0.5, mlm=True)]
    page = write_report(runs, out=tmp_path / "both")
    assert page == tmp_path / "both" / "report.html"
    text = page.read_text(encoding="utf-8")
    Tags(text)
    assert "_slow $x_$: It predicts 2" in text and "fast: Learning." in text
    assert "<tr class=differs><td>objective.type</td><td>RTD</td><td>MLM</td></tr>" in text
    assert (page.parent / "figures" / "generator_loss.svg").exists()


def test_no_text_of_a_figure_is_source_of_tex(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names and labels of axes are shown as they are written, whatever the user's matplotlib is set to."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    texts, save = list[Text](), Figure.savefig

    def saved(self: Figure, *where: Any, **how: Any) -> None:
        save(self, *where, **how)
        texts.extend(self.findobj(Text))

    def scaled(kind: str) -> Figure:
        figure = Figure()
        axes = figure.add_subplot(title="$x_$")
        axes.plot([0, 1], [0.001, 4e7])
        axes.set(xscale=kind, yscale=kind)
        return figure

    monkeypatch.setattr(Figure, "savefig", saved)
    with rc_context({"axes.formatter.use_mathtext": True, "text.usetex": True}):
        runs = [make_run(tmp_path / "a", steps=500), make_run(tmp_path / "_slow $x_$", seed=1, steps=500)]
        assert len(report.draw([read_run(run) for run in runs])) == 9
        for kind in ("linear", "log", "symlog"):
            rendered(lambda kind=kind: scaled(kind), "png")  # type: ignore[misc]
    written = {text.get_text() for text in texts}
    assert {"$x_$", " _slow $x_$", "10", "1e+07", "L2 norm before clipping"} <= written
    assert not [text for text in written if "mathdefault" in text or ("$" in text and "$x_$" not in text)]
    assert not any(text.get_parse_math() or text.get_usetex() for text in texts)


@pytest.mark.usefixtures("no_pictures")
def test_a_comparison_leaves_the_reports_of_its_runs(tmp_path: Path) -> None:
    """A summary also has both counts of FLOPs, and the usual speed, not that of the last row."""
    runs = [make_run(tmp_path / name, steps=100) for name in ("a", "b")]
    for run in runs:
        rows = [json.loads(line) | {"flops_real": 3.5e12} for line in (run / "metrics.jsonl").read_text().splitlines()]
        rows[-1]["tokens_per_second"] = 1
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    own = write_report(runs[0]).read_bytes()
    page = write_report(runs)
    assert page == runs[0] / "compared" / "report.html" and (runs[0] / "report.html").read_bytes() == own
    text = page.read_text()
    assert "FLOPs, as the paper counts" in text and "FLOPs, matrix products" in text and "3.50e12" in text
    assert re.search(r'tokens per second, median</td><td class="number">5\d[\d.]*k<', text)


def test_seeds_of_an_arm_share_a_colour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a line of the legend, their mean in a band; the title is the experiment's. The contrasts come first."""
    from matplotlib.figure import Figure

    figures, save = list[Figure](), Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *at, **how: (save(self, *at, **how), figures.append(self)))
    (tmp_path / "experiment.json").write_text("{}")
    for number, cell in enumerate(("mlm/seed-1", "electra/seed-1", "electra/seed-2")):
        make_run(tmp_path / "cells" / cell / "run", seed=number, steps=500)
    score = {"electra": {"1": 0.75, "2": 0.5}, "mlm": {"1": 0.25, "2": 0.5}}
    found = {"metric": "a/b", "row": "mlm", "reference": "electra", "n": 2, "mean": -0.25, "p_holm": 0.5}
    contrast = found | {"over_rows": None, "t_interval": [-3.4, 2.9]}
    rows = {row: {"a/b": {"by_seed": by_seed}} for row, by_seed in score.items()}
    (tmp_path / "summary.json").write_text(json.dumps({"rows": rows, "contrasts": [contrast]}))
    text = write_report(tmp_path).read_text()
    assert f"<h1>{tmp_path.name}</h1>" in text and "electra, mean of 2</th>" in text
    shown = ("a/b", "mlm − electra", "2", "-0.25", "-3.4 to +2.9", "0.500")
    assert re.findall(r"<td.*?>(.*?)</td>", text)[:6] == [*shown] and "12.7 standard errors" in text
    seeds, interval, mean, _ = figures[0].axes[0].lines
    assert sorted(seeds.get_xdata()) == [-0.5, 0.0] and [*interval.get_xdata()] == [-3.4, 2.9]
    assert [*mean.get_xdata()] == [-0.25]
    axes = figures[1].axes[0]
    lines = [line for line in axes.lines if str(line.get_label()).startswith(" ")]
    assert [line.get_label() for line in lines] == [" electra", " mlm"]
    colours = {line.get_color() for line in axes.lines}
    assert len(axes.collections) == 1 and {line.get_color() for line in lines} == colours and len(colours) == 2
    (tmp_path / "summary.json").write_text('{"rows": 1, "contrasts": [{}]}')
    assert "mlm − electra" not in write_report(tmp_path).read_text()


@pytest.mark.usefixtures("no_pictures")
def test_runs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "a" / "run", steps=100), make_run(tmp_path / "b" / "run", steps=100)]
    text = write_report(runs, out=tmp_path / "page.html").read_text(encoding="utf-8")
    assert str(runs[0]) in text and str(runs[1]) in text


def test_an_experiment_is_all_its_runs(tmp_path: Path) -> None:
    """Each by its arm and seed, in their order; the page is in the experiment's folder."""
    (tmp_path / "experiment.json").write_text("{}")
    with pytest.raises(MissingInputError, match=r"no run of this experiment has begun\. Repeat its command"):
        write_report([tmp_path])
    for cell in ("mlm/seed-2", "electra/seed-10", "electra/seed-2"):
        make_run(tmp_path / "cells" / cell / "run", mlm="mlm" in cell, steps=100)
    page = write_report([tmp_path])
    assert page == tmp_path / "report.html"
    text = page.read_text()
    places = [text.index(name) for name in ("electra seed 2", "electra seed 10", "mlm seed 2")]
    assert places == sorted(places)


def test_a_masked_language_model_has_no_discriminator(tmp_path: Path) -> None:
    run = make_run(tmp_path / "mlm", mlm=True)
    text = write_report([run]).read_text(encoding="utf-8")
    assert not (run / "figures" / "discriminator_auc.svg").exists()
    assert "false alarm" not in text and "discriminator AUC" not in text
    assert "It predicts 29 in 100 of the chosen words." in text and 'class="gauge"' not in text


@pytest.mark.usefixtures("no_pictures")
def test_no_text_reorders_the_page(tmp_path: Path) -> None:
    """Bidirectional controls are shown as escapes, as on the terminal, wherever a text comes from; scripts stay."""
    turned, hebrew = "\u202egnp.\u2066x\u200f", "\u05e9\u05dc\u05d5\u05dd"
    run = make_run(tmp_path / turned, steps=100)
    row = {"original": [turned, hebrew], "input": [f"##{turned}", hebrew], "masked": [True, False]}
    judged = {"replaced": [True, False], "probability": [0.9, 0.8]}
    (run / "examples.jsonl").write_text(json.dumps({"step": 9, "rows": [row, row | judged]}) + "\n")
    for name in ("config", "environment"):
        (run / f"{name}.json").write_text(json.dumps({turned: turned, "list": [turned, hebrew]}))
    text = write_report([run]).read_text(encoding="utf-8")
    assert not set(text) & set("\u202e\u2066\u200f") and text.count(r"\u202egnp.\u2066x\u200f") == 11
    assert text.count(hebrew) == 4


@pytest.mark.usefixtures("no_pictures")
def test_the_later_line_of_a_step_wins_and_half_a_line_is_skipped(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", steps=500)
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 50, "generator_loss": 1.25, "gradient_norm": None}) + "\n")
        file.write('{"step": 75, "generator_l')
    read = read_run(run)
    assert [row["step"] for row in read.train] == list(range(25, 501, 25))
    assert read.train[1] == {"step": 50, "generator_loss": 1.25}
    write_report([run])


@pytest.mark.parametrize("content", ["", "\n\n{}\n", "\0\xff[1]\n" * 3])
def test_unusable_metrics_are_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "metrics.jsonl").write_text(content, encoding="latin-1")
    with pytest.raises(DataError, match=r"metrics\.jsonl: holds no JSON object with a"):
        write_report([tmp_path])


def test_missing_things_are_named(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="electra report RUN"):
        write_report([])
    with pytest.raises(MissingInputError, match="nowhere"):
        write_report([tmp_path / "nowhere"])
    with pytest.raises(MissingInputError, match=r"metrics\.jsonl"):
        write_report([tmp_path])


def test_a_bare_metrics_file_is_enough(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "generator_loss": NaN, "learning_rate": 1e999, "loss": 3}\n')
    (tmp_path / "config.json").write_text("[1")
    (tmp_path / "examples.jsonl").write_text(
        '{"step": 1, "rows": [{"original": ["a"], "input": [], "masked": [true]}]}\n'
    )
    Tags(write_report([tmp_path]).read_text(encoding="utf-8"))


@pytest.mark.usefixtures("no_pictures")
def test_a_place_that_cannot_be_written_is_a_storage_error(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", steps=100)
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file"):
        write_report([run], out=tmp_path / "file" / "page.html")


def test_a_sentence_joins_pieces_and_marks_what_happened() -> None:
    row = {
        "original": ["[CLS]", "the", "wash", "##ed", "dish", "sink", "[SEP]", "[PAD]"],
        "input": ["[CLS]", "the", "wash", "##ing", "dish", "moon", "[SEP]", "[PAD]"],
        "masked": [False, True, False, True, False, True, False, False],
        "replaced": [False, False, False, True, False, True, False, False],
        "probability": [0.0, 0.1, 0.2, 0.8, 0.7, 0.3, 0.0, 0.0],
    }
    assert render("sentence.html", tokens=tokens_of(row)) == (
        '<span class="special">[CLS]</span> <span class="masked">the</span> wash'
        '<del>ed</del> <ins class="hit">✓ing <small>80%</small></ins> '
        '<span class="alarm">!dish <small>70%</small></span> '
        '<del>sink</del> <ins class="miss">✗moon <small>30%</small></ins> <span class="special">[SEP]</span>'
    )


@pytest.mark.parametrize(
    ("standard", "kind", "words"),
    [
        (
            0.58,
            "good",
            "Learning. Of a replaced and an original word it suspects the right one 58 times in 100 (a guess: 50).",
        ),
        (0.53, "", "Beginning"),
        (0.50, "bad", "Not better"),
        (None, "", "right one 78 times in 100 (a guess: 50), where its own generator replaced."),
    ],
)
def test_health_in_words(tmp_path: Path, standard: float | None, kind: str, words: str) -> None:
    """Health by the AUC on standard fakes, else by that on the generator's; a stopped run says where it ended."""
    row = {
        "step": 1, "split": "valid", "discriminator_loss": 0.21, "discriminator_constant_loss": 0.25,
        "discriminator_auc": 0.78, "discriminator_standard_auc": standard, "generator_entropy": 4.0,
    }  # fmt: skip
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "config.json").write_text('{"model": {"vocab_size": 4096}, "schedule": {"steps": 3}}')
    found, text = health(read_run(tmp_path))
    assert found == kind and words in text and "Ended early" not in text
    (tmp_path / "status.json").write_text('{"state": "stopped", "step": 1}')
    assert health(read_run(tmp_path)) == (found, f"Ended early, at step 1 of 3. {text}")


def test_a_run_of_mini_is_compared_with_the_records(tmp_path: Path) -> None:
    """Unless it began with trained weights, or has another preset; one that was continued counts all its tokens."""
    run = make_run(tmp_path / "run", steps=100)
    assert further(read_run(run)) == ""
    (run / "config.json").write_text('{"preset": "mini"}')
    assert further(read_run(run)).endswith("3 min away at this speed.")
    for init, compared in (({"name": "a"}, False), ({"name": "a", "step": 3}, True)):
        (run / "environment.json").write_text(json.dumps({"init": init}))
        assert bool(further(read_run(run))) == compared
