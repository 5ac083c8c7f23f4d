"""`electra embed MODEL texts.csv --out vectors.npy`; `electra embed MODEL texts.csv --search "late delivery"`."""

import io
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from electra_trainer.cli.shown import Shown, Ticks, require_file
from electra_trainer.errors import need, refuse_if, tell
from electra_trainer.files import durable, rows, tables
from electra_trainer.settings.records import DEFAULT
from electra_trainer.settings.request import Request, announce

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_ENDINGS = (".npy", ".parquet")
_SECONDS_BETWEEN_LINES = 5.0


@dataclass(frozen=True, kw_only=True)
class Embed(Request):
    """One vector for each text of a file, pooled and normalised as the export of the model says; or the texts of the
    file that are nearest to a query.

    sentence-transformers makes the same vectors. An encoder knows little of whole texts before it was trained on pairs
    of them: docs/serving.md.
    """

    model: tyro.conf.Positional[str] = DEFAULT
    """Run folder (RUN@STEP: a checkpoint before the newest), exported folder, model that sentence-transformers saved,
    or Hub name."""
    file: tyro.conf.Positional[Path]
    """.txt with a text a line, .csv, .tsv, .jsonl, .parquet or .arrow, also .gz .bz2 .xz .zst; a URL; or OWNER/NAME of
    a data set of the Hub."""
    out: Path | None = None
    """.npy: float32 [N, D]; .parquet: the columns of the file, and a column `vector`, in place of one of that name."""
    search: str | None = None
    """Print the texts with the largest cosines to this one."""
    top: int = 5
    """Texts to print."""
    text: str | None = None
    """Column of the text (a name). Default: the only one, or the one called text, sentence or the like."""
    precision: Literal["fp32", "bf16", "auto"] = "fp32"
    """Arithmetic. auto: the one that the device is faster with."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N, or mps on a Mac."""
    json: bool = False
    """Print one JSON object: texts, width, pooling, out, nearest."""

    def run(self) -> Shown:
        """Embed, then write or search."""
        self._check()
        table, texts = read_texts(self.file, column=self.text)

        from electra_trainer.pretrained.embedding import nearest
        from electra_trainer.pretrained.source import load_source

        announce(self.model)
        made = load_source(self.model).embedder()
        began, ticks = time.monotonic(), Ticks(_SECONDS_BETWEEN_LINES)

        def progress(count: int) -> None:
            if ticks.due():
                tell(f"{count:,} of {len(texts):,} texts, {count / (time.monotonic() - began):,.0f} a second")

        where: dict[str, Any] = {"device": self.device, "precision": self.precision}
        vectors = made.embed(texts, progress=progress, reader=self.model, **where)
        seconds = time.monotonic() - began
        facts: dict[str, Any] = {"texts": len(texts), "width": vectors.shape[1], "pooling": made.form.described}
        lines = list[str]()
        if self.out is not None:
            _write(self.out, table, vectors)
            facts["out"] = str(self.out)
            lines.append(
                f"{self.out}: {len(texts):,} vectors of {vectors.shape[1]} numbers, each the {made.form.described}; "
                f"{len(texts) / max(seconds, 1e-9):,.0f} texts/s"
            )
        if self.search is not None:
            query = made.embed([self.search], **where)[0]
            found = nearest(vectors, query, top=self.top)
            facts["nearest"] = [
                {"cosine": cosine, "line": table.lines[row], "text": texts[row]} for row, cosine in found
            ]
            lines += [f"{cosine:.3f}  {table.where(row)}  {_short(texts[row])}" for row, cosine in found]
        return Shown(facts, lines)

    def _check(self) -> None:
        """Refuse before any work what cannot be done."""
        out = self.out
        refuse_if(
            {
                "embed: give --out vectors.npy (or .parquet), or --search TEXT.": out is None and self.search is None,
                f"--top {self.top}: expected at least 1.": self.top < 1,
                "--search: is empty. Give a text.": self.search is not None and not self.search.strip(),
            }
        )
        if out is not None:
            require_file(out, _ENDINGS)
            if out.suffix == ".parquet":
                need(f"--out {out}", ["pyarrow"], extra="hub")


def read_texts(given: Path | str, *, column: str | None) -> tuple[tables.Table, list[str]]:
    """A file's rows and their texts: of a .txt its lines, blank ones left out, in a column `text`.

    Raises:
        ConfigError: no such column, or it has to be named. MissingInputError, DataError: the file cannot
            be used; says file:line.
    """
    from electra_trainer.tasks.examples import choose_texts

    table = rows.read_rows(given)
    return table, tables.texts(table, choose_texts(table, None, text=column).text)


def _write(out: Path, table: tables.Table, vectors: "NDArray[np.float32]") -> None:
    import numpy as np

    stream = io.BytesIO()
    if out.suffix == ".npy":
        np.save(stream, vectors)
    else:
        import pyarrow as pa
        from pyarrow import parquet

        columns = {name: _array(table.column(name)) for name in table.columns}
        flat = pa.array(vectors.reshape(-1), type=pa.float32())
        columns["vector"] = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
        parquet.write_table(pa.table(columns), stream)
    durable.replace_durably(out, [stream.getbuffer()])


def _array(cells: Sequence[Any]) -> Any:
    """A column of Arrow; of values that have no common type, their JSON."""
    import pyarrow as pa

    try:
        return pa.array(cells)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array([None if cell is None else json.dumps(cell) for cell in cells])


def _short(text: str) -> str:
    """A text on one line of a terminal."""
    words = " ".join(text.split())
    return words if len(words) <= 100 else words[:99] + "…"
