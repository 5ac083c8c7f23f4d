"""Requests that reproduce the paper: compare, table, figure, cloze, minimal-pairs; each is the flags, the `--config`
file and the Python call.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import tyro

from electra_trainer.errors import ConfigError, require
from electra_trainer.experiments.summary import Summary, summarize
from electra_trainer.files import durable
from electra_trainer.presets.arms import ARMS, PRESET
from electra_trainer.settings.request import Request, TrainingRequest

if TYPE_CHECKING:
    from electra_trainer.paper.cloze import ClozeScores
    from electra_trainer.paper.figures import WorkedExample
    from electra_trainer.paper.minimal_pairs import PairScores
    from electra_trainer.pretrained.pretrained import Pretrained


@dataclass(frozen=True, kw_only=True)
class Compare(TrainingRequest):
    """Pre-train several arms with several seeds at equal compute, probe what each learned, and compare by seed.

    The same command resumes where it stopped; more seeds, arms or probes extend the experiment. All other flags are the
    configuration's, as for `electra pretrain`, and hold for all arms.
    """

    data: tyro.conf.Positional[Path]
    """Folder that `electra prepare` made."""
    arms: str
    """Arms between commas, the first the reference: electra, electra-15, electra-15-other, lucky-fakes, mlm,
    mlm-80-10-10, mlm-rare, mlm-hard, replace-mlm, all-tokens-mlm, all-tokens-mlm-plain, unigram, uniform, same-size,
    sharing-none, sharing-all, disentangled, two-stage, two-stage-fresh, adversarial, warm-sampling, disallow-correct,
    sentence-contrast; preset: the preset as it is; untrained: fresh weights, the baseline of every probe; or an
    objective or arm of your own (--import)."""
    out: Path
    """Folder of the experiment: a new one, or one to resume or extend."""
    own: tyro.conf.Suppress[Mapping[str, Any]] = field(default_factory=dict)
    """Arms by name that are whole configurations, from Python."""
    seeds: str = "3"
    """How many, or which: 3 is 1,2,3."""
    flops: float | None = None
    """Operations of each run, for example 1e15."""
    steps: int | None = None
    """Optimizer steps of each run."""
    match: Literal["paper-flops", "real-flops"] | None = None
    """How --flops counts: as the paper (the default), or the matrix products that are needed."""
    probe: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """held-out, pos=TREEBANK_DIR, minimal-pairs=DIR, glue=DIR, squad1=DIR or squad2=DIR; may be repeated. Default:
    held-out."""
    probe_sentences: int = 4000
    """Sentences that the part-of-speech probe is trained on."""
    probe_pairs: int = 100
    """Minimal pairs that are read of each paradigm."""
    probe_seeds: int = 1
    """Fine-tuning seeds of the probes that fine-tune; their scores are medians, as the paper's."""
    probe_pooling: Literal["cls", "mean", "pair"] = "cls"
    """Representation of a text in the probe glue: cls, as in the paper, mean or pair."""
    sweep: tuple[str, ...] = ()
    """Values of settings, crossed, each combination an arm: optimizer.learning-rate=1e-4,3e-4
    objective.weight=10,50.
    """
    metrics: str | None = None
    """Metrics between commas whose contrasts are declared, for example pos/accuracy: p-values are corrected over them.
    Default: those of pos, minimal-pairs, glue and squad, else the held-out AUC on standard fakes."""
    parallel: int | Literal["stacked"] = 1
    """Train N runs at the same time, each with its share of the cores, or with a GPU; or stacked: the seeds, and swept
    rates and weights of losses, of one shape in one step."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N, or mps on a Mac."""
    quiet: bool = False
    """Print the tables only."""
    track: str | None = None
    """Trackers between commas: tensorboard, wandb, mlflow. Each cell is a run there."""
    refused: ClassVar[Mapping[str, str]] = {
        "--seed": "compare trains several. Give --seeds 3 or a list such as --seeds 1,2,5.",
        **dict.fromkeys(
            "--objective --generator --phases --objective.loss-over --objective.lucky --objective.no-copy".split(),
            "is what arms differ in. Name the arm that has it in --arms (see --help).",
        ),
    }
    """Flags of the configuration that the arms or the seeds decide."""
    brief = "data arms out seeds flops steps match probe parallel config device track preset batch.size"

    def __post_init__(self) -> None:
        if any(value is tyro.MISSING for value in vars(self).values()):  # as a request is before its flags are read
            return
        if not self.arm_names:
            raise ConfigError("compare: expected at least one arm, for example --arms electra,mlm.")
        for name in self.own:
            fits = re.fullmatch(r"[\w-]+", name) and name not in (*ARMS, PRESET, "untrained")
            require(bool(fits), "arms", name, "a name of letters, digits and hyphens that no other arm has")
        for name in ("probe_sentences", "probe_pairs", "probe_seeds"):
            require(vars(self)[name] >= 1, f"--{name.replace('_', '-')}", vars(self)[name], "at least 1")
        fits = self.probe_pooling == "cls" or any(one.startswith("glue=") for one in self.probe)
        require(fits, "--probe-pooling", self.probe_pooling, "cls, unless there is --probe glue=DIR")

    @property
    def arm_names(self) -> list[str]:
        return _names(self.arms)

    @property
    def metric_names(self) -> tuple[str, ...]:
        return tuple(_names(self.metrics))

    def run(self) -> Summary:
        """Run the unfinished cells, and sum up all finished ones.

        Raises:
            ConfigError: an impossible arm, probe or amount, or another experiment in `out`.
            Interrupted: stopped and saved; the summary of the finished cells is written, and the same call resumes.
            ElectraError: as `pretrain` and the probes.
        """
        from electra_trainer.experiments.cell import parse_seeds
        from electra_trainer.experiments.engine import run_experiment
        from electra_trainer.inspection.trackers import tracked
        from electra_trainer.paper.compare import Comparing
        from electra_trainer.train.device import choose_device, use_threads

        parse_seeds(self.seeds)  # a wrong one before the data are read
        use_threads()
        how: dict[str, Any] = {"parallel": 1 if self.parallel == "stacked" else self.parallel, "quiet": self.quiet}
        with tracked(self.out, self.track):
            return run_experiment(Comparing(self), self.out, device=str(choose_device(self.device)), **how)


