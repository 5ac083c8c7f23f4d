"""Sound inputs of every kind, small, for tests that spoil them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.finetuning.own_files import rows, write_csv, write_encoder
from tests.prepared import small_config, write_store

from electra_trainer.api import finetune
from electra_trainer.pretrained.pretrained import export_run
from electra_trainer.settings.records import to_dict
from electra_trainer.tasks.own_files import OwnTask
from electra_trainer.train.loop import pretrain

SQUAD = {
    "version": "1.1",
    "data": [
        {"title": title, "paragraphs": [{"context": context, "qas": [{"id": title, "question": f"what was {title}", "answers": answers}]}]}
        for title, context, answers in (
            ("red", "the red apple was in the box", [{"text": "apple", "answer_start": 8}]),
            ("old", "the old saw was on a table", [{"text": "saw", "answer_start": 8}]),
        )
    ],
}  # fmt: skip
WORD = "{}\t{}\t_\t{}\t_\t_\t0\troot\t_\t_\n"
TREEBANK = "".join(
    WORD.format(1, "old", "ADJ") + WORD.format(2, word, "NOUN") + "\n" for word in ("saw", "box", "plum")
)
COLA = "".join(
    f"gj04\t{number % 2}\t{'*' if number % 2 else ''}\t{text}\n" for number, (text, _) in enumerate(rows(40))
)


def write_all(folder: Path) -> Path:
    """text.txt, data/, run/, export/, encoder/, train.csv, new.csv, tuned/, squad.json, words.conllu, glue/CoLA/, pairs/, config.json, longer.json."""
    write_store(folder / "data")
    (folder / "text.txt").write_bytes((folder / "data.txt").read_bytes()[:20_000])
    config = small_config(steps=4)
    pretrain(config, folder / "data", out=folder / "run", device="cpu", quiet=True)
    export_run(folder / "run", folder / "export")
    write_encoder(folder / "encoder")
    write_csv(folder / "train.csv", rows(40))
    (folder / "new.csv").write_text("\n".join(["text", *(text for text, _ in rows(8))]) + "\n")
    finetune(
        folder / "encoder", OwnTask(train=folder / "train.csv", folds=False), out=folder / "experiment",
        seeds=(1,), epochs=1.0, batch_size=16, parallel=1, device="cpu", quiet=True,
    )  # fmt: skip
    (folder / "experiment" / "model").rename(folder / "tuned")
    (folder / "squad.json").write_text(json.dumps(SQUAD))
    (folder / "words.conllu").write_text(TREEBANK)
    (folder / "glue" / "CoLA").mkdir(parents=True)
    for split in ("train", "dev"):
        (folder / "glue" / "CoLA" / f"{split}.tsv").write_text(COLA)
    (folder / "pairs").mkdir()
    (folder / "pairs" / "p.jsonl").write_text('{"sentence_good": "a saw was red", "sentence_bad": "a saw were red"}\n')
    (folder / "config.json").write_text(json.dumps(to_dict(config)))
    (folder / "longer.json").write_text(json.dumps(to_dict(small_config(steps=6))))
    return folder
