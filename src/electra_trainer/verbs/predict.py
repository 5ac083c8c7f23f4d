"""`electra predict DIR/model new.csv --out predictions.csv`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from electra_trainer.errors import ConfigError, DataError, StorageError

if TYPE_CHECKING:
    from electra_trainer.finetune.folder import Finetuned


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What a fine-tuned model says of each row of a file.

    Of a .csv, .tsv or .jsonl: its columns and a column `prediction`, for classes with probabilities. Of column files: words with their tags.
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
    """JSON lines instead of CSV."""
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
    content = _content(load_finetuned(arguments.folder), arguments, as_json=as_json)
    if out is None:
        sys.stdout.write(content)
        return
    replace_durably(out, content.encode())
    print(out)


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
    if kind == "QuestionAnswering":
        raise DataError(
            f"{arguments.folder}: answers questions. Type: electra answer {arguments.folder} --context @FILE --question ..."
        )
    table = read_table_file(arguments.file)
    columns = choose_texts(table, model.columns, text=arguments.text, text_pair=arguments.text_pair, pair=model.pair)
    said = model.predict_examples(text_examples(table, columns), device=arguments.device)
    return predicted_jsonl(table, said) if as_json else predicted_csv(table, said)
