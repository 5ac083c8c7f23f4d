"""Load, save and identify a WordPiece tokenizer, and encode texts, pairs and sentences of words as rows of ids.

A saved tokenizer gives the same ids in transformers.
"""

import hashlib
import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Encoding, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from electra_trainer.data import tokenizer_folder
from electra_trainer.data.legibility import Legibility
from electra_trainer.data.tokenizer_folder import MAX_WORD_CHARS, NAMES
from electra_trainer.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    ElectraError,
    MissingInputError,
    did_you_mean,
    storage_error,
)
from electra_trainer.files import durable, reading

SPECIAL_TOKENS = tuple(NAMES.values())
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt")
"""The files that `save_tokenizer` writes."""
_UNFINISHED = "unfinished-tokenizer"
"""File in a new tokenizer's folder until it is whole."""
_MAX_FILE_BYTES = 1 << 28
_MOST_WORDS = 1 << 24


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

    The files next to it count as in transformers (see tokenizer_folder.py), and texts get the same ids. The special
    tokens are named [PAD] [UNK] [CLS] [SEP] [MASK] whatever their names there.

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
        raise MissingInputError(
            f"{path}: holds neither tokenizer.json nor vocab.txt. Make one with `electra tokenizer FILES --out {path}`."
        )
    data = reading.read_file(path, limit=_MAX_FILE_BYTES)
    if path.suffix == ".json":
        if cased is not None or keep_accents is not None:
            raise ConfigError(f"{path}: already defines casing and accents. Drop --cased and --keep-accents.")
        found = from_json(data, where=str(path))
        settings = tokenizer_folder.read_folder(path.parent, has_json=True)
        tokenizer: Tokenizer = _guarded(lambda: settings.read_json(found), where=str(path))
    else:
        settings = tokenizer_folder.read_folder(path.parent, has_json=False)
        elsewhere = [*settings.renamed.values(), *(token.content for token in settings.added.values())]
        vocab = settings.rename(read_vocab(data, where=str(path), elsewhere=elsewhere))
        if cased is None:
            cased, keep_accents = (
                not settings.lowercase,
                not settings.strip_accents if keep_accents is None else keep_accents,
            )
        tokenizer = _guarded(
            lambda: word_piece(vocab, cased=cased, keep_accents=keep_accents, split_chinese=settings.split_chinese),
            where=str(path),
        )
    settings.add_words(tokenizer)
    specials_of(tokenizer, where=str(path))
    return tokenizer


