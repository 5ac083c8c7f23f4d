"""`electra predict DIR/model new.csv --out predictions.csv`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from electra_trainer.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from electra_trainer.finetune.folder import Finetuned


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What a fine-tuned model says of each row of a file.

    Of a .csv, .tsv or .jsonl: its columns and a column `prediction`, for classes with probabilities. Of column files: words with their tags.
    Of SQuAD's JSON: {id: text} as the official scripts read it, and for 2.0 a second file, OUT-no-answer.json, {id: score}.
    """

    folder: tyro.conf.Positional[Path]
    """Folder of a fine-tuned model: DIR/model of `electra finetune --out DIR`."""
    file: tyro.conf.Positional[Path]
    """The rows; labels in it are not looked at."""
    out: Path | None = None
    """File to write, .jsonl for JSON lines. Default: print."""
    text: str | None = None
    """Column of the text. Default: the one that the model learned from."""
    text_pair: str | None = None
    """Column of the second text, where it learned from pairs. Default: the same."""
    json: bool = False
    """JSON lines instead of CSV; of SQuAD's JSON with the best answers, their places and scores."""
    null_threshold: float | None = None
    """SQuAD 2.0: give no answer where the "no answer" score is above this. Default: the model's, which scored best on the dev file."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""


def run(arguments: Arguments) -> None:
    """Predict, then print or write."""
    from electra_trainer.durable import replace_durably
    from electra_trainer.finetune.folder import load_finetuned

    out = arguments.out
    if out is not None and out.is_dir():
        raise ConfigError(f"--out {out}: is a folder, expected a file.")
    if out is not None and not out.parent.is_dir():
        raise StorageError(f"--out {out}: there is no folder {out.parent}. Make it, or choose another --out.")
    if out is not None and out.exists() and arguments.file.exists() and out.samefile(arguments.file):
        raise ConfigError(f"--out {out}: is the file to predict. Choose another one.")
    as_json = arguments.json or (out is not None and out.suffix == ".jsonl")
    model = load_finetuned(arguments.folder)
    if arguments.null_threshold is not None:
        model = model.with_threshold(arguments.null_threshold)
    scores = None
    if type(model.task).__name__ == "QuestionAnswering":
        content, scores = _answers(model, arguments, as_json=as_json)
    else:
        content = _content(model, arguments, as_json=as_json)
    if out is None:
        sys.stdout.write(content)
        return
    replace_durably(out, content.encode())
    print(out)
    if scores is not None:
        beside = out.with_name(f"{out.stem}-no-answer{out.suffix}")
        replace_durably(beside, scores.encode())
        print(beside)


def _answers(model: Finetuned, arguments: Arguments, *, as_json: bool) -> tuple[str, str | None]:
    """The file of answers to SQuAD's questions, and that of the "no answer" scores where there is one beside it."""
    from electra_trainer.finetune.prediction_file import answered_jsonl, no_answer_json, official_json
    from electra_trainer.finetune.squad_files import read_questions

    for flag, given in (("--text", arguments.text), ("--text-pair", arguments.text_pair)):
        if given is not None:
            raise ConfigError(
                f"{flag} {given}: {arguments.folder} answers questions, whose file has no columns. Leave it out."
            )
    out = arguments.out
    if out is not None and out.suffix not in (".json", ".jsonl"):
        raise ConfigError(
            f"--out {out}: answers are written as JSON. Name it {out.stem}.json, or {out.stem}.jsonl for JSON lines."
        )
    said = model.predict_examples(read_questions(arguments.file), device=arguments.device)
    if as_json:
        return answered_jsonl(said), None
    return official_json(said), no_answer_json(said) if model.task.version == 2 else None  # type: ignore[attr-defined]


def _content(model: Finetuned, arguments: Arguments, *, as_json: bool) -> str:
    from electra_trainer.finetune.columns import choose_texts
    from electra_trainer.finetune.own_task import text_examples
    from electra_trainer.finetune.prediction_file import predicted_csv, predicted_jsonl, tagged_jsonl, tagged_text
    from electra_trainer.finetune.table_files import read_table_file

    kind = type(model.task).__name__
    if kind == "Tagging":
        from electra_trainer.finetune.column_files import read_tagged

        tagged = model.predict_examples(read_tagged(arguments.file, labelled=False), device=arguments.device)
        return tagged_jsonl(tagged) if as_json else tagged_text(tagged)
    table = read_table_file(arguments.file)
    columns = choose_texts(table, model.columns, text=arguments.text, text_pair=arguments.text_pair, pair=model.pair)
    said = model.predict_examples(text_examples(table, columns), device=arguments.device)
    return predicted_jsonl(table, said) if as_json else predicted_csv(table, said)
