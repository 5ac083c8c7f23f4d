"""A fine-tuned model in ONNX, encoder and head in one file, compared with the network of `electra predict`.

    onnx/model.onnx        logits of input_ids, attention_mask and, on BERT's block, token_type_ids, each int64 [B, T]
    onnx/model_int8.onnx   the same with the matrices in 8 bits (dynamic quantization)

Logits are [B, C] of texts (a regression's in the units of its file), [B, T, C] of tags and [B, T, 2] of questions: the
start and the end of the answer. The encoder is traced as transformers has it, the head as it is here.
"""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from electra_trainer.batch import Batch
from electra_trainer.errors import CheckpointError, ConfigError
from electra_trainer.files.durable import scratch
from electra_trainer.files.reading import read_file
from electra_trainer.finetuning.model_folder import Finetuned, finetuned_folder, load_finetuned
from electra_trainer.finetuning.run import collate
from electra_trainer.pretrained import agreement, serving
from electra_trainer.pretrained.export import publish
from electra_trainer.tasks.heads import JointHead
from electra_trainer.tasks.multi_label import MultiLabel
from electra_trainer.tasks.pair_head import PairHead
from electra_trainer.tasks.questions import QuestionAnswering
from electra_trainer.tasks.task import Row
from electra_trainer.tasks.texts import Regression, TextTask

BOUND = 1e-4
"""Largest difference of logits that a file may have; of a regression, in standard deviations of its training file."""
_LENGTHS = (5, 17, 64) * 8
"""Tokens in the rows that are compared, all in one batch; longer ones than the model reads are cut."""


