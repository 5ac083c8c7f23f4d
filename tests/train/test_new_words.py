"""Words added to a vocabulary: old words keep ids and weights, new ones begin as the mean of their pieces; export and replay know them."""

from pathlib import Path

import pytest
import safetensors.torch
import torch
from tests.command import Electra
from tests.prepared import small_config, write_store, write_text
from tokenizers import Tokenizer

from electra_trainer import api
from electra_trainer.data.tokenizer import SPECIAL_TOKENS, as_plain_text, load_tokenizer, save_tokenizer, word_piece
from electra_trainer.data.vocabulary import add_words, read_words
from electra_trainer.errors import ConfigError, DataError
from electra_trainer.inspection.replay import replay
from electra_trainer.pretrained.pretrained import export_run
from electra_trainer.pretrained.source import InitFrom
from electra_trainer.runs.run_folder import RunFolder
from electra_trainer.runs.verified import read
from electra_trainer.settings.config import Config, changed
from electra_trainer.train.loop import pretrain

TABLES = ["discriminator.electra.embeddings.word_embeddings.weight", "generator.generator_lm_head.bias"]


def small(*words: str, cased: bool = False) -> Tokenizer:
    vocab = [*SPECIAL_TOKENS, "[unused0]", "[unused7]", "co", "##vid", "##co", "a", *words]
    return word_piece({word: number for number, word in enumerate(vocab)}, cased=cased, keep_accents=None)


