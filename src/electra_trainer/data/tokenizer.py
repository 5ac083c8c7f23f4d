"""Load, save and identify a WordPiece tokenizer, and encode texts, pairs and sentences of words as rows of ids.

A saved tokenizer gives the same ids in transformers. The files of a folder are read as transformers 4 and 5 read them:
BERT's classes (BertTokenizer, ElectraTokenizer, DistilBertTokenizer, their Fast forms, and an ELECTRA or BERT without a
`tokenizer_class`) take the vocabulary and set lower case, accents and Chinese characters by tokenizer_config.json,
whatever tokenizer.json says. Other classes take tokenizer.json as it is. Both then add words, and name the special
tokens.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Encoding, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from electra_trainer import errors
from electra_trainer.data.legibility import Legibility, parted
from electra_trainer.errors import CheckpointError, ConfigError, DataError, ElectraError, storage_error
from electra_trainer.files import durable, reading

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MAX_WORD_CHARS = 100
"""A longer word becomes [UNK] in transformers' BertTokenizer (200 in Google's code)."""
CONFIG, SPECIALS_MAP, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt")
"""The files that `save_tokenizer` writes."""
_UNFINISHED = "unfinished-tokenizer"
"""File in a new tokenizer's folder until it is whole."""
_MAX_FILE_BYTES = 1 << 28
_MOST_WORDS = 1 << 24
_BERT = [f"{kind}Tokenizer{fast}" for kind in ("Bert", "Electra", "DistilBert") for fast in ("", "Fast")]
_AS_IT_IS = ("PreTrainedTokenizerFast", "TokenizersBackend")
_BERT_FIELDS = ("do_lower_case", "strip_accents", "tokenize_chinese_chars")
_FLAGS = ("single_word", "lstrip", "rstrip")


@dataclass(frozen=True, kw_only=True)
class Specials:
    """Ids of the special tokens."""

    pad: int
    unk: int
    cls: int
    sep: int
    mask: int


def word_piece(
    vocab: dict[str, int], *, cased: bool, keep_accents: bool | None, split_chinese: bool = True
) -> Tokenizer:
    """A BERT tokenizer with this vocabulary (token -> id), without a post-processor.

    Args:
        vocab: must hold [UNK]; the other special tokens are added later where they are missing.
        cased: keep capitals.
        keep_accents: keep accents; None keeps them exactly when `cased`, as BERT does.
        split_chinese: make each Chinese character a word.
    """
    model = models.WordPiece(vocab, unk_token="[UNK]", max_input_chars_per_word=MAX_WORD_CHARS)
    tokenizer = Tokenizer(model)
    strip = not (cased if keep_accents is None else keep_accents)
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=split_chinese, strip_accents=strip, lowercase=not cased
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    specials = [AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS if token in vocab]
    tokenizer.add_special_tokens(specials)
    return tokenizer


def load_tokenizer(path: str | Path, *, cased: bool | None = None, keep_accents: bool | None = None) -> Tokenizer:
    """Load a `tokenizer.json`, a `vocab.txt` (BERT's: line number = id), or a folder that holds one (the first is
    preferred).

    The files next to it count as in transformers, and texts get the same ids. The special tokens are named [PAD] [UNK]
    [CLS] [SEP] [MASK] whatever their names there.

    Args:
        path: file or folder.
        cased: for a `vocab.txt`: keep capitals. None asks the `tokenizer_config.json` next to it, and lower-cases
            without one.
        keep_accents: for a `vocab.txt`: keep accents; None asks the same file unless `cased` is given, and keeps them
            exactly when cased.

    Raises:
        MissingInputError: nothing there. DataError: not a tokenizer, a line that is wrong, a special token that is
            missing, a field that cannot be followed.
        StorageError: cannot be read. ConfigError: `cased` or `keep_accents` for a `tokenizer.json`.
    """
    path = Path(path)
    if path.is_dir():
        for name in ("tokenizer.json", "vocab.txt"):
            if (path / name).exists():
                return load_tokenizer(path / name, cased=cased, keep_accents=keep_accents)
        raise errors.MissingInputError(
            f"{path}: holds neither tokenizer.json nor vocab.txt. Make one with `electra tokenizer FILES --out {path}`."
        )
    data = reading.read_file(path, limit=_MAX_FILE_BYTES)
    has_json = path.suffix == ".json"
    settings = _settings(path.parent, has_json=has_json)
    if has_json:
        if cased is not None or keep_accents is not None:
            raise ConfigError(f"{path}: already defines casing and accents. Drop --cased and --keep-accents.")
        found = from_json(data, where=str(path))
        tokenizer: Tokenizer = _guarded(lambda: _as_transformers(found, settings), where=str(path))
    else:
        vocab = settings.rename(read_vocab(data, where=str(path)))
        if cased is None:
            cased = not settings.lowercase
            keep_accents = not settings.strip_accents if keep_accents is None else keep_accents
        tokenizer = _guarded(
            lambda: word_piece(vocab, cased=cased, keep_accents=keep_accents, split_chinese=settings.split_chinese),
            where=str(path),
        )
    tokenizer.add_tokens([token for _, token in sorted(settings.added.items())])
    if wrong := [
        token.content for number, token in settings.added.items() if tokenizer.token_to_id(token.content) != number
    ]:
        raise DataError(
            f"{path.parent}: {CONFIG} or {ADDED} gives {reading.short(wrong[0])} another id than transformers' fast "
            f"tokenizer, {tokenizer.token_to_id(wrong[0])}. Write that, or leave the word out."
        )
    specials_of(tokenizer, where=str(path))
    return tokenizer


