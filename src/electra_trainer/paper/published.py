"""The paper's own numbers as plain data: Tables 1, 2, 3, 4 and 7, and those that stand in its text. No torch here.

Scores are points (0 to 100), FLOPs and parameters are counts. None: the paper prints no number there ("–"), or the
copy that was transcribed is not legible there; `ILLEGIBLE` names the second kind.
"""

from dataclasses import dataclass
from typing import Literal

GLUE_TASKS = ("cola", "sst", "mrpc", "sts", "qqp", "mnli", "qnli", "rte")
"""Columns of Tables 2 and 7 in order: Matthews correlation, Spearman for STS, accuracy for the others (§3.1)."""
SQUAD_MEASURES = ("squad1/em", "squad1/f1", "squad2/em", "squad2/f1")
"""Columns of Table 3 in order."""


@dataclass(frozen=True, kw_only=True)
class SmallModel:
    """A row of Table 1: small models on the GLUE dev set."""

    model: str
    train_flops: float | None
    infer_flops: float
    """For one input of 128 tokens."""
    train_speedup: float | None
    """Against BERT-Base, as printed."""
    infer_speedup: float
    parameters: float
    time_and_hardware: str | None
    glue: float


@dataclass(frozen=True, kw_only=True)
class GlueModel:
    """A row of Table 2 or 7: GLUE task by task."""

    model: str
    split: Literal["dev", "test"]
    train_flops: float | None
    train_ratio: float | None
    """Of the table's reference model's FLOPs, as printed."""
    parameters: float
    scores: tuple[float | None, ...]
    """In the order of `GLUE_TASKS`."""
    average: float
    at_least: bool = False
    """FLOPs and ratio are lower bounds (a "+" in print)."""


@dataclass(frozen=True, kw_only=True)
class SquadModel:
    """A row of Table 3: SQuAD dev sets, single models without data augmentation."""

    model: str
    train_flops: float
    train_ratio: float
    parameters: float
    scores: tuple[float | None, ...]
    """In the order of `SQUAD_MEASURES`."""


@dataclass(frozen=True, kw_only=True)
class Objective:
    """A column of Table 4: a pre-training objective and its score on the GLUE dev set."""

    model: str
    glue: float


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A number in the paper's text."""

    name: str
    where: str
    value: float
    unit: str


def _small(
    model: str,
    train: float | None,
    infer: float,
    speedup: tuple[float | None, float],
    parameters: float,
    time_and_hardware: str | None,
    glue: float,
) -> SmallModel:
    return SmallModel(
        model=model, train_flops=train, infer_flops=infer, train_speedup=speedup[0], infer_speedup=speedup[1],
        parameters=parameters, time_and_hardware=time_and_hardware, glue=glue,
    )  # fmt: skip


TABLE_1: tuple[SmallModel, ...] = (
    _small("ELMo", 3.3e18, 2.6e10, (19, 1.2), 96e6, "14d on 3 GTX 1080 GPUs", 71.2),
    _small("GPT", 4.0e19, 3.0e10, (1.6, 0.97), 117e6, "25d on 8 P6000 GPUs", 78.8),
    _small("BERT-Small", 1.4e18, 3.7e9, (45, 8), 14e6, "4d on 1 V100 GPU", 75.1),
    _small("BERT-Base", 6.4e19, 2.9e10, (1, 1), 110e6, "4d on 16 TPUv3s", 82.2),
    _small("DistilBERT", None, 1.4e10, (None, 2), 66e6, None, 77.8),
    _small("ELECTRA-Small", 1.4e18, 3.7e9, (45, 8), 14e6, "4d on 1 V100 GPU", 79.9),
    _small("ELECTRA-Small, 50% trained", 7.1e17, 3.7e9, (90, 8), 14e6, "2d on 1 V100 GPU", 79.0),
    _small("ELECTRA-Small, 25% trained", 3.6e17, 3.7e9, (181, 8), 14e6, "1d on 1 V100 GPU", 77.7),
    _small("ELECTRA-Small, 12.5% trained", 1.8e17, 3.7e9, (361, 8), 14e6, "12h on 1 V100 GPU", 76.0),
    _small("ELECTRA-Small, 6.25% trained", 8.9e16, 3.7e9, (722, 8), 14e6, "6h on 1 V100 GPU", 74.1),
    _small("ELECTRA-Base", 6.4e19, 2.9e10, (1, 1), 110e6, "4d on 16 TPUv3s", 85.1),
)


