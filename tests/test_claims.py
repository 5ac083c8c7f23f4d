"""Every figure of README and docs is in the record that is linked next to it, as it is or rounded, or a bound of the test that is named there.

What is not a measurement is recognised by where it is: in a code span, or part of a name (SQuAD 1.1, Python 3.11, Table 6, 4 × 256). The
strict pages, all claims, have no other numbers. The other docs also say settings, which are in the source, and the paper's numbers, which
are in paper/published.toml. A figure with a unit of cost or speed (seconds, GB, times) is a measurement there too, unless it is the paper's own: a row of paper_map.md that says where it is printed.
"""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from electra_trainer.cost.parameters import parameters
from electra_trainer.paper.paper_tables import _PREFERRED
from electra_trainer.paper.probes import PROBES
from electra_trainer.presets.arms import ARMS, PRESET
from electra_trainer.presets.models import preset

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "electra_trainer"
STRICT = ("README.md", "docs/evidence.md", "docs/recipes.md")
DOCS = tuple(
    f"docs/{name}.md"
    for name in "analysis classify data design finetuning paper_map performance reliability training".split()
)
NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?:e-?\d+|[kMB](?!\w))?(?!\w)")
IN_FILES = re.compile(r"(?<![\w.])\d[\d,_]*(?:\.\d+)?(?:e[+-]?\d+|[kMB]\b)?")
LINK = re.compile(r"\]\(([^)#\s]*records/[^)#\s]+)\)")
TESTS = re.compile(r"(?<![\w/])tests/[\w/]+(?:\.py)?")
NAME = re.compile(
    r"(?:^\| (?=\d+ \|)|rows? |SQuAD|Python|Zen|footnotes?|Tables?|Figures?|versions?|torch|transformers|g\+\+|§|Apache-)\s?\d[\w.]*(?:(?:,| and| to| –) §?\d[\d.]*\b)*"
    r"|\b\d+ × \d+\b|\b[A-Z][A-Za-z]+-\d+\b|\bY \d+, P \d+, N \d+\b"
)
COST = re.compile(r"\*{0,2}\s?(?:times|[GM]B|T?GFLOP/s|\w+/s|ms|µs|s|seconds|minutes|hours|days|points|nats)\b")
PRINTED = re.compile(r"^\|[^|]+\| (?:§|abstract|footnote|Appendix)")
UNITS = {"k": 1e3, "M": 1e6, "B": 1e9}


def blocks(page: str) -> Iterator[str]:
    """Paragraphs, and rows of tables one by one, without code blocks and what tests/reliability/table.py makes of records."""
    text = re.sub(r"```.*?```|<!-- (\w+): begin -->.*?<!-- \1: end -->", "", page, flags=re.S)
    for paragraph in re.split(r"\n\s*\n", text):
        lines = paragraph.splitlines()
        rows = [line for line in lines if line.startswith("|")]
        yield from rows
        yield " ".join(line for line in lines if not line.startswith("|"))


def matches(block: str) -> list[re.Match[str]]:
    """Its numbers, without those in code, links and names."""
    return list(NUMBER.finditer(NAME.sub("", re.sub(r"`[^`]*`|\]\([^)]*\)|\[[^]]*(?=\])", "", block))))


def figures(block: str) -> list[str]:
    return [one[0].rstrip(",") for one in matches(block)]


def value(figure: str) -> float:
    return float(figure.rstrip("kMB").replace(",", "")) * UNITS.get(figure[-1], 1.0)


def is_among(figure: str, known: set[float]) -> bool:
    """As it is, rounded to the digits that are shown, or as a percentage of a share."""
    wanted, unit = value(figure), UNITS.get(figure[-1], 1.0)
    mantissa, _, exponent = figure.rstrip("kMB").partition("e")
    half = 0.5001 * unit * 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    return any(abs(scale * one - wanted) <= half for one in known for scale in ((1, 100) if one < 1 else (1,)))


@functools.cache
def numbers_of(path: Path) -> frozenset[float]:
    """All numbers of a file; of a record those of its README, since among thousands of raw values any figure is found by chance."""
    text = (path / "README.md" if path.is_dir() else path).read_text(encoding="utf-8")
    return frozenset(value(one.rstrip(",_").replace("_", "")) for one in IN_FILES.findall(text))


