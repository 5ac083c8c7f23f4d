"""Read the files of a tokenizer's folder as transformers 4 and 5 read them: every field is followed, or refused by
name.

BERT's classes (BertTokenizer, ElectraTokenizer, DistilBertTokenizer, their Fast forms, and an ELECTRA or BERT without a
`tokenizer_class`) take the vocabulary and set lower case, accents and Chinese characters by tokenizer_config.json,
whatever tokenizer.json says. PreTrainedTokenizerFast takes tokenizer.json as it is. Both then add words, and name the
special tokens. A field is refused where the versions give different ids for it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from electra_trainer.errors import DataError
from electra_trainer.files.reading import json_object, read_file, short

NAMES = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
"""The special tokens here, by their fields in transformers."""
MAX_WORD_CHARS = 100
"""A longer word becomes [UNK] in transformers' BertTokenizer (200 in Google's code)."""
CONFIG, SPECIALS_MAP, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"

_BERT = [f"{kind}Tokenizer{fast}" for kind in ("Bert", "Electra", "DistilBert") for fast in ("", "Fast")]
_AS_IT_IS = ["PreTrainedTokenizerFast", "TokenizersBackend"]
_BERT_FIELDS = ("do_lower_case", "strip_accents", "tokenize_chinese_chars")
_LISTS = ("additional_special_tokens", "extra_special_tokens")
_ONLY: dict[str, Any] = {
    **dict.fromkeys(("never_split", "auto_map", "init_inputs"), None),
    **dict.fromkeys(("split_special_tokens", "from_slow"), False),
    **dict.fromkeys(("truncation_side", "padding_side"), "right"),
    "do_basic_tokenize": True,
    "wordpieces_prefix": "##",
    "word_tokenizer_type": "basic",
    "subword_tokenizer_type": "wordpiece",
    "fast_tokenizer_files": ["tokenizer.json"],
}
"""Fields that only some classes follow, and the value for which all classes agree; they may be empty, too."""
_TO_KEEP_JSON = (
    'To read tokenizer.json as it is, write "tokenizer_class": "PreTrainedTokenizerFast" into tokenizer_config.json.'
)
_TEMPLATE = (
    'Rows here are [CLS] A [SEP] B [SEP]. To use the vocabulary for a new model, write "post_processor": null there.'
)


@dataclass(frozen=True, kw_only=True)
class TokenizerFolder:
    """The settings of a tokenizer's folder, checked."""

    folder: Path
    bert: bool
    """Whether transformers' BERT classes read it."""
    lowercase: bool = True
    strip_accents: bool = True
    split_chinese: bool = True
    """Whether each Chinese character is a word."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Special tokens that have other names there, and their names here."""
    added: Mapping[int, AddedToken] = field(default_factory=dict)
    """Words next to the vocabulary, by id."""
    lists_all: bool = False
    """Whether `added` comes from added_tokens_decoder, which has to list the added words of tokenizer.json too."""
    markers: tuple[str, ...] = ()
    """Further special tokens, which a text may hold."""
    prefix_space: bool | None = None

    def error(self, name: str, message: str) -> DataError:
        """An error in one of the folder's files."""
        return DataError(f"{self.folder / name}: {message}")

    def rename(self, vocab: Mapping[str, int]) -> dict[str, int]:
        """A vocabulary with the special tokens under their names here; DataError if one is missing, or a name is
        taken.
        """
        for theirs, ours in self.renamed.items():
            if theirs not in vocab and theirs not in (token.content for token in self.added.values()):
                raise self.error(
                    CONFIG, f"the special token {short(theirs)} is not in the vocabulary. Name the one for {ours}."
                )
            if ours in vocab:
                raise self.error(CONFIG, f"calls {short(theirs)} what {ours} is in the vocabulary. Name {ours} there.")
        return {self.renamed.get(token, token): number for token, number in vocab.items()}

    def read_json(self, tokenizer: Tokenizer) -> Tokenizer:
        """The tokenizer that transformers makes of this tokenizer.json, before words are added."""
        parts: dict[str, Any] = json.loads(tokenizer.to_str())
        before = json.dumps(parts)
        self._check_rows(tokenizer)
        splitting = parts["pre_tokenizer"] or {}
        if self.bert:
            self._require_bert(parts)
            parts["normalizer"]["lowercase"] = self.lowercase
            parts["normalizer"]["strip_accents"] = self.strip_accents
            parts["normalizer"]["handle_chinese_chars"] = self.split_chinese
        elif self.prefix_space not in (None, splitting.get("add_prefix_space", self.prefix_space)):
            raise self.error(
                CONFIG, f"add_prefix_space = {self.prefix_space}: tokenizer.json differs. Make both equal."
            )
        if self.renamed:
            self.rename(tokenizer.get_vocab(with_added_tokens=True))
            _rename_model(parts["model"], self.renamed)
            parts["post_processor"] = None
        for token in parts["added_tokens"]:
            token["content"] = self.renamed.get(token["content"], token["content"])
            # a text may hold special tokens other than the five, as in transformers
            token["special"] = token["content"] in NAMES.values()
        return tokenizer if json.dumps(parts) == before else Tokenizer.from_str(json.dumps(parts))

    def _require_bert(self, parts: Mapping[str, Any]) -> None:
        """DataError unless all classes read tokenizer.json's splitting and model alike."""
        model, normalizer, splitting = parts["model"], parts["normalizer"] or {}, parts["pre_tokenizer"] or {}
        unknown = model.get("unk_token")
        expected = {
            "model.type": (model["type"], "WordPiece"),
            "model.continuing_subword_prefix": (model.get("continuing_subword_prefix"), "##"),
            "model.max_input_chars_per_word": (model.get("max_input_chars_per_word"), MAX_WORD_CHARS),
            "model.unk_token": (self.renamed.get(unknown, unknown), NAMES["unk_token"]),
            "normalizer.type": (normalizer.get("type"), "BertNormalizer"),
            "normalizer.clean_text": (normalizer.get("clean_text"), True),
            "pre_tokenizer.type": (splitting.get("type"), "BertPreTokenizer"),
        }
        for name, (found, needed) in expected.items():
            if found != needed:
                raise self.error(
                    "tokenizer.json",
                    f"{name} is {short(found)}, and transformers' BertTokenizer has {needed!r}: versions 4 and 5 give "
                    f"different ids. {_TO_KEEP_JSON}",
                )
        listed = {token.content for token in self.added.values()}
        known = {*listed, *self.markers, *self.renamed, *NAMES.values()}
        odd = [token["content"] for token in parts["added_tokens"] if token["content"] not in known]
        if self.lists_all and odd:
            raise self.error(CONFIG, f"added_tokens_decoder lacks {short(odd[0])}, a word of tokenizer.json. Add it.")

    def _check_rows(self, tokenizer: Tokenizer) -> None:
        """DataError if tokenizer.json puts other special tokens around a pair than rows here have."""
        if tokenizer.post_processor is None:
            return
        pair = tokenizer.encode("", "")
        rows = [[self.renamed.get(token, token) for token in pair.tokens], pair.type_ids]
        if pair.tokens and rows != [["[CLS]", "[SEP]", "[SEP]"], [0, 0, 1]]:
            raise self.error(
                "tokenizer.json",
                f"post_processor puts {' '.join(pair.tokens)} (types {pair.type_ids}) around a pair. {_TEMPLATE}",
            )

    def add_words(self, tokenizer: Tokenizer) -> None:
        """Add the words of added_tokens.json, of added_tokens_decoder and of the special tokens, as transformers does.

        Raises:
            DataError: a word gets another id than the file says.
        """
        new = self.renamed
        words = {number: _token(token, new.get(token.content, token.content)) for number, token in self.added.items()}
        tokenizer.add_tokens([words[number] for number in sorted(words)])
        known = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
        markers = [token for token in self.markers if token not in {*known, *new}]
        tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in markers])
        for number, token in words.items():
            if (found := tokenizer.token_to_id(token.content)) != number:
                raise self.error(
                    CONFIG if self.lists_all else ADDED,
                    f"gives {short(token.content)} the id {number}, and transformers' fast tokenizer {found}. Write "
                    f"{found} if the model has a row for it there, or leave the word out.",
                )


