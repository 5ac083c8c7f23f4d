"""Texts from outside never steer the terminal: each verb that prints them, on a pipe and on a terminal."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from tests.command import Electra
from tests.finetuning.own_files import rows, write_csv, write_encoder

from electra_trainer.errors import plain
from electra_trainer.files.wording import PlainStream, Terminal, plain_output

ATTACK = "\x1b[31mred\x1b]0;title\x07\x9b2J\u202etxt\u2066\x08\x7f"
"""Colour, the window's title, an 8-bit sequence that clears the screen, letters reordered, a step back."""
STEERING = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u202a-\u202e\u2066-\u2069]")


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder, and tables whose texts, labels, columns and names are attacks."""
    work = tmp_path_factory.mktemp("attack")
    write_encoder(work / "encoder")
    some = [(f"{text} {ATTACK}", f"{label} {ATTACK}") for text, label in rows(40)]
    write_csv(work / f"train{ATTACK}.csv", some, (f"text{ATTACK}", "label"))
    lines = [{f"text{ATTACK}": text, f"more{ATTACK}": ATTACK} for text, _ in some[:3]]
    (work / f"new{ATTACK}.jsonl").write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    letters = " ".join(f"{number:o}" for number in range(4000)).encode() + b"\n\n"
    attacks = f"A line of {ATTACK} words.\n".encode() * 3
    (work / f"corpus{ATTACK}.txt").write_bytes(attacks + b"na\xefve\n\n" + letters + b"Another one.\n\n" * 60)
    return work


def test_every_verb_that_prints_texts(
    work: Path, electra: Electra, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(work)
    corpus, new = f"corpus{ATTACK}.txt", f"new{ATTACK}.jsonl"
    train = ("finetune", "encoder", "--train", f"train{ATTACK}.csv", "--text", f"text{ATTACK}", "--label", "label")
    shown = ""
    for wanted, words in {
        0: (
            ("prepare", corpus, "--on-bad-text", "skip", "--dry-run"),
            ("tokenizer", corpus, "--out", tmp_path / f"words{ATTACK}", "--vocab-size", "300", "--on-bad-text", "skip"),
            ("fill", "encoder", f"A [MASK] {ATTACK}."),
            (*train, "--out", "exp", "--seeds", "1", "--epochs", "1", "--device", "cpu"),
            ("predict", "exp/model", new),
            ("predict", "exp/model", new, "--json"),
        ),
        65: (
            ("predict", "exp/model", corpus),
            ("prepare", corpus, "--tokenizer", "encoder", "--out", tmp_path / "rows"),
        ),
        78: ((*train, "--out", "exp2", "--text-pair", f"none{ATTACK}"), (f"verb{ATTACK}",), ("show", f"pre{ATTACK}")),
    }.items():
        for command in words:
            code, out, err = electra(*command)
            assert code == wanted or command[0] == "fill", (command, out, err)
            assert not STEERING.search(out + err), (command, STEERING.findall(out + err))
            shown += out + err
            if "--json" in command:
                assert json.loads(out.splitlines()[0])[f"text{ATTACK}"].endswith(ATTACK)
    assert shown.count("\\x1b[31mred") > 8


def test_a_terminal_keeps_our_styles_only(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr("sys.stdout", screen)
    with plain_output():
        print(ATTACK, "\r50 %\r\n")
        assert not STEERING.search(screen.getvalue())
        screen.truncate(0)
        console = Terminal(force_terminal=True, color_system="standard")
        console.print(ATTACK, style="red", markup=False, highlight=False)
    assert screen.getvalue().strip("\0").startswith("\x1b[31m\\x1b[31mred")
    assert len(re.findall("\x1b", screen.getvalue())) == 2


def test_letters_of_all_scripts_stay() -> None:
    text = "naïve Straße 日本語\u3000中文 हिन्दी\u200d नमस्ते\u200c עברית العربية 한국어 👩\u200d🔬 no\u00a0break"
    assert plain(text) == text
    assert json.loads('"' + plain("\x7f\x9b\u202e\ud800") + '"') == "\x7f\x9b\u202e\ud800"
    stream = io.StringIO()
    PlainStream(stream).writelines(["a\tb\n", "c\rd\n"])
    assert stream.getvalue() == "a\tb\nc\\rd\n"
