"""Load a run or an exported folder; score its tokens, fill its gaps, embed texts, export it."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from electra_trainer.cost.flops import run_cost
from electra_trainer.data.batches import encode_rows
from electra_trainer.data.legibility import parted
from electra_trainer.data.store import Store
from electra_trainer.data.tokenizer import Specials, Text, load_tokenizer, require_rows, specials_of
from electra_trainer.errors import ConfigError, DataError, ElectraError, MissingInputError, tell
from electra_trainer.files.reading import short
from electra_trainer.files.wording import Printed, Table
from electra_trainer.model.encoder import Encoder
from electra_trainer.model.networks import Discriminator, TokenPredictor
from electra_trainer.objectives import Exported
from electra_trainer.pretrained.embedding import Embedder, read_form
from electra_trainer.pretrained.export import Compare, Form, export
from electra_trainer.pretrained.located import located
from electra_trainer.pretrained.model_card import CardFields, Training, model_card
from electra_trainer.pretrained.read_back import DISCRIMINATOR, PREDICTOR, network_folders, read_network
from electra_trainer.runs.metrics import readable_rows
from electra_trainer.runs.run_folder import METRICS, RunFolder
from electra_trainer.settings import extensions
from electra_trainer.settings.calls import checked
from electra_trainer.settings.config import Config
from electra_trainer.settings.records import TASK, finetuned_from, is_run, read_table, run_and_step
from electra_trainer.train.weights import trained

_ON_THE_CARD = (
    "generator_loss generator_accuracy discriminator_loss discriminator_constant_loss discriminator_auc "
    "discriminator_standard_auc".split()
)
"""Held-out metrics that a model card shows."""
_BARE = "an encoder without a head"


@dataclass(frozen=True, kw_only=True)
class Scored(Printed):
    """The tokens of a text and how likely it is that each was replaced."""

    tokens: list[str]
    replaced_probability: list[float]

    def text(self) -> str:
        """Each token with its probability."""
        rows = [[token, f"{share:.3f}"] for token, share in zip(self.tokens, self.replaced_probability, strict=True)]
        return Table(head=("token", "replaced"), rows=rows, words=1).text()


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A word for a gap."""

    token: str
    probability: float


