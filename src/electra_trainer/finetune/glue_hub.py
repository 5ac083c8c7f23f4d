"""GLUE from the Hub (`nyu-mll/glue`), by the package `datasets`: the extra [hub]."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from electra_trainer.errors import ConfigError, DataError
from electra_trainer.finetune.examples import TextExample
from electra_trainer.finetune.glue_files import Layout, read_label, read_number

REPOSITORY = "nyu-mll/glue"


def read_hub(config: str, split: str, layout: Layout, *, labelled: bool) -> list[TextExample]:
    """A split, with labels in the official files' words.

    Args:
        config: the task's name there: `cola`, `sst2` ...
        split: `train`, `validation`, `validation_matched`, `test` ...

    Raises:
        ConfigError: `datasets` is not installed, or the Hub cannot be asked. DataError: a row that is none.
    """
    try:
        import datasets
    except ImportError:
        raise ConfigError(
            "--data hub: needs the package datasets. Type: pip install 'electra-trainer[hub]', or give GLUE's folder."
        ) from None
    try:
        rows: Iterable[Mapping[str, Any]] = datasets.load_dataset(REPOSITORY, config, split=split)
    except Exception as error:  # the package lets through whatever its network library raises
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(
            f"--data hub: {REPOSITORY} ({config}, {split}) could not be read ({said}). Check the network, or give GLUE's folder."
        ) from None
    examples = [
        _example(row, layout, labelled=labelled, where=f"{REPOSITORY} {config} {split}:{number}")
        for number, row in enumerate(rows)
    ]
    if not examples:
        raise DataError(f"{REPOSITORY} {config} {split}: holds no rows.")
    return examples


def _example(row: Mapping[str, Any], layout: Layout, *, labelled: bool, where: str) -> TextExample:
    text = _field(row, layout.text, where=where)
    pair = _field(row, layout.pair, where=where) if layout.is_pair() else None
    label = value = None
    if labelled:
        written = str(_field(row, layout.label, where=where))
        if layout.labels:
            label = read_label(written, layout.labels, where=where)
        else:
            value = read_number(written, layout.bounds, where=where)
    return TextExample(
        text=str(text),
        pair=None if pair is None else str(pair),
        label=label,
        value=value,
        place=where,
        id=str(row["idx"]) if "idx" in row else None,
    )


def _field(row: Mapping[str, Any], names: tuple[str, ...], *, where: str) -> Any:
    for name in names:
        if row.get(name) is not None:
            return row[name]
    raise DataError(f"{where}: has no {' or '.join(names)}. The repository has changed: give GLUE's folder.")


def as_bytes(examples: Iterable[TextExample]) -> bytes:
    """What a hash of them is taken of."""
    rows = ([one.id, one.text, one.pair, one.label, one.value] for one in examples)
    return "".join(json.dumps(row) + "\n" for row in rows).encode()
