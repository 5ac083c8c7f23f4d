"""No text of a user becomes markup that acts, in any page or card."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.prepared import small_config
from tests.reliability.figures import report

from electra_trainer.experiments.by_class import ClassReport
from electra_trainer.finetuning.model_folder import finetuned_card
from electra_trainer.inspection.report import write_report
from electra_trainer.objectives import Exported, build
from electra_trainer.pretrained.export import Form
from electra_trainer.pretrained.model_card import CardFields, Training, model_card
from electra_trainer.tasks.task import TransformersHead
from electra_trainer.tasks.texts import Classification

ATTACKS = (
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", '"><svg onload=alert(1)>', "' onmouseover='alert(1)", "</style><script>alert(1)</script>",
    "javascript:alert(1)", "<!--", "]]>", "&lt;script&gt;", "\u202eevil", "$\\frac{", "{{7*7}}", "</title><script>alert(1)</script>", "<a href=javascript:alert(1)>x</a>",
)  # fmt: skip


class Page(HTMLParser):
    """Counts what could run or load something."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "iframe", "object", "embed", "link", "base", "form", "a"):
            self.found.append(tag)
        for name, value in attrs:
            outside = name in ("src", "href") and not str(value).startswith("data:image/png;base64,")
            if name.startswith("on") or outside:
                self.found.append(f"{tag} {name}={value}")


def dangerous(text: str) -> list[str]:
    page = Page()
    page.feed(text)
    return page.found


@pytest.mark.draws
def test_no_text_becomes_markup(tmp_path: Path) -> None:
    """Names of runs, tokens, settings, metrics and notes, in the pages and cards that show them."""
    run, attacks = tmp_path / ATTACKS[1].replace("/", ""), list(ATTACKS)
    run.mkdir()
    row = {"split": "valid", "loss": 1.0, "discriminator_loss": 0.5}
    rows = [row | {"step": step, **dict.fromkeys(attacks, step)} for step in (1, 2)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + "<script>alert(1)</script>\n")
    flags = [False, True] * (len(attacks) // 2)
    shown = {
        "original": attacks,
        "input": attacks[::-1],
        "masked": flags,
        "replaced": flags,
        "probability": [0.9] * len(attacks),
    }
    (run / "examples.jsonl").write_text(json.dumps({"step": 2, "rows": [shown]}) + "\n")
    for name in ("config.json", "environment.json"):
        (run / name).write_text(
            json.dumps({attack: {"x": attack, attack: [attack]} for attack in [*attacks, "\ud800"]})
        )
    page = write_report([run, run], out=tmp_path / "both.html").read_text(encoding="utf-8")
    pages = {"report": page, "one": write_report([run], out=tmp_path / "one.html").read_text(encoding="utf-8")}
    config = small_config()
    network = build(config).exported()[0]
    for number, attack in enumerate(attacks):
        training = Training(config=replace(config, preset=attack), step=1, tokens=1, init=attack)
        exported = Exported(name=network.name, network=network.network, model=network.model)
        pages[f"card {number}"] = model_card(
            exported, training, fields=CardFields(), networks=[network.name], form=Form()
        )
    task = Classification(labels=tuple(attacks))
    shares, counts = (0.5,) * len(attacks), (1,) * len(attacks)
    confused = {name: dict.fromkeys(attacks, 1) for name in attacks}
    classes = ClassReport(
        labels=tuple(attacks), support=counts, precision=shares, recall=shares, f1=shares, confusion=confused,
        calibration_error=0.5,
    )  # fmt: skip
    table = {
        "source": {"model": attacks[0], "sha256": "0"}, "recipe": {}, "seed": 1, "columns": {"text": attacks[0]},
        "scores": {attacks[0]: {attacks[1]: {1: 0.5}}}, "tested": attacks[:1], "conclusion": attacks[0], "notes": attacks,
        "reports": {split: vars(classes) for split in attacks}, "pair": False, "max_length": 32,
    }  # fmt: skip
    pages["handed card"] = finetuned_card(task, head=TransformersHead(note=""), table=table)
    found = {name: dangerous(_rendered(text)) for name, text in pages.items()}
    raw = sum(len(dangerous(f"<p>{attack}</p>")) > 0 for attack in attacks)
    report("hostile_text", payloads=len(attacks), pages=len(pages), control_payloads_that_act_unescaped=raw)
    assert not any(found.values()), found
    assert raw >= 6


def _rendered(text: str) -> str:
    """Markdown's escapes undone as a renderer does: a backslash before a bracket makes it text."""
    return text.replace("\\<", "&lt;").replace("\\>", "&gt;")
