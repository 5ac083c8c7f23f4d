"""The encoder that comes with the package: its name, its weights, and the command that writes such a folder."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from tests.command import Electra

from electra_trainer import api, load
from electra_trainer.cli.main import read
from electra_trainer.cli.pretrain import Pretrain
from electra_trainer.cli.text_verbs import vocabulary_of
from electra_trainer.errors import ConfigError
from electra_trainer.pretrained.as_run import export_as_run
from electra_trainer.pretrained.pretrained import Pretrained, export_run
from electra_trainer.pretrained.source import InitFrom, load_source
from electra_trainer.runs.run_folder import RunFolder
from electra_trainer.settings.records import BOX, DEFAULT, run_and_step
from electra_trainer.train.begin.continued import ContinueFrom
from electra_trainer.train.from_flags import settings_from

WRITTEN = (
    "the king of england was born in london and died in the same year .",
    "she went to the school and taught the children of the village to read .",
    "the river flows to the south and joins the sea near the town .",
    "in the second half of the century the population of the city grew .",
)
FAKES = ("because", "seven", "wrote", "green", "them", "species", "quickly", "himself")


@pytest.fixture(scope="module")
def boxed() -> Pretrained:
    return load(DEFAULT)


def test_the_encoder_in_the_box_finds_exchanged_words(boxed: Pretrained) -> None:
    """Its weights are finite, and a word that does not belong is mostly more suspicious than one that was written."""
    assert all(torch.isfinite(one).all() for part in boxed.networks for one in part.network.state_dict().values())
    found, truth = list[float](), list[bool]()
    for text in WRITTEN:
        for place, fake in enumerate(FAKES, 1):
            words = text.split()
            words[place] = fake
            scored = boxed.score(" ".join(words))
            found += scored.replaced_probability
            truth += [token == fake for token in scored.tokens]
    assert sum(truth) == len(WRITTEN) * len(FAKES) and roc_auc_score(truth, found) > 0.75


def test_a_name_in_the_box_is_read_everywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every reader of a model resolves it; a folder of that name comes first."""
    monkeypatch.chdir(tmp_path)
    source, initial = load_source(DEFAULT), InitFrom(name=DEFAULT).read()
    assert (source.name, source.length, initial.identity["name"]) == (DEFAULT, 128, DEFAULT)
    assert initial.networks.keys() == {"discriminator", "generator", "encoder"}
    assert vocabulary_of(DEFAULT).parent == BOX / DEFAULT
    asked: list[Pretrain] = []
    monkeypatch.setattr(Pretrain, "run", lambda request: asked.append(request))
    monkeypatch.setattr(api, "load", Path)
    api.pretrain("data", out="run", init=DEFAULT, seed=7)
    assert asked[0].settings.model == initial.model and asked[0].settings.seed == 7
    (tmp_path / DEFAULT).mkdir()
    assert run_and_step(DEFAULT)[0] == Path(DEFAULT)


ASKED = {
    "finetune": (["--train", "t.csv", "--out", "x"], {"model": DEFAULT, "train": Path("t.csv")}),
    "score": (["some text"], {"run_folder": Path(DEFAULT), "text": "some text"}),
    "fill": (["--top", "3", "a [MASK]"], {"run_folder": Path(DEFAULT), "text": "a [MASK]", "top": 3}),
    "embed": (["t.csv", "--out", "v.npy"], {"model": DEFAULT, "file": Path("t.csv")}),
    "playground": ([], {"models": (Path(DEFAULT),)}),
}


@pytest.mark.parametrize("verb", ASKED)
def test_a_verb_without_a_model_takes_the_one_in_the_box(verb: str) -> None:
    words, meant = ASKED[verb]
    named = ["mine", *words]
    assert meant.items() <= vars(read(verb, words)).items()
    assert DEFAULT not in str(vars(read(verb, named)) | {"typed": ()})


def test_a_model_without_a_text_is_not_the_text(electra: Electra, run: Path) -> None:
    code, _, err = electra("score", run)
    assert code == 78 and f"{run}: is a folder, expected a text" in err


@pytest.mark.parametrize("run", ["modern"], indirect=True)
def test_a_run_without_moments_is_read_as_the_run(electra: Electra, run: Path, tmp_path: Path) -> None:
    """Scores, card and tokenizer agree; its settings stand for a preset where a run begins with it."""
    out = tmp_path / "given"
    assert electra("export", run, "--as", "run", "--dtype", "float16", "--out", out)[0] == 0
    ours, theirs = load(run), load(out)
    assert (theirs.config, theirs.step, theirs.length) == (ours.config, ours.step, ours.length)
    near = {"rtol": 0.0, "atol": 2e-2}
    np.testing.assert_allclose(
        theirs.score("a class").replaced_probability, ours.score("a class").replaced_probability, **near
    )
    weights = sum(path.stat().st_size for path in run.rglob("step-00000004/*"))
    assert sum(path.stat().st_size for path in out.rglob("step-*/*")) < weights / 4
    assert not [path for path in out.rglob("*.json") if str(run.parent) in path.read_text()]
    first, second = (export_run(one, tmp_path / "cards" / one.name)[0] / "README.md" for one in (run, out))
    assert first.read_text() == second.read_text()
    assert theirs.config is not None and settings_from(["--init", str(out)]).model == theirs.config.model
    with pytest.raises(ConfigError, match=f"Give --init {out}"):
        ContinueFrom(name=str(out)).read()
    with pytest.raises(ConfigError, match="not an empty folder"):
        export_as_run(run, out)
    RunFolder(out).note(init={"name": "google/a,google/b,/own/c"})
    again = RunFolder(export_as_run(out, tmp_path / "again"))
    assert again.environment()["init"]["name"] == "google/a,google/b,c", "names of the Hub, and of no folder here"
