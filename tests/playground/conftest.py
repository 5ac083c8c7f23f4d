"""Runs to look at, and one browser that records what it asks for."""

import json
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.finetuning.own_files import rows, write_csv
from tests.prepared import small_config, write_store

from electra_trainer.cli.main import main
from electra_trainer.settings.config import changed
from electra_trainer.train.loop import pretrain

ARGUMENTS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


@dataclass
class Visit:
    """A page, and what it asked for and complained of."""

    page: Any
    asked: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def words(self, panel: int = 0) -> list[str]:
        """The words of a panel, once they are there."""
        return self.panel(panel).locator(".word .form").all_inner_texts()

    def panel(self, number: int = 0) -> Any:
        return self.page.locator(".panel").nth(number)

    def scores(self, panel: int = 0) -> list[float]:
        """Its probabilities, as exact as they came."""
        return self.shares(".word", panel)

    def shares(self, within: str, panel: int = 0) -> list[float]:
        """Numbers of some elements, with all their digits."""
        values = self.panel(panel).locator(f"{within} data").evaluate_all("all => all.map((one) => one.value)")
        return [float(value) for value in values]

    def settle(self) -> None:
        """Wait until every panel has read the text."""
        self.page.wait_for_selector("#panels:not([aria-busy])", state="attached")
        for panel in self.page.locator(".panel").all():
            panel.and_(self.page.locator(":not([aria-busy])")).wait_for()

    def type(self, text: str) -> None:
        self.page.get_by_label("Sentence", exact=True).fill(text)
        self.settle()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Debian's Chromium, or another one that is installed."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"no browser is installed ({', '.join(BROWSERS)})")
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield launched
        launched.close()


@contextmanager
def visiting(browser: Any, url: str, **context: Any) -> Iterator[Visit]:
    """A fresh window at `url`; every request to another place ends the test."""
    window = browser.new_context(**context)
    window.set_default_timeout(60_000)  # milliseconds, for a loaded machine
    page = window.new_page()
    visit = Visit(page)
    page.on("request", lambda request: visit.asked.append(request.url))
    page.on("pageerror", lambda error: visit.complaints.append(str(error)))
    page.on("console", lambda line: visit.complaints.append(line.text) if line.type in ("error", "warning") else None)
    try:
        page.goto(url)
        visit.settle()
        yield visit
    finally:
        window.close()
    assert not [asked for asked in visit.asked if not asked.startswith((url, "data:", "blob:" + url))]


@contextmanager
def serving(names: Sequence[Path | str]) -> Iterator[str]:
    """The address of a playground of these models, served by a thread."""
    from electra_trainer.playground.answers import open_model
    from electra_trainer.playground.server import listen

    with listen([open_model(name) for name in names], host="127.0.0.1", port=0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.1,))
        thread.start()
        try:
            yield server.url
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with checkpoints at 4, 8 and 12, whose scores differ from word to word; one layer."""
    folder, shape = tmp_path_factory.mktemp("playground"), {"initializer": "fan-in", "num_hidden_layers": 1}
    settings = changed(small_config(steps=12), model=shape, generator={"depth": 0.5}, checkpoint={"keep": 3})
    return pretrain(settings, write_store(folder / "data"), out=folder / "run", device="cpu", quiet=True)


@pytest.fixture(scope="module")
def tuned(run: Path) -> dict[str, Path]:
    """Fine-tuned from it: a classifier, a tagger, a model of pairs, one that answers questions."""
    folder = run.parent / "tuned"
    folder.mkdir()
    table = rows(24)
    write_csv(folder / "one.csv", table)
    write_csv(
        folder / "two.csv", [(text, text[::-1], label) for text, label in table], ("sentence1", "sentence2", "label")
    )
    blank = "\t_" * 6
    for word in ("value", "class"):
        lines = [f"1\tthe\t_\tDET{blank}", f"2\t{word}\t_\tNOUN{blank}", "", ""]
        (folder / f"{word}.conllu").write_text("\n".join(lines))
    context = "A class is an object that makes others."
    answer = {"text": "an object", "answer_start": context.index("an object")}
    question = {"id": "1", "question": "What is a class?", "answers": [answer]}
    articles = [
        {"title": str(n), "paragraphs": [{"context": context, "qas": [question | {"id": str(n)}]}]} for n in (1, 2)
    ]
    for name, article in zip(("train", "dev"), articles, strict=True):
        (folder / f"{name}.json").write_text(json.dumps({"version": "1.1", "data": [article]}))
    shared = f"--seeds 1 --epochs 1 --parallel 1 --device cpu --quiet --max-length 32 --out {folder}"
    for command in (
        f"finetune {run} --train {folder}/one.csv {shared}/texts",
        f"finetune {run} --train {folder}/two.csv {shared}/pairs",
        f"finetune {run} --task tagging --train {folder}/value.conllu --dev {folder}/class.conllu --label upos {shared}/tags",
        f"squad {run} --train {folder}/train.json --dev {folder}/dev.json --version 1 {shared}/squad",
    ):
        assert main(command.split()) == 0, command
    return {name: folder / name / "model" for name in ("texts", "pairs", "tags", "squad")}
