"""Made-up texts in several scripts: as many different characters as real text has, as unevenly used (Zipf's law)."""

import functools
import random
from collections.abc import Sequence
from itertools import accumulate, product

KANA = "".join(map(chr, range(0x3042, 0x3094))) + "".join(map(chr, range(0x30A2, 0x30F5)))
THAI, THAI_MARKS = "".join(map(chr, range(0xE01, 0xE2F))), "ะัาิีึืุู่้์็"
HINDI, HINDI_MARKS = "".join(map(chr, range(0x915, 0x93A))), "ािीुूेैोौंँ््"
ARABIC, HEBREW = "ابتثجحخدذرزسشصضطظعغفقكلمنهويةأإآؤئء", "אבגדהוזחטיכךלמםנןסעפףצץקרשת"
RUSSIAN = "абвгдежзийклмнопрстуфхцчшщъыьэюяёАБВГДЕЖЗИЙКЛМНОП"


def zipf(draw: random.Random, values: Sequence[str], count: int, *, power: float = 1.0) -> list[str]:
    """Values, the first the commonest."""
    return draw.choices(values, cum_weights=_weights(len(values), power), k=count)


@functools.cache
def _weights(count: int, power: float) -> list[float]:
    return list(accumulate(1 / rank**power for rank in range(1, count + 1)))


def made_words(draw: random.Random, units: Sequence[str], *, count: int, longest: int) -> list[str]:
    return ["".join(zipf(draw, units, draw.randint(1, longest), power=0.7)) for _ in range(count)]


def shuffled(draw: random.Random, first: int, count: int) -> list[str]:
    """Characters from one block, in a random order."""
    block = [chr(code) for code in range(first, first + count)]
    draw.shuffle(block)
    return block


def lines_of(script: str, *, count: int = 1500, seed: int = 1) -> list[str]:
    """Lines of about 40 characters."""
    draw = random.Random(seed)
    if script == "chinese":  # 4,000 characters; the 3,000 commonest are 99 % of a text
        characters = shuffled(draw, 0x4E00, 4000)
        return [
            "，".join("".join(zipf(draw, characters, 18, power=1.2)) for _ in range(2)) + "。" for _ in range(count)
        ]
    if script == "japanese":
        kanji = shuffled(draw, 0x5000, 2500)
        words = made_words(draw, KANA, count=1500, longest=4) + made_words(draw, kanji, count=4000, longest=3)
        draw.shuffle(words)
        return ["".join(zipf(draw, words, 14)) + "。" for _ in range(count)]
    if script == "thai":  # no spaces between words
        words = made_words(draw, [a + b for a, b in product(THAI, THAI_MARKS)], count=1500, longest=4)
        return [" ".join("".join(zipf(draw, words, draw.randint(3, 9))) for _ in range(2)) for _ in range(count)]
    units: dict[str, Sequence[str]] = {
        "korean": shuffled(draw, 0xAC00, 2000),
        "hindi": [a + b for a, b in product(HINDI, ["", *HINDI_MARKS])],
        "arabic": [a + b for a, b in product(ARABIC, ["", "", "\u064e", "\u0650"])],
        "hebrew": HEBREW,
        "russian": RUSSIAN,
        "english": "etaoinshrdlcumwfgypbvkjxqz",
    }
    words = made_words(draw, units[script], count=4000, longest=4 if script == "korean" else 6)
    return [" ".join(zipf(draw, words, 10)) + "." for _ in range(count)]