def test_words_take_the_places_of_unused_ones_and_then_the_end(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("Covid\n\n##Itis\r\nçağ\nx-ray\ncovid\nco\n😀\n", encoding="utf-8")
    found, line = add_words(small(), read_words(tmp_path / "words.txt"))
    assert [found.token_to_id(word) for word in ("covid", "##itis", "cag", "😀")] == [5, 6, 11, 12]
    assert line.startswith("4 words added: 2 in place of [unusedN], 2 at the end; 2 are in the vocabulary already")
    assert line.endswith("the tokenizer splits 1: 'x-ray'")
    assert found.token_to_id("[unused0]") is None
    assert found.encode("COVID coitis ÇAĞ 😀 a", add_special_tokens=False).ids == [5, 7, 6, 11, 12, 10]
    assert add_words(small(cased=True), ["Covid"])[0].token_to_id("Covid") == 5


def test_words_that_cannot_be_added(tmp_path: Path) -> None:
    (tmp_path / "none.txt").write_text("\n \n")
    with pytest.raises(DataError, match="holds no words"):
        read_words(tmp_path / "none.txt")
    with pytest.raises(
        DataError, match=r"no word can be added: 1 are in the vocabulary already, the tokenizer splits 1: 'x ray'\."
    ):
        add_words(small(), ["co", "x ray"])
    apart = small()
    apart.add_tokens(["😀"])
    assert "0 at the end" in add_words(apart, ["b", "c"])[1]
    with pytest.raises(ConfigError, match="at most 2 new words"):
        add_words(apart, ["b", "c", "d"])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose vocabulary has two [unusedN] entries at the end, and its export."""
    root = tmp_path_factory.mktemp("words")
    store = write_store(root / "first", vocab_size=400)
    vocab = load_tokenizer(store / "tokenizer").get_vocab()
    vocab |= {f"[unused{n}]": len(vocab) + n for n in range(2)}
    save_tokenizer(word_piece(vocab, cased=False, keep_accents=None), root / "tokenizer", max_length=32)
    api.prepare(write_text(root / "text.txt", documents=6), tokenizer=root / "tokenizer", out=root / "data", seq_len=32)
    pretrain(settings(), root / "data", out=root / "run", device="cpu", quiet=True)
    export_run(root / "run", root / "export")
    return root


def settings(**schedule: int) -> Config:
    made = small_config(steps=3, layers=1)
    return changed(made, schedule=schedule) if schedule else made


def test_from_words_to_an_export(model: Path, tmp_path: Path, electra: Electra) -> None:
    from transformers import AutoTokenizer, ElectraForPreTraining

    (tmp_path / "words.txt").write_text("Notwithstanding\nhyperparameters\nüberfit\nthe\n", encoding="utf-8")
    out = electra("tokenizer", model / "export", "--add-words", tmp_path / "words.txt", "--out", tmp_path / "words")[1]
    assert "3 words added: 2 in place of [unusedN], 1 at the end; 1 are in the vocabulary already" in out
    sentences = [f"Notwithstanding the {n} hyperparameters we überfit." for n in range(60)]
    (tmp_path / "new.txt").write_text("\n\n".join(sentences), encoding="utf-8")
    data = [tmp_path / "new.txt", "--tokenizer", tmp_path / "words", "--seq-len", "32", "--out", tmp_path / "data"]
    assert electra("prepare", *data, "--valid-fraction", "0.1")[0] == 0
    init = InitFrom(name=str(model / "export"))
    run = pretrain(settings(), tmp_path / "data", out=tmp_path / "run", init=init, device="cpu", quiet=True)
    assert "3 new words begin as the mean of their pieces" in (run / "log.txt").read_text()

    before = read(max((model / "run" / "checkpoints").glob("step-*"))).weights
    after = read(run / "checkpoints" / "step-00000000").weights
    old, new = (as_plain_text(load_tokenizer(folder)) for folder in (model / "tokenizer", tmp_path / "words"))
    same = [number for word, number in old.get_vocab().items() if new.token_to_id(word) == number]
    assert len(same) == old.get_vocab_size() - 2 and new.get_vocab_size() == old.get_vocab_size() + 1
    for name in TABLES:
        assert torch.equal(after[name][same], before[name][same])
        for word in ("notwithstanding", "hyperparameters", "uberfit"):
            pieces = old.encode(word, add_special_tokens=False).ids
            assert len(pieces) > 1 and torch.allclose(after[name][new.token_to_id(word)], before[name][pieces].mean(0))
    others = before.keys() - {name for name in before if "word_embeddings" in name or "lm_head" in name}
    assert all(torch.equal(before[name], after[name]) for name in others)

    assert replay(RunFolder(run).path, step=1).rows
    export_run(run, tmp_path / "out")
    theirs = AutoTokenizer.from_pretrained(tmp_path / "out" / "discriminator")
    text = "Notwithstanding: hyperparameters überfit the notwithstandings"
    assert theirs(text, add_special_tokens=False)["input_ids"] == new.encode(text, add_special_tokens=False).ids
    loaded = ElectraForPreTraining.from_pretrained(tmp_path / "out" / "discriminator")
    assert loaded.get_input_embeddings().num_embeddings == new.get_vocab_size() == len(theirs)


def test_rows_that_no_word_has_are_dropped(model: Path, tmp_path: Path) -> None:
    """Some models have a table that is filled up to a round number."""
    folder = tmp_path / "padded"
    folder.mkdir()
    for path in (model / "export" / "discriminator").iterdir():
        if path.is_file():
            (folder / path.name).write_bytes(path.read_bytes().replace(b'"vocab_size": 402', b'"vocab_size": 448'))
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    name = "electra.embeddings.word_embeddings.weight"
    tensors[name] = torch.cat([tensors[name], torch.ones(46, tensors[name].shape[1])])
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    init = InitFrom(name=str(folder))
    run = pretrain(settings(), model / "data", out=tmp_path / "run", init=init, device="cpu", quiet=True)
    assert torch.equal(read(run / "checkpoints" / "step-00000000").weights[TABLES[0]], tensors[name][:402])


def test_a_store_that_reads_text_otherwise_is_refused(model: Path, tmp_path: Path) -> None:
    """The words and their ids are equal: only capitals are read otherwise."""
    cased = word_piece(load_tokenizer(model / "tokenizer").get_vocab(), cased=True, keep_accents=None)
    api.prepare(model / "text.txt", tokenizer=cased, out=tmp_path / "data", seq_len=32)
    with pytest.raises(ConfigError, match=r"reads text otherwise \(case, accents"):
        pretrain(
            settings(), tmp_path / "data", out=tmp_path / "run", init=InitFrom(name=str(model / "export")), device="cpu"
        )
