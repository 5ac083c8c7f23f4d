"""One vector for each text, pooled and normalised as an export says; the files in which it says so.

modules.json               the parts: encoder, pooling and, after sentence-transformers trained it, normalisation
1_Pooling/config.json      the mean of a text's tokens, [CLS], or the largest value of each number
sentence_bert_config.json  most tokens of a text

sentence-transformers and Text Embeddings Inference (TEI) read the same files, and `Embedder` gives the same vectors.
A folder without them gives the mean, there too.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from electra_trainer.batch import Batch
from electra_trainer.data.batches import by_length, padded
from electra_trainer.data.legibility import Legibility
from electra_trainer.data.tokenizer import Text
from electra_trainer.errors import CheckpointError, DataError
from electra_trainer.files.reading import parse_json, read_file, refuse_columns, short
from electra_trainer.model.encoder import Encoder
from electra_trainer.settings.records import read_table
from electra_trainer.train.device import autocast, choose_precision, placed

Pooling = Literal["mean", "cls", "max"]
MODULES, POOLING, LONGEST = "modules.json", "1_Pooling/config.json", "sentence_bert_config.json"
FILES = (MODULES, POOLING, LONGEST)
"""Files that `vector_files` writes."""
PROMPTS = "config_sentence_transformers.json"
"""File of sentence-transformers that may name a text to put before each."""
_WINDOW = 8192
"""Texts among which those of like length are read together; more would need memory and gain nothing."""
_WAYS = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "": "mean_sqrt_len_tokens"}
"""Pooling -> its name in the files of sentence-transformers before version 6."""


@dataclass(frozen=True, kw_only=True)
class VectorForm:
    """How the tokens of a text become one vector. The defaults are those of an export."""

    pooling: Pooling = "mean"
    """mean: of all tokens of the text, [CLS] and [SEP] included."""
    normalized: bool = False
    """Every vector has length 1."""
    max_length: int | None = None
    """Most tokens of a text; None: as many as the encoder was trained on."""

    @property
    def described(self) -> str:
        """For people."""
        whole = {"mean": "mean of a text's tokens", "cls": "state of [CLS]", "max": "maximum over a text's tokens"}
        return whole[self.pooling] + (", normalised" if self.normalized else "")


def vector_files(*, width: int, length: int) -> dict[str, bytes]:
    """The files of an export, with the default form.

    The keys are those of sentence-transformers before version 6: TEI reads no others, and version 6 reads both.

    Args:
        width: of the hidden states.
        length: longest training row in tokens; without it TEI would take every position, trained or not.
    """
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    tables = {
        MODULES: [
            {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for number, (path, kind) in enumerate(kinds.items())
        ],
        POOLING: {
            "word_embedding_dimension": width,
            **{f"pooling_mode_{way}": name == VectorForm().pooling for name, way in _WAYS.items()},
        },
        LONGEST: {"max_seq_length": length, "do_lower_case": False},
    }
    return {name: (json.dumps(table, indent=2) + "\n").encode() for name, table in tables.items()}


def read_form(folder: Path | None) -> VectorForm:
    """The form that a folder's files say, of an export or of a model that sentence-transformers saved; None or without
    them: the default.

    Raises:
        CheckpointError: it has a part that this program does not compute.
    """
    if folder is None or not (path := folder / MODULES).is_file():
        return VectorForm()
    modules: Any = parse_json(read_file(path), where=str(path), remedy="Export it again.", error=CheckpointError)
    kinds = [str(one.get("type")).rpartition(".")[2] if isinstance(one, dict) else "" for one in modules or [{}]]
    table = read_table(folder / POOLING) if (folder / POOLING).is_file() else {}
    ways = [name for name, way in _WAYS.items() if table.get(f"pooling_mode_{way}") is True]
    pooling = table.get("pooling_mode", ways[0] if len(ways) == 1 else ways)
    longest = read_table(folder / LONGEST) if (folder / LONGEST).is_file() else {}
    config = read_table(folder / PROMPTS) if (folder / PROMPTS).is_file() else {}
    prompt = (config.get("prompts") or {}).get(config.get("default_prompt_name"))
    known = ["Transformer", "Pooling", "Normalize"]
    faults = {
        f"{path}: the parts {short(kinds)}": kinds not in (known[:2], known),
        f"{folder / PROMPTS}: the prompt {short(prompt)} before each text": bool(prompt),
        f"{folder / POOLING}: the pooling {short(pooling)}": pooling not in get_args(Pooling),
        f"{folder / LONGEST}: do_lower_case": longest.get("do_lower_case") is True,
    }
    for fault in (words for words, found in faults.items() if found):
        raise CheckpointError(
            f"{fault}: vectors of this kind are not computed here; Transformer, Pooling (mean, cls or max) and "
            "Normalize are. Use sentence-transformers."
        )
    most = longest.get("max_seq_length")
    return VectorForm(
        pooling=cast(Pooling, pooling),
        normalized=kinds[2:] == ["Normalize"],
        max_length=most if isinstance(most, int) and most > 2 else None,
    )


@dataclass(frozen=True, kw_only=True)
class Embedder:
    """An encoder that gives one vector for each text."""

    encoder: Encoder
    text: Text
    """Text -> ids."""
    form: VectorForm

    @torch.no_grad()
    def embed(
        self,
        texts: Iterable[str],
        *,
        device: str | None = None,
        precision: str = "fp32",
        progress: Callable[[int], object] = lambda done: None,
        reader: str | None = None,
    ) -> NDArray[np.float32]:
        """Vectors of texts, float32 [N, D]; texts of like length are read together.

        Args:
            texts: N texts; "[SEP]" and the like in them are ordinary characters.
            device: auto, cpu, cuda or cuda:N; None: where the network is.
            precision: fp32, bf16, or auto: the one that the device is faster with.
            progress: called with the number of texts that are done.
            reader: name under which unreadable letters and cut texts are reported; None: they are not.

        Raises:
            DataError: one of them is not a text, or is empty.
        """
        refuse_columns(texts, where="embed")
        given: list[Any] = list(texts)
        for index, text in enumerate(given):
            if not isinstance(text, str) or not text.strip():
                raise DataError(f"embed: item {index} is {short(text)}, expected a text.")
        done, tally, longest = 0, Legibility(), self.text.length
        counting = replace(self.text, tally=tally, length=min(self.form.max_length or longest, longest))
        with placed(self.encoder, device) as where:
            precision, encoder = choose_precision(precision, where), self.encoder.eval()
            found = np.empty((len(given), encoder.encoder.model.hidden_size), dtype=np.float32)
            for first in range(0, len(given), _WINDOW):
                rows = [counting.row(one.ids) for one in counting.encode(given[first : first + _WINDOW])]
                for indices in by_length(np.array([*map(len, rows)])):
                    batch = padded([rows[index] for index in indices], self.text.specials).to(where)
                    with autocast(precision, where):
                        hidden_BTD = encoder(batch.ids_BT, batch)
                    vectors_BD = pooled(hidden_BTD.float(), batch, self.form.pooling)
                    if self.form.normalized:
                        vectors_BD = torch.nn.functional.normalize(vectors_BD, dim=1)
                    found[first + indices] = vectors_BD.cpu().numpy()
                    progress(done := done + len(indices))
        if reader is not None:
            tally.report(reader=reader, longer="Split them, or put first what matters.")
        return found


def pooled(hidden_BTD: Tensor, batch: Batch, pooling: Pooling) -> Tensor:
    """[B, T, D] -> [B, D]: the state of [CLS], or the mean or the maximum over a row's real tokens."""
    if pooling == "cls":
        return hidden_BTD[:, 0]
    real_BT1 = batch.real_BT.unsqueeze(-1)
    if pooling == "max":
        return hidden_BTD.masked_fill(~real_BT1, -torch.inf).amax(1)
    return (hidden_BTD * real_BT1).sum(1) / real_BT1.sum(1)


def nearest(vectors: NDArray[np.float32], query: NDArray[np.float32], *, top: int) -> list[tuple[int, float]]:
    """The `top` rows of `vectors`, [N, D], with the largest cosines to `query`, [D], and these; equals in their
    order.
    """
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(query)
    cosines = vectors @ query / np.maximum(lengths, np.finfo(np.float32).tiny)
    return [(int(row), float(cosines[row])) for row in np.argsort(-cosines, kind="stable")[:top]]
