"""The command `electra`. Each verb imports torch when it runs, never to print help."""

import functools
import importlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from types import ModuleType
from typing import Any, NamedTuple

from electra_trainer.errors import ConfigError, ElectraError, as_known, did_you_mean, plain, tell
from electra_trainer.files.plain_output import plain_output, styles
from electra_trainer.runs.signals import abandoned, ended, leave_when_told, stop_with_parent
from electra_trainer.supervise.launcher import THREADS, restart_tuned
from electra_trainer.version import __version__


class Verb(NamedTuple):
    """A verb NAME is the class `NameArguments` and the function `run_name` of a file in this folder; what it returns is
    printed as JSON.
    """

    file: str
    what: str


VERBS = {
    "demo": Verb("demo", "pre-train a tiny ELECTRA on this machine in a few minutes and show what it learned"),
    "tokenizer": Verb("text_verbs", "train a WordPiece vocabulary on your text"),
    "prepare": Verb("text_verbs", "turn text into rows of token ids"),
    "check": Verb("text_verbs", "survey text before it is prepared: what cannot be used, copies, lengths, accents"),
    "merge": Verb("text_verbs", "put the shards of `prepare --shard I/N` together"),
    "pretrain": Verb("pretrain", "pre-train an encoder on prepared rows; the same command again resumes"),
    "launch": Verb("launch", "write a Slurm job file that pre-trains on several machines and requeues itself"),
    "compare": Verb("pretrain", "train several objectives at equal compute, with seeds, and compare what they learned"),
    "finetune": Verb("finetune", "fine-tune an encoder on your own files, score it, and export it"),
    "predict": Verb("predict", "predict for each row of a file with a fine-tuned model"),
    "glue": Verb("finetune", "fine-tune on GLUE with several seeds, print the paper's table, write the submission"),
    "squad": Verb("finetune", "fine-tune an encoder to answer questions and score it, SQuAD 1.1 or 2.0"),
    "answer": Verb("predict", "answer a question from a text, with a model that `squad` fine-tuned"),
    "evaluate": Verb("use", "compute the held-out metrics of a run"),
    "replay": Verb("use", "compute one step of a run again: its rows, documents, masks, replacements and losses"),
    "report": Verb("use", "draw one page of figures for one or several runs"),
    "track": Verb("track", "send the metrics of a run to TensorBoard, Weights & Biases, trackio or MLflow"),
    "score": Verb("use", "show which tokens of a sentence look replaced"),
    "fill": Verb("use", "fill the [MASK]s of a sentence"),
    "playground": Verb("playground", "score and exchange words on a page in the browser; compare two models"),
    "cloze": Verb("paper_verbs", "predict held-out words with ELECTRA as a masked language model (Appendix G)"),
    "minimal-pairs": Verb("paper_verbs", "choose the grammatical one of two sentences (BLiMP)"),
    "export": Verb("use", "write folders that transformers loads"),
    "push": Verb("use", "upload exported folders to the Hugging Face Hub"),
    "table": Verb("paper_verbs", "print a table of the paper with your results under the paper's"),
    "figure": Verb("paper_verbs", "draw a figure of the paper, from your experiments or one run"),
    "show": Verb("show", "print a preset: configuration, parameters, FLOPs"),
    "flops": Verb("show", "count the operations of training and inference, as the paper does and as they are"),
    "doctor": Verb("show", "check this machine: what it has, what is missing and, with --bench, how fast it trains"),
    "completion": Verb(
        "completion", "print a script by which bash, zsh or fish completes verbs, flags and their values"
    ),
}

_TRAIN = {"demo", "pretrain", "compare", "finetune", "glue", "squad"}
"""They compute training steps: worth restarting the process with a tuned allocator."""
_LONGEST = 4000
"""Characters of a message."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb; returns the exit code (errors.py lists them)."""
    with plain_output():
        code = _main(argv)
    ended(code)
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
        import traceback

        traceback.print_exc()
        print("electra: this is a bug in electra-trainer; please report the lines above.", file=sys.stderr)
        return ElectraError.exit_code


def _shown(error: ElectraError) -> str:
    """The message, at most a screen long, without control characters: parts of it may come from a file."""
    text = str(error)
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"
    return plain(text, keep="\n")


def _trains(words: list[str]) -> bool:
    """True if the command computes training steps."""
    if {"-h", "--help", "--help-all"} & set(words):
        return False
    return words[0] in _TRAIN or (words[0] == "doctor" and "--bench" in words)


def _run(verb: str, words: list[str]) -> int:
    if verb not in VERBS:
        raise ConfigError(f"unknown verb {verb!r}.{did_you_mean(verb, VERBS)} Type: electra --help")
    try:
        arguments = read(verb, words)
    except SystemExit as stop:  # tyro has printed help (0) or what is wrong with the flags (2)
        return 0 if stop.code in (0, None) else ConfigError.exit_code
    found = _part_of(verb, f"run_{verb.replace('-', '_')}")(arguments)
    if found is not None:
        print(json.dumps(found))
    return 0


