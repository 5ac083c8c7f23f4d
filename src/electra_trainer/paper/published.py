"""The paper's own numbers: its tables, and the authors' training costs (Appendix E) as they count and as is needed. No
torch here.

The numbers are in published.toml. Of the costs, BERT's, ELECTRA's, RoBERTa's and ALBERT's follow from configurations
like any other. GPT and T5 have parts that ours do not have, and the authors measured ELMo and XLNet with TensorFlow's
own counter: their operations are numbers in published.toml, which tests/cost/architectures.py derives. `real` counts
what each row needs: free look-ups, backward = 2 x forward, the vocabulary at predicted positions alone.
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from electra_trainer.cost.flops import NORM_SLIP, infer_flops, run_flops
from electra_trainer.errors import ConfigError, did_you_mean
from electra_trainer.finetuning.glue.glue_tasks import PAPER_COLUMNS
from electra_trainer.presets.paper_rows import PRESETS, preset
from electra_trainer.settings.config import BatchShape, Config, Model, Schedule
from electra_trainer.settings.methods import MLM

GLUE_TASKS = tuple(title.lower() for title in PAPER_COLUMNS.values())
"""Columns of Tables 2 and 7 in order, as `glue/…`."""


@dataclass(frozen=True, kw_only=True)
class PublishedRow:
    """A model in a table of the paper."""

    model: str
    split: str
    """"dev" or "test" where the table has both, else empty."""
    values: Mapping[str, float | str]
    """By column: scores in points, counts, words. What the paper does not print, or is illegible, is left out."""
    at_least: frozenset[str]
    """Columns whose number is a lower bound (a "+" in print)."""

    def number(self, column: str) -> float | None:
        """The number in a column of numbers; None: there is none."""
        found = self.values.get(column)
        return None if found is None else float(found)


@dataclass(frozen=True, kw_only=True)
class PublishedTable:
    """A table of the paper."""

    caption: str
    reference_flops: float
    """Training FLOPs that ratios and speedups refer to."""
    columns: tuple[str, ...]
    rows: tuple[PublishedRow, ...]


def _row(columns: Sequence[str], cells: Sequence[float | str]) -> PublishedRow:
    printed = {column: cell for column, cell in zip(columns, cells, strict=True) if cell not in ("–", "?")}
    bounds = {column: cell for column, cell in printed.items() if isinstance(cell, str) and cell.endswith("+")}
    values = printed | {column: float(cell.removesuffix("+")) for column, cell in bounds.items()}
    model, split = str(values.pop("model")), str(values.pop("split", ""))
    return PublishedRow(model=model, split=split, values=values, at_least=frozenset(bounds))


def _table(printed: Mapping[str, Any]) -> PublishedTable:
    return PublishedTable(
        caption=printed["caption"],
        reference_flops=printed["reference_flops"],
        columns=tuple(column for column in printed["columns"] if column not in ("model", "split")),
        rows=tuple(_row(printed["columns"], cells) for cells in printed["rows"]),
    )


PRINTED: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
"""published.toml as it is."""
TABLES = {number: _table(PRINTED[f"table_{number}"]) for number in (1, 2, 3, 4, 7)}


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The operations that `electra flops` prints of a row."""

    train_paper: float
    train_real: float
    infer_paper: float
    """One row of 128 tokens through the encoder and a binary head."""


def cost_of(name: str, *, norm_slip: bool = NORM_SLIP) -> Cost:
    """Cost of a published row or of a preset; a name that both have means the published row.

    Raises:
        ConfigError: no row and no preset has this name.
    """
    if name in PUBLISHED:
        config = PUBLISHED[name]
        return of_config(config(), norm_slip) if config else _of_another_architecture(name, norm_slip)
    if name not in PRESETS:
        known = f"{', '.join(PUBLISHED)}, all, and every preset (electra show all)"
        raise ConfigError(f"Unknown name {name!r}.{did_you_mean(name, [*PUBLISHED, *PRESETS])} Known: {known}.")
    return of_config(preset(name), norm_slip)


def of_config(config: Config, norm_slip: bool = NORM_SLIP) -> Cost:
    """Cost of a configuration."""
    train = run_flops(config, norm_slip=norm_slip)
    infer = infer_flops(config, sequence_length=128, norm_slip=norm_slip)
    return Cost(train_paper=train.paper, train_real=train.real, infer_paper=infer.paper)


def _of_another_architecture(name: str, norm_slip: bool) -> Cost:
    count = PRINTED["other_architectures"][name]
    slip = "with_slip" if norm_slip else "without_slip"
    return Cost(
        train_paper=count["train_paper"][slip], train_real=count["train_real"], infer_paper=count["infer_paper"][slip]
    )


def _bert_large() -> Config:
    """The original BERT-Large: 1M steps of 256 rows of 512 tokens. The preset `bert_large` is another run, "BERT
    (ours)".
    """
    return _sized(preset("bert_large"), rows=256, steps=1_000_000)


def _roberta() -> Config:
    """RoBERTa: BERT-Large with 50,265 words; 500,000 steps of 8,000 rows of 512 tokens, 15 % masked."""
    large = preset("bert_large")
    return _sized(replace(large, model=replace(large.model, vocab_size=50265)), rows=8000, steps=500_000)


def _albert() -> Config:
    """ALBERT xxlarge: 12 layers of width 4,096 with 64 heads (one set of weights, which saves no operation), embeddings
    of 128, 30,000 words; 1.5M steps of 4,096 rows of 512 tokens, 15 % masked.
    """
    model = Model(
        vocab_size=30000,
        embedding_size=128,
        hidden_size=4096,
        num_hidden_layers=12,
        num_attention_heads=64,
        intermediate_size=16384,
    )
    return _sized(Config(model=model, objective=MLM()), rows=4096, steps=1_500_000)


def _sized(config: Config, *, rows: int, steps: int) -> Config:
    return replace(config, batch=BatchShape(size=rows, sequence_length=512), schedule=Schedule(steps=steps))


PUBLISHED: dict[str, Callable[[], Config] | None] = {
    "elmo": None,
    "xlnet": None,
    "gpt": None,
    "bert_small": lambda: preset("bert_small"),
    "bert_base": lambda: preset("bert_base"),
    "bert_large": _bert_large,
    "electra_small": lambda: preset("small"),
    "electra_base": lambda: preset("base"),
    "electra_400k": lambda: preset("large"),
    "electra_1.75M": lambda: preset("large_1_75m"),
    "roberta": _roberta,
    "albert": _albert,
    "t5_11b": None,
}
"""The authors' rows by their names; None: an architecture that is no configuration of ours."""
