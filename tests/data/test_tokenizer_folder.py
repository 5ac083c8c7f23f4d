"""Tokenizers of every layout give the ids of transformers 4 and 5, whichever class reads them; what cannot be read is refused."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from electra_trainer.data.tokenizer import (
    SPECIAL_TOKENS,
    as_plain_text,
    load_tokenizer,
    save_tokenizer,
    specials_of,
    word_piece,
)
from electra_trainer.errors import DataError

TEXTS = [
    "Die Größe der ÄPFEL möchte ich über Straßen, nicht ÜBER",
    "L'élève a reçu Noël À Ôter; ÉCOLE école ecole",
    "İstanbul'da ılık ÇAĞRI Iğdır şiir",
    "हिन्दी में नमस्ते दुनिया",
    "我爱北京天安门abc中文 möchte",
    "I like 😀 tea 👍🏽 Corona Virus, corona virus; covid-19 COVID",
    "[E1] Äpfel [/E1] und [E1]Noël[/E1] [unused0]",
    "y" * 99 + " " + "y" * 150,
    "a\u200bb\u00a0c  d\u00ad-e",
]
WORDS = ["möchte", "mochte", "Noël", "Noel", "noel", "école", "ecole", "北京", "नमस्ते", "corona", "ÜBER", "über", "uber"]
LETTERS = sorted(
    {one for text in TEXTS for form in (text, text.lower(), "aeiouncgsAEIOUNCGS") for one in form} - {*" \u00a0😀"}
)
VOCAB = [*SPECIAL_TOKENS, "[unused0]", "[unused1]", "[E1]", *WORDS, *LETTERS, *(f"##{letter}" for letter in LETTERS)]
OTHER_NAMES = dict(zip(SPECIAL_TOKENS, ("<pad>", "<unk>", "<s>", "</s>", "<mask>"), strict=True))
END = len(VOCAB)


def vocab_txt(words: list[str] = VOCAB) -> str:
    return "".join(f"{word}\n" for word in words)


def made(*, cased: bool, added: dict[str, bool] | None = None, **options: Any) -> Tokenizer:
    """BERT's tokenizer; `added`: words next to the vocabulary, and whether they are special."""
    tokenizer = word_piece(
        {word: number for number, word in enumerate(VOCAB)}, cased=cased, keep_accents=None, **options
    )
    tokenizer.add_tokens(
        [AddedToken(word, special=special, normalized=not special) for word, special in (added or {}).items()]
    )
    return tokenizer


def tokenizer_json(**options: Any) -> str:
    return str(made(**options).to_str())


def decoder(**words: int) -> dict[str, Any]:
    flags = {"lstrip": False, "rstrip": False, "single_word": False}
    five = {
        str(n): {"content": word, "special": True, "normalized": False, **flags}
        for n, word in enumerate(SPECIAL_TOKENS)
    }
    return five | {
        str(n): {"content": word, "special": False, "normalized": True, **flags} for word, n in words.items()
    }