class Written(str):
    """Result of `electra table` and `figure`: a table, or the name of a file."""

    def text(self) -> str:
        """Text to print."""
        return str(self)


@dataclass(frozen=True, kw_only=True)
class Table(Request):
    """A table of the paper with the cells of your experiments under the paper's."""

    number: tyro.conf.Positional[int]
    """1, 2, 3, 4 or 7."""
    experiments: tyro.conf.Positional[tuple[Path, ...]]
    """Experiment folders of electra compare, glue, squad or finetune, or records of them."""
    metrics: tuple[str, ...] = ()
    """Metrics in further columns, for example pos/accuracy "held-out/*"; default: those that the
    experiments declare."""
    out: Path | None = None
    """File to write, .md or .tex (booktabs). Default: Markdown on the terminal."""

    def run(self) -> Written:
        """Build the table, and write it if a file is named."""
        from electra_trainer.paper.paper_tables import build_table, write

        if not self.experiments:
            raise ConfigError(
                "table: give at least one experiment folder, for example: electra table 4 experiments/tiny"
            )
        out = self.out or Path("table.md")
        require(out.suffix in (".md", ".tex"), "--out", str(out), "a name that ends in .md or .tex")
        table = build_table(self.number, [*map(summarize, self.experiments)], metrics=self.metrics)
        text = write(table, out.suffix)
        if self.out is None:
            return Written(text.rstrip("\n"))
        durable.write_output(out, text.encode())
        return Written(out)