@functools.cache
def bounds_of(path: Path) -> frozenset[float]:
    """The numbers that tests assert: those that they compare with or are given, and the constants of their files."""
    found = set()
    for file in sorted(path.rglob("test_*.py")) if path.is_dir() else [path] if path.is_file() else []:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        held: list[ast.AST] = [node for node in tree.body if isinstance(node, ast.Assign)]
        held += [node for node in ast.walk(tree) if isinstance(node, ast.Assert | ast.Compare | ast.Return)]
        held += [one for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) for one in node.decorator_list]
        for node in held:
            inner = (one.value for one in ast.walk(node) if isinstance(one, ast.Constant))
            found |= {float(one) for one in inner if isinstance(one, int | float)}
    return frozenset(found)


@functools.cache
def settings() -> set[float]:
    """The numbers of the program."""
    return set().union(
        *(numbers_of(file) for file in SOURCE.rglob("*") if file.suffix in (".py", ".toml", ".hpp", ".cpp"))
    )


def known_of(block: str, folder: Path) -> set[float]:
    """The numbers of the records that it links, and the bounds of the tests that it names."""
    records = [numbers_of((folder / target).resolve()) for target in LINK.findall(block)]
    return set().union(*records, *(bounds_of(ROOT / name) for name in TESTS.findall(block)))


def missing(page: str, folder: Path, *, strict: bool = True) -> list[tuple[str, str]]:
    """Figures that nothing named with them has, each with where it is.

    Args:
        strict: every number is a measurement, and its own block names what has it. Otherwise the last link above it in
            its section counts as well, and what the source has needs none: settings, the paper's numbers.
    """
    found, above = [], ""
    for block in blocks(page):
        if block.startswith("#"):
            above = ""
        if LINK.search(block) or TESTS.search(block):
            above = block
        known = known_of(block if strict else f"{above} {block}", folder)
        for one in matches(block):
            figure, unit = one[0].rstrip(","), COST.match(one.string, one.end()) and not PRINTED.search(block)
            if not (is_among(figure, known) or (not strict and not unit and is_among(figure, settings()))):
                found.append((figure, block[:80]))
    return found


@pytest.mark.parametrize("name", [*STRICT, *DOCS])
def test_every_figure_is_on_record(name: str) -> None:
    page = ROOT / name
    assert missing(page.read_text(encoding="utf-8"), page.parent, strict=name in STRICT) == []


def test_every_claim_says_what_measured_it() -> None:
    """A record, or a test that fails where it does not hold; what has not been measured says so."""
    text = (ROOT / "docs/evidence.md").read_text(encoding="utf-8")
    rows = [row for row in blocks(text) if row.startswith("|") and figures(row)]
    assert len(rows) >= 20
    for row in rows:
        assert LINK.search(row) or "`pytest " in row or "not measured" in row, row


def test_claims_about_encoders_say_n() -> None:
    evidence = (ROOT / "docs/evidence.md").read_text(encoding="utf-8").split("## What the encoders are worth")[1]
    readme = (ROOT / "README.md").read_text(encoding="utf-8").split("## Is it any good?")[1].split("\n## ")[0]
    rows = [row for row in blocks(evidence) if row.startswith("|") and figures(row)]
    own = [block for block in blocks(readme) if block.startswith("- ")]
    rows += own
    assert len(rows) >= 8 and len(own) >= 2
    assert [row for row in rows if not re.search(r"n = \d|\bseeds?\b|one run|one pre-training", row)] == []


WORDS = "two three four five six seven eight nine ten eleven twelve".split()
RATIO = re.compile(rf"\b({'|'.join(WORDS)}) times\b")


def unrecorded_ratios(page: str, folder: Path) -> list[str]:
    """Ratios in words, "ten times", that no record or bound next to them has."""
    found = [(block, word) for block in blocks(page) for word in RATIO.findall(block)]
    return [f"{word} times" for block, word in found if WORDS.index(word) + 2.0 not in known_of(block, folder)]


@pytest.mark.parametrize("name", STRICT)
def test_ratios_in_words_are_on_record_too(name: str) -> None:
    assert unrecorded_ratios((ROOT / name).read_text(encoding="utf-8"), (ROOT / name).parent) == []
    absent = next(word for at, word in enumerate(WORDS, 2) if at not in known_of(RECORD, ROOT / "docs"))
    assert unrecorded_ratios(f"It is {absent} times the compute ({RECORD}).", ROOT / "docs") == [f"{absent} times"]


@pytest.mark.parametrize(
    "name", ["README.md", "docs/index.md", "docs/site.yml", "pyproject.toml", "src/electra_trainer/__init__.py"]
)
def test_no_front_page_praises(name: str) -> None:
    """No task is above its best baseline by two standard errors (docs/evidence.md): nothing here is called strong."""
    text = (ROOT / name).read_text(encoding="utf-8")
    assert not re.search(r"(?i)\b(strong|powerful|superior|state.of.the.art)\b", text)


