"""A sentence encoder trained from an export by sentence-transformers, on STS-B: `python -m benchmarks.sentence_encoder EXPORT --glue GLUE`.

Spearman correlation of cosines with people's scores, on STS-B's development set, of TF-IDF without any encoder, of the export as it
is, and of what MultipleNegativesRankingLoss makes of it and of the same network with fresh weights, from pairs of one of GLUE's
training sets that belong together: STS-B (scores of 4 and more), MRPC (paraphrases) or QNLI (a question and the sentence that answers
it). STS-B's development set is read once for each; nothing was chosen by it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.losses import MultipleNegativesRankingLoss
from sklearn.feature_extraction.text import TfidfVectorizer

from benchmarks.machine_facts import hardware, versions
from electra_trainer.tasks.examples import TextExample
from electra_trainer.tasks.glue_tasks import GlueTask

GOOD = {
    "stsb": lambda one: one.value >= 4,
    "mrpc": lambda one: one.label == "1",
    "qnli": lambda one: one.label == "entailment",
}
"""Training set -> the pairs that belong together."""


def read(glue: Path, task: str) -> tuple[list[TextExample], list[TextExample]]:
    """Training and development pairs."""
    data = GlueTask(folder=glue, task=task, test=False).load()
    return list(data.train), list(next(iter(data.dev.values())))


def correlation(first: Any, second: Any, dev: list[TextExample]) -> float:
    """Spearman's of the cosines of two matrices, a row a text."""
    first, second = (one / np.maximum(np.linalg.norm(one, axis=1, keepdims=True), 1e-9) for one in (first, second))
    return float(spearmanr((first * second).sum(1), [one.value for one in dev]).statistic)


def tf_idf(train: list[TextExample], dev: list[TextExample], **how: Any) -> float:
    """Of TF-IDF, whose idf is that of the training texts."""
    model = TfidfVectorizer(sublinear_tf=True, **how).fit([text for one in train for text in (one.text, str(one.pair))])
    sides = ([one.text for one in dev], [str(one.pair) for one in dev])
    return correlation(*(model.transform(side).toarray() for side in sides), dev)


def score(model: SentenceTransformer, dev: list[TextExample]) -> float:
    """Of an encoder."""
    sides = ([one.text for one in dev], [str(one.pair) for one in dev])
    return correlation(*(model.encode(side, show_progress_bar=False) for side in sides), dev)


def opened(folder: Path, *, fresh: bool, seed: int) -> SentenceTransformer:
    """The export, or the same network with fresh weights."""
    model = SentenceTransformer(str(folder), device="cpu")
    if fresh:
        torch.manual_seed(seed)
        inner = model[0].auto_model
        inner.load_state_dict(type(inner)(inner.config).state_dict())  # in place: the module has other names for it too
    return model


def train(
    model: SentenceTransformer, pairs: list[TextExample], *, steps: int, batch: int, rate: float, seed: int
) -> None:
    """Train on pairs that belong together; the other texts of a batch are what does not."""
    from datasets import Dataset

    order = random.Random(seed).sample(pairs, len(pairs))
    rows = Dataset.from_dict({"one": [one.text for one in order], "other": [one.pair for one in order]})
    with tempfile.TemporaryDirectory() as folder:
        arguments = SentenceTransformerTrainingArguments(
            output_dir=folder, max_steps=steps, per_device_train_batch_size=batch, learning_rate=rate, warmup_steps=steps // 10,
            save_strategy="no", logging_strategy="no", report_to=[], seed=seed, use_cpu=True, disable_tqdm=True,
            bf16=bool(hardware()["amx"]),
        )  # fmt: skip
        with contextlib.redirect_stdout(sys.stderr):  # of the trainer's own lines
            SentenceTransformerTrainer(model, arguments, rows, loss=MultipleNegativesRankingLoss(model)).train()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("export", type=Path, help="folder of the discriminator")
    parser.add_argument("--glue", type=Path, required=True)
    parser.add_argument("--pairs", default="qnli", choices=sorted(GOOD))
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rate", type=float, default=2e-4)
    parser.add_argument("--max-length", type=int, default=48, help="tokens of a text, in training")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--arms", nargs="*", default=["export", "fresh"], choices=["export", "fresh"])
    given = parser.parse_args()
    known, dev = read(given.glue, "stsb")
    pairs = [one for one in read(given.glue, given.pairs)[0] if GOOD[given.pairs](one)]
    facts: dict[str, Any] = {
        "arguments": {name: value for name, value in vars(given).items() if name not in ("export", "glue")},
        "pairs": len(pairs), "dev": len(dev), "threads": torch.get_num_threads(), "hardware": hardware(), "versions": versions(),
        "tf_idf_words": tf_idf(known, dev), "tf_idf_characters": tf_idf(known, dev, analyzer="char_wb", ngram_range=(3, 5)),
    }  # fmt: skip
    for arm in given.arms:
        for seed in range(1, given.seeds + 1):
            model = opened(given.export, fresh=arm == "fresh", seed=seed)
            longest = model.max_seq_length
            facts.setdefault(f"{arm}_before", []).append(score(model, dev))
            print(arm, "before", facts[f"{arm}_before"], file=sys.stderr, flush=True)
            model.max_seq_length, began = min(given.max_length, longest), time.perf_counter()
            train(model, pairs, steps=given.steps, batch=given.batch, rate=given.rate, seed=seed)
            facts.setdefault(f"{arm}_seconds", []).append(time.perf_counter() - began)
            model.max_seq_length = longest
            facts.setdefault(f"{arm}_after", []).append(score(model, dev))
    print(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