@dataclass(frozen=True, kw_only=True)
class Figure(Request):
    """A figure of the paper: 1, 3 and 4 from experiments, 2 (the worked example) from one run."""

    number: tyro.conf.Positional[int]
    """1: score against compute; 2: the worked example; 3: generators and training algorithms; 4: model sizes."""
    folders: tyro.conf.Positional[tuple[Path, ...]]
    """Experiment folders or records; for figure 2 one run folder or exported folder."""
    metric: str | None = None
    """Figures 1, 3, 4: the metric, for example pos/accuracy; default: the first usual one that all arms share."""
    text: str = "the chef cooked the meal"
    """Figure 2: a sentence; default: the paper's."""
    mask: tuple[int, ...] = (1, 3)
    """Figure 2: words to mask, counted from 1."""
    seed: int = 1
    """Figure 2: seed of the generator's samples."""
    out: Path | None = None
    """Figures 1, 3, 4: .svg, .png or .pdf; default: figure-N.svg in the first folder."""

    def run(self) -> "Written | WorkedExample":
        """Draw the figure. Figure 2 is a table."""
        from electra_trainer.paper.figures import draw_figure, worked_example
        from electra_trainer.pretrained.pretrained import load

        if not self.folders:
            raise ConfigError(
                "figure: give experiment folders (figure 2: a run), for example: electra figure 1 experiments/tiny"
            )
        if self.number == 2:
            if len(self.folders) != 1 or self.out is not None:
                raise ConfigError("figure 2: expected one run, and no --out: it is a table on the terminal.")
            return worked_example(load(self.folders[0]), self.text, mask=self.mask, seed=self.seed)
        out = self.out or self.folders[0] / f"figure-{self.number}.svg"
        form = out.suffix.lower().removeprefix(".")
        experiments = [*map(summarize, self.folders)]
        durable.write_output(out, draw_figure(self.number, experiments, metric=self.metric, form=form))
        return Written(out)


@dataclass(frozen=True, kw_only=True)
class Cloze(Request):
    """ELECTRA as a masked language model (Appendix G): how often is a held-out word predicted, one masked word at a
    time.

    The generator alone, and generator and discriminator together, by argmax of D·p_G / (a(1-D) + p_G) over the
    generator's top words.
    """

    run_folder: tyro.conf.Positional[Path]
    """Run folder (RUN@STEP: a checkpoint before the newest), or exported folder with --p-mask. An MLM run gives its own
    accuracy.
    """
    data: tyro.conf.Positional[Path]
    """Prepared folder, with the tokenizer of the run; its held-out rows are read."""
    json: bool = False
    """Print one JSON object."""
    against: Path | None = None
    """Another run, such as an MLM run, that predicts the very same words."""
    rows: int = 256
    """Number of held-out rows, drawn at random."""
    per_row: int = 4
    """Words of each row, drawn at random, never special tokens."""
    top: int = 100
    """The generator's words that Appendix G chooses among."""
    p_mask: float | None = None
    """Share of masked tokens in the formula, a = (1 - p_mask) / p_mask; by default the run's."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N, or mps on a Mac."""

    def run(self) -> "ClozeScores":
        """Predict the words."""
        from electra_trainer.paper.cloze import cloze

        against = _loaded(self.against, self.device) if self.against is not None else None
        chosen = {name: vars(self)[name] for name in ("rows", "per_row", "top", "p_mask")}
        return cloze(_loaded(self.run_folder, self.device), self.data, against=against, **chosen)


@dataclass(frozen=True, kw_only=True)
class MinimalPairs(Request):
    """In how many minimal pairs (BLiMP) the run scores the acceptable sentence above the other one; a tie is wrong.

    Scores: `discriminator`, `appendix-g` and `generator` of an ELECTRA run, `pseudo-likelihood` of an MLM run,
    `encoder` and `generator` of a replace-mlm or all-tokens-mlm run; rtd-mlm has those of both. All but `discriminator`
    take a forward pass for each token.
    """

    run_folder: tyro.conf.Positional[Path]
    """Run folder (RUN@STEP: a checkpoint before the newest) or exported folder."""
    folder: tyro.conf.Positional[Path]
    """Folder of BLiMP's .jsonl files, or one of them."""
    json: bool = False
    """Print one JSON object: scores (mean, standard_error, paradigms), pairs, ties."""
    limit: int | None = None
    """Only the first N pairs of each paradigm."""
    scores: str | None = None
    """Only these scores, names with commas between."""
    p_mask: float | None = None
    """Share of masked tokens in Appendix G's formula, for an exported folder or instead of the run's."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N, or mps on a Mac."""

    def run(self) -> "PairScores":
        """Score the pairs."""
        from electra_trainer.paper.minimal_pairs import minimal_pairs

        return minimal_pairs(
            _loaded(self.run_folder, self.device),
            self.folder,
            limit=self.limit,
            scores=_names(self.scores) or None,
            p_mask=self.p_mask,
        )


def _loaded(run: Path, device: str) -> "Pretrained":
    from electra_trainer.pretrained.pretrained import load
    from electra_trainer.train.device import choose_device, use_threads

    use_threads()
    return load(run).to(choose_device(device))


def _names(words: str | None) -> list[str]:
    return [word.strip() for word in (words or "").split(",") if word.strip()]
