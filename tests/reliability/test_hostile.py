"""Hostile artefacts: none of their code runs, nothing is written outside of the folder that was named, the memory is bounded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from tests.prepared import small_config
from tests.reliability import hostile
from tests.reliability.bad_inputs import COMMANDS
from tests.reliability.figures import LONG, report
from tests.reliability.forking import Forks, Outcome, listing
from tests.reliability.materials import write_all
from tests.reliability.spoiling import bomb, put, sparse, spoilt

from electra_trainer.experiments.by_class import ClassReport
from electra_trainer.finetuning.model_folder import finetuned_card
from electra_trainer.inspection.report import write_report
from electra_trainer.objectives import Exported, build
from electra_trainer.pretrained.model_card import Training, model_card
from electra_trainer.settings.config import Config
from electra_trainer.settings.records import to_dict
from electra_trainer.tasks.task import TransformersHead
from electra_trainer.tasks.texts import Classification

MOST_MEGABYTES = 500
TYPED = {0, 65, 66, 74, 78}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_all(tmp_path_factory.mktemp("good"))
    (folder / "longer.json").write_text(json.dumps(to_dict(small_config(steps=6))))
    return folder


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks() as forks:
        yield forks


def told(forks: Forks, command: str, bad: Path, good: Path) -> Outcome:
    words = [word.format(bad=bad, good=good) for word in command.split()]
    return forks.command(*words, folder=bad.parent)


def is_typed(outcome: Outcome) -> bool:
    return outcome.code in TYPED and "Traceback" not in outcome.said


def test_pickles_under_every_name(forks: Forks, good: Path, tmp_path: Path) -> None:
    kinds = list(hostile.PICKLES.items())
    cases = [
        (command, name, inner, kind)
        for index, (command, name, inner) in enumerate(hostile.PLACES)
        for kind in (kinds if LONG else [kinds[index % 3]])
    ]
    executed = untyped = 0
    most = 0.0
    wrong, places = [], list[tuple[Path, Path]]()
    for number, (command, name, inner, (_, make)) in enumerate(
        [
            *cases,
            *((c, None, n, k) for i, (c, n) in enumerate(hostile.FILES) for k in (kinds if LONG else [kinds[i % 3]])),
        ]
    ):
        folder = tmp_path / str(number)
        bad = folder / (inner if name is None else "bad")
        folder.mkdir()
        put(bad, make() if name is None else spoilt(name, inner, make()), good)
        outcome = told(forks, COMMANDS[command], bad, good)
        executed += (folder / hostile.CANARY).exists()
        most = max(most, outcome.megabytes)
        if not is_typed(outcome):
            untyped += 1
            wrong.append(f"{command} {inner}: {outcome.code} {outcome.said[-500:]}")
        places.append((folder, bad if name is None else bad / inner))
    forks.call("tests.reliability.naive:read_each", *(f"{folder}\n{path}" for folder, path in places), folder=tmp_path)
    control = sum((folder / hostile.CANARY).exists() for folder, _ in places)
    report(
        "hostile_pickles", artefacts=number + 1, executed=executed, untyped=untyped, most_megabytes=round(most),
        control_executed_by_pickle_torch_and_numpy=control,
    )  # fmt: skip
    assert not executed and not wrong, "\n".join(wrong)
    assert control == number + 1 and most < MOST_MEGABYTES


def test_pickled_weights_are_not_looked_for(forks: Forks, good: Path, tmp_path: Path) -> None:
    hostile.without_safetensors(tmp_path / "bad", good)
    outcome = told(forks, COMMANDS["export"], tmp_path / "bad", good)
    assert outcome.code == 66 and "model.safetensors: no such file" in outcome.said
    assert not (tmp_path / hostile.CANARY).exists()


def test_nothing_is_written_elsewhere(forks: Forks, good: Path, tmp_path: Path) -> None:
    """Links, absolute names and `..` in folders of others: files outside stay as they are, byte for byte and date for date."""
    changed: list[str] = []
    naive = 0
    for number, (kind, (command, make)) in enumerate(hostile.ELSEWHERE.items()):
        folder = tmp_path / str(number)
        (folder / "outside").mkdir(parents=True)
        (folder / "outside" / "kept").write_bytes(b'{"step": 1}\n')
        make(folder / "bad", good)
        before, sound = listing(folder / "outside"), listing(good)
        outcome = told(forks, command, folder / "bad", good)
        if listing(folder / "outside") != before or listing(good) != sound:
            changed.append(f"{kind}: {outcome.code} {outcome.said[-300:]}")
        if not is_typed(outcome):
            changed.append(f"{kind}: {outcome.code} {outcome.said[-500:]}")
        for path in (folder / "bad").rglob("*"):  # the control: writing to the name goes through the link
            if path.is_symlink() and path.is_file():
                path.write_bytes(b"")
        naive += listing(folder / "outside") != before
    report(
        "hostile_writes",
        artefacts=len(hostile.ELSEWHERE),
        changed_outside=len(changed),
        control_changed_by_plain_writes=naive,
    )
    assert not changed, "\n".join(changed)
    assert naive >= 5


def test_tensors_that_cannot_be(forks: Forks, good: Path, tmp_path: Path) -> None:
    most, wrong, naive = 0.0, [], list[str]()
    for number, (kind, content) in enumerate(hostile.TENSORS.items()):
        bad = tmp_path / str(number) / "bad"
        bad.parent.mkdir()
        spoilt("export/discriminator", "model.safetensors", content)(bad, good)
        outcome = told(forks, COMMANDS["export"], bad, good)
        most = max(most, outcome.megabytes)
        if (
            outcome.code != 65
            or not {"model.safetensors", "num_hidden_layers"}
            & {*outcome.said.replace(":", " ").replace("/", " ").split()}
            or "Traceback" in outcome.said
        ):
            wrong.append(f"{kind}: {outcome.code} {outcome.said[-400:]}")
        naive.append(trusting(bad / "model.safetensors"))
    report(
        "hostile_tensors",
        artefacts=len(hostile.TENSORS),
        refused=len(hostile.TENSORS) - len(wrong),
        most_megabytes=round(most),
        control_taken_by_a_reader_that_trusts=naive.count("taken"),
        control_other_exceptions=len(naive) - naive.count("taken"),
    )
    assert not wrong, "\n".join(wrong)
    assert most < MOST_MEGABYTES and naive.count("taken") >= 2


def trusting(path: Path) -> str:
    """Outcome of a file whose header is believed: `taken`, or the name of an exception."""
    try:
        content = path.read_bytes()
        start = 8 + int.from_bytes(content[:8], "little")
        for facts in json.loads(content[8:start]).values():
            first, last = facts["data_offsets"]
            np.frombuffer(content[start:][first:last], dtype="<f4").reshape(facts["shape"])
    except Exception as error:
        return type(error).__name__
    return "taken"


def test_bombs(forks: Forks, good: Path, tmp_path: Path) -> None:
    """Half a gigabyte in a few hundred kilobytes; and a short document that is a giant in memory."""
    bombs = {"a.txt.gz": bomb(b"a\n\n", b"\0", 500 << 20), "b.jsonl.gz": bomb(b"", b"[", 500 << 20)}
    most, wrong = 0.0, []
    for name, make in bombs.items():
        make(tmp_path / name, good)
        outcome = told(forks, COMMANDS["corpus"], tmp_path / name, good)
        most = max(most, outcome.megabytes)
        wrong += [] if outcome.code == 65 else [f"{name}: {outcome.code} {outcome.said[-400:]}"]
    (tmp_path / "c.jsonl").write_bytes(b'{"text": "a", "x": [' + b'{"a":1},' * 2_000_000 + b"0]}\n")
    outcome = told(forks, COMMANDS["corpus"], tmp_path / "c.jsonl", good)
    wrong += [] if outcome.code == 65 else [outcome.said]
    control = forks.call("json:loads", (tmp_path / "c.jsonl").read_text(), folder=tmp_path)
    report(
        "bombs",
        artefacts=3,
        refused=3 - len(wrong),
        most_megabytes=round(max(most, outcome.megabytes)),
        control_megabytes_of_json_loads=round(control.megabytes),
    )
    assert not wrong, "\n".join(wrong)
    assert max(most, outcome.megabytes) < MOST_MEGABYTES < control.megabytes


@pytest.mark.parametrize("command", ["run", "go on"])
def test_a_sparse_checkpoint(command: str, forks: Forks, good: Path, tmp_path: Path) -> None:
    """Files of 700 MB that take no room on the disk, in a checkpoint of 38,000 parameters: with the manifest as it was, and with one that fits."""
    most, wrong, number = 0.0, [], 0
    words = hostile.AGAIN if command == "go on" else COMMANDS[command]
    step = "checkpoints/step-00000004"
    for name in ("weights.safetensors", "optimizer.safetensors", "state.json", "manifest.json"):
        for fits in (False, True) if name != "manifest.json" and (LONG or command == "go on") else (False,):
            bad = tmp_path / str(number) / "bad"
            bad.parent.mkdir()
            shutil.copytree(good / "run", bad)
            for other in (bad / "checkpoints").iterdir():
                if other.name != Path(step).name:
                    shutil.rmtree(other)
            (bad / step / name).unlink()
            sparse(hostile.HOLE)(bad / step / name, good)
            if fits:
                hostile.reseal(bad / step, name)
            outcome = told(forks, words, bad, good)
            most = max(most, outcome.megabytes)
            if outcome.code != 65 or name not in outcome.said or "Traceback" in outcome.said:
                wrong.append(f"{name} {fits}: {outcome.code} {outcome.said[-500:]}")
            number += 1
    sparse(hostile.HOLE)(tmp_path / "hole", good)
    control = forks.call("tests.reliability.naive:whole", str(tmp_path / "hole"), folder=tmp_path)
    report(
        "sparse_checkpoints",
        reader=command,
        artefacts=number,
        refused=number - len(wrong),
        most_megabytes=round(most),
        control_megabytes_of_a_reader_of_whole_files=round(control.megabytes),
    )
    assert not wrong, "\n".join(wrong)
    assert most < MOST_MEGABYTES < control.megabytes


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
        if tag in ("script", "iframe", "object", "embed", "link", "base", "form", "svg", "a"):
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
    run = tmp_path / ATTACKS[1].replace("/", "")
    run.mkdir()
    attacks = list(ATTACKS)
    rows = [
        {"step": step, "split": "valid", "loss": 1.0, "discriminator_loss": 0.5, **dict.fromkeys(attacks, step)}
        for step in (1, 2)
    ]
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
        named = Config(
            **{
                **{name: getattr(config, name) for name in ("model", "generator", "batch", "precision")},
                "preset": attack,
            }
        )
        pages[f"card {number}"] = model_card(
            Exported(name=network.name, network=network.network, model=network.model),
            Training(config=named, init=attack),
        )
    task = Classification(labels=tuple(attacks))
    shares, counts = (0.5,) * len(attacks), (1,) * len(attacks)
    confused = {name: dict.fromkeys(attacks, 1) for name in attacks}
    classes = ClassReport(
        labels=tuple(attacks), support=counts, precision=shares, recall=shares, f1=shares, confusion=confused,
        calibration_error=0.5,
    )  # fmt: skip
    table = {
        "source": {"model": attacks[0], "sha256": "0"},
        "recipe": {},
        "seed": 1,
        "columns": {"text": attacks[0]},
        "scores": {attacks[0]: {attacks[1]: {1: 0.5}}},
        "tested": attacks[:1],
        "reports": {split: vars(classes) for split in attacks},
        "conclusion": attacks[0],
        "notes": attacks,
        "pair": False,
        "max_length": 32,
    }
    pages["handed card"] = finetuned_card(task, head=TransformersHead(note=""), table=table)
    found = {name: dangerous(_rendered(text)) for name, text in pages.items()}
    raw = sum(len(dangerous(f"<p>{attack}</p>")) > 0 for attack in attacks)
    report(
        "hostile_text",
        payloads=len(attacks),
        pages=len(pages),
        unescaped=sum(map(len, found.values())),
        control_payloads_that_act_unescaped=raw,
    )
    assert not any(found.values()), found
    assert raw >= 6


def _rendered(text: str) -> str:
    """Markdown's escapes undone as a renderer does: a backslash before a bracket makes it text."""
    return text.replace("\\<", "&lt;").replace("\\>", "&gt;")
