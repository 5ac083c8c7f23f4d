"""`electra export --to onnx` in ONNX Runtime, and `--to web` in a browser, from a server of files: no network of ours, the numbers of
`electra score` and `electra fill`."""

import dataclasses
import functools
import http.server
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.command import Electra
from tests.playground.conftest import visiting

from electra_trainer import load
from electra_trainer.data.batches import encode_rows
from electra_trainer.errors import CheckpointError
from electra_trainer.playground.web_export import ENGINE, FETCH, export_web
from electra_trainer.pretrained import serving
from electra_trainer.pretrained.pretrained import export_run

BLOCKS = pytest.mark.parametrize("run", ["bert", pytest.param("modern", marks=pytest.mark.slow)], indirect=True)
TEXTS = (
    "The class returns a value of the object.",
    "Unlikely, don't  日本 [MASK] naïve e\u0301! a\u200bb x\u00a0y",
    "word " * 70,
)


WRITE = serving.write_onnx


@pytest.fixture(scope="module")
def engine(request: pytest.FixtureRequest) -> Path:
    """transformers.js from npm, kept in pytest's cache; fetched as the README of an export says."""
    folder = Path(request.config.cache.mkdir("transformers-js"))
    if not all((folder / "package" / "dist" / name).is_file() for name in ENGINE):
        if shutil.which("npm") is None:
            pytest.skip("npm is not installed")
        for command in FETCH:
            done = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, timeout=120)
            if done.returncode:
                pytest.skip(f"npm cannot fetch transformers.js: {done.stderr[-200:]}")
        for path in (folder / "package").rglob("*"):
            if path.is_file() and path.name not in ENGINE:
                path.unlink()
    return folder


@pytest.fixture(scope="module", autouse=True)
def traced_once() -> Iterator[None]:
    """The first export writes both forms of ONNX, and later ones copy what was asked for: each takes ten seconds."""
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    kept = dict[str, tuple[serving.Compared, dict[str, bytes]]]()

    def once(folder: Path, network: Any, tokenizer: Any, *, int8: bool = False) -> serving.Compared:
        key = (folder / "config.json").read_text()
        if key not in kept:
            found = WRITE(folder, network, tokenizer, int8=True)
            kept[key] = found, {path.name: path.read_bytes() for path in (folder / "onnx").iterdir()}
        (folder / "onnx").mkdir(exist_ok=True)
        found, files = kept[key]
        for name, content in files.items():
            if int8 or name != "model_int8.onnx":
                (folder / "onnx" / name).write_bytes(content)
        return found if int8 else dataclasses.replace(found, int8=None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serving, "write_onnx", once)
        yield


@pytest.fixture(scope="module")
def exported(run: Path, engine: Path) -> Path:
    lines = export_web(run, run.parent / "web", engine=engine)
    assert sum("ONNX Runtime has the run's logits within" in line for line in lines) == 2
    return run.parent / "web"


@BLOCKS
def test_onnx_computes_what_the_run_does(electra: Electra, run: Path, tmp_path: Path) -> None:
    """Of both networks, for other numbers of rows and tokens than it was traced with; the states are for embeddings."""
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    code, out, err = electra("export", run, "--out", tmp_path / "out", "--to", "onnx", "--int8")
    assert code == 0, err
    assert out.count("ONNX Runtime has the run's logits within") == 2
    pretrained = load(run)
    network = next(one.network for one in pretrained.networks if one.name == "discriminator")
    modern = pretrained.networks[0].model.block == "modern"
    file = tmp_path / "out" / "discriminator" / "onnx" / "model.onnx"
    session = runtime.InferenceSession(str(file))
    names = [one.name for one in session.get_inputs()]
    assert names == ["input_ids", "attention_mask", "token_type_ids"][: 2 if modern else 3]
    for text in (TEXTS[0], "with many more words in it than the first has", "x"):
        ids = torch.tensor([pretrained.tokenizer.encode(text).ids])
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}
        states, logits = map(torch.from_numpy, session.run(None, {name: inputs[name].numpy() for name in names}))
        with torch.no_grad():
            expected_BTD = network.get_submodule("electra")(ids, encode_rows(ids))
        torch.testing.assert_close(states, expected_BTD, atol=1e-4, rtol=0)
        expected = torch.tensor(pretrained.score(text).replaced_probability)
        logits = logits[..., 1] - logits[..., 0] if modern else logits
        torch.testing.assert_close(logits[0, 1:-1].sigmoid(), expected, atol=1e-5, rtol=0)
    sizes = [file.with_name(name).stat().st_size for name in ("model.onnx", "model_int8.onnx")]
    assert sizes[1] < sizes[0]


