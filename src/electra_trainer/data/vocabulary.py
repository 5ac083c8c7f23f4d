"""Train a WordPiece vocabulary, the same every time.

The trainer of `tokenizers` numbers characters in the order of a hash table and breaks ties by those numbers, so two runs on the
same text differ. Here the alphabet is counted first and given to the trainer in a fixed order, with the continuing form of each
character; the rest is deterministic, whatever the threads.
"""

from collections import Counter
from collections.abc import Iterable

from tokenizers import Tokenizer, trainers

from electra_trainer.data.tokenizer import SPECIAL_TOKENS, word_piece
from electra_trainer.errors import ConfigError, DataError

MIN_VOCAB_SIZE = 256
_MAX_ALPHABET = 1000


def train_tokenizer(
    texts: Iterable[str],
    *,
    vocab_size: int,
    cased: bool = False,
    keep_accents: bool | None = None,
    min_frequency: int = 2,
) -> Tokenizer:
    """Train BERT's tokenizer on lines of text; [PAD] [UNK] [CLS] [SEP] [MASK] have the ids 0 to 4.

    Args:
        texts: read twice, so an iterator is put into a list first; give an object that can be iterated again for much text.
        vocab_size: exact number of tokens, at least 256.
        cased: keep capitals.
        keep_accents: keep accents; None keeps them exactly when `cased`.
        min_frequency: a pair of pieces that is rarer is not merged.

    Raises:
        ConfigError: a vocabulary that is too small. DataError: text with fewer pieces.
    """
    if vocab_size < MIN_VOCAB_SIZE:
        raise ConfigError(
            f"vocab_size = {vocab_size}: expected at least {MIN_VOCAB_SIZE}, for special tokens, characters and some words."
        )
    if iter(texts) is texts:
        texts = list(texts)
    plain = word_piece(
        {name: index for index, name in enumerate(SPECIAL_TOKENS)}, cased=cased, keep_accents=keep_accents
    )
    plain.encode_special_tokens = True
    alphabet = _alphabet(texts, plain, limit=min(_MAX_ALPHABET, max(80, vocab_size // 16)))
    if not alphabet:
        raise DataError("The text holds no characters to make a vocabulary of. Give some text.")
    continuing = [f"##{character}" for character in alphabet if _continues(plain, character)]
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size, min_frequency=min_frequency, special_tokens=[*SPECIAL_TOKENS, *continuing],
        initial_alphabet=alphabet, limit_alphabet=len(alphabet), continuing_subword_prefix="##", show_progress=False,
    )  # fmt: skip
    plain.train_from_iterator(texts, trainer)
    found = plain.get_vocab(with_added_tokens=False)
    if len(found) != vocab_size:
        fewer = f", or --vocab-size {len(found)} or less" if len(found) >= MIN_VOCAB_SIZE else ""
        needed = "" if fewer else f"; {MIN_VOCAB_SIZE} are the least"
        raise DataError(
            f"The text gives a vocabulary of {len(found):,} at most, {vocab_size:,} were asked for{needed}. Give more text{fewer}."
        )
    first = [*SPECIAL_TOKENS, *alphabet, *continuing]
    merged = sorted(found.keys() - set(first), key=found.__getitem__)
    vocab = {token: number for number, token in enumerate([*first, *merged])}
    return word_piece(vocab, cased=cased, keep_accents=keep_accents)


def _alphabet(texts: Iterable[str], tokenizer: Tokenizer, *, limit: int) -> list[str]:
    """The commonest characters after normalisation, sorted by code point."""
    raw: Counter[str] = Counter()
    for text in texts:
        raw.update(text)
    normal: Counter[str] = Counter()
    for character, count in raw.items():
        for part in tokenizer.normalizer.normalize_str(character):
            if not part.isspace():
                normal[part] += count
    common = sorted(normal, key=lambda character: (-normal[character], character))
    return sorted(common[:limit])


def _continues(tokenizer: Tokenizer, character: str) -> bool:
    """Whether a character can occur inside of a word: punctuation and Chinese characters cannot."""
    normal = tokenizer.normalizer.normalize_str(f"a{character}")
    return len(tokenizer.pre_tokenizer.pre_tokenize_str(normal)) == 1