@dataclass(frozen=True, kw_only=True)
class _Settings:
    """The settings in the folder of a tokenizer."""

    where: Path
    bert: bool
    """Whether transformers' BERT classes read it."""
    lowercase: bool
    strip_accents: bool
    split_chinese: bool
    """Whether each Chinese character is a word."""
    renamed: Mapping[str, str]
    """Special tokens that have other names there, and their names here."""
    added: Mapping[int, AddedToken]
    """Words next to the vocabulary, by id."""

    def rename(self, vocab: Mapping[str, int]) -> dict[str, int]:
        """A vocabulary with the special tokens under their names here. Raises DataError if a name is taken."""
        for theirs, ours in self.renamed.items():
            if ours in vocab:
                raise DataError(f"{self.where}: calls {reading.short(theirs)} what {ours} is in the vocabulary.")
        return {self.renamed.get(token, token): number for token, number in vocab.items()}


def _settings(folder: Path, *, has_json: bool) -> _Settings:
    """Read tokenizer_config.json, special_tokens_map.json and added_tokens.json where they are.

    Args:
        folder: of the tokenizer.
        has_json: a tokenizer.json is read, and not a vocab.txt.

    Raises:
        DataError: a file is not JSON, a field has a wrong type, or one cannot be followed. StorageError: cannot be
            read.
    """
    where, config = folder / CONFIG, _table(folder / CONFIG)
    decoder = config.get("added_tokens_decoder")
    named = config if decoder is not None else config | _table(folder / SPECIALS_MAP)
    names = {ours: named.get(f"{ours.strip('[]').lower()}_token", ours) for ours in SPECIAL_TOKENS}
    names = {ours: name.get("content") if isinstance(name, dict) else name for ours, name in names.items()}
    if not all(isinstance(name, str) for name in names.values()) or len(set(names.values())) < len(names):
        raise DataError(f"{where}: names the special tokens {names}. Expected five different texts.")
    flags = {name: config.get(name) for name in _BERT_FIELDS}
    for name, value in flags.items():
        if not isinstance(value, bool | None):
            raise DataError(f"{where}: {name} = {reading.short(value)}, expected true or false.")
    model = _table(folder / "config.json") if config.get("tokenizer_class") is None else {}
    kind = config.get("tokenizer_class") or model.get("tokenizer_class") or model.get("model_type")
    is_bert = kind in (*_BERT, "bert", "electra")
    if kind is None:  # no other class follows these fields
        is_bert = not has_json or any(value is not None for value in flags.values())
    if not (is_bert or has_json or kind in _AS_IT_IS):
        remedy = "Save it as a tokenizer.json first, by `save_pretrained` of transformers' fast class"
        raise DataError(f"{where}: the class {reading.short(kind)} is not followed for a vocab.txt. {remedy}.")
    lowercase = flags["do_lower_case"] is not False
    renamed = {theirs: ours for ours, theirs in names.items() if theirs != ours}
    return _Settings(
        where=where,
        bert=is_bert,
        lowercase=lowercase,
        strip_accents=lowercase if flags["strip_accents"] is None else flags["strip_accents"],
        split_chinese=flags["tokenize_chinese_chars"] is not False,
        renamed=renamed,
        added=_added(folder, decoder, renamed),
    )


