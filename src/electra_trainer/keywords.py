"""Keyword arguments of api.py's functions, for type checkers: fields of a dataclass, each of which may be left out."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypedDict

from electra_trainer.data.corpus import Boundary, OnBadText


class ReadingKeywords(TypedDict, total=False):
    """Fields of `data.corpus.Reading`."""

    boundary: Boundary
    text_field: str
    on_bad_text: OnBadText
    max_document_chars: int


class PrepareKeywords(ReadingKeywords, total=False):
    """Fields of `data.corpus.PrepareSettings`."""

    valid_fraction: float
    seed: int
    workers: int | None


class RecipeKeywords(TypedDict, total=False):
    """Fields of `tasks.recipe.Recipe`."""

    learning_rate: float
    layer_decay: float
    top_layer_power: int
    epochs: float
    batch_size: int
    micro_batch: int | None
    batches: Literal["by-length", "random"]
    max_length: int
    windows: bool
    warmup_fraction: float
    schedule: Literal["linear", "released"]
    weight_decay: float
    bias_correction: bool
    zero_head: bool
    dropout: float
    attention_dropout: float
    head_dropout: Literal["all", "texts"]
    pooling: Literal["auto", "cls", "mean", "pair"] | None
    reduction: Literal["mean", "sum"]
    clip_norm: float
    clip_words: Literal["summed", "by-token"]
    double_unordered: bool
    evaluate: Literal["end", "epoch"]
    keep: Literal["last", "best"]
    patience: int | None
    precision: Literal["auto", "fp32", "bf16"]


class CompareKeywords(TypedDict, total=False):
    """Fields of `paper.request.Compare` that `compare` does not name itself."""

    flops: float | None
    steps: int | None
    match: Literal["paper-flops", "real-flops"] | None
    probe: tuple[str, ...]
    probe_sentences: int
    probe_pairs: int
    probe_seeds: int
    probe_pooling: Literal["cls", "mean", "pair"]
    sweep: tuple[str, ...]
    metrics: str | Sequence[str] | None
    parallel: int
    config: Path | None
    device: str
    quiet: bool
    track: str | None
