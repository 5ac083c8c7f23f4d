"""The README.md of an exported network: what it is, how to load it, how it was trained."""

from pathlib import PurePath

from electra_trainer.objectives import Exported
from electra_trainer.presets.arms import objective_title
from electra_trainer.settings.config import Config
from electra_trainer.version import __version__

_USES = {
    "discriminator": (
        "feature-extraction",
        "the discriminator: the encoder to fine-tune. It says of each token whether it was replaced",
        """from transformers import AutoModel, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("PATH")
model = AutoModel.from_pretrained("PATH")  # the pre-training head is left out, which transformers reports: that is right
hidden = model(**tokenizer("some text", return_tensors="pt")).last_hidden_state""",
    ),
    "generator": (
        "fill-mask",
        "the generator: a small masked language model. Fine-tune the discriminator, not this",
        """from transformers import pipeline

pipeline("fill-mask", model="PATH")("some [MASK] here")""",
    ),
    "encoder": (
        "fill-mask",
        "an encoder that predicts words, trained as a baseline of ELECTRA",
        """from transformers import AutoModel, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("PATH")
model = AutoModel.from_pretrained("PATH")""",
    ),
}


def model_card(
    exported: Exported, *, config: Config, metrics: dict[str, float], step: int | None = None, init: str | None = None
) -> str:
    """Markdown with the Hub's header.

    Args:
        exported: the network.
        config: its run.
        metrics: held-out; may be empty.
        step: how far the run was; None: at its end.
        init: whose weights the run began with; None: fresh ones.
    """
    pipeline, what, code = _USES[exported.name]
    model, length = exported.model, config.batch.sequence_length
    objective = objective_title(config)
    steps = config.schedule.steps if step is None else step
    stopped = f" (step {steps:,} of {config.schedule.steps:,})" if steps < config.schedule.steps else ""
    rows = [
        ("layers x width", f"{model.num_hidden_layers} x {model.hidden_size}, {model.num_attention_heads} heads"),
        ("embeddings, vocabulary", f"{model.embedding_size}, {model.vocab_size:,} words"),
        ("objective", objective),
        ("trained on", f"{steps * config.tokens_per_step:,} tokens in rows of {length}{stopped}"),
        *([("began with", f"the weights of {_plain(PurePath(init).name)}")] if init else []),
        ("preset, seed", f"{_plain(config.preset)}, {config.seed}"),
        *((name.replace("_", " ") + ", held out", f"{value:.4g}") for name, value in metrics.items()),
    ]
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    return f"""---
library_name: transformers
pipeline_tag: {pipeline}
tags: [electra, {objective.replace(" ", "-")}]
---

# ELECTRA, {exported.name}

This is {what}.

```python
{code}
```

| | |
|---|---|
{table}

Positions from {length} on were never trained: keep inputs to {length} tokens, or train on longer rows.

Made with electra-trainer {__version__}.
"""


def _plain(name: str) -> str:
    """A name out of somebody's config.json, where it can neither end a cell nor begin markup."""
    return "".join("\\" + letter if letter in "\\`*_[]<>|" else letter for letter in " ".join(name.split()))
