"""`--config` of every verb, and completion of what they are flags of."""

import subprocess
from pathlib import Path

import pytest
from tests.command import Electra

from electra_trainer.cli.main import VERBS, read
from electra_trainer.errors import ConfigError


def test_a_preset_is_read_back_in_both_forms(electra: Electra, tmp_path: Path) -> None:
    for form in ("toml", "json"):
        path = tmp_path / f"base.{form}"
        path.write_text(electra("show", "base", f"--{form}")[1])
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
    text.write_text(
        'files = ["a.txt", "b.txt"]\ntokenizer = "t"\nout = "d"\ndocuments = "line"\nvalid_fraction = 0.1\n'
    )
    prepared = read("prepare", ["--config", str(text), "--seq-len", "64"])
    assert (prepared.files, prepared.seq_len, prepared.settings.boundary) == (("a.txt", "b.txt"), 64, "line")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("epoch = 3", ["unknown field 'epoch'", "Did you mean 'epochs'?"]),
        ('epochs = "x"', ["epochs = 'x': expected float"]),
        ("epochs = -1", ["epochs = -1.0: expected above 0"]),
        ('task = "clasification"', ["Did you mean 'classification'?"]),
        ("epochs = ", ["is not valid TOML"]),
    ],
)
def test_a_wrong_file_is_refused(electra: Electra, tmp_path: Path, content: str, said: list[str]) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(content)
    code, _, err = electra("finetune", "model", "--train", "a.csv", "--out", "e", "--config", path)
    assert code == ConfigError.exit_code and "mine.toml" in err and all(words in err for words in said), err


COMPLETED = {
    "pretr": ["pretrain"],
    "pretrain --optimizer.learning": ["--optimizer.learning-rate"],
    "export run --dtype bf": ["bfloat16"],
    "export run --dtype ": ["float32", "float16", "bfloat16"],
}


def test_bash_completes_verbs_flags_and_values(electra: Electra, tmp_path: Path) -> None:
    code, script, _ = electra("--completion", "bash")
    assert code == 0
    (tmp_path / "electra.bash").write_text(script)
    asked = "\n".join(
        f"COMP_WORDS=(electra {line}{chr(39) * 2 if line.endswith(' ') else ''}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); "
        'COMPREPLY=(); _tyro_electra; echo "${COMPREPLY[*]}"'
        for line in COMPLETED
    )
    done = subprocess.run(
        ["bash", "-c", f"source electra.bash; complete -p electra >&2\n{asked}"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "-F _tyro_electra electra" in done.stderr
    answers = [line.split() for line in done.stdout.split("\n")[:-1]]
    assert answers == [*COMPLETED.values()]


def test_zsh_and_fish_have_all_verbs(electra: Electra) -> None:
    for shell in ("zsh", "fish"):
        code, script, _ = electra("--completion", shell)
        assert code == 0 and all(verb in script for verb in VERBS)
    assert "expected bash, zsh or fish" in electra("--completion")[2]
