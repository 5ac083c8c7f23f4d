"""Verbs that use a trained network or look into its run: evaluate, score, fill, export, replay, report,
track, playground.

electra evaluate RUN DATA
electra score RUN "the chef flew the meal"
electra fill RUN "the [MASK] cooked the meal"
electra export RUN[@STEP] --out DIR
electra replay RUN --step 1000
electra report RUN [RUN …]
electra track RUN --to tensorboard,wandb
electra playground RUN [RUN]
"""

from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from electra_trainer.cli.shown import Shown
from electra_trainer.errors import ConfigError, refuse_if, tell
from electra_trainer.settings.records import DEFAULT
from electra_trainer.settings.request import Request, announce

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import nn

    from electra_trainer.pretrained.pretrained import Pretrained, Scored


@dataclass(frozen=True, kw_only=True)
class Evaluate(Request):
    """Held-out metrics of a run, over all held-out rows of DATA, always with the same masks."""

    run_folder: tyro.conf.Positional[Path]
    """Run folder; RUN@STEP: a checkpoint before the newest, as for all verbs that read a run's weights."""
    data: tyro.conf.Positional[Path]
    """Prepared folder, with the tokenizer of the run."""
    json: bool = False
    """Print one JSON object."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N, or mps on a Mac."""

    def run(self) -> Shown:
        """Metrics by name."""
        from electra_trainer.inspection.replay import evaluate
        from electra_trainer.train.health import health_line

        result = evaluate(self.run_folder, self.data, device=self.device)
        lines = [f"step {result.step}, {result.rows:,} held-out rows"]
        lines += [f"  {name:<30} {value:.4f}" for name, value in result.metrics.items()]
        lines.append(health_line(result.metrics, vocab_size=result.vocab_size))
        return Shown({"step": result.step, **result.metrics}, lines)


@dataclass(frozen=True, kw_only=True)
class Score(Request):
    """The probability that a token was replaced, for each token of a text."""

    run_folder: tyro.conf.Positional[Path] = Path(DEFAULT)
    """Run folder (RUN@STEP: a checkpoint before the newest) or exported folder."""
    text: tyro.conf.Positional[str]
    """The text."""
    json: bool = False
    """Print one JSON object: tokens, replaced_probability."""

    def run(self) -> Shown:
        """Tokens with their probabilities."""
        from electra_trainer.pretrained.pretrained import load

        announce(self.run_folder, self.text)
        loaded = load(self.run_folder)
        scored = loaded.score(self.text)
        _warn_of_unreadable(loaded, self.text, self.run_folder)
        return Shown(scored, shown_scores(scored))


def _warn_of_unreadable(loaded: "Pretrained", text: str, run: Path) -> None:
    """Warn if there are letters that the vocabulary does not know."""
    from electra_trainer.data.tokenizer import statistics

    measured = statistics(loaded.tokenizer, [text])
    if measured.unknown:
        why = "means nothing" if measured.unreadable_rate >= 0.5 else "means little near them"
        tell(f"{measured.unreadable_line()}: the vocabulary of {run} does not know them, so what the model says {why}.")


def shown_scores(scored: "Scored") -> list[str]:
    """Two lines: the tokens, and under each the probability of "replaced"; likely replacements are in brackets: those
    at twice the sentence's mean, or at 0.2 where that is more.
    """
    probabilities = scored.replaced_probability
    limit = max(0.2, 2 * sum(probabilities) / len(probabilities))
    words = numbers = "  "
    for token, probability in zip(scored.tokens, probabilities, strict=True):
        width = max(len(token) + 2, 6)
        words += (f"[{token}]" if probability >= limit else f" {token} ").ljust(width)
        numbers += f" {probability:.2f} ".ljust(width)
    return [words, numbers]


@dataclass(frozen=True, kw_only=True)
class Fill(Request):
    """The generator's most probable words for each [MASK] of a text."""

    run_folder: tyro.conf.Positional[Path] = Path(DEFAULT)
    """Run folder (RUN@STEP: a checkpoint before the newest), exported folder or its generator."""
    text: tyro.conf.Positional[str]
    """A text with at least one [MASK]."""
    top: int = 5
    """Words per gap."""
    json: bool = False
    """Print a JSON list: for each [MASK] its words with probabilities."""

    def run(self) -> Shown:
        """Words for each [MASK]."""
        from electra_trainer.pretrained.pretrained import load

        announce(self.run_folder, self.text)
        loaded = load(self.run_folder)
        gaps = loaded.fill(self.text, top=self.top)
        _warn_of_unreadable(loaded, self.text.replace("[MASK]", " "), self.run_folder)
        lines = [
            f"[MASK] {number}: " + "  ".join(f"{one.token} {one.probability:.3f}" for one in gap)
            for number, gap in enumerate(gaps, 1)
        ]
        return Shown([[asdict(one) for one in gap] for gap in gaps], lines)