def byte_level() -> Tokenizer:
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer = Tokenizer(
        models.BPE({word: n for n, word in enumerate([*SPECIAL_TOKENS, *sorted(alphabet)])}, [], unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=True), decoders.ByteLevel()
    return tokenizer


FAST = ["AutoTokenizer", "ElectraTokenizerFast", "BertTokenizerFast"]
EVERY = [*FAST, "ElectraTokenizer", "BertTokenizer"]
AS_IT_IS = ["AutoTokenizer", "PreTrainedTokenizerFast"]
LAYOUTS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "vocab": (EVERY, {"vocab.txt": vocab_txt()}),
    "vocab, cased": (EVERY, {"vocab.txt": vocab_txt(), "tokenizer_config.json": {"do_lower_case": False, "never_split": None}}),
    "vocab, accents": (EVERY, {"vocab.txt": vocab_txt(), "tokenizer_config.json": {"strip_accents": False}}),
    "vocab, only accents": (EVERY, {"vocab.txt": vocab_txt(), "tokenizer_config.json": {"do_lower_case": False, "strip_accents": True}}),
    "vocab, Chinese words": (EVERY, {"vocab.txt": vocab_txt(), "tokenizer_config.json": {"tokenize_chinese_chars": False, "tokenizer_class": "ElectraTokenizer"}}),
    "vocab, added_tokens.json": (EVERY, {"vocab.txt": vocab_txt(), "added_tokens.json": {"😀": END, "covid": END + 1}}),
    "vocab, added_tokens_decoder": (EVERY, {"vocab.txt": vocab_txt(), "added_tokens.json": {"ignored": 7}, "tokenizer_config.json": {"do_lower_case": False, "added_tokens_decoder": decoder(**{"😀": END, "corona virus": END + 1, "[E1]": 7})}}),
    "vocab, other names": (EVERY, {"vocab.txt": vocab_txt([OTHER_NAMES.get(word, word) for word in VOCAB]), "tokenizer_config.json": {f"{ours.strip('[]').lower()}_token": theirs for ours, theirs in OTHER_NAMES.items()}}),
    "vocab, other names in the map": (EVERY, {"vocab.txt": vocab_txt([OTHER_NAMES.get(word, word) for word in VOCAB]), "special_tokens_map.json": {f"{ours.strip('[]').lower()}_token": {"content": theirs, "lstrip": False, "rstrip": False, "single_word": False, "normalized": False} for ours, theirs in OTHER_NAMES.items()}}),
    "vocab, mask added": (EVERY, {"vocab.txt": vocab_txt([*VOCAB[:4], "[unused9]", *VOCAB[5:]]), "added_tokens.json": {"covid": END, "[MASK]": END + 1}}),
    "json": (AS_IT_IS, {"tokenizer.json": tokenizer_json(cased=True), "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": True}}),
    "json without class": (FAST, {"tokenizer.json": tokenizer_json(cased=True)}),
    "json, overridden": (FAST, {"tokenizer.json": tokenizer_json(cased=True), "tokenizer_config.json": {"tokenizer_class": "ElectraTokenizer"}}),
    "json, overridden to cased": (FAST, {"tokenizer.json": tokenizer_json(cased=False), "tokenizer_config.json": {"tokenizer_class": "BertTokenizerFast", "do_lower_case": False}}),
    "json, overridden accents": (FAST, {"tokenizer.json": tokenizer_json(cased=False), "tokenizer_config.json": {"strip_accents": False, "tokenize_chinese_chars": False}}),
    "json, added": (FAST, {"tokenizer.json": tokenizer_json(cased=False, added={"😀": False, "[/E1]": True}), "tokenizer_config.json": {"do_lower_case": False}}),
    "json, added elsewhere": (FAST, {"tokenizer.json": tokenizer_json(cased=False), "added_tokens.json": {"covid": END}}),
}  # fmt: skip
SAVED: dict[str, tuple[list[str], Tokenizer]] = {
    "saved uncased": ([*EVERY, "PreTrainedTokenizerFast"], made(cased=False)),
    "saved cased": ([*EVERY, "PreTrainedTokenizerFast"], made(cased=True)),
    "saved accents": ([*EVERY, "PreTrainedTokenizerFast"], word_piece({word: n for n, word in enumerate(VOCAB)}, cased=False, keep_accents=True)),
    "saved Chinese words": ([*EVERY, "PreTrainedTokenizerFast"], made(cased=True, split_chinese=False)),
    "saved added": ([*EVERY, "PreTrainedTokenizerFast"], made(cased=True, added={"😀": False, "covid": False})),
    "saved BPE": (AS_IT_IS, byte_level()),
}  # fmt: skip
ASK = """
import json, sys
sys.modules["sklearn"] = None  # transformers works without it, and importing it takes a second
import transformers
found = {}
for folder, names, texts in json.load(sys.stdin):
    for name in names:
        try:
            tokenizer = getattr(transformers, name).from_pretrained(folder)
            found[f"{folder} by {name}"] = tokenizer(texts, add_special_tokens=False)["input_ids"]
            tokenizer.save_pretrained(f"{folder}/{name}")
        except Exception as error:
            found[f"{folder} by {name}"] = repr(error)
json.dump([transformers.__version__, found], sys.stdout)
"""
OLD = Path(sys.prefix) / "transformers-4"