@dataclass(frozen=True, kw_only=True)
class Pretrained:
    """A trained run or an exported folder, ready to use (loaded on the CPU, in fp32)."""

    tokenizer: Tokenizer
    specials: Specials
    length: int
    """Length of the training rows, in tokens."""
    networks: tuple[Exported, ...]
    """The main one first."""
    config: Config | None = None
    """The run's; None for an exported folder."""
    step: int | None = None
    name: str = "this model"
    """Where it was loaded from, for messages."""
    folder: Path | None = None
    """Exported folder of its main network, for how `embed` makes one vector of a text; None for a run."""

    @property
    def discriminator(self) -> Discriminator | None:
        """Scores tokens."""
        return next((one.network for one in self.networks if isinstance(one.network, Discriminator)), None)

    @property
    def generator(self) -> TokenPredictor | None:
        """Fills gaps: the generator, or the encoder of a run without one."""
        return self._predictor("generator") or self.encoder

    @property
    def encoder(self) -> TokenPredictor | None:
        """The main network of mlm, replace-mlm, all-tokens-mlm and rtd-mlm runs, with its token head."""
        return self._predictor("encoder")

    def _predictor(self, role: str) -> TokenPredictor | None:
        found = (one.network for one in self.networks if one.name == role and isinstance(one.network, TokenPredictor))
        return next(found, None)

    def __repr__(self) -> str:
        step = "" if self.step is None else f" at step {self.step:,}"
        return f"<Pretrained: {self.name}{step}>"

    def to(self, device: torch.device | str) -> "Pretrained":
        """Move the networks of this object to `device`, and return it. `score` and `fill` need the CPU."""
        for one in self.networks:
            one.network.to(device)
        return self

    def score(self, text: str) -> Scored:
        """The discriminator's probability that each token was replaced; longer texts are read in windows.

        Raises:
            ConfigError: this model has no discriminator.
            DataError: the text has no tokens.
        """
        if self.discriminator is None:
            held = _BARE if self.generator is None else f"a network that predicts words ({PREDICTOR})"
            raise ConfigError(
                f"score: {self.name} holds {held}, and no discriminator ({DISCRIMINATOR}). Give a run of "
                "--objective rtd or its export."
            )
        ids = self._ids(text, specials=False)
        probabilities: list[float] = []
        for first in range(0, len(ids), self.length - 2):
            row = [self.specials.cls, *ids[first : first + self.length - 2], self.specials.sep]
            probabilities += replaced_probability(self.discriminator, row)
        return Scored(tokens=[self._token(i) for i in ids], replaced_probability=probabilities)

    @checked
    @torch.no_grad()
    def fill(self, text: str, *, top: int = 5) -> list[list[Candidate]]:
        """The `top` most probable words for each [MASK], by the generator.

        Raises:
            ConfigError: this model has no generator.
            DataError: no [MASK] in the text, or the text is longer than a trained row.
        """
        if top < 1:
            raise ConfigError(f"--top {top}: expected at least 1.")
        if self.generator is None:
            held = _BARE if self.discriminator is None else f"a discriminator ({DISCRIMINATOR})"
            raise ConfigError(
                f"fill: {self.name} holds {held}, which predicts no words, and filling needs a network that does "
                f"({PREDICTOR}): no generator here. Give a run that has one, or its export."
            )
        ids = [self.specials.cls, *self._ids(text, specials=True), self.specials.sep]
        gaps = [index for index, token in enumerate(ids) if token == self.specials.mask]
        if not gaps:
            raise DataError('fill: the text has no [MASK], for example "the [MASK] cooked the meal".')
        if len(ids) > self.length:
            raise DataError(f"fill: the text has {len(ids)} tokens; the training rows had {self.length}. Shorten it.")
        batch = encode_rows([ids])
        probability_KV = self.generator(batch.ids_BT, batch, torch.tensor(gaps)).softmax(-1)
        best = probability_KV.topk(min(top, self.tokenizer.get_vocab_size()))
        return [
            [Candidate(token=self._token(i), probability=p) for i, p in zip(words, values, strict=True)]
            for words, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]

    @checked
    def embed(
        self,
        texts: Iterable[str],
        *,
        device: str | None = None,
        precision: str = "fp32",
        progress: Callable[[int], object] = lambda done: None,
    ) -> NDArray[np.float32]:
        """One vector for each text, float32 [N, D], the one that sentence-transformers makes of the export: the mean
        of its tokens. Longer texts are cut to a training row. Arguments and errors are those of `Embedder.embed`.
        """
        text = Text.of(self.tokenizer, length=self.length)
        made = Embedder(encoder=kept_encoder(self), text=text, form=read_form(self.folder))
        return made.embed(texts, device=device, precision=precision, progress=progress, reader=self.name)

    def _token(self, token_id: int) -> str:
        return self.tokenizer.id_to_token(token_id) or f"[{token_id}]"

    def _ids(self, text: str, *, specials: bool) -> list[int]:
        """Ids of a text; with `specials` a written [MASK] is the special token, otherwise plain text."""
        given: object = text
        if not isinstance(given, str):
            raise DataError(f"found {short(given)}, expected one text.")
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise DataError("the text is not valid UTF-8. Expected text.")
        self.tokenizer.encode_special_tokens = not specials
        ids: list[int] = self.tokenizer.encode(parted(text), add_special_tokens=False).ids
        if not ids:
            raise DataError("the text is empty: give at least one word.")
        return ids


@torch.no_grad()
def replaced_probability(discriminator: Discriminator, row: list[int]) -> list[float]:
    """Probability of each token of a row between [CLS] and [SEP] that it was replaced."""
    batch = encode_rows([row])
    found: list[float] = discriminator(batch.ids_BT, batch)[0, 1:-1].sigmoid().tolist()
    return found


def kept_encoder(pretrained: Pretrained) -> Encoder:
    """The encoder for downstream use: the discriminator's, or a masked language model's own."""
    network = pretrained.networks[0].network
    encoder = getattr(network, "electra", network)
    assert isinstance(encoder, Encoder)
    return encoder


