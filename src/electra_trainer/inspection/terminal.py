"""Scored sentences on a terminal."""

from rich.console import Console
from rich.text import Text

from electra_trainer.pretrained.pretrained import Scored


def print_scored(scored: Scored, *, mark_above: float | None = None) -> None:
    """Two lines: the tokens, and the probability of "replaced" under each; suspects stand out.

    Args:
        scored: the sentence.
        mark_above: probability from which a token is marked; default: twice the sentence's mean, at least 0.2.
    """
    probabilities = scored.replaced_probability
    limit = max(0.2, 2 * sum(probabilities) / len(probabilities)) if mark_above is None else mark_above
    words, numbers = Text("  "), Text("  ")
    for token, probability in zip(scored.tokens, probabilities, strict=True):
        width = max(len(token) + 2, 6)
        suspect = probability >= limit
        words.append(f"[{token}]".ljust(width) if suspect else f" {token} ".ljust(width), "bold red" if suspect else "")
        numbers.append(f" {probability:.2f} ".ljust(width), "red" if suspect else "dim")
    console = Console(highlight=False, soft_wrap=True)
    console.print(words)
    console.print(numbers)