def read_folder(folder: Path, *, has_json: bool) -> TokenizerFolder:
    """Read tokenizer_config.json, special_tokens_map.json and added_tokens.json where they are.

    Args:
        folder: of the tokenizer.
        has_json: a tokenizer.json is read, and not a vocab.txt.

    Raises:
        DataError: a file is not JSON, a field has a wrong type, or one cannot be followed. StorageError: cannot be
            read.
    """
    config = _table(folder / CONFIG)
    lists_all = "added_tokens_decoder" in config
    specials = {} if lists_all else _table(folder / SPECIALS_MAP)
    merged = {**config, **specials}
    _require_known(folder, config)
    names = {name: _name(folder, name, merged.get(name, ours)) for name, ours in NAMES.items()}
    if len(set(names.values())) < len(names):
        raise DataError(f"{folder / CONFIG}: {' '.join(names.values())}: expected five different special tokens.")
    markers = dict.fromkeys(_markers(folder, merged))
    for name in names.values():
        markers.pop(name, None)
    lowercase = _boolean(folder, config, "do_lower_case", default=True)
    strip = _boolean(folder, config, "strip_accents", default=None)
    return TokenizerFolder(
        folder=folder,
        bert=_is_bert(folder, config) or not has_json,
        lowercase=bool(lowercase),
        strip_accents=bool(lowercase if strip is None else strip),
        split_chinese=bool(_boolean(folder, config, "tokenize_chinese_chars", default=True)),
        renamed={theirs: NAMES[name] for name, theirs in names.items() if theirs != NAMES[name]},
        added=_decoded(folder, config) if lists_all else _added(folder, {*names.values(), *markers}),
        lists_all=lists_all,
        markers=tuple(markers),
        prefix_space=_boolean(folder, config, "add_prefix_space", default=None),
    )


