"""The configuration and the small texts that the runs of tests/net_table.py read, made by a seeded generator."""

import json
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path

CONFIG = {
    "model": {
        "embedding_size": 16, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
        "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
    },
    "schedule": {"steps": 8, "warmup_steps": 2}, "batch": {"size": 8}, "log_every": 2,
    "evaluation": {"every": 4, "rows": 16}, "checkpoint": {"every": 4, "keep": 9},
}  # fmt: skip

GLUE = {
    "CoLA": "source label mark sentence",
    "SST-2": "sentence label",
    "MRPC": "Quality #1_ID #2_ID #1_String #2_String",
    "STS-B": "index genre filename year old_index source1 source2 sentence1 sentence2 score",
    "QQP": "id qid1 qid2 question1 question2 is_duplicate",
    "MNLI": "index sentence1 sentence2 gold_label",
    "QNLI": "index question sentence label",
    "RTE": "index sentence1 sentence2 label",
    "WNLI": "index sentence1 sentence2 label",
}
"""Columns of GLUE's files; `_` stands for a space."""
GLUE_LABELS = ("label", "Quality", "score", "is_duplicate", "gold_label")


def glue_field(task: str, column: str, number: int, sentence: Callable[[], str]) -> object:
    """A field of a row of GLUE."""
    if column not in GLUE_LABELS:
        return sentence() if re.search("sentence|question|String", column) else number
    if task in ("QNLI", "RTE"):
        return ("entailment", "not_entailment")[number % 2]
    return {"STS-B": f"{number % 6}.000", "MNLI": ("entailment", "neutral", "contradiction")[number % 3]}.get(
        task, number % 2
    )


def make_samples(folder: Path) -> None:
    """Write the configuration and small texts of every kind that a verb reads."""
    chance = random.Random(7)
    syllables = [a + b for a in "bdfgklmnprstv" for b in "aeiou"]
    nouns = ["chef", "meal", "ship", *("".join(chance.choices(syllables, k=chance.randint(2, 4))) for _ in range(120))]
    verbs = ["cooked", "saw", "sold", "found"]
    words = {"DET": ["the", "a", "every"], "ADJ": ["old", "red", "small"], "NOUN": nouns, "VERB": verbs}

    def tagged() -> list[tuple[str, str]]:
        tags = ["DET", *["ADJ"] * chance.randint(0, 1), "NOUN", "VERB", "DET", *["ADJ"] * chance.randint(0, 1), "NOUN"]
        return [*((chance.choice(words[tag]), tag) for tag in tags), (".", "PUNCT")]

    def sentence() -> str:
        return " ".join(word for word, _ in tagged())

    def write(name: str, text: str) -> None:
        path = folder / "text" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def table(name: str, *rows: Sequence[object], tab: bool = False) -> None:
        lines = [("\t" if tab else ",").join(map(str, row)) for row in rows]
        write(name, "\n".join(lines) + "\n")

    def treebank(name: str, count: int) -> None:
        rows = "{n}\t{w}\t{w}\t{tag}\t_\t_\t0\troot\t_\t_\n"
        blocks = [
            "".join(rows.format(n=n, w=w, tag=tag) for n, (w, tag) in enumerate(tagged(), 1)) for _ in range(count)
        ]
        write(name, "".join(f"{block}\n" for block in blocks))

    def squad(name: str, articles: int, *, version: int) -> None:
        data = []
        for article in range(articles):
            parts = [sentence() for _ in range(6)]
            context, questions = " ".join(parts), []
            for number, part in enumerate(parts):
                answer = " ".join(part.split()[-3:-1])
                none = version == 2 and number % 3 == 0
                answers = [] if none else [{"text": answer, "answer_start": context.find(answer)}]
                asked = {
                    "id": f"{name}-{article}-{number}",
                    "question": f"what {part.split()[-4]} ?",
                    "answers": answers,
                }
                questions.append({**asked, "is_impossible": none} if version == 2 else asked)
            data.append({"title": f"article {article}", "paragraphs": [{"context": context, "qas": questions}]})
        write(name, json.dumps({"version": "v2.0" if version == 2 else "1.1", "data": data}))

    (folder / "tiny.json").write_text(json.dumps(CONFIG))
    documents = ["\n".join(sentence() for _ in range(chance.randint(2, 6))) for _ in range(250)]
    write("corpus.txt", "\n\n".join(documents) + "\n")
    write("more.jsonl", "".join(json.dumps({"body": f"{sentence()} {sentence()}"}) + "\n" for _ in range(60)))
    write("context.txt", " ".join(sentence() for _ in range(12)))
    write("bad.json", '{"maskin": {"fraction": 0.2}}')
    (folder / "text/bad.txt").write_bytes(b"good\n\xff\xfe bad\n")
    for name, count in (("classes.csv", 48), ("classes-dev.csv", 16)):
        table(name, ("text", "label"), *((sentence(), ("yes", "no", "perhaps")[n % 3]) for n in range(count)))
    table("scores.csv", ("text", "score"), *((text, len(text)) for text in (sentence() for _ in range(40))))
    table(
        "paired.csv", ("sentence1", "sentence2", "label"), *((sentence(), sentence(), "ab"[n % 2]) for n in range(40))
    )
    spans = [[f"{w} {'B-THING' if tag == 'NOUN' else 'O'}" for w, tag in tagged()] for _ in range(40)]
    write("spans.conll", "".join("\n".join(block) + "\n\n" for block in spans))
    for name, count in (("train.conllu", 40), ("dev.conllu", 12), ("test.conllu", 12)):
        treebank(name, count)
    for paradigm in ("order", "end"):
        facts = {"UID": paradigm, "field": "syntax", "linguistics_term": paradigm}
        texts = [sentence() for _ in range(8)]
        bad = [" ".join(reversed(text.split())) if paradigm == "order" else text[:-2] for text in texts]
        pairs = [{"sentence_good": a, "sentence_bad": b, **facts} for a, b in zip(texts, bad, strict=True)]
        write(f"pairs/{paradigm}.jsonl", "".join(json.dumps(pair) + "\n" for pair in pairs))
    for task, head in GLUE.items():
        without = [column for column in head.split() if column not in GLUE_LABELS]
        without = ["index", "sentence"] if task == "CoLA" else without
        parts = ("_matched", "_mismatched") if task == "MNLI" else ("",)
        for name, count in (("train", 24), *((f"{split}{part}", 9) for split in ("dev", "test") for part in parts)):
            columns = without if "test" in name else head.split()
            rows = [[glue_field(task, column, n, sentence) for column in columns] for n in range(count)]
            title = [column.replace("_String", " String").replace("_ID", " ID") for column in columns]
            titles = [] if task == "CoLA" and "test" not in name else [title]
            table(f"glue/{task}/{name}.tsv", *titles, *rows, tab=True)
    rows = [(n, sentence(), sentence()) for n in range(9)]
    table("glue/AX/diagnostic.tsv", ("index", "sentence1", "sentence2"), *rows, tab=True)
    squad("squad.json", 4, version=2)
    squad("squad-dev.json", 2, version=2)
    squad("squad-1.json", 5, version=1)