def _glue(
    model: str,
    split: Literal["dev", "test"],
    train: tuple[float, float] | None,
    parameters: float,
    scores: tuple[float | None, ...],
    average: float,
    *,
    at_least: bool = False,
) -> GlueModel:
    flops, ratio = train or (None, None)
    return GlueModel(
        model=model, split=split, train_flops=flops, train_ratio=ratio, parameters=parameters, scores=scores,
        average=average, at_least=at_least,
    )  # fmt: skip


# Ratios are to ELECTRA's 7.1e20
TABLE_2: tuple[GlueModel, ...] = (
    _glue("BERT", "dev", (1.9e20, 0.27), 335e6, (60.6, 93.2, 88.0, 90.0, 91.3, 86.6, 92.3, 70.4), 84.0),
    _glue("XLNet", "dev", (9.6e20, 1.3), 360e6, (63.6, 95.6, 89.2, 91.8, 91.8, 89.8, 93.9, 83.8), 87.4),
    _glue("RoBERTa-100K", "dev", (6.4e20, 0.90), 356e6, (66.1, 95.6, 91.4, 92.2, 92.0, 89.3, 94.0, 82.7), 87.9),
    _glue("RoBERTa", "dev", (3.2e21, 4.5), 356e6, (68.0, 96.4, 90.9, 92.4, 92.2, 90.2, 94.7, 86.6), 88.9),
    _glue("BERT (ours)", "dev", (7.1e20, 1), 335e6, (67.0, 95.9, 89.1, 91.2, 91.5, 89.6, 93.5, 79.5), 87.2),
    _glue("ELECTRA", "dev", (7.1e20, 1), 335e6, (69.3, 96.0, 90.6, 92.1, 92.4, 90.5, 94.5, 86.8), 89.0),
    _glue("BERT", "test", (1.9e20, 0.27), 335e6, (60.5, 94.9, 85.4, 86.5, 89.3, 86.7, 92.7, 70.1), 83.3),
    _glue("SpanBERT", "test", (7.1e20, 1), 335e6, (64.3, 94.8, 87.9, 89.9, 89.5, 87.7, 94.3, 79.0), 85.9),
    _glue("ELECTRA", "test", (7.1e20, 1), 335e6, (68.2, 96.9, 89.6, 91.0, 90.1, 90.1, 95.4, 83.6), 88.1),
)

# Ratios are to ELECTRA-Small's FLOPs
TABLE_7: tuple[GlueModel, ...] = (
    _glue(
        "TinyBERT", "test", (6.4e19, 45), 14.5e6, (43.3, 92.6, 81.2, 79.9, 89.2, 82.5, 87.7, 62.9), 77.4, at_least=True
    ),
    _glue("GPT", "test", (4.0e19, 29), 117e6, (45.4, 91.3, 75.7, 80.0, 88.5, 82.1, 88.1, 56.0), 75.9),
    _glue("BERT-Base", "test", (6.4e19, 45), 110e6, (52.1, 93.5, 84.8, 85.8, 89.2, 84.6, 90.5, 66.4), 80.9),
    _glue("BERT-Large", "test", (1.9e20, 135), 335e6, (60.5, 94.9, 85.4, 86.5, 89.3, 86.7, 92.7, 70.1), 83.3),
    _glue("ELECTRA-Small", "test", None, 14e6, (54.6, 89.1, None, 80.3, None, 79.7, 87.7, 60.8), 78.0),
    _glue("ELECTRA-Base", "test", None, 110e6, (59.7, 93.4, None, 87.7, None, 85.8, 92.7, 73.1), 83.5),
)


def _squad(model: str, train: tuple[float, float], parameters: float, scores: tuple[float | None, ...]) -> SquadModel:
    return SquadModel(
        model=model, train_flops=train[0], train_ratio=train[1], parameters=parameters, scores=scores
    )  # fmt: skip