@checked
def load(path: str | Path) -> Pretrained:
    """Load a run (`RUN`, or `RUN@STEP` for a checkpoint before the newest), an export (`DIR`), one exported network
    (`DIR/discriminator`), an ELECTRA of the Hub, or `en-mini`, the encoder that comes with this package.

    Raises:
        MissingInputError: the folder holds neither, or no such checkpoint; or there is nothing of that name.
        CheckpointError: its files do not verify.
    """
    folder, wanted = run_and_step(path)
    config = step = place = None
    if is_run(path):
        run = RunFolder(folder)
        config = run.config()
        for line in extensions.differing(run.environment())[1]:
            tell(f"{run.path}: {line}")
        objective, step = trained(run, config, step=wanted)
        networks = tuple(objective.eval().exported())
        tokenizer, length = run.tokenizer, config.batch.sequence_length
    else:
        folder = located(path)
        parts = network_folders(folder)
        if not parts and not (folder / "config.json").is_file():
            raise MissingInputError(f"{path}: neither a run nor an exported model. Check the path.")
        tokenizer = place = next(iter(parts.values()), folder)
        read = {role: read_network(part) for role, part in (parts or {"encoder": folder}).items()}
        networks = tuple(
            Exported(name=cast(Any, role), network=one, model=model) for role, (one, model) in read.items()
        )
        length = trained_length(place, networks[0].model.max_position_embeddings)
    loaded = load_tokenizer(tokenizer)
    require_rows(loaded, min(one.model.vocab_size for one in networks), where=tokenizer)
    return Pretrained(
        tokenizer=loaded,
        specials=specials_of(loaded),
        length=length,
        networks=networks,
        config=config,
        step=step,
        name=str(path),
        folder=place,
    )


def trained_length(folder: Path, positions: int) -> int:
    """Longest training row of an exported network, in tokens: `model_max_length` of its tokenizer_config.json if it is
    there; of a fine-tuned one, whose tokenizer cuts as it was fine-tuned, that of its encoder.
    """
    path, tuned = folder / "tokenizer_config.json", finetuned_from(folder)
    source = (read_table(tuned / TASK).get("source") or {}) if tuned else {}
    table = read_table(path) if path.is_file() else {}
    # the last is its name in old folders
    written = source.get("length", table.get("model_max_length", table.get("max_len")))
    return int(min(positions, written)) if isinstance(written, int | float) and written > 2 else positions


@checked
def export_run(
    run: str | Path,
    out: str | Path,
    *,
    dtype: str = "float32",
    bert: bool = False,
    card: CardFields | None = None,
    compare: Compare | None = None,
) -> list[Path]:
    """Export a run's networks to folders that transformers loads; returns the folders.

    Args:
        run: the run, or `RUN@STEP`.
        out: a new or empty folder.
        dtype: of the stored weights, float32, float16 or bfloat16.
        bert: write the encoder, and a generator of equal widths, as BERT.
        card: license, languages and name for the model cards.
        compare: called before anything appears under `out`, for example with `agreement.check_agreement`; its errors
            end the export.

    Raises:
        ConfigError: `run` is not a run folder, `out` is not empty, there is no such `dtype`, or BERT has no such shape.
    """
    pretrained = load(run)
    if pretrained.config is None:
        raise ConfigError(f"{run}: is an exported model already. Give a run folder.")
    folder, form = RunFolder(run_and_step(run)[0]), Form(dtype=dtype, bert=bert)
    training = _training(folder, pretrained.config, pretrained.step or 0)
    names = [exported.name for exported in pretrained.networks]
    return export(
        pretrained.networks,
        tokenizer=folder.tokenizer,
        length=pretrained.length,
        out=Path(out),
        form=form,
        card=lambda one: model_card(one, training, fields=card or CardFields(), networks=names, form=form),
        compare=compare,
    )


def _training(folder: RunFolder, config: Config, step: int) -> Training:
    """Facts of a run's folder for the cards."""
    rows = readable_rows(folder.path / METRICS)
    held_out = [row for row in rows if row.get("split") == "valid" and row["step"] <= step]
    last = held_out[-1] if held_out else {}
    facts = folder.environment()
    began = facts.get("init")
    return Training(
        config=config,
        step=step,
        tokens=int(run_cost(config, steps=step, began=folder.continued)["tokens"]),
        init=str(began.get("name")) if isinstance(began, dict) else None,
        metrics={name: float(last[name]) for name in _ON_THE_CARD if isinstance(last.get(name), int | float)},
        data_sets=_data_sets(Path(str(facts.get("data_folder"))), facts.get("data")),
    )


def _data_sets(folder: Path, identity: object) -> tuple[str, ...]:
    """Data sets of the Hub that the run was trained on; none where its rows are gone, or others are in their place."""
    try:
        store = Store.open(folder)
    except ElectraError:
        return ()
    inputs = store.manifest.settings.get("inputs") if store.identity == identity else None
    found = [re.fullmatch(r"([\w.-]+/[\w.-]+)@[0-9a-f]{40}:.*", str(name)) for name in inputs or ()]
    return tuple(dict.fromkeys(match[1] for match in found if match))
