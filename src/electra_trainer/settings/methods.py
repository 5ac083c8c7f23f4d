"""Settings of the paper's objectives, generators and training algorithms, as small dataclasses. No torch here.

Each is one choice of a tagged union: `--objective rtd`, `--generator unigram`, `--phases two-stage`; in a file a table
with
`kind`. An objective of your own is a subclass of `ObjectiveSettings` in its own file (docs/extending.md).
"""

import re
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from electra_trainer.errors import probability, require

ADDED = {"added": True}
"""Metadata of a field that files of earlier versions lack; they mean its default."""
SingleOutput = Literal["none", "kept tokens", "kept inputs", "generator slots", "guesser tokens"]


def kind_of(cls: type) -> str:
    """Tag of a class in a union: `AllTokensMLM` -> "all-tokens-mlm"."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", cls.__name__).lower()


@dataclass(frozen=True, kw_only=True)
class ObjectiveSettings:
    """Settings of a pre-training objective. A subclass is known by its `kind` as soon as its file is imported.

    Fields whose names end in `weight` weigh losses: above 0, `generator_weight` and `neighbour_weight` at least 0.
    """

    kinds: ClassVar[dict[str, "type[ObjectiveSettings]"]] = {}
    title: ClassVar[str] = ""
    """The objective in words, for the plan and the model card."""
    uses_generator: ClassVar[bool] = True
    """Whether there is a generator next to the main network."""
    rows_together: ClassVar[int] = 1
    """Rows of the text that stay one after another in a batch."""
    keeps: ClassVar[Literal["discriminator", "encoder"]] = "encoder"
    """The main network, which is exported: a discriminator, or an encoder with a token head."""
    predicts: ClassVar[Literal["masked", "all", "none"]] = "none"
    """Positions that the main network sends through the vocabulary."""

    @property
    def single_output(self) -> SingleOutput:
        """A separate layer [width -> 1]: on the main network at all tokens or at the [CLS] of each input, on the
        generator at the chosen positions, or on a guesser (hard-mlm) at all tokens. Counted in parameters and FLOPs.
        """
        return "none"

    def __init_subclass__(cls) -> None:
        kind = kind_of(cls)
        ours = kind in ObjectiveSettings.kinds and ObjectiveSettings.kinds[kind].__module__ == __name__
        require(not ours, f"objective {cls.__name__}", kind, "a name that is not one of ours")
        ObjectiveSettings.kinds[kind] = cls

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name in ("generator_weight", "neighbour_weight"):
                require(value >= 0, f"objective.{name}", value, "a number of at least 0")
            elif name.endswith("weight"):
                require(value > 0, f"objective.{name}", value, "a number above 0")


@dataclass(frozen=True, kw_only=True)
class RTD(ObjectiveSettings):
    """Replaced token detection, ELECTRA's objective (§2): generator_weight * MLM + weight * RTD."""

    title = "replaced token detection"
    keeps = "discriminator"

    weight: float = 50.0
    """Weight of the discriminator's mean loss (λ, Appendix A)."""
    generator_weight: float = 1.0
    """Weight of the generator's mean loss."""
    loss_over: Literal["all", "masked", "other"] = "all"
    """Tokens that the discriminator's loss counts: `all`; `masked`: the chosen positions only (ELECTRA 15 %, §3.5);
    `other`: as many random tokens, drawn independently of those (footnote 8). The loss is the mean over them, so one of
    them weighs 1/fraction times as much as in `all`."""
    lucky: Literal["original", "fake"] = "original"
    """Label of a sample that equals the original word: `original`, which moderately improved the paper's results (§2),
    or `fake`."""


@dataclass(frozen=True, kw_only=True)
class RtdMLM(RTD):
    """RTD, and Replace MLM (§3.5) by the same network: RTD's loss + corrective_weight * MLM from the generator's
    samples.

    This is COCO-LM's corrective language modelling (Meng et al., 2021) at the chosen positions, without its copy
    mechanism.
    """

    title = "replaced token detection and corrective MLM"
    predicts = "masked"

    corrective_weight: float = 1.0
    """Weight of the mean loss of the main network's own token head."""
    neighbour_weight: float = field(default=0.0, metadata=ADDED)
    """Weight of the mean loss of telling, by its mean hidden state, the row before or after a row from the others of
    its lane. Above 0, rows are drawn in pairs that follow one another in the text."""

    @property
    def rows_together(self) -> int:  # type: ignore[override]
        """Pairs, where they are told from others."""
        return 2 if self.neighbour_weight else 1


@dataclass(frozen=True, kw_only=True)
class MLM(ObjectiveSettings):
    """Masked language modelling, BERT's objective: the baseline of every table. `generator` and `sharing` are not
    used.
    """

    title = "masked language modelling"
    uses_generator = False
    predicts = "masked"


@dataclass(frozen=True, kw_only=True)
class HardMLM(MLM):
    """Masked language modelling of tokens that a small model guesses to be hard to predict (Appendix H)."""

    title = "masked language modelling of hard tokens"
    single_output = "guesser tokens"

    pool: float = 3.0
    """Candidates drawn for each masked position, at most all; more candidates make the chosen ones harder."""
    width: float = 0.25
    """Multiplier of the guesser's hidden size, feed-forward size and heads."""
    guess_weight: float = 1.0
    """Weight of the mean squared error of the guesses, in nats²."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.pool >= 1, "objective.pool", self.pool, "a number of at least 1")
        require(0 < self.width <= 4, "objective.width", self.width, "a multiplier above 0 and at most 4")


@dataclass(frozen=True, kw_only=True)
class ReplaceMLM(ObjectiveSettings):
    """Replace MLM (§3.5): predict the chosen words from an input that has the generator's samples instead of [MASK]."""

    title = "replace MLM"
    predicts = "masked"

    weight: float = 1.0
    """Weight of the encoder's mean loss."""
    generator_weight: float = 1.0
    """Weight of the generator's mean loss."""