TABLE_3: tuple[SquadModel, ...] = (
    _squad("BERT-Base", (6.4e19, 0.09), 110e6, (80.8, 88.5, None, None)),
    _squad("BERT", (1.9e20, 0.27), 335e6, (84.1, 90.9, 79.0, 81.8)),
    _squad("SpanBERT", (7.1e20, 1), 335e6, (88.8, 94.6, 85.7, 88.7)),
    _squad("XLNet-Base", (6.6e19, 0.09), 117e6, (81.3, None, 78.5, None)),
    _squad("XLNet", (9.6e20, 1.3), 360e6, (89.0, 94.5, 86.1, 88.8)),
    _squad("RoBERTa-100k", (6.4e20, 0.90), 356e6, (None, 94.0, None, 87.7)),
    _squad("RoBERTa", (3.2e21, 4.5), 356e6, (88.9, 94.6, 86.5, 89.4)),
    _squad("BERT (ours)", (7.1e20, 1), 335e6, (88.0, 93.7, 84.7, 87.5)),
    _squad("ELECTRA-Base", (6.4e19, 0.09), 110e6, (84.5, 90.8, 80.5, 83.3)),
    _squad("ELECTRA", (7.1e20, 1), 335e6, (88.7, 94.2, 86.9, 89.6)),
)

TABLE_4: tuple[Objective, ...] = (
    Objective(model="ELECTRA", glue=85.0),
    Objective(model="All-Tokens MLM", glue=84.3),
    Objective(model="Replace MLM", glue=82.4),
    Objective(model="ELECTRA 15%", glue=82.4),
    Objective(model="BERT", glue=82.2),
)

ILLEGIBLE: tuple[str, ...] = tuple(
    f"Table 7, {model}, {column}"
    for model in ("ELECTRA-Small", "ELECTRA-Base")
    for column in ("Train FLOPs", "MRPC", "QQP")
)
"""Cells that the paper prints and the copy does not show."""


def _say(name: str, where: str, value: float, unit: str) -> Statement:
    return Statement(name=name, where=where, value=value, unit=unit)


STATEMENTS: tuple[Statement, ...] = (
    _say("ELECTRA-Small above BERT-Small", "§1", 5, "GLUE points"),
    _say("GPT's training compute over ELECTRA-Small's", "abstract", 30, "times"),
    _say("BERT-Large's parameters over ELECTRA-Small's", "footnote 2", 20, "times"),
    _say("BERT-Large's training compute over ELECTRA-Small's", "footnote 2", 135, "times"),
    _say("no weight tying", "§3.2", 83.6, "GLUE score"),
    _say("token embeddings tied", "§3.2", 84.3, "GLUE score"),
    _say("all weights tied", "§3.2", 84.4, "GLUE score"),
    _say("steps of the tying and generator-size experiments", "§3.2", 500_000, "steps"),
    _say("smallest generator that works best", "§3.2", 1 / 4, "of the discriminator"),
    _say("largest generator that works best", "§3.2", 1 / 2, "of the discriminator"),
    _say("adversarial generator at masked language modelling", "§3.2, Appendix F", 58, "% accuracy"),
    _say("maximum-likelihood generator at masked language modelling", "§3.2, Appendix F", 65, "% accuracy"),
    _say("BERT-Large on the GLUE dev set", "§3.3", 84.0, "GLUE score"),
    _say("ELECTRA over RoBERTa, SQuAD 2.0", "§3.4", 0.4, "exact-match points"),
    _say("ELECTRA over RoBERTa, SQuAD 1.1", "§3.4", -0.2, "exact-match points"),
    _say("ELECTRA-Large's training", "Appendix A", 5, "days on 256 TPUv3s"),
    _say("weight of the discriminator's loss", "Appendix A", 50, "λ"),
    _say("spread between fine-tuning runs", "Appendix B", 0.4, "GLUE points, standard deviation"),
    _say("BERT-Base as a masked language model", "Appendix G", 77.9, "% accuracy"),
    _say("ELECTRA-Base as a masked language model", "Appendix G", 75.5, "% accuracy"),
    _say("ELECTRA-Base's bound with 100 candidates", "footnote 12", 95, "% accuracy"),
    _say("inputs left unchanged for the sentence contrast", "Appendix H", 20, "%"),
)
