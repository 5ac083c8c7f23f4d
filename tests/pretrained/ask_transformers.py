"""Questions to the version of transformers that is first on the path: `python ask_transformers.py VERSION QUESTIONS ANSWERS`.

It imports nothing of the package, and is asked everything at once: to import torch and transformers takes six seconds.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

HEADS = [
    "Model", "ModelForSequenceClassification", "ModelForTokenClassification", "ModelForQuestionAnswering", "ModelForMultipleChoice",
]  # fmt: skip


def ids(folder: str, lines: list[str]) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)(lines)["input_ids"]


def outputs(folder: str, name: str, inputs: dict[str, Any]) -> Any:
    """Outputs of a class of that name; it takes what the folder's tokenizer gives, too."""
    import torch
    import transformers

    model = getattr(transformers, name).from_pretrained(folder).eval()
    with torch.no_grad():
        said = model(**{key: torch.tensor(value) for key, value in inputs.items()})
        model(**transformers.AutoTokenizer.from_pretrained(folder)("some text", return_tensors="pt"))
    return (said.logits if "logits" in said else torch.stack([said.start_logits, said.end_logits], -1)).tolist()


def precision(folder: str) -> str:
    """In which weights of 16 bits are read."""
    import torch
    from transformers import ElectraForPreTraining

    model: Any = ElectraForPreTraining
    loaded: torch.nn.Module = model.from_pretrained(folder, torch_dtype="auto")
    return str({parameter.dtype for parameter in loaded.parameters()})


def classes(folder: str, words: list[list[str]]) -> Any:
    """Logits of texts or pairs, and what the pipeline says of each."""
    import torch
    import transformers

    model: Any = transformers.AutoModelForSequenceClassification
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        inputs = tokenizer(*words, padding=True, truncation=True, return_tensors="pt")
        logits = model.from_pretrained(folder).eval()(**inputs).logits
    asked = [{"text": a, "text_pair": b} for a, b in zip(*words, strict=True)] if len(words) == 2 else words[0]
    pipeline: Any = transformers.pipeline("text-classification", model=folder)
    return [logits.tolist(), [[item["label"], item["score"]] for item in pipeline(asked, truncation=True)]]


def refused(folder: str) -> None:
    """Models whose head transformers does not have: no class, and no pipeline, puts a new one on it, and the remedy in the sentence works."""
    import transformers

    every: Any = transformers
    tasks = ("text-classification", "token-classification")
    ways: list[Callable[[], object]] = [lambda task=task: every.pipeline(task, model=folder) for task in tasks]
    for name in (kind + head for kind in ("Auto", "Electra") for head in HEADS):
        cls = getattr(transformers, name.replace("ElectraModelFor", "ElectraFor"))
        ways += [
            lambda cls=cls: cls.from_pretrained(folder),  # type: ignore[misc]
            lambda cls=cls: cls.from_pretrained(folder, num_labels=2),  # type: ignore[misc]
        ]
    for way in ways:
        try:
            way()
        except Exception as error:
            assert "transformers has no class for the head of this folder" in str(error), error
        else:
            raise AssertionError(folder)
    encoder = every.AutoModel.from_pretrained(folder, subfolder="encoder")  # what the sentence says
    inputs = every.AutoTokenizer.from_pretrained(folder, subfolder="encoder")("a pear", return_tensors="pt")
    assert encoder(**inputs)[0].shape[2] == 32


def main(version: str, questions: Path, answers: Path) -> None:
    """Answer a list of [function, its arguments]; `version` is what the one on the path has to begin with."""
    for name in ("sklearn", "scipy"):
        sys.modules[name] = None  # type: ignore[assignment]  # transformers works without, and importing takes a second
    import transformers

    assert transformers.__version__.startswith(version), transformers.__version__
    transformers.logging.set_verbosity_error()
    asked: Sequence[tuple[str, list[Any]]] = json.loads(questions.read_text())
    answers.write_text(json.dumps([globals()[name](*words) for name, words in asked]))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
