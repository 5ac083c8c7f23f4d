"""Texts for people: durations, and texts that Markdown shows as they are."""

MARKDOWN = "\\`*_[]<>|"
"""Letters that can begin markup or end a cell of a table."""


def duration(seconds: float) -> str:
    """`41 s`, `12 min`, `3.5 h`."""
    if seconds < 100:
        return f"{max(seconds, 0):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def escape_markdown(text: str, letters: str = MARKDOWN) -> str:
    """A text of somebody's files or flags on one line, in which `letters` are escaped."""
    return "".join("\\" + letter if letter in letters else letter for letter in " ".join(text.split()))
