"""Arms of the paper's experiments, each a small change to a preset (`electra compare --arms` names them), and
objectives in words.

An arm keeps the preset's sizes, data, seed and optimizer; how long it trains is settled by what the arms are matched
on. No torch here.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from electra_trainer.errors import ConfigError, require_known
from electra_trainer.settings import methods
from electra_trainer.settings.config import Config
from electra_trainer.settings.extensions import HINT


def electra(config: Config) -> Config:
    """ELECTRA (§2): replaced token detection over all tokens."""
    return replace(config, objective=_rtd(config))


def electra_15(config: Config) -> Config:
    """ELECTRA 15 % (§3.5): the discriminator's loss over the masked tokens only."""
    return replace(config, objective=replace(_rtd(config), loss_over="masked"))


def electra_15_other(config: Config) -> Config:
    """ELECTRA on a random other 15 % (§3.5, footnote 8)."""
    return replace(config, objective=replace(_rtd(config), loss_over="other"))


def lucky_fakes(config: Config) -> Config:
    """ELECTRA that counts a sample equal to the original word as a fake (§2: as an original is better)."""
    return replace(config, objective=replace(_rtd(config), lucky="fake"))


def mlm(config: Config) -> Config:
    """BERT with the preset's masking, as released 85 % [MASK] and 15 % unchanged (§3.1)."""
    return replace(config, objective=methods.MLM())


def mlm_80_10_10(config: Config) -> Config:
    """BERT with its own masking: 80 % [MASK], 10 % random words, 10 % unchanged (§3.5)."""
    return replace(mlm(config), masking=replace(config.masking, mask_share=0.8, random_share=0.1))


def mlm_rare(config: Config) -> Config:
    """BERT that masks rarer words more often (Appendix H)."""
    return replace(mlm(config), masking=replace(config.masking, rarity=0.5))


def mlm_hard(config: Config) -> Config:
    """BERT that masks more often what a small model guesses to be hard for it (Appendix H)."""
    return replace(config, objective=methods.HardMLM())


def replace_mlm(config: Config) -> Config:
    """Replace MLM (§3.5): samples instead of [MASK] in the input."""
    return replace(config, objective=methods.ReplaceMLM())


def all_tokens_mlm(config: Config) -> Config:
    """All-Tokens MLM with the copy mechanism (§3.5)."""
    return replace(config, objective=methods.AllTokensMLM())


def all_tokens_mlm_plain(config: Config) -> Config:
    """All-Tokens MLM without the copy mechanism (§3.5)."""
    return replace(config, objective=methods.AllTokensMLM(copy=False))


def unigram(config: Config) -> Config:
    """ELECTRA with a unigram generator (§3.2)."""
    return replace(electra(config), generator=methods.Unigram())


def uniform(config: Config) -> Config:
    """ELECTRA with a uniform generator (released code)."""
    return replace(electra(config), generator=methods.Uniform())


def same_size(config: Config) -> Config:
    """ELECTRA with a generator of the discriminator's size, embeddings shared (§3.2)."""
    return replace(electra(config), generator=_learned(config, width=1.0, depth=1.0), sharing="embeddings")


def sharing_none(config: Config) -> Config:
    """ELECTRA with a generator of the discriminator's size, without weight sharing (§3.2)."""
    return replace(same_size(config), sharing="none")


def sharing_all(config: Config) -> Config:
    """ELECTRA with a generator of the discriminator's size, all encoder weights shared (§3.2)."""
    return replace(same_size(config), sharing="all")


def disentangled(config: Config) -> Config:
    """ELECTRA whose discriminator adds its own difference to the generator's tables (DeBERTaV3)."""
    return replace(electra(config), generator=_learned(config), sharing="disentangled")


def two_stage(config: Config) -> Config:
    """Two-stage training (§3.2): the generator, then the discriminator from its weights."""
    return replace(sharing_none(config), phases=methods.TwoStage())


def two_stage_fresh(config: Config) -> Config:
    """Two-stage training without that initialisation (§3.2)."""
    return replace(sharing_none(config), phases=methods.TwoStage(start="fresh"))


def adversarial(config: Config) -> Config:
    """Adversarial training by REINFORCE (§3.2, Appendix F)."""
    return replace(config, objective=methods.Adversarial(weight=_rtd(config).weight))


def warm_sampling(config: Config) -> Config:
    """ELECTRA whose generator samples at temperature 1.5 (Appendix H)."""
    return replace(electra(config), generator=_learned(config, temperature=1.5))


def disallow_correct(config: Config) -> Config:
    """ELECTRA whose generator never samples the original word (Appendix H)."""
    return replace(electra(config), generator=_learned(config, disallow_correct=True))


def sentence_contrast(config: Config) -> Config:
    """ELECTRA with the sentence-level contrastive objective (Appendix H)."""
    return replace(config, objective=methods.SentenceContrast(weight=_rtd(config).weight))


ARMS: dict[str, Callable[[Config], Config]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        electra, electra_15, electra_15_other, lucky_fakes, mlm, mlm_80_10_10, mlm_rare, mlm_hard, replace_mlm,
        all_tokens_mlm, all_tokens_mlm_plain, unigram, uniform, same_size, sharing_none, sharing_all, disentangled,
        two_stage, two_stage_fresh, adversarial, warm_sampling, disallow_correct, sentence_contrast,
    )
}  # fmt: skip
"""The arms by name. One of your own is a line in a file that `--import` names: `ARMS["mine"] = mine`."""


PRESET = "preset"
"""The arm that is the preset itself."""


def arm(name: str, config: Config) -> Config:
    """`config` as the arm of that name, or with the objective of that kind; raises ConfigError with the nearest name
    otherwise. Of a preset in two stages the other arms are joint, with shared embeddings, as the paper's are.
    """
    if name == PRESET:
        return config
    objectives = methods.ObjectiveSettings.kinds
    require_known(f"Unknown arm {name!r}", name, dict.fromkeys((*ARMS, *objectives, PRESET)), hint=HINT)
    if isinstance(config.phases, methods.TwoStage):
        config = replace(config, phases=methods.Joint(), sharing="embeddings")
    return ARMS[name](config) if name in ARMS else replace(config, objective=objectives[name]())


def arm_of(config: Config) -> str | None:
    """The arm that this config matches, or None. Later arms are more specific, so they are tried first."""
    for name in reversed(ARMS):
        try:
            if arm(name, config) == config:
                return name
        except ConfigError:
            continue  # not with this config
    return None


def _rtd(config: Config) -> methods.RTD:
    """The preset's weights where it is an ELECTRA, the paper's otherwise."""
    own = config.objective
    if not isinstance(own, methods.RTD):
        return methods.RTD()
    return methods.RTD(weight=own.weight, generator_weight=own.generator_weight)


def _learned(config: Config, **changes: Any) -> methods.Learned:
    return replace(config.generator if isinstance(config.generator, methods.Learned) else methods.Learned(), **changes)


def objective_title(config: Config) -> str:
    """The objective and the algorithm in words, with settings that are not usual, for the plan and the model card; an
    objective without a title goes by its kind.
    """
    objective = config.objective
    title = objective.title or methods.kind_of(type(objective))
    own = [
        f"{name} = {value}" for name, value in vars(objective).items() if value != getattr(type(objective), name, None)
    ]
    return title + f" ({', '.join(own)})" * bool(own) + " in two stages" * isinstance(config.phases, methods.TwoStage)
