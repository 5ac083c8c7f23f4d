"""`electra completion bash`: a script by which a shell completes verbs, flags and values of flags. It holds them all,
and so answers at once.
"""

import re
import shlex
from collections.abc import Mapping

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


Flags = Mapping[str, list[str]]
"""Flags of a verb, each with its values where they can be listed."""


def script(shell: str, verbs: Mapping[str, str], helps: Mapping[str, str]) -> str:
    """The script for bash, zsh or fish.

    Args:
        verbs: what each verb does.
        helps: the whole help of each.
    """
    flags = {verb: _flags(text) for verb, text in helps.items()}
    if shell == "fish":
        return "\n".join(_fish(verbs, flags)) + "\n"
    values = [
        f'    "{verb} {flag}") known={shlex.quote(" ".join(known))} ;;'
        for verb, each in flags.items()
        for flag, known in each.items()
        if known
    ]
    lines = [f"      {verb}) known={shlex.quote(' '.join(each))} ;;" for verb, each in flags.items()]
    begin = "autoload -U +X compinit bashcompinit && compinit && bashcompinit\n" if shell == "zsh" else ""
    words = shlex.quote(" ".join(flags))
    return begin + _BASH.format(verbs=words, values="\n".join(values), flags="\n".join(lines))


def _flags(help_text: str) -> Flags:
    found: dict[str, list[str]] = {"--help-all": [], "--config": []}
    for entry in re.findall(r"^\W (-.*?)  ", help_text, re.M):
        values = re.search(r"--\S+ \{(.+?)\}", entry)
        for flag in re.findall(r"(?:^|, )(--[\w.-]+)", entry):
            found[flag] = list(MODELS) if flag == "--preset" else values[1].split(",") if values else []
    return found


def _fish(verbs: Mapping[str, str], flags: Mapping[str, Flags]) -> list[str]:
    lines = [
        f"complete -c electra -n __fish_use_subcommand -f -a {verb} -d {shlex.quote(what)}"
        for verb, what in verbs.items()
    ]
    for verb, each in flags.items():
        for flag, known in each.items():
            values = f" -x -a {shlex.quote(' '.join(known))}" if known else ""
            lines.append(f"complete -c electra -n '__fish_seen_subcommand_from {verb}' -l {flag[2:]}{values}")
    return lines