def test_onnx_that_differs_is_not_written(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is the run's own logits, not those of the folder; 8 bits have a bound too."""
    pretrained = load(run)
    folder = next(one for one in export_run(run, tmp_path / "out") if one.name == "discriminator")
    network = next(one.network for one in pretrained.networks if one.name == "discriminator")
    serving.write_onnx(folder, network, pretrained.tokenizer)
    plain = (folder / "onnx" / "model.onnx").read_bytes()
    shutil.rmtree(folder / "onnx")
    monkeypatch.setattr(serving, "trace", lambda network, out, **_: out.write_bytes(plain))
    monkeypatch.setattr(serving, "quantize", with_lost_scales)
    with pytest.raises(CheckpointError, match=r"outputs in 8 bits are 0\.\d+ away on average, expected at most 0\.02"):
        WRITE(folder, network, pretrained.tokenizer, int8=True)
    with torch.no_grad():
        network.discriminator_predictions.dense_prediction.bias += 0.01
    with pytest.raises(CheckpointError, match=r"logits differs by 1\.0e-02"):
        WRITE(folder, network, pretrained.tokenizer)
    assert not (folder / "onnx").exists()


def with_lost_scales(plain: Path, small: Path) -> None:
    """A file in 8 bits that is wrong: every matrix is ten times as large."""
    onnx = pytest.importorskip("onnx")
    model = onnx.load(plain)
    for tensor in model.graph.initializer:
        if len(tensor.dims) == 2 and tensor.data_type == onnx.TensorProto.FLOAT:
            tensor.CopyFrom(onnx.numpy_helper.from_array(10 * onnx.numpy_helper.to_array(tensor), tensor.name))
    onnx.save(model, small)


@contextmanager
def files_of(folder: Path) -> Iterator[str]:
    """A server that knows nothing but files, as `python -m http.server`."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def tokens(visit: Any) -> list[str]:
    titles = visit.panel().locator(".piece").evaluate_all("all => all.map((one) => one.title)")
    return ["[UNK]" if title == "not in the vocabulary" else title for title in titles]


@BLOCKS
def test_the_static_page_has_the_runs_numbers(browser: Any, exported: Path, run: Path) -> None:
    """Tokens and probabilities of `electra score`, candidates of `electra fill`; every request goes to the server of files."""
    pretrained = load(run)
    with files_of(exported) as url, visiting(browser, url) as visit:
        visit.panel().locator(".word data").first.wait_for()
        for text in TEXTS:
            visit.type(text)
            scored = pretrained.score(text)
            assert tokens(visit) == scored.tokens
            assert visit.scores() == pytest.approx(scored.replaced_probability, abs=5e-5)
        visit.type(TEXTS[0])
        visit.panel().get_by_role("button", name="value, replaced").click()
        visit.panel().locator(".candidates li").first.wait_for()
        shares = visit.panel().locator(".candidates .share:has(data)")
        expected = pretrained.fill(TEXTS[0].replace("value", "[MASK]"), top=12)[0]
        assert shares.locator("span").all_inner_texts() == [one.token for one in expected]
        assert visit.shares(".candidates") == pytest.approx([one.probability for one in expected], abs=5e-5)
        visit.type(" ")
        assert visit.panel().get_by_role("alert").inner_text() == "the text is empty: give at least one word."
        assert visit.complaints == []


def test_eight_bits_are_close(browser: Any, run: Path, engine: Path, tmp_path: Path) -> None:
    """--int8 takes the small files alone, and the page loads them."""
    export_web(run, tmp_path / "web", int8=True, engine=engine)
    assert (
        not list((tmp_path / "web").rglob("model.onnx")) and len(list((tmp_path / "web").rglob("model_int8.onnx"))) == 2
    )
    with files_of(tmp_path / "web") as url, visiting(browser, url) as visit:
        visit.type(TEXTS[0])
        assert visit.scores() == pytest.approx(load(run).score(TEXTS[0]).replaced_probability, abs=0.02)


def test_without_an_engine_it_says_how_to_fetch_it(electra: Electra, browser: Any, run: Path, tmp_path: Path) -> None:
    """The command, its README, and the page itself; a folder without the files is refused before any work."""
    code, out, err = electra("export", run, "--to", "web", "--out", tmp_path / "web")
    assert code == 0, err
    assert "README.md says how" in out
    page = (tmp_path / "web" / "README.md").read_text()
    assert all(line in page for line in FETCH) and all(name in page for name in ENGINE)
    with files_of(tmp_path / "web") as url, visiting(browser, url) as visit:
        assert "README.md, beside this page, says how" in visit.page.locator("#trouble").inner_text()
    code, _, err = electra("export", run, "--to", "web", "--out", tmp_path / "other", "--engine", tmp_path)
    assert code == 66 and "holds no transformers.min.js" in err and FETCH[0] in err
    assert not (tmp_path / "other").exists()