def _added(folder: Path, decoder: Any, renamed: Mapping[str, str]) -> dict[int, AddedToken]:
    """The words of the field added_tokens_decoder (id -> token), or else of added_tokens.json (word -> id)."""
    if decoder is None:
        words = _table(folder / ADDED).items()
        listed = [(number, {"content": word}) for word, number in words]
    else:
        listed = [*decoder.items()] if isinstance(decoder, dict) else [("", decoder)]
    found = {}
    for number, token in listed:
        try:
            content = renamed.get(token["content"], token["content"])
            is_special = content in SPECIAL_TOKENS  # only these five cannot be given by a text
            flags = {name: token.get(name, False) for name in _FLAGS}
            found[int(number)] = AddedToken(
                content, special=is_special, normalized=token.get("normalized", not is_special), **flags
            )
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            raise DataError(
                f"{folder}: {CONFIG} or {ADDED}: {reading.short(number)}: {reading.short(token)}. Expected added words "
                "and their ids."
            ) from None
    return found


def _as_transformers(tokenizer: Tokenizer, settings: _Settings) -> Tokenizer:
    """The tokenizer that transformers makes of this tokenizer.json, before words are added."""
    parts: dict[str, Any] = json.loads(tokenizer.to_str())
    model, normalizer, new = parts["model"], parts["normalizer"] or {}, settings.renamed
    if settings.bert and normalizer.get("type") == "BertNormalizer":
        normalizer["lowercase"] = settings.lowercase
        normalizer["strip_accents"] = settings.strip_accents
        normalizer["handle_chinese_chars"] = settings.split_chinese
    if new:
        settings.rename(tokenizer.get_vocab(with_added_tokens=True))
        if isinstance(model["vocab"], dict):
            model["vocab"] = settings.rename(model["vocab"])
        else:  # Unigram
            model["vocab"] = [[new.get(token, token), score] for token, score in model["vocab"]]
        if model.get("unk_token") in new:
            model["unk_token"] = new[model["unk_token"]]
        parts["post_processor"] = None
    for token in parts["added_tokens"]:
        token["content"] = new.get(token["content"], token["content"])
        token["special"] = token["content"] in SPECIAL_TOKENS
    return Tokenizer.from_str(json.dumps(parts))


def _table(path: Path) -> dict[str, Any]:
    """A JSON object, empty if there is no such file."""
    if not path.exists():
        return {}
    return reading.json_object(
        reading.read_file(path), where=str(path), remedy="Put the right file back, or delete it."
    )


