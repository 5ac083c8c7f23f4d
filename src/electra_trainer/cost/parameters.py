"""Count the trainable parameters of a run, for every objective, generator and sharing mode. No torch here."""

from dataclasses import dataclass

from electra_trainer.settings.config import Config, Model, generator_shape
from electra_trainer.settings.methods import Learned


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Trainable parameters; what the networks share is counted with the main one."""

    embeddings: int
    """The main network's word, position and segment tables and their LayerNorm."""
    encoder: int
    """The main network's projection and layers, without embeddings."""
    head: int
    """The main network's pre-training head: that of a discriminator, or a token head."""
    extra: int
    """The objective's separate layer: All-Tokens MLM's copy, the adversarial baseline, the sentence head; 0 otherwise."""
    generator: int
    """The generator on its own, with all that it shares; 0 if it is not a network."""
    generator_embeddings: int
    """The generator's own tables: 0 where they are shared."""
    generator_encoder: int
    """The generator's own projection and layers: 0 where they are shared (`sharing = all`)."""
    generator_head: int
    """The generator's own token head, tied to its embeddings."""

    @property
    def backbone(self) -> int:
        """The part that is fine-tuned: embeddings and encoder."""
        return self.embeddings + self.encoder

    @property
    def kept(self) -> int:
        """The exported network: ELECTRA's discriminator, or an encoder with its token head."""
        return self.backbone + self.head

    @property
    def joint(self) -> int:
        """Everything that is trained."""
        own = self.generator_embeddings + self.generator_encoder + self.generator_head
        return self.kept + self.extra + own


def parameters(config: Config) -> Parameters:
    """Trainable parameters of `config`'s networks."""
    model, generator, objective = config.model, learned_generator(config), config.objective
    tables, (width, _) = _embeddings(model), single_output(config)
    head = _replaced_head(model) if objective.keeps == "discriminator" else _token_head(model)
    if objective.keeps == "discriminator" and objective.predicts != "none":
        head += _token_head(model)
    own = (0, 0, 0) if generator is None else (tables, _encoder(generator), _token_head(generator))
    return Parameters(
        embeddings=tables,
        encoder=_encoder(model),
        head=head,
        extra=width + 1 if width else 0,
        generator=sum(own),
        generator_embeddings=own[0] if config.sharing == "none" else 0,
        generator_encoder=own[1] if config.sharing != "all" else 0,
        generator_head=own[2],
    )


def _embeddings(model: Model) -> int:
    rows = model.vocab_size + model.max_position_embeddings + model.type_vocab_size
    return (rows + 2) * model.embedding_size


def _encoder(model: Model) -> int:
    """Projection (where widths differ) and layers."""
    h, i = model.hidden_size, model.intermediate_size
    attention = 4 * (h * h + h) + 2 * h
    feed_forward = (h * i + i) + (i * h + h) + 2 * h
    project = (model.embedding_size + 1) * h if model.embedding_size != h else 0
    return project + model.num_hidden_layers * (attention + feed_forward)


def _token_head(model: Model) -> int:
    """Dense, LayerNorm and output bias; the output weight is the word embedding."""
    return (model.hidden_size + 1) * model.embedding_size + 2 * model.embedding_size + model.vocab_size


def _replaced_head(model: Model) -> int:
    """Two dense layers, the second with one output."""
    h = model.hidden_size
    return h * (h + 1) + h + 1


def learned_generator(config: Config) -> Model | None:
    """Shape of the generator; None if there is none or it is not a network (`unigram`, `uniform`)."""
    learned = config.objective.uses_generator and isinstance(config.generator, Learned)
    return generator_shape(config) if learned else None


def slots(config: Config) -> int:
    """Positions of a full row that are chosen."""
    return max(1, round(config.masking.fraction * config.batch.sequence_length))


def predicted(config: Config) -> int:
    """Positions of a full row that the main network sends through the vocabulary."""
    return {"none": 0, "masked": slots(config), "all": config.batch.sequence_length}[config.objective.predicts]


def single_output(config: Config) -> tuple[int, int]:
    """Width of an objective's separate layer [width -> 1] and how many positions of a row it reads; (0, 0) where there is none.

    All-Tokens MLM copies at every token; the adversarial baseline reads the generator at the chosen ones; the sentence head reads
    the [CLS] of each input, counted as one a row.
    """
    width = config.model.hidden_size
    match config.objective.single_output:
        case "none":
            return 0, 0
        case "kept tokens":
            return width, config.batch.sequence_length
        case "kept inputs":
            return width, 1
        case "generator slots":
            return generator_shape(config).hidden_size, slots(config)
