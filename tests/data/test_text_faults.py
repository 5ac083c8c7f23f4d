"""Files of ../shared/faults on text: the right value, or one true sentence."""

from pathlib import Path

import pytest
from tests.command import Electra
from tests.finetuning.own_files import write_encoder

PREPARE = (
    "prepare {} --tokenizer {model} --documents line --seq-len 64 --valid-fraction 0.1 --workers 1 --out {out}".split()
)
FINETUNE = "finetune {model} --train {} --epochs 1 --seeds 1 --parallel 1 --out {out}".split()
SURVEY = ("prepare", "{}", "--tokenizer", "{model}", "--dry-run")
PARTED = "of the words and are read as spaces"
MIXED = "bytes that are not UTF-8"
FAULTS = {
    "glued-words/vertical-tab.txt": [(PREPARE, 0, PARTED), (SURVEY, 0, "lines with control characters: ")],
    "glued-words/next-line.txt": [(PREPARE, 0, PARTED), (SURVEY, 0, PARTED)],
    "lone-cr/mixed-ends.txt": [(PREPARE, 0, "150 documents, 150 lines")],
    "mixed-encodings/one-latin-line.txt": [(PREPARE, 65, MIXED), (PREPARE, 65, ":61: ")],
    "mixed-encodings/table.csv": [(FINETUNE, 65, "not UTF-8 at byte ")],
    "unreadable-symbols/emoji.txt": [(SURVEY, 0, "and 100.0 % of the symbols and punctuation marks are unreadable")],
    "unreadable-symbols/only-emoji-differs.csv": [(FINETUNE, 0, "for example '🎉' (36 x), '💀' (36 x)")],
    "bombs/ruler.txt": [(SURVEY, 0, "for example '=' (4,000 x)")],
    "bombs/overflow.warc.wet": [(PREPARE, 65, "is damaged (")],
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_text(electra: Electra, shared: Path, tmp_path: Path, name: str) -> None:
    file = shared / "faults" / name
    if not file.exists():
        pytest.skip(f"needs shared/faults/{name}")
    model = write_encoder(tmp_path / "model")
    for number, (command, code, words) in enumerate(FAULTS[name]):
        given = [word.format(file, model=model, out=tmp_path / str(number)) for word in command]
        found, out, err = electra(*given)
        assert (found, words in out + err) == (code, True), (given, out, err)


@pytest.mark.parametrize("folder", ["panic1", "panic2"])
def test_a_fault_of_a_tokenizer(electra: Electra, shared: Path, tmp_path: Path, folder: str) -> None:
    if not (place := shared / "faults" / "bombs" / folder).exists():
        pytest.skip(f"needs shared/faults/bombs/{folder}")
    (tmp_path / "a.txt").write_text("some words\n\nothers\n")
    code, _, err = electra("prepare", tmp_path / "a.txt", "--tokenizer", place, "--out", tmp_path / "data")
    assert code == 65 and "tokenizer.json: has a post-processor that fails (" in err