def class_settings(parts: Mapping[str, Any]) -> dict[str, bool | None]:
    """Fields of tokenizer_config.json with which every class of transformers reads a tokenizer.json (its parts) as it
    is.

    do_lower_case, strip_accents and tokenize_chinese_chars of a tokenizer as BERT's; add_prefix_space of one that has
    it. Of a tokenizer that composes letters (NFC) first, BERT's classes read the same ids in composed text.
    """
    normalizer, splitting = parts["normalizer"] or {}, parts["pre_tokenizer"] or {}
    if normalizer.get("type") == "Sequence" and [one["type"] for one in normalizer["normalizers"]][:-1] == ["NFC"]:
        normalizer = normalizer["normalizers"][-1]
    kinds = (parts["model"]["type"], parts["model"].get("continuing_subword_prefix"), splitting.get("type"))
    if kinds == ("WordPiece", "##", "BertPreTokenizer") and normalizer.get("type") == "BertNormalizer":
        values = (normalizer[name] for name in ("lowercase", "strip_accents", "handle_chinese_chars"))
        return dict(zip(_BERT_FIELDS, values, strict=True))
    return {name: splitting[name] for name in ("add_prefix_space",) if name in splitting}


def _table(path: Path) -> dict[str, Any]:
    """A JSON object, empty if there is no such file."""
    if not path.exists():
        return {}
    return json_object(read_file(path), where=str(path), remedy="Put the right file back, or delete it.")


def _is_bert(folder: Path, config: Mapping[str, Any]) -> bool:
    """Whether transformers' BERT classes read the folder, by `tokenizer_class` or else by the model's config.json."""
    where, name = CONFIG, config.get("tokenizer_class")
    if name is None:
        where, model = "config.json", _table(folder / "config.json")
        kind = model.get("model_type")
        known = {"electra": "ElectraTokenizer", "bert": "BertTokenizer"}
        name = model.get("tokenizer_class") or known.get(str(kind), kind and f"the class of {kind}")
        if name is None:
            return any(name in config for name in _BERT_FIELDS)  # no other class follows them
    if name in _BERT or name in _AS_IT_IS:
        return name in _BERT
    raise DataError(
        f"{folder / where}: tokenizer_class {short(name)} is not followed. Expected {', '.join(_BERT)} or "
        f"{_AS_IT_IS[0]}. Save it in the library's form first: "
        'python -c "from transformers import AutoTokenizer as T, PreTrainedTokenizerFast as F; '
        f"t = T.from_pretrained('{folder}'); F(tokenizer_object=t.backend_tokenizer, "
        "**t.special_tokens_map).save_pretrained('DIR')\""
    )


