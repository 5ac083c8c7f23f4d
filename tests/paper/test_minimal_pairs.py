"""Minimal pairs: scores against a loop of single forward passes, ties, order, length, and files that are wrong."""

import dataclasses
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from electra_trainer.cli.main import main
from electra_trainer.data.batches import encode_rows
from electra_trainer.errors import ConfigError, DataError, ElectraError, MissingInputError
from electra_trainer.model.networks import TokenPredictor
from electra_trainer.paper import likelihoods
from electra_trainer.paper.minimal_pairs import minimal_pairs, read_pairs
from electra_trainer.pretrained.pretrained import Pretrained, export_run, load
from electra_trainer.settings.methods import Learned

Loud = Callable[[str], Pretrained]
PAIRS = [
    ("the names are bound .", "the names is bound .", "agreement_1"),
    ("a class has attributes .", "a class have attributes .", "agreement_1"),
    ("the value is assigned to a name .", "the value are assigned to a name", "agreement_2"),
    ("which object is it that was called ?", "which object is that it called ?", "islands"),
    ("an exception stops the loop .", "an exception stops .", "islands"),
]


def write(folder: Path, pairs: Sequence[tuple[str, str, str]] = PAIRS) -> Path:
    folder.mkdir(exist_ok=True)
    files: dict[str, list[str]] = {}
    for good, bad, name in pairs:
        row = {"sentence_good": good, "sentence_bad": bad, "UID": name, "field": "syntax"}
        files.setdefault(name, []).append(json.dumps(row))
    for name, lines in files.items():
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@torch.no_grad()
def slow_terms(pretrained: Pretrained, text: str) -> dict[str, list[float]]:
    """Each term by its own forward pass of one row, in plain probabilities."""
    special = pretrained.specials
    ids = [special.cls, *pretrained.tokenizer.encode(text, add_special_tokens=False).ids, special.sep]
    batch = encode_rows([ids])

    def masked(network: TokenPredictor, place: int, temperature: float = 1.0) -> float:
        hidden = batch.ids_BT.clone()
        hidden[0, place] = special.mask
        logits_V = network(hidden, batch, torch.tensor([place]))[0].double() / temperature
        return float(logits_V.softmax(-1)[ids[place]])

    terms: dict[str, list[float]] = {}
    for place in range(1, len(ids) - 1):
        if pretrained.encoder is not None:
            terms.setdefault("encoder", []).append(masked(pretrained.encoder, place))
        if pretrained.discriminator is not None and pretrained.generator is not None:
            assert pretrained.config is not None and isinstance(pretrained.config.generator, Learned)
            d = float(1 - pretrained.discriminator(batch.ids_BT, batch)[0, place].double().sigmoid())
            p = masked(pretrained.generator, place, pretrained.config.generator.temperature)
            a = (32 - 4) / 4  # 15 % of a row of 32
            terms.setdefault("discriminator", []).append(d)
            terms.setdefault("appendix-g", []).append(d * p / (a * (1 - d) + p))
        if pretrained.generator is not None and pretrained.generator is not pretrained.encoder:
            terms.setdefault("generator", []).append(masked(pretrained.generator, place))
    if "generator" not in terms:
        terms["pseudo-likelihood"] = terms.pop("encoder")
    return terms


