"""Model cards: a header that huggingface_hub reads, and examples that run under the name given."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from tests.command import Electra
from tests.prepared import small_config

from electra_trainer.data.store import Store
from electra_trainer.errors import ConfigError
from electra_trainer.model.networks import Discriminator
from electra_trainer.objectives import Exported
from electra_trainer.pretrained.export import Form
from electra_trainer.pretrained.model_card import CardFields, Training, is_on_hub, model_card
from electra_trainer.pretrained.pretrained import export_run
from electra_trainer.settings import records

CONFIG = small_config()
TRAINING = Training(config=CONFIG, step=1, tokens=1)
NETWORK = Exported(name="discriminator", network=Discriminator(CONFIG.model), model=CONFIG.model)


def header(text: str) -> dict[str, object]:
    return dict(ModelCard(text).data.to_dict())


def test_what_the_owner_says(run: Path, tmp_path: Path, electra: Electra) -> None:
    said = ["--license", "apache-2.0", "--language", "tr", "no", "--name", "me/electra-tr"]
    assert electra("export", run, "--out", tmp_path / "out", *said)[0] == 0
    card = (tmp_path / "out" / "discriminator" / "README.md").read_text()
    assert header(card) == {
        "language": ["tr", "no"], "library_name": "transformers", "license": "apache-2.0", "pipeline_tag": "feature-extraction",
        "tags": ["electra", "electra-trainer", "replaced-token-detection"],
    }  # fmt: skip
    assert 'SentenceTransformer("me/electra-tr-discriminator")' in card and "PATH" not in card
    assert "nonsense.\nUse the generator, `me/electra-tr-generator`.\n" in card
    assert 'model="me/electra-tr-generator"' in (tmp_path / "out" / "generator" / "README.md").read_text()


WRONG = {
    ("license", "MIT License"): "--license 'MIT License': expected an identifier of the Hub",
    ("language", ("Turkish",)): "--language 'Turkish': expected codes of ISO 639",
    ("name", "electra-tr"): "--name 'electra-tr': expected OWNER/NAME",
    ("name", "me/a b"): "--name 'me/a b': expected OWNER/NAME",
}


@pytest.mark.parametrize("field", WRONG)
def test_what_the_hub_would_refuse(field: tuple[str, str]) -> None:
    with pytest.raises(ConfigError, match=re.escape(WRONG[field])):
        CardFields(**{field[0]: field[1]})  # type: ignore[arg-type]


def test_a_base_model_is_a_name_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not a folder of this machine, whose path is nobody's business. A network alone has the name itself."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    assert is_on_hub("google/electra-small-discriminator") and not is_on_hub("runs/gone") and not is_on_hub("/a/b")
    names = {"networks": ["discriminator"], "form": Form()}
    began = replace(TRAINING, init="google/electra-small-discriminator")
    alone = model_card(NETWORK, began, fields=CardFields(name="me/electra-tr"), **names)
    assert header(alone)["base_model"] == began.init
    assert 'from_pretrained("me/electra-tr")' in alone and "Use the generator" not in alone
    card = model_card(NETWORK, replace(began, init="runs/old"), fields=CardFields(), **names)
    assert "base_model" not in header(card) and "| the weights of old |" in card


def test_data_sets_of_the_hub(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data sets by their names; files have none, and rows that are gone or changed say nothing."""
    manifest = run.parent / "data" / "manifest.json"
    before, store = manifest.read_bytes(), Store.open(run.parent / "data")
    inputs = ["text.txt", f"wikimedia/wikipedia@{'a1' * 20}:20231101.tr:train"]
    changed = replace(store.manifest, settings={**store.manifest.settings, "inputs": inputs})
    try:
        manifest.write_text(changed.to_json())
        export_run(run, tmp_path / "known")
        other = replace(changed, train=replace(changed.train, sha256="0" * 64))
        manifest.write_text(other.to_json())
        export_run(run, tmp_path / "other")
    finally:
        manifest.write_bytes(before)
    cards = {name: (tmp_path / name / "discriminator" / "README.md").read_text() for name in ("known", "other")}
    assert header(cards["known"])["datasets"] == ["wikimedia/wikipedia"]
    assert "| data | wikimedia/wikipedia |" in cards["known"] and "datasets" not in header(cards["other"])
    assert records.is_run(run) and json.loads(before)["settings"]["inputs"] != inputs
