"""`electra predict DIR/model new.csv --out predictions.csv`.

`electra answer FOLDER --context @page.txt --question "Who cooked the meal?"`.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from electra_trainer.cli.shown import Shown, require_file
from electra_trainer.errors import ConfigError, DataError, tell
from electra_trainer.experiments.cell import printed
from electra_trainer.experiments.summary import score_in_words
from electra_trainer.files import durable, reading
from electra_trainer.settings.request import Request

if TYPE_CHECKING:
    from electra_trainer.finetuning.model_folder import Finetuned
    from electra_trainer.tasks.examples import Prediction


@dataclass(frozen=True, kw_only=True)
class Predict(Request):
    """Predict for each row of a file with a fine-tuned model.

    Of a .csv, .tsv or .jsonl: its columns and a column `prediction`, for classes with probabilities. In tagging words
    with their tags, of any file that `finetune` reads, or of running text, which is split into words like the training
    data. Of SQuAD's JSON: {id: text} as the official scripts read it, and for 2.0 a second file, OUT-no-answer.json,
    {id: score}.
    """

    folder: tyro.conf.Positional[Path]
    """Folder of a fine-tuned model: DIR/model of `electra finetune --out DIR`."""
    file: tyro.conf.Positional[Path]
    """The rows. Labels in the column of training change no prediction; they are scored, on standard error and
    in OUT-scores.md."""
    out: Path | None = None
    """File to write, .jsonl for JSON lines. Default: print."""
    text: Annotated[str | None, tyro.conf.arg(aliases=["--words"])] = None
    """Column of the text, in tagging of the words (a name or a number). Default: the one that the model learned
    from.
    """
    text_pair: str | None = None
    """Column of the second text, where it learned from pairs. Default: the same."""
    json: bool = False
    """JSON lines instead of CSV; of SQuAD's JSON with the best answers, their places and scores."""
    accuracy: float | None = None
    """Share of right rows, such as 0.9: classes get a column `unsure`, which marks rows below the probability from
    which on this share of held-out rows was right."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N, or mps on a Mac."""

    def run(self) -> None:
        """Predict, then print or write."""
        from electra_trainer.finetuning.model_folder import load_finetuned

        out = self.out
        model = load_finetuned(self.folder)
        sure = None if self.accuracy is None else model.sure_from(self.accuracy)
        if out is not None:
            require_file(out, model.task.endings)
            if out.resolve() == self.file.resolve():
                raise ConfigError(f"--out {out}: is the file to predict. Choose another one.")
        as_json = self.json or (out is not None and out.suffix == ".jsonl")
        rows = model.task.examples_in(
            self.file, like=model.columns, pair=model.pair, as_json=as_json, text=self.text, text_pair=self.text_pair
        )
        for note in rows.notes:
            tell(note)
        predictions = model.reporting(rows.examples, device=self.device, reader=str(self.folder))
        if sure is not None:
            predictions = [{**one, "unsure": one["probabilities"][one["label"]] < sure} for one in predictions]
            if sure < math.inf:
                tell(
                    f"{sum(one['unsure'] for one in predictions):,} of {len(predictions):,} rows are below {sure:.2f}, "
                    f"the probability from which on {100 * float(self.accuracy or 0):.3g} % of the held-out rows were "
                    "right."
                )
        for line in _scored(model, rows.answers, predictions, file=self.file, out=out):
            tell(line)
        for beside, content in rows.written(predictions).items():
            if out is not None:
                path = out.with_name(f"{out.stem}{beside}{out.suffix}")
                durable.replace_durably(path, content.encode())
                print(path)
            elif not beside:
                sys.stdout.write(content)