def from_json(data: bytes, *, where: str) -> Tokenizer:
    """A tokenizer from the bytes of a `tokenizer.json`, without its truncation and padding; DataError names `where`."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: is not UTF-8 (byte {error.start:,}). Expected a tokenizer.json.") from None
    tokenizer: Tokenizer = _guarded(lambda: Tokenizer.from_str(text), where=where)
    # a post-processor without its special tokens panics
    fault = "has a post-processor that fails"
    _guarded(lambda: (tokenizer.encode(""), tokenizer.encode("", "")), where=where, fault=fault)
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=0)
    if largest >= _MOST_WORDS:  # each id up to it would get a row of the embeddings
        raise DataError(f"{where}: has the id {largest}. Expected ids below {_MOST_WORDS:,}, rows of a table.")
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def read_vocab(data: bytes, *, where: str) -> dict[str, int]:
    r"""The bytes of a `vocab.txt` as token -> id. Lines end with "\n" only, so that no character can shift the ids.

    Args:
        data: all bytes of the file.
        where: name of the file, for errors.

    Raises:
        DataError: a blank line, a token that occurs twice, bytes that are not UTF-8, with the line.
    """
    lines = list(reading.lines(data, where))
    if not lines:
        raise DataError(f"{where}: is empty, expected one token a line.")
    vocab: dict[str, int] = {}
    for number, token in lines:
        if not token.strip(" \t"):
            raise DataError(f"{where}:{number}: is blank, and ids are line numbers. Give every line a token.")
        if token in vocab:
            raise DataError(
                f"{where}:{number}: token {token!r} is on line {vocab[token] + 1} already. Rename one: ids are line "
                "numbers."
            )
        vocab[token] = number - 1
    return vocab


def specials_of(tokenizer: Tokenizer, *, where: str = "tokenizer") -> Specials:
    """Ids of the special tokens; any ids will do. DataError names the tokens that are missing."""
    found = {token: tokenizer.token_to_id(token) for token in SPECIAL_TOKENS}
    if missing := [token for token, number in found.items() if number is None]:
        near = errors.did_you_mean(missing[0], tokenizer.get_vocab(with_added_tokens=True))
        raise DataError(
            f"{where}: has no {', '.join(missing)}. Expected the tokens {' '.join(SPECIAL_TOKENS)}, without spaces, "
            f"tabs or scores around them; other names belong into {CONFIG}, as pad_token and so on.{near}"
        )
    return Specials(**{token.strip("[]").lower(): number for token, number in found.items() if number is not None})


def vocab_size_of(tokenizer: Tokenizer) -> int:
    """Rows of an embedding table: one more than the largest id."""
    return 1 + max(tokenizer.get_vocab(with_added_tokens=True).values())


def require_rows(tokenizer: Tokenizer, rows: int, *, where: Path | str) -> None:
    """Raise CheckpointError if the tokenizer has an id for which a model's table of `rows` words has no row; `where` is
    their folder.
    """
    token, largest = max(tokenizer.get_vocab(with_added_tokens=True).items(), key=lambda item: item[1])
    if largest >= rows:
        raise CheckpointError(
            f"{where}: the tokenizer has the id {largest:,} (token {reading.short(token)}), the model {rows:,} words "
            "(vocab_size in config.json). Put the tokenizer of this model into the folder; if tokens were added to it, "
            f"give the model rows for them, in transformers: model.resize_token_embeddings({largest + 1})"
        )


def word_starts(tokenizer: Tokenizer) -> list[bool]:
    """For each id whether its token begins a word, or else continues the word before it.

    Known from how the tokenizer marks it: a prefix of continuations ("##" of WordPiece), or a mark for the space before
    a word ("Ġ" of
    byte-level tokenizers, "▁" of SentencePiece). With the second kind a word is all between two spaces, punctuation
    included.

    Raises:
        ConfigError: the tokenizer marks neither, or none of its tokens continues a word.
    """
    parts = json.loads(tokenizer.to_str())
    prefix, mark = parts["model"].get("continuing_subword_prefix"), _space_mark(parts)
    if not prefix and not mark:
        raise ConfigError(
            "masking.unit = word: this tokenizer does not mark where a word begins, by a continuing_subword_prefix as "
            "WordPiece does, or a ByteLevel or Metaspace pre-tokenizer. Set --masking.unit token."
        )
    added = {one["id"] for one in parts["added_tokens"]}
    starts = [True] * vocab_size_of(tokenizer)
    for token, number in tokenizer.get_vocab(with_added_tokens=True).items():
        if number not in added:
            starts[number] = not token.startswith(prefix) if prefix else token.startswith(mark)
    if all(starts):
        raise ConfigError(
            "masking.unit = word: no token of this tokenizer continues a word, so each is a whole word. Set "
            "--masking.unit token."
        )
    return starts


def _space_mark(parts: dict[str, Any]) -> str:
    """The character that a tokenizer writes for the space before a word; empty if none."""
    steps = [parts.get("normalizer"), parts.get("pre_tokenizer")]
    for step in filter(None, steps):
        steps += [*step.get("normalizers", ()), *step.get("pretokenizers", ())]  # of a sequence
        if step["type"] == "ByteLevel":
            return "Ġ"
        if step["type"] == "Metaspace":
            return str(step["replacement"])
        if step["type"] == "Replace" and step["pattern"] == {"String": " "} and len(step["content"]) == 1:
            return str(step["content"])
    return ""


def as_plain_text(tokenizer: Tokenizer) -> Tokenizer:
    """A copy that reads "[MASK]" and the like in a text as ordinary characters, never as special tokens."""
    copy = Tokenizer.from_str(tokenizer.to_str())
    copy.encode_special_tokens = True
    return copy


def tokenizer_files(tokenizer: Tokenizer, *, max_length: int) -> dict[str, bytes]:
    """`tokenizer.json`, `tokenizer_config.json` and, for WordPiece, `vocab.txt`.

    `AutoTokenizer` of transformers 4.57 and 5 gives the same ids, and puts [CLS] A [SEP] B [SEP] around them. So do
    ElectraTokenizer, BertTokenizer and their Fast forms for a tokenizer as BERT's; of another, such as one that reads
    words of more than 100 letters, no vocab.txt is written that they would misread.

    Args:
        max_length: longest row in tokens that a model made with it takes.
    """
    specials = specials_of(tokenizer)
    copy = as_plain_text(tokenizer)
    copy.encode_special_tokens = False
    parts: dict[str, Any] = json.loads(copy.to_str())
    copy.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", specials.cls), ("[SEP]", specials.sep)],
    )
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",  # the one name that both 4.x and 5.x take
        "model_max_length": max_length,
        **{f"{name}_token": f"[{name.upper()}]" for name in ("unk", "pad", "cls", "sep", "mask")},
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "clean_up_tokenization_spaces": True,
        **_class_settings(parts),
    }
    files = {"tokenizer.json": copy.to_str(pretty=True), "tokenizer_config.json": json.dumps(config, indent=2) + "\n"}
    vocab = sorted(tokenizer.get_vocab(with_added_tokens=False).items(), key=lambda item: item[1])
    whole = not any(set(token) & {"\n", "\r"} for token, _ in vocab)
    short_words = parts["model"].get("max_input_chars_per_word") == MAX_WORD_CHARS
    numbers = [number for _, number in vocab]
    if "do_lower_case" in config and whole and short_words and numbers == list(range(len(vocab))):
        files["vocab.txt"] = "".join(token + "\n" for token, _ in vocab)
    return {name: text.encode("utf-8") for name, text in files.items()}


def _class_settings(parts: Mapping[str, Any]) -> dict[str, bool | None]:
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


def save_tokenizer(tokenizer: Tokenizer, folder: Path, *, max_length: int) -> None:
    """Write the files of `tokenizer_files` into `folder`.

    Raises:
        StorageError: the disk is full, read-only or failing.
    """
    files = tokenizer_files(tokenizer, max_length=max_length)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in (*TOKENIZER_FILES, SPECIALS_MAP, ADDED):
            # a link would be written through; a vocab.txt may be another tokenizer's
            (folder / name).unlink(missing_ok=True)
        for name, content in files.items():
            durable.write_durably(folder / name, content)
        durable.sync_folder(folder)
    except OSError as error:
        raise storage_error(error, error.filename or folder) from None


def saved_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer that `save_tokenizer` wrote; errors as `load_tokenizer`."""
    path = folder / "tokenizer.json"
    tokenizer = from_json(reading.read_file(path, limit=_MAX_FILE_BYTES), where=str(path))
    specials_of(tokenizer, where=str(path))
    return tokenizer