@dataclass(frozen=True, kw_only=True)
class Export(Request):
    """Write DIR/discriminator and DIR/generator: folders that `transformers` loads, with tokenizer and model card; of
    `mini` also DIR/encoder, the discriminator's encoder with its head for words. Of a fine-tuned model, with --to onnx:
    its folder, and the whole model in ONNX.
    """

    run_folder: tyro.conf.Positional[Path]
    """Run folder; RUN@STEP: a checkpoint before the newest. Or the model folder of `electra finetune`."""
    out: Path
    """A new or empty folder."""
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    """Number type of the stored weights. In 16 bits the folder has half the size."""
    to: Literal["transformers", "onnx"] = "transformers"
    """onnx: also onnx/model.onnx in each folder, compared in ONNX Runtime with the run, for servers without PyTorch.
    """
    int8: bool = False
    """With --to onnx: also onnx/model_int8.onnx, a quarter of the size."""
    form: Annotated[Literal["electra", "bert", "run"], tyro.conf.arg(name="as")] = "electra"
    """bert: under BERT's names, for programs that know no ELECTRA; only where the embeddings are as wide as the
    layers. run: one run folder with weights alone, for these verbs and `pretrain --init`."""
    license: str | None = None
    """For the model card: the Hub's identifier, such as mit or apache-2.0."""
    language: tuple[str, ...] = ()
    """For the model card: codes such as en or tr."""
    name: str | None = None
    """OWNER/NAME on the Hub, for the examples on the model card; each of several networks adds its own name."""

    def run(self) -> Shown:
        """Write, read back, and compare with the run where transformers is installed: the folders."""
        from importlib.util import find_spec

        from electra_trainer.finetuning import onnx as serving
        from electra_trainer.finetuning.model_folder import finetuned_folder
        from electra_trainer.pretrained import agreement
        from electra_trainer.pretrained.as_run import export_as_run
        from electra_trainer.pretrained.model_card import CardFields
        from electra_trainer.pretrained.pretrained import export_run
        from electra_trainer.settings.records import read_table

        onnx, card = self.to == "onnx", CardFields(license=self.license, language=self.language, name=self.name)
        refuse_if({"--int8: belongs to --to onnx. Give both.": self.int8 and not onnx})
        if finetuned_folder(self.run_folder) is not None:
            if self != Export(run_folder=self.run_folder, out=self.out, to="onnx", int8=self.int8):
                raise ConfigError(
                    f"{self.run_folder}: is a fine-tuned model, which transformers loads as it is, with its own card. "
                    "Of export's flags it takes --out, --to onnx and --int8."
                )
            return Shown([self.out], serving.export_onnx(self.run_folder, self.out, int8=self.int8))
        if self.form == "run":
            more = onnx or card != CardFields()
            refuse_if({"--as run: writes no model card, and no ONNX. Leave the other flags out.": more})
            run = export_as_run(self.run_folder, self.out, dtype=self.dtype)
            return Shown(run, [f"{self.out}: written and read back"])
        if onnx:
            serving.need_onnx()
        found = dict[str, list[str]]()
        rounded = self.dtype != "float32"

        def compare(folder: Path, network: "nn.Module", tokenizer: "Tokenizer") -> None:
            own = agreement.lines_of(self.run_folder)
            difference, of = agreement.check_agreement(folder, network, tokenizer, own), agreement.outputs(folder)
            whose = f"the {of} of these rounded weights" if rounded else f"the run's {of}"
            agrees = (
                f"transformers has the ids of {agreement.LINES:,} lines, and on text {whose} within {difference:.0e}"
            )
            found[folder.name] = [agrees]
            if onnx:
                found[folder.name].append(serving.write_onnx(folder, network, tokenizer, int8=self.int8))

        there = find_spec("transformers") is not None
        bert = self.form == "bert"
        compared, lines = compare if there else None, list[str]()
        folders = export_run(self.run_folder, self.out, dtype=self.dtype, bert=bert, card=card, compare=compared)
        for folder in folders:
            agrees, *served = found.get(folder.name, ["not compared: transformers is not installed"])
            lines.append(f"{folder}: written and read back bit for bit; {agrees}")
            lines += [f"{folder}/onnx: {line}" for line in served]
            if bert and read_table(folder / "config.json")["model_type"] != "bert":
                lines.append(f"{folder}: stays an ELECTRA, since its layers are not as wide as its embeddings")
        lines.append(f"Next: electra finetune {folders[0]} --train LABELLED.csv --out NEW")
        return Shown(folders, lines)