def _scored(
    model: "Finetuned", answers: Sequence[Any], predictions: "Sequence[Prediction]", *, file: Path, out: Path | None
) -> Iterator[str]:
    """Sentences on rows with answers, without those that the model learned from; the page next to `out` has all their
    scores.
    """
    from electra_trainer.tasks.examples import digest_of
    from electra_trainer.tasks.task import sample_of

    new = [*zip(answers, predictions, strict=False)]  # answers may be missing
    if (learned := model.learned) is None and new:
        yield "warning: the model's folder does not say which rows it learned from (learned.txt): it may know these."
    if learned:
        new = [pair for pair in new if digest_of(pair[0]) not in learned]
    if known := len(answers) - len(new):
        others = f"Scored: the other {len(new):,}." if new else "Give it other rows."
        yield f"warning: {known:,} of {len(answers):,} rows were learned from: their score says nothing. {others}"
    if not new:
        return
    answers, predictions = zip(*new, strict=True)
    task, named = model.task, [*getattr(model.columns, "labels", ()), model.columns.label]
    of = f" of {file} by column {', '.join(repr(name) for name in named if name is not None)}"
    samples = {0: sample_of(task, answers, predictions)}
    says, _ = score_in_words(task.metric, samples, of, tags=not task.whole_text)
    if out is None:
        yield f"{says} With --out FILE also class by class."
        return
    report, page = task.report(answers, predictions), out.with_name(f"{out.stem}-scores.md")
    scores = (f"{name}: {printed(score, name)}" for name, score in task.score(answers, predictions).items())
    parts = f"{says}\n\nx 100: {', '.join(scores)}\n\n{report.markdown() if report else ''}\n"
    durable.replace_durably(page, parts.encode())
    yield f"{says} All scores: {page}"


@dataclass(frozen=True, kw_only=True)
class Answer(Request):
    """Answer a question from a text, with an encoder that `electra squad` fine-tuned."""

    folder: tyro.conf.Positional[Path]
    """Folder of a fine-tuned model."""
    context: str
    """The text, or @FILE."""
    question: str
    """The question."""
    null_threshold: float | None = None
    """2.0: give no answer where the "no answer" score is above this. Default: the model's, which scored best on the dev
    file.
    """
    top: int = 1
    """Number of answers to show."""
    json: bool = False
    """Print one JSON object: text, probability, no_answer_score, null_threshold (2.0), nbest (text, start, end, score,
    probability).
    """
    device: str = "auto"
    """auto, cpu, cuda, cuda:N, or mps on a Mac."""

    def run(self) -> Shown:
        """The answer, or that there is none."""
        if self.top < 1:
            raise ConfigError(f"--top {self.top}: expected at least 1.")
        context = read_context(self.context)
        if not self.question.strip() or not self.question.isprintable():
            raise DataError(f"--question {self.question!r}: expected one line of text.")

        from electra_trainer.finetuning.model_folder import load_finetuned
        from electra_trainer.tasks import questions, squad_files

        loaded = load_finetuned(self.folder)
        task = loaded.task
        if not isinstance(task, questions.QuestionAnswering):
            raise ConfigError(
                f"{self.folder}: was fine-tuned for {task.name}, not to answer questions. Type `electra predict`."
            )
        if self.null_threshold is not None:
            loaded = loaded.with_threshold(self.null_threshold)
        asked = squad_files.Question(id="question", question=self.question, context=context)
        (answer,) = loaded.reporting([asked], device=self.device, reader=str(self.folder))
        answer["nbest"] = answer["nbest"][: self.top]
        given = task.threshold if self.null_threshold is None else self.null_threshold
        answer["null_threshold"] = given if task.version == 2 else None
        return Shown(answer, lines(answer))


def read_context(given: str) -> str:
    """The text itself, or the content of @FILE.

    Raises:
        MissingInputError, StorageError: the file cannot be read. DataError: it is blank or no UTF-8.
    """
    text = given
    if given.startswith("@"):
        content = reading.read_file(Path(given[1:]))
        text = "".join(line for _, line in reading.lines(content, given[1:], ends=True))
    if not text.strip():
        raise DataError(f"--context {given}: holds no text.")
    return reading.encodable(text, "--context")


def lines(answer: "Prediction") -> list[str]:
    """Lines for a terminal: each answer with its probability."""
    if not answer["nbest"]:
        return ["no answer in this text"]
    shown = []
    if not answer["text"]:
        scored = f"its score is {answer['no_answer_score']:.2f}, the threshold {answer['null_threshold']:.2f}"
        shown = [f"no answer in this text ({scored}); the best that there is:"]
    return shown + [f"{100 * one['probability']:5.1f} %  {one['text']}" for one in answer["nbest"]]
