"""Templates: HTML is escaped, Markdown where it is asked for, and a value that nobody gave is an error."""

import pytest
from jinja2 import UndefinedError

from electra_trainer.files.wording import render

TOKEN = {"kind": "", "original": "", "read": "<b>&\"'", "chance": "", "space": ""}


def test_html_escapes_every_value() -> None:
    assert render("sentence.html", tokens=[TOKEN]) == "&lt;b&gt;&amp;&#34;&#39;"


def test_a_missing_value_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="tokens"):
        render("sentence.html")
