"""The fixture `electra` of conftest.py."""

from collections.abc import Callable

Electra = Callable[..., tuple[int, str, str]]
"""Words of a command -> exit code, standard output, standard error."""
