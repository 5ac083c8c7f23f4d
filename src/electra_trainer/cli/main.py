"""The command `electra`: a table of verbs, each a request whose fields are its flags. A request imports torch when it
runs, never to print help.
"""

import json
import os
import re
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from electra_trainer.cli.demo import Demo
from electra_trainer.cli.embed import Embed
from electra_trainer.cli.flags import read_request
from electra_trainer.cli.predict import Answer, Predict
from electra_trainer.cli.pretrain import Pretrain
from electra_trainer.cli.show import Doctor, Flops, Show
from electra_trainer.cli.text_verbs import Merge, Prepare, Tokenizer
from electra_trainer.cli.use import Evaluate, Export, Fill, Playground, Replay, Report, Score, Track
from electra_trainer.errors import ConfigError, ElectraError, as_command, as_known, did_you_mean, tell
from electra_trainer.files.durable import alone
from electra_trainer.files.wording import plain_output
from electra_trainer.finetuning.request import Finetune, Glue, Squad
from electra_trainer.paper.request import Cloze, Compare, Figure, MinimalPairs, Table
from electra_trainer.runs.launcher import THREADS
from electra_trainer.runs.signals import abandoned
from electra_trainer.settings.extensions import import_extensions
from electra_trainer.settings.methods import kind_of
from electra_trainer.settings.request import Request, taken
from electra_trainer.version import __version__

GROUPS: dict[str, list[type[Request]]] = {
    "start": [Demo, Doctor],
    "train an encoder": [Tokenizer, Prepare, Merge, Pretrain, Evaluate, Report, Track, Replay],
    "use it": [Score, Fill, Embed, Playground, Export],
    "fine-tune it": [Finetune, Predict, Glue, Squad, Answer],
    "reproduce the paper": [Compare, Table, Figure, Cloze, MinimalPairs, Show, Flops],
}
VERBS = {kind_of(request): request for group in GROUPS.values() for request in group}
"""Each request by its verb; `run()` returns the result that is printed."""
_SHARING = ("prepare", "pretrain", "finetune", "glue", "squad", "compare")
"""Verbs of which several may work on one --out, a shard or a run each, and hold that. Of all others one does."""


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
        return _run(words[0], words[1:])
    except ElectraError as error:
        if not error.reported:
            tell(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        print("electra: interrupted.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader went away; nothing to say
        return 0
    except Exception as error:
        if (known := as_known(error)) is not None:
            tell(str(known))
            return known.exit_code
        import traceback

        traceback.print_exc()
        print("electra: this is a bug in electra-trainer; please report the lines above.", file=sys.stderr)
        return ElectraError.exit_code


def _run(verb: str, words: list[str]) -> int:
    found, words = taken(words, "import", repeated=True)
    import_extensions(found["import"].split(",") if found else ())
    try:
        request = read(verb, words)
    except SystemExit as stop:  # tyro has printed help (0) or what is wrong with the flags (2)
        return ConfigError.exit_code if stop.code else 0
    out = None if verb in _SHARING else getattr(request, "out", None)
    with alone(out) if out is not None and out.parent.is_dir() else nullcontext():
        result = request.run()
    if result is not None:
        print(json.dumps(result.as_json()) if getattr(request, "json", False) else result.text())
    return 0


def read(verb: str, words: Sequence[str]) -> Any:
    """The request of a verb that the words after it describe."""
    if verb not in VERBS:
        raise ConfigError(f"unknown verb {verb!r}.{did_you_mean(verb, VERBS)} Type: electra --help")
    return read_request(VERBS[verb], verb, words)


def _overview() -> str:
    """Usage, and each verb with the beginning of its help."""
    lines = ["electra: give it text, it gives you a pre-trained text encoder.", "", "usage: electra VERB [OPTIONS]", ""]
    for title, requests in GROUPS.items():
        lines.append(title)
        for request in requests:
            what = re.split(r"[.:;] |[.:]\n|\.$", (request.__doc__ or "").replace("\n    ", " "))[0]
            lines.append(f"  {kind_of(request):<{max(map(len, VERBS))}} {what}")
        lines.append("")
    lines.append("Any verb takes --import FILE.py: objectives, arms and tasks of your own (docs/extending.md).")
    return "\n".join([*lines, "electra VERB --help says more, --help-all everything. Begin with: electra demo"])
