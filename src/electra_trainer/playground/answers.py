"""Answers of a model to the page: words with their probabilities, candidates for a word, predictions of a fine-tuned
model.

    {"words": [{"before": " ", "text": "flew", "tokens": ["flew"], "replaced_probability": [0.94]}, …], "after": "."}

The text is all `before` and `text` in turn, then `after`. A word is what the tokenizer splits into pieces.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from electra_trainer.data.legibility import Legibility, parted, percent
from electra_trainer.errors import DataError
from electra_trainer.finetuning.model_folder import finetuned_folder, load_finetuned
from electra_trainer.presets.arms import objective_title
from electra_trainer.pretrained.pretrained import Pretrained, load
from electra_trainer.runs.checkpoint import numbered
from electra_trainer.runs.metrics import readable_rows
from electra_trainer.runs.run_folder import EXAMPLES
from electra_trainer.settings.records import is_run, run_and_step

Json = dict[str, Any]
"""Ready for JSON."""
_KEPT = 4
"""Checkpoints of a run that stay in memory."""
_MOST_TOKENS = 4096
_EXAMPLES = 12
_OPENING = "the chef flew the meal and the guests ate it."
"""The sentence that the page opens with where the run has read none; "cooked" was exchanged."""


class PretrainedModel:
    """A run or an exported folder. Its checkpoints are loaded when they are asked for."""

    def __init__(self, name: str) -> None:
        self._name, self._folder = name, run_and_step(name)[0]
        self._load = lru_cache(maxsize=_KEPT)(load)
        self.first = load(name)
        """The checkpoint that was named."""

    def facts(self) -> Json:
        """Description of the model with the sentences of the page; the steps are the present checkpoints."""
        steps = [step for step, _ in numbered(self._folder / "checkpoints")] if is_run(self._name) else []
        about = objective_title(self.first.config) if self.first.config is not None else "exported model"
        number = "The number under a word is the probability that it was replaced."
        choose = "Choose a word to see what the network would write there."
        parts = {number: self.first.discriminator is not None, choose: self.first.generator is not None}
        return {
            "kind": "pretrained",
            "name": self._name,
            "about": f"{about}, rows of {self.first.length} tokens",
            "how": " ".join(["Type a sentence.", *(part for part, holds in parts.items() if holds)]),
            "steps": steps,
            "step": self.first.step,
            "scores": self.first.discriminator is not None,
            "examples": self._read(),
            "opening": _OPENING,
        }

    def _read(self) -> list[Json]:
        """Sentences of 5 to 40 tokens that the run read at its last evaluation, as they were written and with at most
        a quarter replaced; [] where nothing is scored.
        """
        found, decode = list[Json](), self.first.tokenizer.decoder.decode
        rows = [*readable_rows(self._folder / EXAMPLES)] if self.first.discriminator is not None else []
        with suppress(IndexError, KeyError, TypeError, ValueError, AttributeError):  # damaged
            for row in rows[-1]["rows"]:
                ends = [at for at, token in enumerate(row["original"], 1) if token in (".", "[CLS]", "[SEP]")]
                for begin, end in pairwise(ends):
                    read = {"written": row["original"][begin:end], "read": row["input"][begin:end]}
                    changed = sum(map(str.__ne__, *read.values()))
                    if 5 <= end - begin <= 40 and 0 < changed <= max(2, (end - begin) / 4):
                        texts = {name: decode(words).removesuffix(" [SEP]") for name, words in read.items()}
                        found.append({name: text.removeprefix("##") for name, text in texts.items()})
        return found[:_EXAMPLES]

    def score(self, text: str, *, step: int | None = None) -> Json:
        """Words of a text with the probabilities of `Pretrained.score`; without a discriminator, the words alone.

        Raises:
            DataError: the text has no words. MissingInputError, CheckpointError: that step cannot be loaded.
        """
        pretrained = self._at(step)
        _limit(pretrained.tokenizer, text)
        scored = pretrained.score(text).replaced_probability if pretrained.discriminator is not None else []
        return words_of(pretrained.tokenizer, text, scored)

    def fill(self, text: str, *, step: int | None = None, top: int) -> list[list[Json]]:
        """`Pretrained.fill`: for each [MASK] its candidates."""
        return [[vars(one) for one in gap] for gap in self._at(step).fill(text, top=top)]

    def _at(self, step: int | None) -> Pretrained:
        return self.first if step in (None, self.first.step) else self._load(f"{self._folder}@{step}")


class FinetunedModel:
    """A folder that `electra finetune`, `glue` or `squad` made."""

    def __init__(self, name: str) -> None:
        self._name, self._model = name, load_finetuned(name)

    def facts(self) -> Json:
        """Description of the model, with the name of the second text where it reads two."""
        task = self._model.task
        source, second = self._model.table["source"]["model"], task.second_text
        asked = f"a text and a {second.lower()}" if second else "two texts" if self._model.pair else "a text"
        second = second or "Second text" * self._model.pair
        return {
            "kind": "finetuned",
            "name": self._name,
            "about": f"{task.name}, fine-tuned from {Path(source).name}",
            "how": f"Type {asked}.",
            "second": second,
        }

    def predict(self, text: str, second: str = "") -> Json:
        """`Finetuned.predict` of one text: labels with probabilities, a value, a tag for each word, or answers.

        Args:
            text: for a question, the text that may hold the answer.
            second: the second text of a pair, or the question.
        """
        task, pair = self._model.task, self._model.pair or bool(self._model.task.second_text)
        if not text.strip() or (pair and not second.strip()):
            raise DataError("the text is empty: give at least one word.")
        _limit(self._model.text.tokenizer, text, second)
        if (places := task.word_places(text, self._model.columns)) is not None:
            tags = self._model.predict([[text[begin:end] for begin, end in places]])[0]["tags"]
            words, after = _segments(text, places)
            return {"words": [word | {"tag": tag} for word, tag in zip(words, tags, strict=True)], "after": after}
        tally = Legibility()
        model = replace(self._model, text=replace(self._model.text, tally=tally))
        asked = (second, text) if task.second_text else (text, second) if pair else text
        answer = model.predict_examples(task.examples_from([asked], pair=model.pair))[0]
        unread = (
            f"The model reads {tally.room} tokens of it: {percent(tally.unread, tally.tokens)} of the text is left out."
        )
        note = {"note": unread} if tally.cut else {}
        if "value" in answer:
            return {"value": answer["value"], **note}
        if "nbest" in answer:
            shares = [
                {"label": one["text"] or "(no answer)", "probability": one["probability"]} for one in answer["nbest"]
            ]
            return {"said": answer["text"] or "(no answer)", "labels": shares, **note}
        shares = [{"label": label, "probability": share} for label, share in answer["probabilities"].items()]
        chosen = answer["label"] if "label" in answer else ", ".join(answer["labels"]) or "(no label)"
        return {"said": chosen, "labels": sorted(shares, key=lambda one: -one["probability"]), **note}


Model = PretrainedModel | FinetunedModel


def open_model(name: str | Path) -> Model:
    """A run (RUN or RUN@STEP), an exported folder, or a fine-tuned model.

    Raises:
        MissingInputError: it is none of them. CheckpointError, DataError: it does not verify.
    """
    return PretrainedModel(str(name)) if finetuned_folder(name) is None else FinetunedModel(str(name))


def _limit(tokenizer: Tokenizer, *texts: str) -> None:
    """DataError where texts have too many tokens to be answered at once."""
    tokenizer.encode_special_tokens = True
    if (tokens := sum(len(tokenizer.encode(text).ids) for text in texts)) > _MOST_TOKENS:
        raise DataError(f"the text has {tokens:,} tokens. Expected at most {_MOST_TOKENS:,}: shorten it.")


def words_of(tokenizer: Tokenizer, text: str, probabilities: Sequence[float]) -> Json:
    """The words of a text, each with its tokens.

    Args:
        tokenizer: reads "[MASK]" and the like as plain text here.
        probabilities: of each token; empty where nothing scores them.
    """
    tokenizer.encode_special_tokens = True
    encoding = tokenizer.encode(parted(text), add_special_tokens=False)
    if not encoding.ids:
        raise DataError("the text is empty: give at least one word.")
    groups: dict[int, list[int]] = {}
    for index, number in enumerate(encoding.word_ids):
        groups.setdefault(-1 - index if number is None else number, []).append(index)
    offsets, tokens = encoding.offsets, encoding.tokens  # each access makes the whole list
    spans = [(offsets[group[0]][0], offsets[group[-1]][1]) for group in groups.values()]
    words, after = _segments(text, spans)
    for word, group in zip(words, groups.values(), strict=True):
        word["tokens"] = [tokens[index] for index in group]
        word["replaced_probability"] = [probabilities[index] for index in group] if probabilities else []
    return {"words": words, "after": after}


def _segments(text: str, spans: Sequence[tuple[int, int]]) -> tuple[list[Json], str]:
    """The text of each span with what is before it, and what follows the last; blanks at a span's begin are before
    it.
    """
    words, at = list[Json](), 0
    for begin, end in spans:
        begin = max(begin, at)  # pieces of one character may share it
        end = max(begin, end)
        begin += len(text[begin:end]) - len(text[begin:end].lstrip())
        words.append({"before": text[at:begin], "text": text[begin:end]})
        at = end
    return words, text[at:]