def test_files_that_the_source_names_exist() -> None:
    """Pages, records and tests that docstrings and comments send a reader to."""
    place = re.compile(r"(?<![\w/.])(?:docs|records|reference|tests|benchmarks)/(?:[\w-]+/)*[\w-]+(?:\.\w+)?")
    for file in [*SOURCE.rglob("*.py"), *SOURCE.rglob("*.toml"), *(ROOT / "benchmarks").glob("*.py")]:
        text = re.sub(r"https?://\S+|huggingface\.co\S+", "", file.read_text(encoding="utf-8"))
        assert [one for one in place.findall(text) if not (ROOT / one).exists()] == [], file


def test_parameters_of_presets_are_those_of_the_code() -> None:
    """The table of docs/training.md, each preset with its joint parameters."""
    table = (ROOT / "docs/training.md").read_text(encoding="utf-8").split("| preset | joint parameters |")[1]
    rows = [row.split("|")[1:3] for row in table.split("\n\n")[0].splitlines()[2:]]
    found = {
        name: int(figure.replace(",", ""))
        for names, figure in rows
        for name, figure in zip(
            re.findall(r"`(\w+)`", names), re.findall(r"\d{1,3}(?:,\d{3}){2,}", figure), strict=False
        )
    }
    assert len(found) >= 7 and found == {name: parameters(preset(name)).joint for name in found}


def test_the_default_metric_of_figures_is_documented() -> None:
    *names, last = (f"`{name}`" for name in _PREFERRED)
    words = f"the first of {', '.join(names)}, {last} and the other probes"
    assert words in " ".join((ROOT / "docs/analysis.md").read_text(encoding="utf-8").split())


def test_the_help_of_compare_names_all_arms_and_probes() -> None:
    help_text = (SOURCE / "paper/request.py").read_text(encoding="utf-8")
    arms, probes = (help_text.split(f"    {name}: ")[1].split('"""')[1] for name in ("arms", "probe"))
    assert {*re.findall(r"[\w-]+", arms)} >= {*ARMS, PRESET, "untrained"}
    assert {*re.findall(r"[\w-]+", probes)} >= {*PROBES}


RECORD, TEST = "[record](../records/2026-11-23-pair-head)", "`pytest tests/google/test_mini.py`"
INVENTED = {
    "a row": (f"| overlap | STS-B 79.7 | {RECORD} |", "79.7"),
    "a share as a percentage": (f"Overlap reaches 0.796\non STS-B ({RECORD}).", "0.796"),
    "without a record": ("Overlap reaches 79.0 on STS-B.", "79.0"),
    "a link in the next paragraph": (f"Overlap reaches 79.0.\n\nSee the {RECORD}.", "79.0"),
    "below a bound": (f"| Google's numbers | logits within 3e-6 | {TEST} |", "3e-6"),
    "in thousands": (f"It reads 79k tokens ({RECORD}).", "79k"),
}


@pytest.mark.parametrize("kind", INVENTED)
def test_an_invented_figure_is_found(kind: str) -> None:
    text, figure = INVENTED[kind]
    assert [one for one, _ in missing(text, ROOT / "docs")] == [figure]


@pytest.mark.parametrize(
    "text",
    [
        f"| overlap | STS-B 79.0 | {RECORD} |",
        f"| Google's numbers | logits within 3e-5 | {TEST} |",
        "SQuAD 1.1 and 2.0, Python 3.11, Tables 6 and 7, CoNLL-2003, a network of 4 × 256, `--steps 12000`.",
    ],
)
def test_what_is_on_record_or_a_name_is_not(text: str) -> None:
    assert missing(text, ROOT / "docs") == []


def test_other_pages_may_say_settings_and_the_papers_numbers() -> None:
    """But not a cost or a speed without a record, in or above its block."""
    for text in (
        "The rate is 3e-4 for Small, dropout 0.1.",
        f"See the {RECORD}:\n\n| STS-B | 79.0 |",
        "| GPT's training compute | abstract | 30 times | |",
    ):
        assert missing(text, ROOT / "docs", strict=False) == []
    for text in (
        "It is 7 times as fast.",
        "AUC 0.7713 after a day.",
        f"{RECORD}\n\n## Speed\n\nSTS-B 79.04 in 12 minutes.",
    ):
        assert missing(text, ROOT / "docs", strict=False) != [], text
