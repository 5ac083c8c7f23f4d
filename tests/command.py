"""What the fixture `electra` of conftest.py is."""

from collections.abc import Callable

Electra = Callable[..., tuple[int, str, str]]
"""Words of a command -> exit code, standard output, standard error."""
