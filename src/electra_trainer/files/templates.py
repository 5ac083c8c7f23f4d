"""Pages, model cards and job files: one Jinja2 template each, in the package's `templates/` folder.

A value that a template names and nobody gave is an error. HTML escapes every value by itself; a Markdown card says
`{{ text | markdown }}` and a job file `{{ word | shell }}` where a value is somebody else's text.
"""

import shlex
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from electra_trainer.files.wording import escape_markdown

if TYPE_CHECKING:
    from jinja2 import Environment


def render(template: str, **values: Any) -> str:
    """The text of `templates/TEMPLATE.j2` with these values."""
    return _environment().get_template(f"{template}.j2").render(values)


@cache
def _environment() -> "Environment":
    from jinja2 import (  # takes 70 ms, which only those who write pages pay
        Environment,
        FileSystemLoader,
        StrictUndefined,
    )

    made = Environment(
        loader=FileSystemLoader(Path(__file__).parents[1] / "templates"),
        autoescape=lambda name: name is not None and name.endswith(".html.j2"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {"markdown": escape_markdown, "shell": shlex.quote}
    return made
