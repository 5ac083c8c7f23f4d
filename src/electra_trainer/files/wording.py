"""Texts for people: durations, numbers, Markdown, and the templates of pages, model cards and job files.

A template is a Jinja2 file in the package's `templates/` folder. A value that a template names and nobody gave is an
error. HTML escapes every value by itself; a Markdown card says `{{ text | markdown }}` and a job file `{{ word | shell
}}` where a value is somebody else's text.
"""

import math
import shlex
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

MARKDOWN = "\\`*_[]<>|"
"""Letters that can begin markup or end a cell of a table."""


def duration(seconds: float) -> str:
    """`41 s`, `12 min`, `3.5 h`."""
    if seconds < 100:
        return f"{max(seconds, 0):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def number(value: float) -> str:
    """Three significant digits, thousands by suffix: `0.0965`, `3000`, `12.3M`; a dash for NaN and infinity."""
    if not math.isfinite(value):
        return "–"
    if value >= 1e15:
        return power(value)
    for size, unit, suffix in ((1e12, 1e12, "T"), (1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(value) >= size:
            return f"{value / unit:.3g}{suffix}"
    return f"{value:.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:#.3g}".removesuffix(".")


def power(value: float) -> str:
    """`6.90e13`."""
    return f"{value:.2e}".replace("e+", "e")


def escape_markdown(text: str, letters: str = MARKDOWN) -> str:
    """A text of somebody's files or flags on one line, in which `letters` are escaped."""
    return "".join("\\" + letter if letter in letters else letter for letter in " ".join(text.split()))


def render(template: str, **values: Any) -> str:
    """The text of `templates/TEMPLATE.j2` with these values."""
    return _environment().get_template(f"{template}.j2").render(values)


@cache
def _environment() -> "Environment":
    import jinja2  # takes 70 ms, which only those who write pages pay

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parents[1] / "templates"),
        autoescape=lambda name: name is not None and name.endswith(".html.j2"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {"markdown": escape_markdown, "shell": shlex.quote}
    return made
