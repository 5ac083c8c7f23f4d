"""Figure 2: masking, sampling and judging checked with networks that are written out, then on a real run."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from tests.prepared import small_config, write_store
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from torch import Tensor, nn

from electra_trainer.api import pretrain
from electra_trainer.cli.main import main
from electra_trainer.errors import ConfigError, DataError
from electra_trainer.model import networks
from electra_trainer.model.networks import TokenPredictor
from electra_trainer.objectives import Exported
from electra_trainer.paper.figures import worked_example
from electra_trainer.pretrained.pretrained import Pretrained
from electra_trainer.settings.config import Model

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "chef", "meal", "ate", "cook", "##ed", "."]
ID = {word: index for index, word in enumerate(VOCABULARY)}


class Generator(TokenPredictor):
    """Gives each slot a distribution that the test wrote, and keeps what it has read."""

    def __init__(self, logits_KV: Tensor) -> None:
        nn.Module.__init__(self)
        self.logits_KV = logits_KV
        self.read: list[list[int]] = []
        self.slots: list[int] = []

    def forward(self, ids_BT: Tensor, _: object, slots_K: Tensor | None = None) -> Tensor:
        assert slots_K is not None
        self.read, self.slots = ids_BT.tolist(), slots_K.tolist()
        return self.logits_KV[: len(slots_K)]


class Discriminator(networks.Discriminator):
    """Holds "ate" for replaced and everything else for original."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.read: list[list[int]] = []

    def forward(self, ids_BT: Tensor, _: object) -> Tensor:
        self.read = ids_BT.tolist()
        return torch.where(ids_BT == ID["ate"], 2.0, -2.0)


def surely(*words: str) -> Tensor:
    """Logits that leave no choice."""
    logits = torch.full((len(words), len(VOCABULARY)), -1e4)
    for row, word in enumerate(words):
        logits[row, ID[word]] = 0.0
    return logits


def make(generator: Generator | None, discriminator: Discriminator | None, *, length: int = 32) -> Pretrained:
    tokenizer = Tokenizer(models.WordPiece(ID, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(VOCABULARY[:5])
    return Pretrained(
        tokenizer=tokenizer,
        specials=cast(Any, SimpleNamespace(pad=0, unk=1, cls=2, sep=3, mask=4)),
        length=length,
        networks=(
            Exported(name="discriminator", network=cast(Any, discriminator), model=Model()),
            Exported(name="generator", network=cast(Any, generator), model=Model()),
        ),
    )


def test_the_papers_example() -> None:
    """ "the" is sampled as it was and counts as original; both pieces of "cooked" are masked and replaced."""
    generator, discriminator = Generator(surely("the", "ate", "##ed")), Discriminator()
    example = worked_example(make(generator, discriminator), "the chef cooked the meal", mask=(1, 3), seed=0)
    row = ["[CLS]", "[MASK]", "chef", "[MASK]", "[MASK]", "the", "meal", "[SEP]"]
    assert generator.read == [[ID[word] for word in row]]
    assert generator.slots == [1, 3, 4]
    row = ["[CLS]", "the", "chef", "ate", "##ed", "the", "meal", "[SEP]"]
    assert discriminator.read == [[ID[word] for word in row]], "no [MASK] reaches the discriminator"
    assert example.original == ["the", "chef", "cook", "##ed", "the", "meal"]
    assert example.masked == [True, False, True, True, False, False]
    assert example.sampled == row[1:-1]
    assert example.replaced == [False, False, True, False, False, False]
    assert example.probability == pytest.approx([0.1192, 0.1192, 0.8808, 0.1192, 0.1192, 0.1192], abs=1e-4)
    assert example.verdicts == ["original", "original", "replaced", "original", "original", "original"]
    lines = example.text().splitlines()
    assert len(lines) == 1 + 6 and lines[3].split() == ["cook", "[MASK]", "ate", "replaced", "0.88", "replaced"]


def test_samples_follow_the_generators_distribution() -> None:
    logits = torch.full((1, len(VOCABULARY)), -1e4)
    logits[0, ID["ate"]], logits[0, ID["the"]], logits[0, ID["meal"]] = 0.5, 0.3, 0.2
    logits[0, [ID["ate"], ID["the"], ID["meal"]]] = torch.tensor([0.5, 0.3, 0.2]).log()
    model = make(Generator(logits), Discriminator())
    drawn = [worked_example(model, "chef", mask=(1,), seed=seed).sampled[0] for seed in range(1000)]
    for word, share in (("ate", 0.5), ("the", 0.3), ("meal", 0.2)):
        assert drawn.count(word) / 1000 == pytest.approx(share, abs=0.06)  # four standard errors
    assert drawn == [worked_example(model, "chef", mask=(1,), seed=seed).sampled[0] for seed in range(1000)]


def test_a_written_mask_is_plain_text_and_punctuation_is_a_word() -> None:
    example = worked_example(make(Generator(surely("meal")), Discriminator()), "the chef.", mask=(3,), seed=0)
    assert example.sampled == ["the", "chef", "meal"]
    plain = worked_example(make(Generator(surely("meal")), Discriminator()), "[MASK] chef", mask=(1,), seed=0)
    assert "[MASK]" not in plain.original


def test_errors() -> None:
    generator, discriminator = Generator(surely("the")), Discriminator()
    with pytest.raises(ConfigError, match="no discriminator"):
        worked_example(make(generator, None), "the", mask=(1,), seed=0)
    with pytest.raises(ConfigError, match="no generator network"):
        worked_example(make(None, discriminator), "the", mask=(1,), seed=0)
    both = make(generator, discriminator, length=5)
    for mask in ((), (0,), (3,), (1, -1)):
        with pytest.raises(ConfigError, match="from 1 to 2"):
            worked_example(both, "the chef", mask=mask, seed=0)
    with pytest.raises(DataError, match="has 4 tokens, expected from 1 to 3"):
        worked_example(both, "the chef the chef", mask=(1,), seed=0)
    with pytest.raises(DataError, match="has 0 tokens"):
        worked_example(both, " ", mask=(1,), seed=0)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("worked")
    write_store(folder / "data")
    pretrain(folder / "data", out=folder / "run", preset=small_config(steps=3))
    return folder / "run"


def test_the_verb_on_a_real_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def printed(*flags: str) -> str:
        assert main(["figure", "2", str(run), *flags]) == 0
        return capsys.readouterr().out

    words = ("--text", "the value of a name", "--mask", "2", "5")
    first = printed(*words)
    assert "[MASK]" in first and "verdict" in first and printed(*words) == first
    assert printed(*words, "--seed", "2") != first
    assert "[MASK]" in printed()  # the paper's sentence
    for wrong in (["--mask", "a"], ["--mask", "9"], [str(run)], ["--out", "f.svg"]):
        assert main(["figure", "2", str(run), *wrong]) == ConfigError.exit_code, wrong