def write(folder: Path, files: dict[str, Any]) -> Path:
    folder.mkdir()
    for name, content in {"config.json": {"model_type": "electra"}, **files}.items():
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return folder


def ids_of(folder: Path) -> list[list[int]]:
    return [one.ids for one in as_plain_text(load_tokenizer(folder)).encode_batch(TEXTS, add_special_tokens=False)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, list[str]]:
    root = tmp_path_factory.mktemp("layouts")
    found = {write(root / name.replace(" ", "_"), files): names for name, (names, files) in LAYOUTS.items()}
    for name, (names, tokenizer) in SAVED.items():
        folder = write(root / name.replace(" ", "_"), {})
        save_tokenizer(tokenizer, folder, max_length=64)
        found[folder] = names
    return found


@pytest.mark.parametrize(("version", "place"), [("5.", None), ("4.57", OLD)])
def test_every_layout_by_every_class(folders: dict[Path, list[str]], version: str, place: Path | None) -> None:
    """A tokenizer that a class saves again gives the same ids here, too."""
    if place is not None and not place.is_dir():
        pytest.skip(f"transformers {version} is not installed beside the environment (make test does it)")
    done = subprocess.run(
        [sys.executable, "-c", ASK], input=json.dumps([(str(folder), names, TEXTS) for folder, names in folders.items()]),
        env={**os.environ, "HF_HUB_OFFLINE": "1", **({"PYTHONPATH": str(place)} if place else {})},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found, theirs = json.loads(done.stdout)
    if not found.startswith(version):
        pytest.skip(f"transformers {found} is installed")
    expected = {}
    for folder, names in folders.items():
        ids = ids_of(folder)
        for name in names:
            assert ids_of(folder / name) == ids, f"{folder.name}, saved by {name}"
        expected |= {f"{folder} by {name}": ids for name in names}
    odd = {
        f"{Path(case).name}: {text!r}": (mine, other)
        for case, ids in expected.items()
        for text, mine, other in zip(
            TEXTS, ids, theirs[case] if isinstance(theirs[case], list) else [theirs[case]] * len(TEXTS), strict=True
        )
        if mine != other
    }
    assert not odd, "\n".join(f"{case}\n  {pair[0]}\n  {pair[1]}" for case, pair in odd.items())


def config(**fields: Any) -> dict[str, Any]:
    return {"vocab.txt": vocab_txt(), "tokenizer_config.json": fields}


ELECTRA = {"tokenizer_class": "ElectraTokenizerFast"}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "class": (config(tokenizer_class="BertJapaneseTokenizer"), r"the class 'BertJapaneseTokenizer' is not followed for a vocab\.txt.*tokenizer\.json first"),
    "class of the model": ({"vocab.txt": vocab_txt(), "config.json": {"model_type": "roberta"}}, "the class 'roberta' is not followed"),
    "wrong type": (config(do_lower_case="false"), "do_lower_case = 'false', expected true or false"),
    "no mask": (config(mask_token=None), "five different"),
    "one for two": (config(cls_token="[SEP]"), "five different"),
    "missing name": (config(cls_token="<s>"), r"calls '<s>' what \[CLS\] is"),
    "both names": (config(cls_token="[E1]"), r"calls '\[E1\]' what \[CLS\] is"),
    "not JSON": ({"vocab.txt": vocab_txt(), "tokenizer_config.json": "{"}, r"tokenizer_config\.json: is not valid JSON"),
    "gap": ({"vocab.txt": vocab_txt(), "added_tokens.json": {"covid": END + 5}}, rf"added_tokens\.json gives 'covid' another id than transformers' fast tokenizer, {END}\."),
    "no id": ({"vocab.txt": vocab_txt(), "added_tokens.json": {"covid": "x"}}, r"added_tokens\.json: 'x': "),
    "decoder": (config(added_tokens_decoder={"x": {"content": "covid"}}), r"added_tokens\.json: 'x': "),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_followed_is_refused_by_name(tmp_path: Path, case: str) -> None:
    files, message = REFUSED[case]
    with pytest.raises(DataError, match=message):
        load_tokenizer(write(tmp_path / "folder", files))


REMEDIES: dict[str, dict[str, Any]] = {
    "missing name": config(cls_token="[CLS]"),
    "gap": {"added_tokens.json": {"covid": END}},
}


@pytest.mark.parametrize("case", REMEDIES)
def test_each_remedy_works(tmp_path: Path, case: str) -> None:
    assert ids_of(write(tmp_path / "folder", {**REFUSED[case][0], **REMEDIES[case]}))


def test_a_json_without_a_class_is_read_as_it_is_unless_a_field_is_for_bert(tmp_path: Path) -> None:
    files = {"tokenizer.json": tokenizer_json(cased=False), "config.json": {}}
    as_it_is = ids_of(write(tmp_path / "plain", files))
    assert as_it_is == ids_of(write(tmp_path / "same", {**files, "tokenizer_config.json": {"do_lower_case": True}}))
    assert as_it_is != ids_of(write(tmp_path / "cased", {**files, "tokenizer_config.json": {"do_lower_case": False}}))


def test_a_saved_tokenizer_leaves_no_file_of_another(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "folder", {"added_tokens.json": {"covid": 7}, "special_tokens_map.json": {"cls_token": "<s>"}}
    )
    save_tokenizer(made(cased=True), folder, max_length=64)
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt"]
    save_tokenizer(byte_level(), folder, max_length=64)
    assert not (folder / "vocab.txt").exists()


def test_special_tokens_have_one_name_each_here(tmp_path: Path) -> None:
    """Also those of a Unigram model; the ids stay."""
    pieces = [("<pad>", 0.0), ("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0), ("<mask>", 0.0), ("▁tea", -1.0)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=1, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    names = {f"{ours.strip('[]').lower()}_token": theirs for ours, theirs in OTHER_NAMES.items()}
    files = {
        "tokenizer.json": tokenizer.to_str(),
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", **names},
    }
    found = load_tokenizer(write(tmp_path / "folder", files))
    assert [found.token_to_id(token) for token in SPECIAL_TOKENS] == [0, 1, 2, 3, 4]
    assert found.encode("tea tea x", add_special_tokens=False).ids[:2] == [5, 5]


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("{} ", "Did you mean '[PAD] '?"),
        ("{}\t-3.5", "without spaces, tabs or scores around them"),
        ("small", "other names belong into tokenizer_config.json, as pad_token and so on."),
        ("none", "Expected the tokens [PAD] [UNK] [CLS] [SEP] [MASK], "),
    ],
)
def test_the_cause_of_missing_special_tokens(tmp_path: Path, form: str, words: str) -> None:
    """A vocabulary that has them in another form is distinguished from one without them."""
    forms = {"small": str.lower, "none": lambda token: token[1:-1].lower()}  # fmt: skip
    tokens = [*map(forms.get(form, form.format), SPECIAL_TOKENS), "a", "padding", "##pad"]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens) + "\n")
    with pytest.raises(DataError) as refused:
        load_tokenizer(tmp_path / "vocab.txt")
    said = str(refused.value)
    assert "vocab.txt: has no [PAD], [UNK], [CLS], [SEP], [MASK]. Expected" in said and words in said
    if form == "small":
        names = {f"{token[1:-1].lower()}_token": token.lower() for token in SPECIAL_TOKENS}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(names))
        assert specials_of(load_tokenizer(tmp_path / "vocab.txt")).mask == 4


@pytest.mark.parametrize("part", ["single", "pair"])
def test_a_post_processor_that_panics(tmp_path: Path, tokenizer: Any, part: str) -> None:
    """Rust ends such a call in a panic, which is not an Exception: at the first text, long after the file was read."""
    save_tokenizer(tokenizer, tmp_path, max_length=8)
    path = tmp_path / "tokenizer.json"
    parts = json.loads(path.read_text(encoding="utf-8"))
    parts["post_processor"][part][0] = {"SpecialToken": {"id": "[GONE]", "type_id": 0}}
    path.write_text(json.dumps(parts), encoding="utf-8")
    with pytest.raises(DataError, match=r"tokenizer.json: has a post-processor that fails \("):
        load_tokenizer(tmp_path)
