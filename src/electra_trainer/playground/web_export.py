"""The page of the playground without a server: `electra export RUN --to web`. The networks in ONNX, and
transformers.js, compute in the browser.

index.html style.css page.js panel.js   the page of `electra playground`      about.json   what it shows, and special
tokens engine.js                               in_browser.js in place of HTTP        models/      tokenizer, config and
ONNX of each network engine/                                 transformers.js, and ONNX Runtime     README.md    how it
is served
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from electra_trainer.errors import ConfigError, MissingInputError
from electra_trainer.files.durable import scratch
from electra_trainer.files.reading import MOST_TEXT, read_file
from electra_trainer.files.wording import render
from electra_trainer.playground import FILES, PAGE
from electra_trainer.playground.answers import PretrainedModel
from electra_trainer.pretrained import serving
from electra_trainer.pretrained.export import publish
from electra_trainer.pretrained.pretrained import export_run

TRANSFORMERS_JS, ONNX_RUNTIME_WEB = "4.3.1", "1.31.0-dev.20260914-8d85527a0"
"""The versions that the page was tried with; the second is the one that the first asks for."""
ENGINE = ("transformers.min.js", "ort-wasm-simd-threaded.asyncify.mjs", "ort-wasm-simd-threaded.asyncify.wasm")
"""Files of the npm packages @huggingface/transformers and onnxruntime-web."""
FETCH = (
    f"npm pack @huggingface/transformers@{TRANSFORMERS_JS} onnxruntime-web@{ONNX_RUNTIME_WEB}",
    "for file in *.tgz; do tar -xzf $file; done",
)
"""Commands that fetch the engine into a folder."""
_POLICY = "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; base-uri 'none'; form-action 'none'"
"""The page may ask nobody but the server that it came from."""
_READ = ("config.json", "tokenizer.json", "tokenizer_config.json")


def export_web(run: str | Path, out: Path, *, int8: bool = False, engine: Path | None = None) -> list[str]:
    """Write the page with a run's networks, for any server of files.

    Args:
        run: the run, or RUN@STEP.
        out: a new or empty folder.
        int8: matrices in 8 bits: a quarter of the bytes, and probabilities within serving.py's bounds.
        engine: a folder with the files `ENGINE`, somewhere within; None leaves them out, and README.md says how they
            come there.

    Returns:
        What was written, in lines for people.

    Raises:
        ConfigError: a package for ONNX is missing, `out` is not empty, the tokenizer is not BERT's, or `run` is not a
            run.
        MissingInputError: `engine` lacks a file. CheckpointError: ONNX Runtime computes something else. StorageError:
            the disk is full.
    """
    serving.need_onnx()
    found = _engine_files(engine) if engine is not None else {}
    model = PretrainedModel(str(run))
    pretrained = model.first
    splits = json.loads(pretrained.tokenizer.to_str())
    kinds = [(splits[part] or {}).get("type") for part in ("model", "pre_tokenizer", "normalizer")]
    if kinds != ["WordPiece", "BertPreTokenizer", "BertNormalizer"]:
        raise ConfigError(
            f"--to web: the page splits text as BERT does, and this tokenizer does not ({kinds}). Use `electra "
            "playground`."
        )
    lines = []
    with scratch() as place:

        def compare(folder: Path, network: Any, tokenizer: Any) -> None:
            lines.append(f"{folder.name}: {serving.write_onnx(folder, network, tokenizer, int8=int8).line}")

        folders = export_run(run, place / "export", compare=compare)
        about = {
            "model": {**model.facts(), "name": Path(str(run)).name, "steps": []},
            "networks": [folder.name for folder in folders],
            "dtype": "int8" if int8 else "fp32",
            "length": pretrained.length,
            "specials": asdict(pretrained.specials),
        }
        publish(out, _files(folders, about, found), lambda _: None)
    lines.append(
        f"{out}: a page for any server of files, for example: python -m http.server --bind 127.0.0.1 --directory {out}"
    )
    if engine is None:
        lines.append(f"{out}/engine: is still to be filled with transformers.js; {out / 'README.md'} says how.")
    return lines


def _files(folders: list[Path], about: dict[str, Any], engine: dict[str, Path]) -> Iterator[tuple[str, bytes]]:
    yield from ((name, (PAGE / name).read_bytes()) for name in FILES if name != "index.html")
    page = (PAGE / "index.html").read_text(encoding="utf-8")
    policy = f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    yield "index.html", page.replace("<head>", f"<head>\n{policy}", 1).encode()
    yield "engine.js", (PAGE / "in_browser.js").read_bytes()
    yield "about.json", (json.dumps(about, indent=1) + "\n").encode()
    yield "README.md", render("web.md", about=about, fetch=FETCH, engine=ENGINE).encode()
    weights = f"onnx/model{'_int8' if about['dtype'] == 'int8' else ''}.onnx"
    for folder in folders:
        for name in (*_READ, weights):
            limit = sys.maxsize if name == weights else MOST_TEXT
            yield f"models/{folder.name}/{name}", read_file(folder / name, limit=limit)
    for name, path in engine.items():
        yield f"engine/{name}", read_file(path, limit=1 << 27)


def _engine_files(folder: Path) -> dict[str, Path]:
    """The file of each name, the one with the shortest path where there are several."""
    places = {name: min(folder.rglob(name), key=lambda path: (len(path.parts), path), default=None) for name in ENGINE}
    if missing := [name for name, path in places.items() if path is None]:
        raise MissingInputError(
            f"--engine {folder}: holds no {', '.join(missing)}. Fetch them in an empty folder, and give that: "
            f"{'; '.join(FETCH)}"
        )
    return {name: path for name, path in places.items() if path is not None}
