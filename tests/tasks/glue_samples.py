"""GLUE in small: a folder of official files with a few rows each."""

from collections.abc import Sequence
from pathlib import Path

WORDS = "sails,the cold breeze,two ships,never,a harbour,sings,old maps,quietly,of the coast,trade".split(",")


def sentence(number: int) -> str:
    """Another one for each number."""
    words = " ".join(WORDS[(number * step + step) % len(WORDS)] for step in range(2, 5 + number % 3))
    return words if number < 30 else f"{words} of {number}"


def tsv(*rows: Sequence[object]) -> str:
    return "".join("\t".join(map(str, row)) + "\n" for row in rows)


def labels(task: str) -> list[str]:
    return {
        "mnli": ["entailment", "neutral", "contradiction"],
        "qnli": ["entailment", "not_entailment"],
        "rte": ["entailment", "not_entailment"],
        "stsb": ["5.000", "0.000", "2.500", "3.800"],
    }.get(task, ["1", "0"])


def labelled(task: str, rows: int, *, first: int = 0) -> str:
    """A training or dev file as GLUE has it, of the sentences from number `first` on."""
    one = [sentence(n + first) for n in range(rows)]
    two = [sentence(3 * n + 1 + first) for n in range(rows)]
    said = [labels(task)[n % len(labels(task))] for n in range(rows)]
    n = range(rows)
    match task:
        case "cola":
            return tsv(*(("gj04", said[i], "*" if said[i] == "0" else "", one[i]) for i in n))
        case "sst2":
            return tsv(("sentence", "label"), *((one[i] + " ", said[i]) for i in n))
        case "mrpc":
            head = ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String")
            return tsv(head, *((said[i], 100 + i, 200 + i, one[i], two[i]) for i in n))
        case "stsb":
            head = "index genre filename year old_index source1 source2 sentence1 sentence2 score".split()
            return tsv(head, *((i, "g", "f", "2012", i, "none", "none", one[i], two[i], said[i]) for i in n))
        case "qqp":
            head = ("id", "qid1", "qid2", "question1", "question2", "is_duplicate")
            return tsv(head, *((900 + i, 0, 0, one[i], two[i], said[i]) for i in n))
        case "mnli":
            head = (
                "index", "promptID", "pairID", "genre", "sentence1_binary_parse", "sentence2_binary_parse", "sentence1_parse",
                "sentence2_parse", "sentence1", "sentence2", "label1", "gold_label",
            )  # fmt: skip
            return tsv(
                head, *((i, i, f"{i}n", "slate", "(", "(", "(", "(", one[i], two[i], said[i], said[i]) for i in n)
            )
        case "qnli":
            return tsv(("index", "question", "sentence", "label"), *((i, one[i] + "?", two[i], said[i]) for i in n))
        case _:
            return tsv(("index", "sentence1", "sentence2", "label"), *((i, one[i], two[i], said[i]) for i in n))


def unlabelled(task: str, rows: int) -> str:
    """A test file as GLUE has it."""
    one = [sentence(n + 50) for n in range(rows)]
    two = [sentence(3 * n + 51) for n in range(rows)]
    if task in ("cola", "sst2"):
        return tsv(("index", "sentence"), *enumerate(one))
    head = {
        "mrpc": ("index", "#1 ID", "#2 ID", "#1 String", "#2 String"),
        "qqp": ("id", "question1", "question2"),
        "qnli": ("index", "question", "sentence"),
    }.get(task, ("index", "sentence1", "sentence2"))
    middle = (7, 8) if task == "mrpc" else ()
    return tsv(head, *((i, *middle, one[i], two[i]) for i in range(rows)))


FOLDERS = {
    "cola": "CoLA", "sst2": "SST-2", "mrpc": "MRPC", "stsb": "STS-B", "qqp": "QQP", "mnli": "MNLI", "qnli": "QNLI", "rte": "RTE",
    "wnli": "WNLI",
}  # fmt: skip


def write_glue(
    root: Path, tasks: Sequence[str] = tuple(FOLDERS), *, train: int = 24, dev: int = 9, test: int = 5
) -> Path:
    """Official folders; AX is there if MNLI is."""
    for task in tasks:
        folder = root / FOLDERS[task]
        folder.mkdir(parents=True)
        parts = ("_matched", "_mismatched") if task == "mnli" else ("",)
        (folder / "train.tsv").write_text(labelled(task, train), encoding="utf-8")
        for part in parts:
            (folder / f"dev{part}.tsv").write_text(labelled(task, dev, first=1000), encoding="utf-8")
            if test:
                (folder / f"test{part}.tsv").write_text(unlabelled(task, test), encoding="utf-8")
    if "mnli" in tasks and test:
        (root / "AX").mkdir()
        (root / "AX/diagnostic.tsv").write_text(unlabelled("ax", test), encoding="utf-8")
    return root