def require_new(folder: Path, files: Mapping[str, bytes] | None = None) -> bool:
    """Whether a tokenizer is still to be written into a folder: it is new, empty, or holds an attempt that was killed.

    Args:
        files: those of the tokenizer; False where exactly they are there. None: not known yet, any tokenizer passes.

    Raises:
        ConfigError: the folder holds something else.
    """
    durable.sweep(folder)
    inside = {path.name for path in folder.iterdir() if not durable.is_temporary(path.name)} if folder.is_dir() else {}
    if (not inside and not folder.is_file()) or _UNFINISHED in inside:
        return True
    found = {name: (folder / name).read_bytes() for name in inside if name in TOKENIZER_FILES}
    if found and found.keys() == inside and files in (None, found):
        return False
    raise ConfigError(f"--out {folder}: is not an empty folder. Choose another one.")


def save_new_tokenizer(tokenizer: Tokenizer, folder: Path, *, max_length: int) -> None:
    """`save_tokenizer` into a folder that `require_new` takes, also if this process is killed meanwhile."""
    with durable.alone(folder):
        if not require_new(folder, tokenizer_files(tokenizer, max_length=max_length)):
            errors.tell(f"{folder}: is there already, the same.")
            return
        durable.write_output(folder / _UNFINISHED, b"")
        save_tokenizer(tokenizer, folder, max_length=max_length)
        (folder / _UNFINISHED).unlink(missing_ok=True)