def _part_of(verb: str, name: str) -> Any:
    return getattr(importlib.import_module(f"electra_trainer.cli.{VERBS[verb].file}"), name)


def read(verb: str, words: Sequence[str]) -> Any:
    """The words after a verb as its `Arguments`; a file that --config names comes first, and flags override it.

    A method `begin` of theirs gives the defaults that follow from the words.
    """
    import tyro

    kind = kind_of(verb)
    flags = list(words[: words.index("--")] if hasattr(kind, "command") and "--" in words else words)
    asks = {"-h", "--help", "--help-all"} & set(flags)
    brief = [] if "--help-all" in asks or not asks else getattr(kind, "brief", "").split()
    try:
        with styles(), _quickly(shows_help=bool(asks)):
            return tyro.cli(
                kind,
                args=["--help" if flag == "--help-all" else flag for flag in flags],
                prog=f"electra {verb}",
                **reading(kind, words, flags, for_help=bool(asks), brief=brief),
            )
    finally:
        if brief:
            print(f"These are the flags that most runs need. All of them: electra {verb} --help-all")


def kind_of(verb: str) -> Any:
    """The class of a verb's arguments."""
    return _part_of(verb, f"{verb.title().replace('-', '')}Arguments")


def reading(
    kind: Any,
    words: Sequence[str] = (),
    flags: Sequence[str] = (),
    *,
    for_help: bool = False,
    brief: Sequence[str] = (),
) -> dict[str, Any]:
    """What tyro is given to read a verb's flags: defaults, and how flags are shown and read."""
    import tyro

    from electra_trainer.cli.flags import registry
    from electra_trainer.cli.settings_file import defaults, reads_run_settings

    config = None if reads_run_settings(kind) else value_of(flags, "--config")
    return {
        "default": defaults(kind, words, config),
        "config": (tyro.conf.AvoidSubcommands, tyro.conf.FlagCreatePairsOff, tyro.conf.PositionalMetavarFromFieldName),
        "registry": registry(for_help=for_help, brief=brief),
    }


@contextmanager
def _quickly(*, shows_help: bool) -> Iterator[None]:
    """Without work of tyro's that is lost here. For help also without typeguard, which takes long to load and checks
    only values.
    """
    import ast
    import gc

    unchecked: Any = ModuleType("typeguard")
    unchecked.check_type, unchecked.TypeCheckError = lambda value, kind: value, TypeError
    is_lent = shows_help and sys.modules.setdefault("typeguard", unchecked) is unchecked
    plain, width = ast.parse, os.environ.get("COLUMNS")
    if shows_help:  # a wider screen would get two columns, which are hard to read
        os.environ["COLUMNS"] = str(min(shutil.get_terminal_size().columns, 120))
    ast.parse = functools.cache(plain)  # type: ignore[assignment]  # the docstring of each class is looked up in its whole file, parsed anew
    gc.disable()  # thousands of small trees, and nothing to collect
    try:
        yield
    finally:
        ast.parse = plain
        gc.enable()
        if width is None:
            os.environ.pop("COLUMNS", None)
        else:
            os.environ["COLUMNS"] = width
        if is_lent:
            del sys.modules["typeguard"]


def part(words: Sequence[str], flags: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The values of some flags (of each the first), before all flags are parsed; and the words without these flags."""
    values: dict[str, str] = {}
    rest: list[str] = []
    following = iter(words)
    for word in following:
        flag, equals, value = word.partition("=")
        if flag not in flags:
            rest.append(word)
        elif (given := value if equals else next(following, None)) is not None:
            values.setdefault(flag, given)
    return values, rest


def value_of(words: Sequence[str], flag: str) -> str | None:
    """The value of a flag, before the flags are parsed."""
    return part(words, (flag,))[0].get(flag)


def shared(arguments: Any, kind: Any) -> dict[str, Any]:
    """The flags that have the names of fields of the dataclass `kind`, with their values."""
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in vars(arguments).items() if name in names}


_GROUPS = {
    "start": "demo doctor completion",
    "train an encoder": "check tokenizer prepare merge pretrain launch evaluate report track replay",
    "use it": "score fill playground export push",
    "fine-tune it": "finetune predict glue squad answer",
    "reproduce the paper": "compare table figure cloze minimal-pairs show flops",
}


def _overview() -> str:
    width = max(map(len, VERBS))
    groups = {title: names.split() for title, names in _GROUPS.items()}
    if rest := [name for name in VERBS if not any(name in names for names in groups.values())]:
        groups["more"] = rest
    verbs = "\n\n".join(
        "\n".join((title, *(f"  {name:<{width}} {VERBS[name].what}" for name in names)))
        for title, names in groups.items()
    )
    return (
        "electra: give it text, it gives you a pre-trained text encoder.\n\n"
        f"usage: electra VERB [OPTIONS]\n\n{verbs}\n\n"
        "electra VERB --help says more, --help-all everything. Begin with: electra demo"
    )
