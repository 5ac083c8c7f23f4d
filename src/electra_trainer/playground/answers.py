"""Answers of a model to the page: words with their probabilities, candidates for a word.

    {"words": [{"before": " ", "text": "flew", "tokens": ["flew"], "replaced_probability": [0.94]}, …], "after": "."}

The text is all `before` and `text` in turn, then `after`. A word is what the tokenizer splits into pieces.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from tokenizers import Tokenizer

from electra_trainer.errors import DataError
from electra_trainer.presets.arms import objective_title
from electra_trainer.pretrained.pretrained import Pretrained, load
from electra_trainer.runs.checkpoint import numbered
from electra_trainer.settings.records import is_run, run_and_step

Answer = dict[str, Any]
"""Ready for JSON."""
_KEPT = 4
"""Checkpoints of a run that stay in memory."""
_OPENING = "the chef flew the meal and the guests ate it."
"""The sentence that the page opens with; "cooked" was exchanged."""


class Model:
    """A run or an exported folder. Its checkpoints are loaded when they are asked for."""

    def __init__(self, name: str) -> None:
        self._name, self._folder = name, run_and_step(name)[0]
        self._load = lru_cache(maxsize=_KEPT)(load)
        self.first = load(name)
        """The checkpoint that was named."""

    def facts(self) -> Answer:
        """Description of the model; the steps are the present checkpoints."""
        steps = [step for step, _ in numbered(self._folder / "checkpoints")] if is_run(self._name) else []
        config = self.first.config
        about = objective_title(config) if config is not None else "exported model"
        return {
            "name": self._name,
            "about": f"{about}, rows of {self.first.length} tokens",
            "steps": steps,
            "step": self.first.step,
            "scores": self.first.discriminator is not None,
            "opening": _OPENING,
        }

    def score(self, text: str, *, step: int | None = None) -> Answer:
        """Words of a text with the probabilities of `Pretrained.score`; without a discriminator, the words alone.

        Raises:
            DataError: the text has no words. MissingInputError, CheckpointError: that step cannot be loaded.
        """
        pretrained = self._at(step)
        scored = pretrained.score(text).replaced_probability if pretrained.discriminator is not None else []
        return words_of(pretrained.tokenizer, text, scored)

    def fill(self, text: str, *, step: int | None = None, top: int) -> list[list[Answer]]:
        """`Pretrained.fill`: for each [MASK] its candidates."""
        return [[vars(one) for one in gap] for gap in self._at(step).fill(text, top=top)]

    def _at(self, step: int | None) -> Pretrained:
        return self.first if step in (None, self.first.step) else self._load(f"{self._folder}@{step}")


def words_of(tokenizer: Tokenizer, text: str, probabilities: Sequence[float]) -> Answer:
    """The words of a text, each with its tokens.

    Args:
        tokenizer: reads "[MASK]" and the like as plain text here.
        probabilities: of each token; empty where nothing scores them.
    """
    tokenizer.encode_special_tokens = True
    encoding = tokenizer.encode(text, add_special_tokens=False)
    if not encoding.ids:
        raise DataError("the text is empty: give at least one word.")
    groups: dict[int, list[int]] = {}
    for index, number in enumerate(encoding.word_ids):
        groups.setdefault(-1 - index if number is None else number, []).append(index)
    spans = [(encoding.offsets[group[0]][0], encoding.offsets[group[-1]][1]) for group in groups.values()]
    words, after = _segments(text, spans)
    for word, group in zip(words, groups.values(), strict=True):
        word["tokens"] = [encoding.tokens[index] for index in group]
        word["replaced_probability"] = [probabilities[index] for index in group] if probabilities else []
    return {"words": words, "after": after}


def _segments(text: str, spans: Sequence[tuple[int, int]]) -> tuple[list[Answer], str]:
    """The text of each span with what is before it, and what follows the last; blanks at a span's begin are before
    it.
    """
    words, at = list[Answer](), 0
    for begin, end in spans:
        begin = max(begin, at)  # pieces of one character may share it
        end = max(begin, end)
        begin += len(text[begin:end]) - len(text[begin:end].lstrip())
        words.append({"before": text[at:begin], "text": text[begin:end]})
        at = end
    return words, text[at:]
