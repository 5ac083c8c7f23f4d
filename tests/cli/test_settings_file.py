"""`--config` of every verb."""

from pathlib import Path

import pytest
from tests.command import Electra

from electra_trainer.cli.main import read
from electra_trainer.errors import ConfigError


def test_a_preset_is_read_back(electra: Electra, tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    path.write_text(electra("show", "base", "--json")[1])
    assert read("pretrain", ["d", "--out", "r", "--config", str(path)]).settings.model.hidden_size == 768


def test_flags_override_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'model = "runs/mine"\ntrain = "a.csv"\nout = "e"\nseeds = 5\nrecipe = "released"\nlearning-rate = 1e-3\nepochs = 4\n'
    )
    found = read("finetune", ["--config", str(path), "--epochs", "5"])
    assert (found.model, found.train, found.seeds) == ("runs/mine", Path("a.csv"), "5")
    assert found.recipe == "released" and found.given == {"learning_rate": 1e-3, "epochs": 5.0}
    found = read("finetune", ["other", "--config", str(path), "--recipe", "paper"])
    assert (found.model, found.recipe) == ("other", "paper")
    text = tmp_path / "text.toml"
    text.write_text('files = ["a.txt", "b.txt"]\ntokenizer = "t"\nout = "d"\nboundary = "line"\nvalid_fraction = 0.1\n')
    prepared = read("prepare", ["--config", str(text), "--seq-len", "64"])
    assert (prepared.files, prepared.seq_len, prepared.settings.boundary) == (("a.txt", "b.txt"), 64, "line")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("epoch = 3", ["unknown field 'epoch'", "Did you mean 'epochs'?"]),
        ('epochs = "x"', ["epochs = 'x': expected float"]),
        ("epochs = -1", ["epochs = -1.0: expected above 0"]),
        ('recipe = "papr"', ["Did you mean 'paper'?"]),
        ("epochs = ", ["is not valid TOML"]),
    ],
)
def test_a_wrong_file_is_refused(electra: Electra, tmp_path: Path, content: str, said: list[str]) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(content)
    code, _, err = electra("finetune", "model", "--train", "a.csv", "--out", "e", "--config", path)
    assert code == ConfigError.exit_code and "mine.toml" in err and all(words in err for words in said), err
