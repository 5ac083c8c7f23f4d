"""The command `electra`: a table of verbs, each a request whose fields are its flags. A request imports torch when it
runs, never to print help.
"""

import json
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import fields
from typing import Any, NamedTuple

from electra_trainer.cli.demo import Demo
from electra_trainer.cli.embed import Embed
from electra_trainer.cli.flags import print_completion, read_request
from electra_trainer.cli.predict import Answer, Predict
from electra_trainer.cli.pretrain import Pretrain
from electra_trainer.cli.show import Doctor, Flops, Show
from electra_trainer.cli.text_verbs import Merge, Prepare, Tokenizer
from electra_trainer.cli.use import Evaluate, Export, Fill, Playground, Replay, Report, Score, Track
from electra_trainer.errors import ConfigError, ElectraError, as_command, as_known, did_you_mean, plain, tell
from electra_trainer.files.durable import alone
from electra_trainer.files.wording import plain_output, styles
from electra_trainer.finetuning.request import Finetune, Glue, Squad
from electra_trainer.paper.request import Cloze, Compare, Figure, MinimalPairs, Tabulate
from electra_trainer.runs.launcher import THREADS
from electra_trainer.runs.signals import abandoned
from electra_trainer.settings.request import Request
from electra_trainer.version import __version__


class Verb(NamedTuple):
    """A verb: its request, whose `run()` returns the result that is printed, and what it does."""

    request: type[Request]
    what: str


GROUPS: dict[str, dict[str, Verb]] = {
    "start": {
        "demo": Verb(Demo, "pre-train a tiny ELECTRA on this machine in a few minutes and show what it learned"),
        "doctor": Verb(Doctor, "check this machine: what it has, and what is missing"),
    },
    "train an encoder": {
        "tokenizer": Verb(Tokenizer, "train a WordPiece vocabulary on your text"),
        "prepare": Verb(Prepare, "turn text into rows of token ids; survey it with --dry-run"),
        "merge": Verb(Merge, "put the shards of `prepare --shard I/N` together"),
        "pretrain": Verb(Pretrain, "pre-train an encoder on prepared rows; the same command again resumes"),
        "evaluate": Verb(Evaluate, "compute the held-out metrics of a run"),
        "report": Verb(Report, "draw one page of figures for one or several runs"),
        "track": Verb(Track, "send the metrics of a run to TensorBoard, Weights & Biases or MLflow"),
        "replay": Verb(Replay, "compute one step of a run again: its rows, documents, masks, replacements and losses"),
    },
    "use it": {
        "score": Verb(Score, "show which tokens of a sentence look replaced"),
        "fill": Verb(Fill, "fill the [MASK]s of a sentence"),
        "embed": Verb(Embed, "write one vector for each text of a file, or print those nearest to a query"),
        "playground": Verb(Playground, "score and exchange words on a page in the browser; compare two models"),
        "export": Verb(Export, "write folders that transformers loads"),
    },
    "fine-tune it": {
        "finetune": Verb(Finetune, "fine-tune an encoder on your own files, score it, and export it"),
        "predict": Verb(Predict, "predict for each row of a file with a fine-tuned model"),
        "glue": Verb(Glue, "fine-tune on GLUE with several seeds, print the paper's table, write the submission"),
        "squad": Verb(Squad, "fine-tune an encoder to answer questions and score it, SQuAD 1.1 or 2.0"),
        "answer": Verb(Answer, "answer a question from a text, with a model that `squad` fine-tuned"),
    },
    "reproduce the paper": {
        "compare": Verb(Compare, "train several objectives at equal compute and compare what they learned"),
        "table": Verb(Tabulate, "print a table of the paper with your results under the paper's"),
        "figure": Verb(Figure, "draw a figure of the paper, from your experiments or one run"),
        "cloze": Verb(Cloze, "predict held-out words with ELECTRA as a masked language model (Appendix G)"),
        "minimal-pairs": Verb(MinimalPairs, "choose the grammatical one of two sentences (BLiMP)"),
        "show": Verb(Show, "print a preset: configuration, parameters, FLOPs"),
        "flops": Verb(Flops, "count the operations of training and inference, as the paper does and as they are"),
    },
}
VERBS = {name: verb for group in GROUPS.values() for name, verb in group.items()}
_SHARING = ("prepare", "pretrain", "finetune", "glue", "squad", "compare")
"""Verbs of which several may work on one --out, a shard or a run each, and hold that. Of all others one does."""
_LONGEST = 4000
"""Characters of a message."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb; returns the exit code (errors.py lists them)."""
    with plain_output(), as_command():
        code = _main(argv)
    if argv is None and abandoned.is_set():
        sys.stdout.flush()
        os._exit(code)
    return code


