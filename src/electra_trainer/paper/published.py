"""The paper's own numbers: its tables, and the authors' training costs (Appendix E) as they count and as is needed. No
torch here.

The numbers are in published.toml. Of the costs, BERT's, ELECTRA's, RoBERTa's and ALBERT's follow from configurations
like any other. GPT and T5 have parts that ours do not have, and the authors measured ELMo and XLNet with TensorFlow's
own counter: their operations are numbers in published.toml, which tests/cost/architectures.py derives. `real` counts
what each row needs: free look-ups, backward = 2 x forward, the vocabulary at predicted positions alone.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from electra_trainer.cost.flops import infer_flops, run_flops
from electra_trainer.errors import ConfigError, did_you_mean
from electra_trainer.presets.models import PRESETS, preset
from electra_trainer.settings import records
from electra_trainer.settings.config import Config

SQUAD = {
    "squad-1.1": {"exact_match": "squad1/em", "f1": "squad1/f1"},
    "squad-2.0": {"best_exact_match": "squad2/em", "best_f1": "squad2/f1"},
}
"""Task -> score -> column of Table 3; of 2.0 at the best threshold."""


@dataclass(frozen=True, kw_only=True)
class PublishedRow:
    """A model in a table of the paper."""

    model: str
    split: str
    """"dev" or "test" where the table has both, else empty."""
    values: Mapping[str, float | str]
    """Values by column: scores in points, counts, words. What the paper does not print, or is illegible, is left
    out.
    """

    def number(self, column: str) -> float | None:
        """The number in a column of numbers; None: there is none."""
        found = self.values.get(column)
        return None if found is None else float(str(found).rstrip("x+"))  # a lower bound


@dataclass(frozen=True, kw_only=True)
class PublishedTable:
    """A table of the paper."""

    caption: str
    reference_flops: float
    """Training FLOPs that ratios and speedups refer to."""
    columns: tuple[str, ...]
    average: str
    """Title of the average over GLUE's tasks."""
    rows: tuple[PublishedRow, ...]
    ours: Mapping[str, Mapping[str, Any]]
    """The rows that can be trained here: model -> its `arm`, `size` and `share` of the size's full training, where they
    matter.
    """


def _row(columns: Sequence[str], cells: Sequence[float | str]) -> PublishedRow:
    values = {column: cell for column, cell in zip(columns, cells, strict=True) if cell not in ("–", "?")}
    model, split = str(values.pop("model")), str(values.pop("split", ""))
    return PublishedRow(model=model, split=split, values=values)


def _table(printed: Mapping[str, Any]) -> PublishedTable:
    columns = printed["columns"]
    return PublishedTable(
        caption=printed["caption"],
        reference_flops=printed["reference_flops"],
        average=printed.get("average", "Avg."),
        columns=tuple(column for column in columns if column not in ("model", "split")),
        rows=tuple(_row(columns, cells) for cells in printed["rows"]),
        ours=printed["ours"],
    )


PRINTED: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
"""published.toml as it is."""
TABLES = {number: _table(PRINTED[f"table_{number}"]) for number in (1, 2, 3, 4, 7)}
_IN_FIGURE_1 = {"BERT": "BERT-Large", "BERT (ours)": "BERT-Large (paper's own)", "ELECTRA": "ELECTRA-Large"}
"""Other names of Table 2's models next to Table 1's."""


def published_points() -> dict[str, list[tuple[float, float, str]]]:
    """Figure 1's points from Tables 1 and 2 (dev sets): (training FLOPs, GLUE score, name) by family."""
    found: dict[str, list[tuple[float, float, str]]] = {"ELECTRA": [], "BERT": [], "others": []}
    for row in (*TABLES[1].rows, *TABLES[2].rows):
        flops, score = row.number("train_flops"), row.number("glue/average")
        if row.split != "test" and flops is not None and score is not None:  # DistilBERT's FLOPs are not printed
            family = next((known for known in ("ELECTRA", "BERT") if row.model.startswith(known)), "others")
            name = row.model.removeprefix("ELECTRA-Small, ").removesuffix(" trained")
            found[family].append((flops, score, _IN_FIGURE_1.get(name, name)))
    return {family: sorted(points) for family, points in found.items()}


PUBLISHED: dict[str, dict[str, Any]] = PRINTED["costs"]
"""The authors' rows by their names: a `preset` and what differs from it, or the operations of another architecture."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The operations that `electra flops` prints of a row."""

    train_paper: float
    train_real: float
    infer_paper: float
    """One row of 128 tokens through the encoder and a binary head."""


def cost_of(name: str) -> Cost:
    """Cost of a published row or of a preset; a name that both have means the published row.

    Raises:
        ConfigError: no row and no preset has this name.
    """
    row = PUBLISHED.get(name, {"preset": name})
    if "preset" not in row:
        return Cost(**row)
    if row["preset"] not in PRESETS:
        known = f"{', '.join(PUBLISHED)}, all, and every preset (electra show all)"
        raise ConfigError(f"Unknown name {name!r}.{did_you_mean(name, [*PUBLISHED, *PRESETS])} Known: {known}.")
    changes = {field: value for field, value in row.items() if field != "preset"}
    plain = records.merge(records.to_dict(preset(row["preset"])), changes)
    config = records.read(Config, plain, where=f"published.toml: {name}")
    train = run_flops(config)
    infer = infer_flops(config, sequence_length=128)
    return Cost(train_paper=train.paper, train_real=train.real, infer_paper=infer.paper)