@dataclass(frozen=True, kw_only=True)
class AllTokensMLM(ObjectiveSettings):
    """All-Tokens MLM (§3.5): predict every word of the corrupted input, with a probability of copying it."""

    title = "all-tokens MLM"
    predicts = "all"

    weight: float = 1.0
    """Weight of the encoder's mean loss over all real tokens."""
    generator_weight: float = 1.0
    """Weight of the generator's mean loss."""
    copy: bool = True
    """Whether a layer gives the probability of copying the input; without it words come from the softmax alone."""

    @property
    def single_output(self) -> SingleOutput:
        """The copy layer, if there is one."""
        return "kept tokens" if self.copy else "none"


@dataclass(frozen=True, kw_only=True)
class Adversarial(ObjectiveSettings):
    """Adversarial training (Appendix F): REINFORCE rewards the generator for what the discriminator gets wrong.

    What the networks share both of them move; `--sharing none` keeps the generator's policy out of the discriminator's
    embeddings.
    """

    title = "adversarial replaced token detection"
    keeps = "discriminator"
    single_output = "generator slots"

    weight: float = 50.0
    """Weight of the discriminator's mean loss (λ)."""
    policy_weight: float = 1.0
    """Weight of the generator's mean policy-gradient loss."""
    baseline_weight: float = 1.0
    """Weight of the mean cross-entropy that the learned baseline is trained with."""


@dataclass(frozen=True, kw_only=True)
class SentenceContrast(ObjectiveSettings):
    """RTD with a sentence-level contrastive objective (Appendix H): was an input corrupted at all, yes or no."""

    title = "replaced token detection with sentence contrast"
    keeps = "discriminator"
    single_output = "kept inputs"

    weight: float = 50.0
    """Weight of the discriminator's mean loss over tokens (λ)."""
    generator_weight: float = 1.0
    """Weight of the generator's mean loss."""
    sentence_weight: float = 1.0
    """Weight of the mean loss over inputs (pieces of a row)."""
    unchanged: float = 0.2
    """Share of the inputs that are left as they are."""

    def __post_init__(self) -> None:
        super().__post_init__()
        probability("objective.unchanged", self.unchanged)


@dataclass(frozen=True, kw_only=True)
class Learned:
    """A small masked language model next to the discriminator (§3.2, "Smaller Generators")."""

    width: float = 0.25
    """Multiplier of hidden size, feed-forward size and heads (Table 5)."""
    depth: float = 1.0
    """Multiplier of the number of layers; the paper keeps it at 1."""
    temperature: float = 1.0
    """Divides the logits that are sampled from (Appendix H); the generator's loss does not see it."""
    disallow_correct: bool = False
    """Never sample the original word (Appendix H)."""

    def __post_init__(self) -> None:
        require(0 < self.width <= 4, "generator.width", self.width, "a multiplier above 0 and at most 4")
        require(0 < self.depth <= 4, "generator.depth", self.depth, "a multiplier above 0 and at most 4")
        require(self.temperature > 0, "generator.temperature", self.temperature, "a number above 0")


@dataclass(frozen=True, kw_only=True)
class Unigram:
    """Samples words by their frequency in the training rows (§3.2). It has no parameters and no loss."""

    disallow_correct: bool = False
    """Never sample the original word (Appendix H)."""


@dataclass(frozen=True, kw_only=True)
class Uniform:
    """Samples every word of the vocabulary alike, [PAD], [CLS], [SEP] and [MASK] left out (released
    `uniform_generator`).
    """

    disallow_correct: bool = False
    """Never sample the original word (Appendix H)."""


Generator = Learned | Unigram | Uniform


def generators() -> dict[str, type[Generator]]:
    """Generators by `kind`. A subclass of one of ours is known as soon as its file is imported (docs/extending.md)."""
    ours: tuple[type[Generator], ...] = (Learned, Unigram, Uniform)
    return {kind_of(cls): cls for one in ours for cls in (*one.__subclasses__(), one)}


@dataclass(frozen=True, kw_only=True)
class Joint:
    """Generator and discriminator are trained together (§2)."""

    def first_steps(self, steps: int) -> int:
        """Steps that train the generator alone, out of `steps`: none."""
        return 0


@dataclass(frozen=True, kw_only=True)
class TwoStage:
    """First the generator alone, then the discriminator alone against the frozen generator (§3.2, "Training
    Algorithms").

    The learning rate has its warm-up and decay in each stage. The frozen generator samples with its dropout, as a
    generator that learns does.
    """

    share: float = 0.5
    """Share of the steps that train the generator, at least one; the paper trains both for n steps. 0 is for a
    generator that is trained
    already: `--init` of a masked language model of the same size."""
    start: Literal["generator", "fresh"] = "generator"
    """How the discriminator's encoder begins: from the `generator`'s weights, which needs one of the same size, or
    `fresh`.
    """

    def __post_init__(self) -> None:
        require(0 <= self.share < 1, "phases.share", self.share, "a share of at least 0 and below 1")

    def first_steps(self, steps: int) -> int:
        """Steps that train the generator alone, out of `steps`; each stage has at least one, where there are two."""
        return min(steps - 1, max(1, round(self.share * steps))) if steps > 1 else 0


Phases = Joint | TwoStage
PHASES: dict[str, type[Phases]] = {kind_of(cls): cls for cls in (Joint, TwoStage)}
