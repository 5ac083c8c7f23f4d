"""Run folders -> one self-contained page with pictures: curves, health, real sentences, settings.

    RUN/metrics.jsonl      curves, headline numbers, health     needed
    RUN/examples.jsonl     the page of sentences                optional
    RUN/config.json        table of settings                    optional
    RUN/environment.json   table of the machine and versions    optional

The page is report_page.py's, the pictures are report_figures.py's; this file reads. A run that was killed while it wrote
leaves half a line: such lines are counted in a note on the page and skipped.
"""

import uuid
from collections.abc import Sequence
from pathlib import Path

from electra_trainer.errors import MissingInputError, StorageError, storage_error
from electra_trainer.inspection.run_read import read_run


def write_report(runs: Sequence[Path], *, out: Path | None = None) -> Path:
    """Write the page of one run, or of several overlaid, and its pictures.

    Args:
        runs: run folders; the order is that of legends and tables.
        out: the page (`.html`) or a folder for it; the first run's folder if None. PNGs go to `figures/` beside the page.

    Returns:
        The page.

    Raises:
        MissingInputError: a run, or its metrics.jsonl, is not there.
        DataError: a metrics.jsonl has no usable line.
        StorageError: something cannot be read or written.
    """
    from electra_trainer.inspection.report_figures import draw
    from electra_trainer.inspection.report_page import page

    if not runs:
        raise MissingInputError("No run was named. Type: electra report RUN")
    names = [path.resolve().name for path in runs]
    read = [
        read_run(path, name=name if names.count(name) == 1 else str(path))
        for path, name in zip(runs, names, strict=True)
    ]
    target = runs[0] / "report.html" if out is None else out if out.suffix == ".html" else out / "report.html"
    pictures = draw(read)
    try:
        figures = target.parent / "figures"
        figures.mkdir(parents=True, exist_ok=True)
        if figures.is_symlink():
            raise StorageError(
                f"{figures}: is a link, and pictures are written there. Remove it, or choose another --out."
            )
        for name, png in pictures.items():
            _write(figures / f"{name}.png", png)
        _write(target, page(read, pictures).encode("utf-8", "replace"))  # a name may hold bytes that are no text
    except OSError as error:
        raise storage_error(error, target) from error
    return target


def _write(path: Path, content: bytes) -> None:
    """Replace a file at once, so that nobody sees half a page."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        with temporary.open("xb") as file:
            file.write(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