@pytest.mark.parametrize("kind", ["electra", "mlm", "replace-mlm", "warm"])
def test_equals_a_loop_of_single_passes(kind: str, loud: Loud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every score of every sentence; `warm` samples at temperature 2, which Appendix G's p_G is to know."""
    pretrained = loud("electra" if kind == "warm" else kind)
    if kind == "warm":
        assert pretrained.config is not None
        warm = dataclasses.replace(pretrained.config, generator=Learned(width=0.5, temperature=2.0))
        pretrained = dataclasses.replace(pretrained, config=warm)
    monkeypatch.setattr(likelihoods, "TOKENS_TOGETHER", 50)  # several passes
    found = minimal_pairs(pretrained, write(tmp_path / "pairs"))
    slow = [[slow_terms(pretrained, text) for text in pair[:2]] for pair in PAIRS]
    assert set(found.scores) == set(slow[0][0])
    for name, score in found.scores.items():
        totals = np.log([[np.prod(terms[name]) for terms in pair] for pair in slow])
        assert score.margin_P == pytest.approx(totals[:, 0] - totals[:, 1], abs=2e-4), name
        right = totals[:, 0] > totals[:, 1]
        expected = {"agreement_1": right[:2].mean(), "agreement_2": right[2].mean(), "islands": right[3:].mean()}
        assert score.paradigms == pytest.approx(expected)
        assert score.mean == pytest.approx(np.mean(list(expected.values())))
        variance = [p * (1 - p) / n for p, n in zip(expected.values(), (2, 1, 2), strict=True)]
        assert score.standard_error == pytest.approx(np.sqrt(sum(variance)) / 3)
    assert found.pairs == 5


class _Constant(nn.Module):
    """A head that says the same of every token."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, hidden: Tensor) -> Tensor:
        return torch.full(hidden.shape[:-1], -1.3) if self.width == 0 else torch.zeros(*hidden.shape[:-1], self.width)


def test_ties_are_wrong(loud: Loud, tmp_path: Path) -> None:
    """Networks that say the same of everything score 0 where both sentences have as many tokens."""
    pretrained = loud("electra")
    assert pretrained.discriminator is not None and pretrained.generator is not None
    pretrained.discriminator.discriminator_predictions = _Constant(0)  # type: ignore[assignment]
    pretrained.generator.generator_predictions = _Constant(16)  # type: ignore[assignment]
    pretrained.generator.generator_lm_head.bias.data.zero_()
    texts = ("the names are bound .", "a class has attributes .", "the value is assigned to a name .")
    same = [(text, " ".join(reversed(text.split())), "reversed") for text in texts]
    found = minimal_pairs(pretrained, write(tmp_path / "pairs", same))
    for score in found.scores.values():
        assert score.mean == 0 and score.ties == len(same) and not score.margin_P.any()


def test_the_same_tokens_tie_in_any_batch(loud: Loud, tmp_path: Path) -> None:
    """BLiMP has pairs of two equal sentences; more become equal in lower case."""
    same = ("The names are bound .", "the names are bound .", "equal")
    found = minimal_pairs(loud("electra"), write(tmp_path / "pairs", [*PAIRS, same]))
    for score in found.scores.values():
        assert score.paradigms["equal"] == 0 and score.ties >= 1


def test_order_of_the_pairs_does_not_matter(loud: Loud, tmp_path: Path) -> None:
    words = ("if", "else", "for a")
    pairs = [(f"{good} {word}", f"{bad} {word}", "one") for good, bad, _ in PAIRS for word in words]
    first = minimal_pairs(loud("electra"), write(tmp_path / "first", pairs))
    order = list(range(len(pairs)))
    random.Random(1).shuffle(order)
    second = minimal_pairs(loud("electra"), write(tmp_path / "second", [pairs[index] for index in order]))
    for name, score in first.scores.items():
        assert np.array_equal(score.margin_P[order], second.scores[name].margin_P)  # to the last bit


def test_limit_and_chosen_scores(loud: Loud, tmp_path: Path) -> None:
    pretrained, folder = loud("electra"), write(tmp_path / "pairs")
    every = minimal_pairs(pretrained, folder)
    few = minimal_pairs(pretrained, folder, limit=1, scores="discriminator")
    assert few.pairs == 3 and list(few.scores) == ["discriminator"] and few.limit == 1
    margin = every.scores["discriminator"].margin_P
    assert few.scores["discriminator"].margin_P == pytest.approx([margin[0], margin[2], margin[3]], abs=1e-4)
    assert minimal_pairs(pretrained, folder / "islands.jsonl").pairs == 2
    with pytest.raises(ConfigError, match="It has: discriminator, appendix-g, generator"):
        minimal_pairs(pretrained, folder, scores=["pseudo-likelihood"])
    with pytest.raises(ConfigError, match="--limit = 0"):
        minimal_pairs(pretrained, folder, limit=0)


def test_what_each_kind_of_run_can_give(trained: Path, tmp_path: Path) -> None:
    folder = write(tmp_path / "pairs")
    assert list(minimal_pairs(load(trained / "unigram"), folder).scores) == ["discriminator"]
    export_run(trained / "electra", tmp_path / "export")
    found = minimal_pairs(load(tmp_path / "export"), folder)
    assert list(found.scores) == ["discriminator", "generator"] and "--p-mask" in found.notes[0]
    found = minimal_pairs(load(tmp_path / "export"), folder, p_mask=4 / 32)
    run = minimal_pairs(load(trained / "electra"), folder)
    assert np.array_equal(found.scores["appendix-g"].margin_P, run.scores["appendix-g"].margin_P) and not run.notes
    for name, kept in (("mlm", "pseudo-likelihood"), ("replace-mlm", "encoder")):
        export_run(trained / name, tmp_path / name)
        assert next(iter(minimal_pairs(load(tmp_path / name), folder).scores)) == kept
    alone = minimal_pairs(load(tmp_path / "replace-mlm" / "encoder"), folder)
    assert list(alone.scores) == ["pseudo-likelihood"]


def test_sentences_longer_than_a_row(loud: Loud, tmp_path: Path) -> None:
    """Read up to the positions that the networks have; beyond, an error says where."""
    pretrained = loud("mlm")
    long = ("the name " * 40, "the a " * 40, "long")
    assert pretrained.length == 32
    assert minimal_pairs(pretrained, write(tmp_path / "pairs", [*PAIRS, long])).pairs == 6
    too_long = ("the name " * 400, "the a", "long")
    with pytest.raises(DataError, match=r"long.jsonl:2: a sentence has \d+ tokens, expected from 1 to 510"):
        minimal_pairs(pretrained, write(tmp_path / "pairs", [long, too_long]))


GOOD = b'{"sentence_good": "a", "sentence_bad": "b"}\n'
WRONG: dict[str, tuple[bytes, str]] = {
    "not JSON": (GOOD + b"\n{oops\n", r"x.jsonl:3: is not valid JSON"),
    "text": (b"just a text\n", r"x.jsonl:1: is not valid JSON"),
    "list": (GOOD + b"[1]\n", r"x.jsonl:2: is \[1\], expected a JSON object"),
    "key": (GOOD + b'{"sentence_good": "a", "sentence_bat": "b"}', r"x.jsonl:2: .*not a pair. Expected"),
    "number": (b'{"sentence_good": "a", "sentence_bad": 3}', r"x.jsonl:1: .*not a pair. Expected"),
    "UTF-8": (GOOD + b'{"sentence_good": "\xff"}', r"x.jsonl:2: is not UTF-8"),
    "empty": (b"\n \n", r"holds no pairs"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files_are_refused_with_their_line(name: str, tmp_path: Path) -> None:
    content, message = WRONG[name]
    (tmp_path / "x.jsonl").write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_pairs(tmp_path)


def test_files_may_hold_no_more_than_sentences(tmp_path: Path) -> None:
    separator = '{"sentence_good": "a\u2028c", "sentence_bad": "b"}\n'  # is no line
    (tmp_path / "mine.jsonl").write_text(separator)
    (pair,) = read_pairs(tmp_path)
    assert (pair.paradigm, pair.good) == ("mine", "a\u2028c")


def test_missing_and_empty(loud: Loud, tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="nowhere: no such folder"):
        read_pairs(tmp_path / "nowhere")
    with pytest.raises(DataError, match="holds no pairs"):
        read_pairs(tmp_path)
    (tmp_path / "x.jsonl").mkdir()
    with pytest.raises(ElectraError, match="is a folder"):
        read_pairs(tmp_path)
    (tmp_path / "x.jsonl").rmdir()
    with pytest.raises(DataError, match=r"empty.jsonl:1: a sentence has 0 tokens"):
        minimal_pairs(loud("mlm"), write(tmp_path / "p", [(" ", "a", "empty")]))


def test_the_command(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, run = write(tmp_path / "pairs"), str(trained / "electra")
    assert main(["minimal-pairs", run, str(folder), "--json", "--limit", "1"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert set(table["scores"]) == {"discriminator", "appendix-g", "generator"} == set(table["ties"])
    assert set(table["scores"]["generator"]["paradigms"]) == {"agreement_1", "agreement_2", "islands"}
    assert table["pairs"] == 3 and table["limit"] == 1
    assert main(["minimal-pairs", run, str(folder), "--scores", "generator"]) == 0
    out = capsys.readouterr().out
    assert "discriminator" not in out and "5 pairs of 3 paradigms" in out and "mean over paradigms" in out
    assert main(["minimal-pairs", run, str(tmp_path / "no")]) == 66
    assert main(["minimal-pairs", run, str(folder), "--scores", "generater"]) == 78
    assert "Did you mean 'generator'?" in capsys.readouterr().err
    assert main(["minimal_pairs", run, str(folder)]) == 78
    assert "Did you mean 'minimal-pairs'?" in capsys.readouterr().err