def tokenizer_sha256(tokenizer: Tokenizer) -> str:
    """Hash of everything that decides ids: vocabulary, model, normaliser, splitting, added tokens. Padding and
    templates do not count.
    """
    parts: dict[str, Any] = json.loads(tokenizer.to_str())
    kept = {name: parts.get(name) for name in ("model", "normalizer", "pre_tokenizer", "added_tokens")}
    return hashlib.sha256(json.dumps(kept, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def statistics(tokenizer: Tokenizer, texts: Iterable[str]) -> Legibility:
    """Count words, tokens and unreadable letters of some lines."""
    Text.of(tokenizer, length=0, tally=(found := Legibility())).ids([*texts])
    return found


def _guarded(make: Any, *, where: str, fault: str = "is not a tokenizer") -> Any:
    """Call into Rust; its errors and its panics, which are not `Exception`s, become a DataError."""
    try:
        return make()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit | MemoryError | ElectraError):
            raise  # a signal, for example
        message = " ".join(str(error).split())[:200]
        raise DataError(f"{where}: {fault} ({message}). Expected a tokenizer.json or a vocab.txt.") from None


@dataclass(frozen=True, kw_only=True)
class Text:
    """Text -> ids, for rows of at most `length` tokens. "[SEP]" and the like in a text are ordinary characters."""

    tokenizer: Tokenizer
    """With `encode_special_tokens` set: `data.tokenizer.as_plain_text`."""
    specials: Specials
    length: int
    tally: Legibility | None = None
    """Counts what is read, if given."""

    @staticmethod
    def of(tokenizer: Tokenizer, *, length: int, tally: Legibility | None = None) -> "Text":
        """The `Text` of any tokenizer."""
        return Text(tokenizer=as_plain_text(tokenizer), specials=specials_of(tokenizer), length=length, tally=tally)

    def encode(self, texts: Sequence[str]) -> list[Encoding]:
        """Ids and offsets of each text, without special tokens, not cut."""
        return self._encoded([*texts])

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, as `encode`, whose encodings, 80 bytes a token, are held of 1,000 texts at once."""
        parts = (texts[at : at + 1000] for at in range(0, len(texts), 1000))
        return [encoding.ids for part in parts for encoding in self.encode(part)]

    def encode_words(self, sentences: Sequence[Sequence[str]]) -> list[Encoding]:
        """Ids and offsets of sentences that are split into words, with `word_ids`, the word of each token."""
        return self._encoded([list(sentence) for sentence in sentences], is_pretokenized=True)

    def _encoded(self, texts: list[Any], **how: bool) -> list[Encoding]:
        given = [parted(text) if isinstance(text, str) else [*map(parted, text)] for text in texts]
        try:
            encodings = self.tokenizer.encode_batch(given, add_special_tokens=False, **how)
        except TypeError:  # half of a surrogate pair, which Rust's texts cannot hold
            for part in (part for text in texts for part in ([text] if isinstance(text, str) else text)):
                reading.encodable(part, reading.short(part))
            raise
        if self.tally is not None:
            for text, encoding in zip(texts, encodings, strict=True):
                self.tally.add(text, encoding, self.specials.unk)
        return encodings

    def row(self, first: Sequence[int], second: Sequence[int] | None = None) -> tuple[int, ...]:
        """A row with its special tokens. Long texts lose tokens at the end, pairs as `fit_pair` says."""
        cls, sep = self.specials.cls, self.specials.sep
        if self.tally is not None:
            self.tally.add_row(len(first) + len(second or ()), self.length - (2 if second is None else 3))
        if second is None:
            return (cls, *first[: self.length - 2], sep)
        left, right = fit_pair(len(first), len(second), self.length - 3)
        return (cls, *first[:left], sep, *second[:right], sep)

    def windows(self, ids: Sequence[int]) -> list[tuple[int, ...]]:
        """Rows that together hold a whole text; each begins with the last quarter of the one before it."""
        cls, sep, room = self.specials.cls, self.specials.sep, self.length - 2
        shared = room // 4
        starts = range(0, max(1, len(ids) - shared), room - shared)
        return [(cls, *ids[first : first + room], sep) for first in starts]


def fit_pair(first: int, second: int, room: int) -> tuple[int, int]:
    """Lengths of a pair that is cut as the fast tokenizers of transformers cut it (`longest_first`): the longer text
    loses tokens until both fit or are level, then both do; an odd token is left to the longer text, or to the second of
    equals.
    """
    if first + second <= room:
        return first, second
    least = min(first, second, room // 2)
    return (room - least, least) if first > second else (least, room - least)