def _main(argv: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    # before torch is loaded
    for name, value in THREADS.items():
        os.environ.setdefault(name, value)
    try:
        if not words or words[0] in ("-h", "--help", "help"):
            print(_overview())
            return 0
        if words[0] in ("-V", "--version"):
            print(f"electra-trainer {__version__}")
            return 0
        if words[0] == "--completion":
            print_completion({name: (verb.request, verb.what) for name, verb in VERBS.items()}, *words[1:2])
            return 0
        return _run(words[0], words[1:])
    except ElectraError as error:
        if not error.reported:
            tell(_shown(error))
        return error.exit_code
    except KeyboardInterrupt:
        print("electra: interrupted.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader went away; nothing to say
        return 0
    except Exception as error:
        known = as_known(error)
        if known is not None:
            tell(_shown(known))
            return known.exit_code
        import traceback

        traceback.print_exc()
        print("electra: this is a bug in electra-trainer; please report the lines above.", file=sys.stderr)
        return ElectraError.exit_code


def _shown(error: ElectraError) -> str:
    """The message, at most a screen long, without control characters: parts of it may come from a file."""
    text = str(error)
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"
    return plain(text, keep="\n")


def _run(verb: str, words: list[str]) -> int:
    try:
        request = read(verb, words)
    except SystemExit as stop:  # tyro has printed help (0) or what is wrong with the flags (2)
        if stop.code in (0, None):
            return 0
        _suggest(verb, words)
        return ConfigError.exit_code
    out = None if verb in _SHARING else getattr(request, "out", None)
    with alone(out) if out is not None and out.parent.is_dir() else nullcontext():
        result = request.run()
    if result is not None:
        print(json.dumps(result.as_json()) if getattr(request, "json", False) else result.text())
    return 0


def _suggest(verb: str, words: list[str]) -> None:
    """Name a missing flag that a word is near to: tyro suggests nothing where a required flag is missing."""
    named = (one for one in fields(VERBS[verb].request) if "Positional" not in str(one.type))
    flags = {f"--{one.name.replace('_', '-')}": one for one in named}
    needed = [flag for flag, one in flags.items() if one.default is one.default_factory and flag not in words]
    for word in words:
        if word.startswith("--") and word not in flags and (near := did_you_mean(word.partition("=")[0], needed)):
            tell(f"{word}: unknown.{near}")


def read(verb: str, words: Sequence[str]) -> Any:
    """The request of a verb that the words after it describe."""
    if verb not in VERBS:
        raise ConfigError(f"unknown verb {verb!r}.{did_you_mean(verb, VERBS)} Type: electra --help")
    with styles():
        return read_request(VERBS[verb].request, verb, words)


def _overview() -> str:
    width = max(map(len, VERBS))
    groups = (
        "\n".join((title, *(f"  {name:<{width}} {verb.what}" for name, verb in verbs.items())))
        for title, verbs in GROUPS.items()
    )
    return (
        "electra: give it text, it gives you a pre-trained text encoder.\n\n"
        "usage: electra VERB [OPTIONS]\n\n" + "\n\n".join(groups) + "\n\n"
        "electra VERB --help says more, --help-all everything. Begin with: electra demo\n"
        "electra --completion bash (or zsh, fish) prints a script by which the shell completes verbs, flags and values."
    )
