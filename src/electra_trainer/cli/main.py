"""The command `electra`: one verb a file in `verbs/`. torch is imported inside a verb's `run`, never to print help."""

import functools
import importlib
import io
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from electra_trainer.errors import ConfigError, ElectraError, as_known, did_you_mean, plain, tell
from electra_trainer.runs.signals import ended, leave_when_told, stop_with_parent
from electra_trainer.supervise.process import THREADS, restart_tuned
from electra_trainer.version import __version__

VERBS = {
    "demo": "pre-train a tiny ELECTRA on this machine in a few minutes and show what it learned",
    "tokenizer": "train a WordPiece vocabulary on your text",
    "prepare": "turn text into rows of token ids",
    "pretrain": "pre-train an encoder on prepared rows; the same command again goes on",
    "launch": "write a job file for Slurm that pre-trains on several machines and is queued again",
    "compare": "train several objectives at equal compute, with seeds, and compare what they learned",
    "finetune": "fine-tune an encoder on files of your own, score it, and hand it on",
    "predict": "what a fine-tuned model says of each row of a file",
    "glue": "fine-tune on GLUE with several seeds, print the paper's table, write the submission",
    "squad": "fine-tune an encoder to answer questions and score it, SQuAD 1.1 or 2.0",
    "answer": "answer a question from a text, with what `squad` fine-tuned",
    "evaluate": "held-out metrics of a run",
    "replay": "one step of a run again: its rows, their documents, what was masked and replaced, its losses",
    "report": "one page with pictures of one or several runs",
    "score": "say of each token of a sentence whether it looks replaced",
    "fill": "fill the [MASK]s of a sentence",
    "cloze": "ELECTRA as a masked language model: predict held-out words (Appendix G)",
    "minimal-pairs": "which of two sentences is grammatical (BLiMP)",
    "export": "write folders that transformers loads",
    "table": "a table of the paper, with your experiments' cells under the paper's",
    "figure": "a figure of the paper, from your experiments or one run",
    "show": "a preset: configuration, parameters, FLOPs",
    "flops": "operations of training and inference, as the paper counts them and as they are needed",
    "doctor": "what this machine has, what is missing and, with --bench, what it will do",
}

_FILES = {
    "demo": ("demo",),
    "text_verbs": ("tokenizer", "prepare"),
    "pretrain": ("pretrain",),
    "launch": ("launch",),
    "compare": ("compare",),
    "finetune": ("finetune",),
    "predict": ("predict", "answer"),
    "benchmarks": ("glue", "squad"),
    "use": ("evaluate", "replay", "report", "score", "fill", "export"),
    "linguistics": ("cloze", "minimal-pairs"),
    "paper_verbs": ("table", "figure"),
    "show": ("show", "flops"),
    "doctor": ("doctor",),
}
"""The file of each verb in this folder."""

_TRAINING = ("demo", "pretrain", "compare", "finetune", "glue", "squad")
_LONGEST = 4000
"""Characters of a message."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb; returns the exit code (errors.py lists them)."""
    code = _main(argv)
    ended(code)
    return code


def _main(argv: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    # before torch is loaded
    for name, value in THREADS.items():
        os.environ.setdefault(name, value)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a character is no reason to stop
    try:
        if not words or words[0] in ("-h", "--help", "help"):
            print(_overview())
            return 0
        if words[0] in ("-V", "--version"):
            print(f"electra-trainer {__version__}")
            return 0
        if argv is None and _trains(words):
            restart_tuned()
            leave_when_told()
            stop_with_parent()
        return _run(words[0], words[1:])
    except ElectraError as error:
        if not error.told:
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
        traceback.print_exc()
        print("electra: this is a bug in electra-trainer; please report the lines above.", file=sys.stderr)
        return ElectraError.exit_code


def _shown(error: ElectraError) -> str:
    """The message, with no more than a screen of what a file said, and nothing of it that would steer the terminal."""
    text = str(error)
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"
    return plain(text, keep="\n")


def _trains(words: list[str]) -> bool:
    """Whether the command computes training steps, and is worth starting again with the allocator tuned."""
    if {"-h", "--help"} & set(words):
        return False
    return words[0] in _TRAINING or (words[0] == "doctor" and "--bench" in words)


def _run(verb: str, words: list[str]) -> int:
    if verb not in VERBS:
        raise ConfigError(f"unknown verb {verb!r}.{did_you_mean(verb, VERBS)} Type: electra --help")
    file = next(file for file, verbs in _FILES.items() if verb in verbs)
    module, name = importlib.import_module(f"electra_trainer.cli.{file}"), verb.replace("-", "_")
    own_parse = getattr(module, f"parse_{name}", None)
    arguments_class = getattr(module, f"{name.title().replace('_', '')}Arguments", None)
    try:
        arguments = own_parse(words) if own_parse else parse(arguments_class, words, verb=verb)
    except SystemExit as stop:  # tyro has printed help (0) or what is wrong with the flags (2)
        return 0 if stop.code in (0, None) else ConfigError.exit_code
    getattr(module, "show_flops" if verb == "flops" else f"run_{name}")(arguments)
    return 0


def parse(arguments: Any, words: Sequence[str], *, verb: str, default: Any = None) -> Any:
    """Read flags into the dataclass `arguments`."""
    import ast
    import gc

    import tyro

    markers = (tyro.conf.AvoidSubcommands, tyro.conf.FlagCreatePairsOff)
    plain = ast.parse
    ast.parse = functools.cache(plain)  # type: ignore[assignment]  # the docstring of each class is looked up in its whole file, parsed anew
    gc.disable()  # thousands of small trees, and nothing to collect
    try:
        return tyro.cli(arguments, args=list(words), prog=f"electra {verb}", default=default, config=markers)
    finally:
        ast.parse = plain
        gc.enable()


def _overview() -> str:
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {name:<{width}} {what}" for name, what in VERBS.items())
    return (
        "electra: give it text, it gives you a pre-trained text encoder.\n\n"
        f"usage: electra VERB [OPTIONS]\n\n{verbs}\n\n"
        "electra VERB --help says more. Begin with: electra demo"
    )