def from_json(data: bytes, *, where: str) -> Tokenizer:
    """A tokenizer from the bytes of a `tokenizer.json`, without its truncation and padding; DataError names `where`."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: is not UTF-8 (byte {error.start:,}). Expected a tokenizer.json.") from None
    tokenizer: Tokenizer = _guarded(lambda: Tokenizer.from_str(text), where=where)
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=0)
    if largest >= _MOST_WORDS:  # each id up to it would get a row of the embeddings
        raise DataError(f"{where}: has the id {largest}. Expected ids below {_MOST_WORDS:,}, rows of a table.")
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def read_vocab(data: bytes, *, where: str, elsewhere: Sequence[str] = ()) -> dict[str, int]:
    r"""The bytes of a `vocab.txt` as token -> id. Lines end with "\n" only, so that no character can shift the ids.

    Args:
        data: all bytes of the file.
        where: name of the file, for errors.
        elsewhere: special tokens that it need not hold.

    Raises:
        DataError: a blank line, a token that occurs twice, bytes that are not UTF-8, with the line.
    """
    lines = list(reading.lines(data, where))
    if lines and not data.endswith(b"\n") and not lines[-1][1].strip():
        lines.pop()
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
    missing = [token for token in SPECIAL_TOKENS if token not in vocab and token not in elsewhere]
    if missing:
        near = did_you_mean(missing[0], [token for token in vocab if token.startswith(("[", "<"))])
        raise DataError(f"{where}: has no {', '.join(missing)}. Expected {' '.join(SPECIAL_TOKENS)} in it.{near}")
    return vocab


def specials_of(tokenizer: Tokenizer, *, where: str = "tokenizer") -> Specials:
    """Ids of the special tokens; any ids will do. DataError names the tokens that are missing."""
    found = {token: tokenizer.token_to_id(token) for token in SPECIAL_TOKENS}
    missing = [token for token, number in found.items() if number is None]
    if missing:
        raise DataError(f"{where}: has no {', '.join(missing)}. Expected the tokens {' '.join(SPECIAL_TOKENS)}.")
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
            f"{where}: the tokenizer has the id {largest:,} (token {reading.short(token)}), but the model has {rows:,} "
            f"words, ids 0 to {rows - 1:,} (vocab_size in config.json). Put the tokenizer of this model into the "
            "folder; or, if tokens were added to it, give the model rows for them, in transformers: "
            f"model.resize_token_embeddings({largest + 1})"
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
            "masking.unit = word: this tokenizer does not mark where a word begins. Expected WordPiece or BPE with a "
            "continuing_subword_prefix such as ##, or BPE or Unigram with a ByteLevel or Metaspace pre-tokenizer. Set "
            "--masking.unit token."
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
    ElectraTokenizer, BertTokenizer and their Fast forms for a tokenizer as BERT's; of another, no vocab.txt is written
    that they would misread.

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
        **tokenizer_folder.class_settings(parts),
    }
    files = {"tokenizer.json": copy.to_str(pretty=True), "tokenizer_config.json": json.dumps(config, indent=2) + "\n"}
    vocab = sorted(tokenizer.get_vocab(with_added_tokens=False).items(), key=lambda item: item[1])
    whole = not any(set(token) & {"\n", "\r"} for token, _ in vocab)
    if "do_lower_case" in config and whole and [number for _, number in vocab] == list(range(len(vocab))):
        files["vocab.txt"] = "".join(token + "\n" for token, _ in vocab)
    return {name: text.encode("utf-8") for name, text in files.items()}


def save_tokenizer(tokenizer: Tokenizer, folder: Path, *, max_length: int) -> None:
    """Write the files of `tokenizer_files` into `folder`.

    Raises:
        StorageError: the disk is full, read-only or failing.
    """
    files = tokenizer_files(tokenizer, max_length=max_length)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in (*TOKENIZER_FILES, tokenizer_folder.SPECIALS_MAP, tokenizer_folder.ADDED):
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


def require_new(folder: Path) -> None:
    """ConfigError unless a tokenizer can be written into a folder without covering anything but an attempt that was
    killed.
    """
    durable.sweep(folder)
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / _UNFINISHED).is_file())):
        raise ConfigError(f"--out {folder}: is not an empty folder. Choose another one.")


def save_new_tokenizer(tokenizer: Tokenizer, folder: Path, *, max_length: int) -> None:
    """`save_tokenizer` into a folder that `require_new` takes, also if this process is killed meanwhile."""
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
    plain, unk, found = as_plain_text(tokenizer), specials_of(tokenizer).unk, Legibility()
    lines = iter(texts)
    while batch := list(itertools.islice(lines, 1000)):
        for line, encoding in zip(batch, plain.encode_batch(batch, add_special_tokens=False), strict=True):
            found.add(line, encoding, unk)
    return found


def _guarded(make: Any, *, where: str) -> Any:
    """Call into Rust; its errors and its panics, which are not `Exception`s, become a DataError."""
    try:
        return make()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit | MemoryError | ElectraError):
            raise  # a signal, for example
        message = " ".join(str(error).split())[:200]
        raise DataError(f"{where}: is not a tokenizer ({message}). Expected a tokenizer.json or a vocab.txt.") from None


@dataclass(frozen=True, kw_only=True)
class Text:
    """Text -> ids, for rows of at most `length` tokens. "[SEP]" and the like in a text are ordinary characters."""

    tokenizer: Tokenizer
    """With `encode_special_tokens` set: `data.tokenizer.as_plain_text`."""
    specials: Specials
    length: int
    tally: Legibility | None = None
    """Counts what is read, if given."""

    def encode(self, texts: Sequence[str]) -> list[Encoding]:
        """Ids and offsets of each text, without special tokens, not cut."""
        return self._counted(texts, self.tokenizer.encode_batch(list(texts), add_special_tokens=False))

    def encode_words(self, sentences: Sequence[Sequence[str]]) -> list[Encoding]:
        """Ids and offsets of sentences that are split into words, with `word_ids`, the word of each token."""
        words = [list(sentence) for sentence in sentences]
        return self._counted(words, self.tokenizer.encode_batch(words, is_pretokenized=True, add_special_tokens=False))

    def _counted(self, texts: Sequence[str | Sequence[str]], encodings: list[Encoding]) -> list[Encoding]:
        if self.tally is not None:
            for text, encoding in zip(texts, encodings, strict=True):
                self.tally.add(text, encoding, self.specials.unk)
        return encodings

    def row(self, first: Sequence[int], second: Sequence[int] | None = None) -> tuple[int, ...]:
        """A row with its special tokens. Long texts lose tokens at the end; of a pair always the longer text does (as
        BERT).
        """
        cls, sep = self.specials.cls, self.specials.sep
        if self.tally is not None:
            self.tally.add_row(len(first) + len(second or ()), self.length - (2 if second is None else 3))
        if second is None:
            return (cls, *first[: self.length - 2], sep)
        left, right = fit_pair(len(first), len(second), self.length - 3)
        return (cls, *first[:left], sep, *second[:right], sep)


def fit_pair(first: int, second: int, room: int) -> tuple[int, int]:
    """Lengths of a pair after tokens were dropped, one at a time, from the longer (from the second of equals) until
    both fit.
    """
    if first + second <= room:
        return first, second
    if first <= room // 2:
        return first, room - first
    if second <= room // 2:
        return room - second, second
    return room - room // 2, room // 2
