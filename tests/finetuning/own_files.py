"""A tiny encoder in a folder, and small tables about fruit and tools, for tests of files of one's own."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import safetensors.torch
import torch

from electra_trainer.data.tokenizer import SPECIAL_TOKENS, save_tokenizer, specials_of, vocab_size_of, word_piece
from electra_trainer.model.networks import build_encoder
from electra_trainer.pretrained.as_modern import modern_tensors
from electra_trainer.pretrained.export import shape_table
from electra_trainer.settings.config import Block, Model

FRUIT = ("apple", "pear", "plum", "cherry", "grape")
TOOLS = ("hammer", "chisel", "saw", "file", "drill")
WORDS = "the a of on was is left there old new red small in box and with table shop garden we saw they took".split()


def write_encoder(
    folder: Path, *, hidden_size: int = 32, length: int = 32, block: Block = "bert", layers: int = 2
) -> Path:
    """A folder that transformers loads, with random weights far enough from zero that heads differ."""
    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,!?\"'-"
    pieces = [*SPECIAL_TOKENS, *FRUIT, *TOOLS, *WORDS, *letters, *("##" + letter for letter in letters)]
    vocab = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = word_piece(vocab, cased=False, keep_accents=None)
    model = Model(
        block=block, vocab_size=vocab_size_of(tokenizer), embedding_size=16 if block == "bert" else hidden_size, hidden_size=hidden_size, num_hidden_layers=layers,
        num_attention_heads=2, intermediate_size=48, max_position_embeddings=64,
    )  # fmt: skip
    encoder = build_encoder(model)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in encoder.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.3, generator=generator)
            elif name.endswith("bias"):
                parameter.zero_()
    folder.mkdir(parents=True)
    name, tensors = "ElectraModel", encoder.state_dict()
    if block == "modern":
        name, named = "ModernBertModel", {f"electra.{name}": tensor for name, tensor in tensors.items()}
        tensors = {one.removeprefix("model."): tensor for one, tensor in modern_tensors(named).items()}
    table = {"architectures": [name], **shape_table(model, pad_id=specials_of(tokenizer).pad)}
    (folder / "config.json").write_text(json.dumps(table))
    (folder / "model.safetensors").write_bytes(safetensors.torch.save(tensors))
    save_tokenizer(tokenizer, folder, max_length=length)
    return folder


def _sentences(count: int) -> list[list[str]]:
    random = np.random.default_rng(3)
    return [
        [*random.choice(WORDS, 4), str(random.choice(FRUIT if index % 2 else TOOLS)), *random.choice(WORDS, 3)]
        for index in range(count)
    ]


def rows(count: int) -> list[tuple[str, str]]:
    """(text, class) in turn, learnable from one word."""
    return [(" ".join(words), "fruit" if index % 2 else "tool") for index, words in enumerate(_sentences(count))]


def write_csv(path: Path, table: list[tuple[str, ...]], header: tuple[str, ...] = ("text", "label")) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *table])
    return path