def export_onnx(model: Path, out: Path, *, int8: bool = False) -> list[str]:
    """Write a copy of a fine-tuned model's folder with the whole model in ONNX.

    Args:
        model: DIR/model of `electra finetune`.
        out: a new or empty folder.
        int8: write onnx/model_int8.onnx too.

    Returns:
        What was written, in lines for people.

    Raises:
        ConfigError: a package is missing, `out` is not empty, or the head cannot be written. CheckpointError: ONNX
            Runtime computes something else, or something too far away in 8 bits (`serving.INT8_BOUND`). StorageError:
            the disk is full.
    """
    serving.need_onnx()
    loaded, folder = load_finetuned(model), finetuned_folder(model) or model
    if isinstance(loaded.network.head, JointHead):
        raise ConfigError(
            f"{model}: --to onnx: the joint head searches for ends of each start, which is not one function of a row. "
            "Fine-tune with --head independent."
        )
    batch = _rows(loaded)
    with torch.no_grad():
        wanted = _logits(loaded, loaded.network(batch), batch)
    with scratch() as place, serving.quiet():
        plain, small = place / "model.onnx", place / "model_int8.onnx"
        segments = loaded.network.electra.encoder.model.block == "bert"
        serving.trace(_Whole(loaded, folder).eval(), plain, outputs=["logits"], segments=segments)
        inputs = {"input_ids": batch.ids_BT, "attention_mask": batch.real_BT.long(), "token_type_ids": batch.segment_BT}
        (found,) = serving.answers(plain, [inputs])
        scale = loaded.task.scale if isinstance(loaded.task, Regression) else 1.0
        far = _largest(found / scale, wanted / scale, batch)
        if not far <= BOUND:
            raise CheckpointError(f"{model}: ONNX Runtime's logits differ by {far:.1e}. Please report it.")
        line = f"{out}/onnx: ONNX Runtime has the logits of `electra predict` within {far:.0e}, with padding"
        files = {f"onnx/{plain.name}": plain}
        if int8:
            serving.quantize(plain, small)
            (rough,) = serving.answers(small, [inputs])
            number = isinstance(loaded.task, Regression)
            both = [_shown(loaded, each, batch) for each in (rough, wanted)]
            away = serving.distance(*both, distributions=not number, where=model)
            of = "numbers, in standard deviations of the training file," if number else "probabilities"
            line += f"; in 8 bits its {of} are {away:.1g} away on average"
            files[f"onnx/{small.name}"] = small
        files |= {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
        publish(out, _contents(files), lambda _: None)
    return [f"{out}: a copy of {folder}", line]


def _contents(files: dict[str, Path]) -> Iterator[tuple[str, bytes]]:
    return ((name, read_file(path, limit=serving.MOST)) for name, path in files.items())


class _Whole(nn.Module):
    """The logits of a fine-tuned model, from transformers' encoder and our head."""

    def __init__(self, loaded: Finetuned, folder: Path) -> None:
        import transformers

        super().__init__()
        transformers.utils.logging.set_verbosity_error()  # the head in the folder is not loaded
        place = folder if not (folder / "encoder" / "config.json").is_file() else folder / "encoder"
        self.model = transformers.AutoModel.from_pretrained(place).float()
        self.head, self.loaded, self.sep = loaded.network.head, loaded, loaded.text.specials.sep

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        segments = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        found = self.model(input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=True, **segments)
        sep_BT = (input_ids == self.sep).long()
        batch = Batch(
            ids_BT=input_ids,
            segment_BT=(sep_BT.cumsum(1) - sep_BT).clamp(max=1) * attention_mask,
            position_BT=(attention_mask.cumsum(1) - 1).clamp(min=0),
            piece_BT=attention_mask,
        )
        states = found.last_hidden_state
        if isinstance(self.head, PairHead):
            half = self.model.config.num_hidden_layers // 2
            middle = found.hidden_states[half]
            if self.model.config.model_type == "modernbert":
                middle = self.model.layers[half].attn_norm(middle)
            words = SimpleNamespace(word_embeddings=self.model.get_input_embeddings())
            encoder: Any = SimpleNamespace(embeddings=words, halves=lambda *_: (middle, states))
            states = self.head.read_states(encoder, batch)
        return _logits(self.loaded, states, batch)


def _logits(loaded: Finetuned, states: Tensor, batch: Batch) -> Tensor:
    """The head's output for states of `FineTuned`; of a regression in its file's units."""
    task, head = loaded.task, loaded.network.head
    if not isinstance(task, TextTask):
        out: Tensor = head(states)
        return out
    found = task.output(head, states, batch)
    return found * task.scale + task.shift if isinstance(task, Regression) else found


def _rows(loaded: Finetuned) -> Batch:
    """Rows of text of several lengths, of pairs where the model learned from pairs."""
    text, paired = loaded.text, loaded.pair or isinstance(loaded.task, QuestionAnswering)
    flat = list(chain.from_iterable(encoding.ids for encoding in text.encode(agreement.some_lines())))
    rows = []
    for number, length in enumerate(min(length, text.length) for length in _LENGTHS):
        ids = flat[number * length : number * length + length - 3]
        both = (ids[: length // 2], ids[length // 2 :]) if paired else (ids, None)
        rows.append(Row(ids=text.row(*both), example=number))
    return collate(rows, text.specials, torch.device("cpu"))


def _shown(loaded: Finetuned, logits: Tensor, batch: Batch) -> Tensor:
    """Distributions over the last dimension; of a regression, numbers in standard deviations."""
    if isinstance(loaded.task, Regression):
        return logits / loaded.task.scale
    if isinstance(loaded.task, QuestionAnswering):
        return logits.masked_fill(~batch.real_BT[..., None], float("-inf")).transpose(1, 2).softmax(-1)
    if isinstance(loaded.task, MultiLabel):
        return torch.stack([logits, torch.zeros_like(logits)], -1).softmax(-1)
    return (logits[batch.real_BT] if logits.dim() == 3 else logits).softmax(-1)


def _largest(one: Tensor, two: Tensor, batch: Batch) -> float:
    """The largest absolute difference, over real tokens where there are tokens."""
    away = (one - two).abs()
    return float((away[batch.real_BT] if away.dim() == 3 else away).max())
