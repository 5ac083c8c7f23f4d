"""Code of one's own: `--import` runs the files that are named and nothing else, and notes which they were."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.command import Electra
from tests.prepared import small_config, write_store

from electra_trainer import compare, load
from electra_trainer.cli.pretrain import command_of
from electra_trainer.errors import ConfigError, MissingInputError
from electra_trainer.finetuning.request import Finetune
from electra_trainer.settings import extensions
from electra_trainer.settings.methods import ObjectiveSettings
from electra_trainer.settings.records import to_dict

OWN = """
from dataclasses import dataclass
from electra_trainer.objectives.rtd import ReplacedTokenDetection
from electra_trainer.settings.methods import RTD

@dataclass(frozen=True, kw_only=True)
class Mine(RTD):
    mine: float = 1.0

class MineDetection(ReplacedTokenDetection, settings=Mine):
    pass
"""


@pytest.fixture(autouse=True)
def unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """In a folder with own.py; before and after a test nothing of one's own is imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ObjectiveSettings, "kinds", dict(ObjectiveSettings.kinds))
    monkeypatch.setattr(extensions, "imported", {})
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("own.py").write_text(OWN)
    yield
    sys.modules.pop("own", None)


@pytest.mark.parametrize(
    ("name", "code", "error", "says"),
    [
        ("gone.py", None, MissingInputError, "gone.py: no such file"),
        ("broken.py", "x = 1\ny = x.z\n", ConfigError, "--import broken.py, line 2: AttributeError: 'int'"),
        ("own.txt", OWN, ConfigError, "--import = 'own.txt': expected Python files"),
        ("json.py", "", ConfigError, "--import json.py: another module is called json. Rename the file."),
        ("", None, ConfigError, "--import: expected a value after it"),
        ("taken.py", OWN.replace("Mine(RTD)", "MLM(RTD)"), ConfigError, "objective MLM = 'mlm': expected a name that"),
    ],
)
def test_files_that_cannot_be(electra: Electra, name: str, code: str | None, error: type, says: str) -> None:
    if code is not None:
        Path(name).write_text(code)
    ran, _, err = electra("score", "run", "text", "--import", *filter(None, [name]))
    assert ran == error.exit_code and says in err


def test_a_run_names_its_file(electra: Electra) -> None:
    """Its SHA-256 is in environment.json and in the error without the file; a changed file is reported."""
    write_store(Path("data"))
    Path("config.json").write_text(json.dumps(to_dict(small_config(steps=3))))
    words = ["pretrain", "data", "--objective", "mine", "--config", "config.json", "--out", "run", "--device", "cpu"]
    code, _, err = electra(*words)
    assert code == ConfigError.exit_code and "One of your own? Name its file with --import FILE.py" in err
    assert electra(*words, "--import", "own.py", "--objective.mine", "2")[0] == 0
    assert [*extensions.files()] == [str(Path("own.py").resolve())]
    assert f"--import={Path('own.py').resolve()}" in command_of(words[1:], processes=2), "for every rank"
    assert f"--import={Path('own.py').resolve()}" in Finetune(train=Path("a.csv"), out=Path("o")).beside()
    sha256 = f"sha256:{hashlib.sha256(OWN.encode()).hexdigest()}"
    assert json.loads(Path("run/environment.json").read_text())["extensions"] == {"own.py": sha256}
    ObjectiveSettings.kinds.pop("mine")
    extensions.imported.clear()
    del sys.modules["own"]
    code, _, err = electra("score", "run", "text")
    assert code == ConfigError.exit_code and f"It was made with own.py ({sha256}). Add --import own.py" in err
    Path("own.py").write_text(f"{OWN}# changed")
    code, _, err = electra("score", "run", "text", "--import=own.py")
    assert code == 0 and f"run: own.py has changed: {sha256} then, sha256:" in err


GENERATORS = """
from electra_trainer.data.batches import word_counts
from electra_trainer.model.networks import TokenPredictor
from electra_trainer.settings.config import generator_shape
from electra_trainer.settings.methods import Learned, Unigram

class Flat(Unigram):
    def counts(self, store):
        return word_counts(store) ** 0

class Apart(Learned):
    def network(self, config, kept, weights):
        return TokenPredictor(generator_shape(config))
"""


def test_generators(electra: Electra) -> None:
    """Words that are all as frequent, and a network that shares nothing."""
    write_store(Path("data"))
    Path("own.py").write_text(GENERATORS)
    Path("config.json").write_text(json.dumps(to_dict(small_config(steps=3))))
    words = "pretrain data --config config.json --device cpu --quiet --generator".split()
    assert "One of your own?" in electra(*words, "flat", "--out", "flat")[2]
    for name in ("flat", "apart"):
        assert electra(*words, name, "--out", name, "--import", "own.py")[0] == 0
    first = json.loads(Path("flat/metrics.jsonl").read_text().splitlines()[0])
    assert first["generator_entropy"] == pytest.approx(math.log(load("flat").tokenizer.get_vocab_size()))
    ours, theirs = (one.network.electra.embeddings.word_embeddings.weight for one in load("apart").networks)
    assert not torch.equal(ours, theirs)


def test_an_installed_package_needs_no_flag(electra: Electra, monkeypatch: pytest.MonkeyPatch) -> None:
    about = Path("my_words-1.5.dist-info")
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-words\nVersion: 1.5\n")
    (about / "entry_points.txt").write_text("[electra_trainer.extensions]\nmine = own\n")
    monkeypatch.syspath_prepend(Path.cwd())
    assert electra("score", "run", "text")[0] == MissingInputError.exit_code
    assert "mine" in ObjectiveSettings.kinds and extensions.recorded() == {"extensions": {"own": "my-words 1.5"}}


def test_arms_from_python(tmp_path: Path) -> None:
    """Whole configurations are arms by the names that they are given."""
    config = small_config()
    other = replace(config, masking=replace(config.masking, fraction=0.3))
    write_store(tmp_path / "data")
    asked = {"out": tmp_path / "exp", "preset": config, "seeds": 1, "steps": 2, "device": "cpu", "quiet": True}
    summary = compare(tmp_path / "data", arms=["electra", ("mine", other), ("as-it-is", config)], **asked)
    assert [*summary.rows] == ["electra", "mine", "as-it-is"] and "mine" in str(summary)
    assert summary.declared.rows["mine"].settings["masking"]["fraction"] == 0.3
    for name in ("mlm", "a/b", "untrained"):
        with pytest.raises(ConfigError, match="no other arm has"):
            compare(tmp_path / "data", arms=[(name, config)], **asked)
