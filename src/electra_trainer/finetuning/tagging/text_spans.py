"""Spans of a text that are given by characters, as annotators and programs write them, and the tags of its words. No
torch here.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from electra_trainer.errors import DataError
from electra_trainer.files.reading import encodable, short

_SPAN = {
    "first": ("start", "start_offset", "begin", "startOffset"),
    "stop": ("end", "end_offset", "stop", "endOffset"),
    "type": ("label", "labels", "type", "entity", "tag", "entity_group", "category"),
}


class TextSpan(NamedTuple):
    """Characters `first` up to, not including, `stop`."""

    first: int
    stop: int
    type: str


def are_spans(tags: Any) -> bool:
    """Whether labels are spans: objects, or lists of three and more."""
    return isinstance(tags, list | tuple) and all(
        isinstance(one, dict) or (isinstance(one, list | tuple) and len(one) > 2) for one in tags
    )


def read_spans(tags: Sequence[Any], where: str, text: str) -> list[TextSpan]:
    """Spans of a text, without the spaces at their ends.

    Args:
        tags: lists such as [0, 6, "PER"], or objects.
        where: `file:line`.
        text: their text.

    Raises:
        DataError: not a span, or not of this text.
    """
    found = []
    for one in tags:
        inner = one.get("value") if isinstance(one, dict) and isinstance(one.get("value"), dict) else one
        if (
            inner is not one
            and isinstance(one, dict)
            and one.get("type", "labels") not in ("labels", "hypertextlabels")
        ):
            continue  # relations and choices of Label Studio
        if isinstance(inner, dict):
            values: dict[str, Any] = {
                part: next((inner[name] for name in names if name in inner), None) for part, names in _SPAN.items()
            }
            first, stop, kind, said = values["first"], values["stop"], values["type"], inner.get("text")
        else:
            first, stop, kind = one[0], one[1], one[2]
            said = None
        kind = kind[0] if isinstance(kind, list) and len(kind) == 1 else kind
        if not all(isinstance(at, int) for at in (first, stop)) or not isinstance(kind, str) or not kind:
            raise DataError(
                f'{where}: span {short(one)}, expected a start, an end and one type, such as [0, 6, "PER"].'
            )
        if isinstance(said, str) and text[first:stop] != said and (moved := _utf16(text, first, stop)) is not None:
            first, stop = moved
        if not 0 <= first < stop <= len(text):
            raise DataError(
                f"{where}: span {first} to {stop}, and the text has {len(text)} characters. Expected characters from "
                "0, the end behind the last."
            )
        body = text[first:stop]
        first, stop = first + len(body) - len(body.lstrip()), stop - len(body) + len(body.rstrip())
        found.append(TextSpan(first, max(first, stop), kind))
    return found


def _utf16(text: str, first: int, stop: int) -> tuple[int, int] | None:
    """Offsets in UTF-16, which browsers count, as characters."""
    data = text.encode("utf-16-le")
    try:
        return len(data[: 2 * first].decode("utf-16-le")), len(data[: 2 * stop].decode("utf-16-le"))
    except UnicodeDecodeError:
        return None


def listed_words(value: Sequence[Any], where: str, text: str | None) -> tuple[list[str], list[tuple[int, int]] | None]:
    """Words of a list, and their places in the text where the list has them."""
    places: list[tuple[int, int]] | None = []
    words: list[str] = []
    for one in value:
        first, stop = (one.get("start"), one.get("end")) if isinstance(one, dict) else (None, None)
        word = one.get("text") if isinstance(one, dict) else one
        if word is None and text is not None and isinstance(first, int) and isinstance(stop, int):
            word = text[first:stop]
        if not isinstance(word, str) or not word:
            raise DataError(f"{where}: word {len(words) + 1} is {short(one)}, expected a text.")
        words.append(encodable(word, f"{where}: word {len(words) + 1}"))
        places = (
            [*places, (first, stop)]
            if places is not None and isinstance(first, int) and isinstance(stop, int)
            else None
        )
    return words, places


def span_tags(
    words: Sequence[tuple[int, int]], spans: Sequence[TextSpan]
) -> tuple[list[str], list[TextSpan], list[TextSpan]]:
    """BIO tags of words; the spans that begin or end within a word, which get the whole word; and those that were left
    out, since another span has their words, the longer one of two.
    """
    tags = ["O"] * len(words)
    within, left_out = list[TextSpan](), list[TextSpan]()
    for span in sorted(spans, key=lambda span: (span.first - span.stop, span.first)):
        inside = [at for at, (first, stop) in enumerate(words) if first < span.stop and stop > span.first]
        if not inside or any(tags[at] != "O" for at in inside):
            left_out.append(span)
            continue
        if words[inside[0]][0] < span.first or words[inside[-1]][1] > span.stop:
            within.append(span)
        for at in inside:
            tags[at] = f"{'B' if at == inside[0] else 'I'}-{span.type}"
    return tags, within, left_out