@dataclass(frozen=True, kw_only=True)
class Replay(Request):
    """Compute one step of a run again: its rows with their documents, what was masked and replaced, and its losses,
    compared to the last bit with metrics.jsonl. It starts from the nearest earlier checkpoint; nothing is written into
    the run.

    In the text `[meal→food]` was masked and read as food; `[meal]` was masked and stayed as it was.
    """

    run_folder: tyro.conf.Positional[Path]
    """Run folder."""
    step: int
    """The step, from 1, as in metrics.jsonl and log.txt."""
    data: Path | None = None
    """Prepared folder that the run was trained on; default: where it was when the run began."""
    rows: int = 4
    """Rows to show; --json has all."""
    json: bool = False
    """Print one JSON object."""
    device: str = "auto"
    """auto (the run's), cpu, cuda, cuda:N or mps."""

    def run(self) -> Shown:
        """The step: its rows, their losses, and the comparison with metrics.jsonl."""
        from electra_trainer.inspection.replay import as_json, replay, shown

        if self.rows < 0:
            raise ConfigError(f"--rows {self.rows}: expected 0 or more.")
        found = replay(self.run_folder, step=self.step, data=self.data, device=self.device)
        return Shown(as_json(found), shown(found, found.rows[: self.rows]))


@dataclass(frozen=True, kw_only=True)
class Report(Request):
    """One page with figures: losses, AUC, rates, and sentences with masked, sampled and detected tokens."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders, or experiments with all their runs; several are overlaid."""
    out: Path | None = None
    """The page, or a folder for it; default: report.html in the first folder."""

    def run(self) -> Shown:
        """Write the page: its path."""
        from electra_trainer.inspection.report import write_report

        page = write_report(list(dict.fromkeys(self.runs)), out=self.out)
        return Shown(page, [str(page)])


@dataclass(frozen=True, kw_only=True)
class Track(Request):
    """Send the metrics of a run, or of each cell of an experiment, to trackers. What was sent before is not sent
    again.
    """

    run_folder: tyro.conf.Positional[Path]
    """Folder of a run or an experiment."""
    to: str
    """Trackers between commas: tensorboard, wandb, mlflow."""

    def run(self) -> Shown:
        """Send: the rows by tracker, and where to look at them."""
        from electra_trainer.inspection.trackers import TRACKERS, parse, send

        sent = {name: send(self.run_folder, name) for name in parse(self.to, flag="--to")}
        lines = [
            f"{name}: {f'{rows:,} rows sent' if rows else 'nothing new'}; see "
            f"{TRACKERS[name].shown_by.format(run=self.run_folder)}"
            for name, rows in sent.items()
        ]
        return Shown(sent, lines)


@dataclass(frozen=True, kw_only=True)
class Playground(Request):
    """Show a trained network on a page in the browser: type a sentence, see which words look replaced, exchange them;
    two models side by side. It is served on this machine alone and asks no other.
    """

    models: tyro.conf.Positional[tuple[Path, ...]] = (Path(DEFAULT),)
    """One or two of: run folder (RUN@STEP: begin with that checkpoint), exported folder, fine-tuned DIR/model."""
    port: int = 7860
    """Port of the page; 0 takes a free one."""
    host: str = "127.0.0.1"
    """Address to listen on. Anybody who reaches another one than 127.0.0.1 can use the model."""

    def run(self) -> None:
        """Load the models, print the address, serve until Ctrl-C."""
        if not 1 <= len(self.models) <= 2:
            raise ConfigError(f"playground: {len(self.models)} models were given. Give one, or two to compare.")
        tell(f"loading {' and '.join(map(str, self.models))} ...")
        announce(self.models[0])
        from electra_trainer.playground.answers import open_model
        from electra_trainer.playground.server import listen

        with listen([open_model(name) for name in self.models], host=self.host, port=self.port) as server:
            print(f"{server.url}  (Ctrl-C ends it)", flush=True)
            with suppress(KeyboardInterrupt):  # the way to end it
                server.serve_forever()
