"""On the path of processes that tests start: reports have empty pictures and the machine one core, as in the tests' process."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

REPORT = "electra_trainer.inspection.report"
PIXEL = b'<svg xmlns="http://www.w3.org/2000/svg"/>'
"""An empty picture."""


class OnePoint:
    """Finds the module that draws, and replaces its `draw`."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != REPORT or (spec := PathFinder.find_spec(name, path, target)) is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            replace_pictures(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def replace_pictures(report: Any) -> None:
    """`draw` gives the same names; `rendered` stays as it is for the figures of other verbs."""
    draw, rendered = report.draw, report.rendered

    @functools.wraps(draw)
    def draw_pixels(*shown: Any) -> dict[str, bytes]:
        report.rendered = lambda make, form: PIXEL
        try:
            drawn: dict[str, bytes] = draw(*shown)
            return drawn
        finally:
            report.rendered = rendered

    report.draw = draw_pixels


def see_one_core() -> None:
    """Let verbs start no process for each core, where they are not told how many: each would import torch again."""
    if hasattr(os, "sched_getaffinity"):
        os.sched_getaffinity = lambda _: {0}


sys.meta_path.insert(0, OnePoint)
see_one_core()
