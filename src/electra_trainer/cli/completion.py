"""`electra completion bash`: a script by which a shell completes verbs, flags and values of flags. It holds them all,
and so answers at once.
"""

import contextlib
import io
import re
import shlex
from dataclasses import dataclass
from typing import Literal

import tyro

from electra_trainer.cli import main as cli
from electra_trainer.presets.models import MODELS

_BASH = """\
_electra() {{
  local verb=${{COMP_WORDS[1]}} word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} known=
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W {verbs} -- "$word"))
    return
  fi
  case "$verb $before" in
{values}
  esac
  if [[ -z $known && $word == -* ]]; then
    case $verb in
{flags}
    esac
  fi
  [[ -z $known ]] || COMPREPLY=($(compgen -W "$known" -- "$word"))
}}
complete -o default -F _electra electra electra-trainer
"""


@dataclass(frozen=True, kw_only=True)
class CompletionArguments:
    """Print a script by which a shell completes verbs, flags and values. Install it once, and again after an update.

    bash: electra completion bash > ~/.local/share/bash-completion/completions/electra

    zsh: electra completion zsh > ~/.electra.zsh; echo 'source ~/.electra.zsh' >> ~/.zshrc

    fish: electra completion fish > ~/.config/fish/completions/electra.fish
    """

    shell: tyro.conf.Positional[Literal["bash", "zsh", "fish"]]
    """The shell."""


def run_completion(arguments: CompletionArguments) -> None:
    """Print the script."""
    flags = {verb: _flags(verb) for verb in cli.VERBS}
    if arguments.shell == "fish":
        print("\n".join(_fish(flags)))
        return
    values = [
        f'    "{verb} {flag}") known={shlex.quote(" ".join(known))} ;;'
        for verb, each in flags.items()
        for flag, known in each.items()
        if known
    ]
    lines = [f"      {verb}) known={shlex.quote(' '.join(each))} ;;" for verb, each in flags.items()]
    if arguments.shell == "zsh":
        print("autoload -U +X compinit bashcompinit && compinit && bashcompinit")
    print(_BASH.format(verbs=shlex.quote(" ".join(flags)), values="\n".join(values), flags="\n".join(lines)), end="")


def _flags(verb: str) -> dict[str, list[str]]:
    """The flags of a verb, as its help has them, each with its values where they can be listed."""
    shown, found = io.StringIO(), {"--help-all": list[str]()}
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        cli.read(verb, ["--help-all"])
    for entry in re.findall(r"^\W (-.*?)  ", shown.getvalue(), re.M):
        values = re.search(r"--\S+ \{(.+?)\}", entry)
        for flag in re.findall(r"(?:^|, )(--[\w.-]+)", entry):
            found[flag] = list(MODELS) if flag == "--preset" else values[1].split(",") if values else []
    return found


def _fish(flags: dict[str, dict[str, list[str]]]) -> list[str]:
    lines = [
        f"complete -c electra -n __fish_use_subcommand -f -a {verb} -d {shlex.quote(cli.VERBS[verb].what)}"
        for verb in flags
    ]
    for verb, each in flags.items():
        for flag, known in each.items():
            values = f" -x -a {shlex.quote(' '.join(known))}" if known else ""
            lines.append(f"complete -c electra -n '__fish_seen_subcommand_from {verb}' -l {flag[2:]}{values}")
    return lines