def _require_known(folder: Path, config: Mapping[str, Any]) -> None:
    """DataError for a field of tokenizer_config.json for which transformers' classes or versions give different ids."""
    for name, value in _ONLY.items():
        if (given := config.get(name, value)) not in (value, None, [], {}):
            raise DataError(
                f"{folder / CONFIG}: {name} = {short(given)} is not followed. Expected {json.dumps(value)}: write "
                f"that, or remove the field; words that are not split go into {ADDED}."
            )
    for name, value in config.items():
        if name.endswith("_token") and isinstance(value, str) and name not in (*NAMES, "bos_token", "eos_token"):
            raise DataError(
                f"{folder / CONFIG}: {name} = {short(value)} is not followed. Put the token into {_LISTS[0]}."
            )


def _boolean(folder: Path, config: Mapping[str, Any], name: str, *, default: bool | None) -> bool | None:
    value = config.get(name, default)
    if isinstance(value, bool) or (value is None and default is None):
        return value
    either = "true, false or null" if default is None else "true or false"
    raise DataError(f"{folder / CONFIG}: {name} = {short(value)}, expected {either}.")


def _name(folder: Path, name: str, value: object) -> str:
    """The text of a special token, which is written as such or in an object."""
    content = value.get("content") if isinstance(value, Mapping) else value
    if isinstance(content, str) and content:
        return content
    raise DataError(f"{folder / CONFIG}: {name} = {short(value)}, expected the text of a token such as [CLS].")


def _markers(folder: Path, merged: Mapping[str, Any]) -> Iterator[str]:
    """Special tokens besides the five, in the order in which transformers adds those that the vocabulary lacks."""
    for name in ("bos_token", "eos_token"):
        if merged.get(name) is not None:
            yield _name(folder, name, merged[name])
    for name in _LISTS:
        values = merged.get(name) or []
        if not isinstance(values, list | dict):
            raise DataError(f"{folder / CONFIG}: {name} = {short(values)}, expected a list of tokens.")
        yield from (_name(folder, name, value) for value in (values.values() if isinstance(values, dict) else values))


def _decoded(folder: Path, config: Mapping[str, Any]) -> dict[int, AddedToken]:
    """The field added_tokens_decoder: id -> token."""
    found = {}
    table = config["added_tokens_decoder"]
    for number, token in table.items() if isinstance(table, dict) else [("", table)]:
        try:
            flags = {name: value for name, value in token.items() if name != "__type"}
            found[int(number)] = AddedToken(**{**flags, "special": flags["content"] in NAMES.values()})
        except (AttributeError, KeyError, TypeError, ValueError):
            raise DataError(
                f"{folder / CONFIG}: added_tokens_decoder: {short(number)}: {short(token)}. Expected an id and "
                '{"content": "WORD", ...}.'
            ) from None
    return found


def _added(folder: Path, specials: set[str]) -> dict[int, AddedToken]:
    """The words of added_tokens.json: word -> id."""
    found = {}
    for word, number in _table(folder / ADDED).items():
        if not isinstance(number, int) or isinstance(number, bool) or number in found or not word:
            raise DataError(f"{folder / ADDED}: {short(word)}: {short(number)}. Expected words and their ids.")
        found[number] = AddedToken(word, normalized=word not in specials, special=word in NAMES.values())
    return found


def _token(token: AddedToken, content: str) -> AddedToken:
    """A token with other text. Special are only the five of this program, which a text cannot give."""
    flags = {name: getattr(token, name) for name in ("single_word", "lstrip", "rstrip", "normalized")}
    return AddedToken(content, special=content in NAMES.values(), **flags)


def _rename_model(model: dict[str, Any], names: Mapping[str, str]) -> None:
    """Rename tokens in the model of a tokenizer.json."""
    if isinstance(model["vocab"], dict):
        model["vocab"] = {names.get(token, token): number for token, number in model["vocab"].items()}
    else:  # Unigram
        model["vocab"] = [[names.get(token, token), score] for token, score in model["vocab"]]
    if model.get("unk_token") in names:
        model["unk_token"] = names[model["unk_token"]]
