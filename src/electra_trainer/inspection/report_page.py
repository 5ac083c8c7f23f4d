"""The page of a report: HTML without scripts and without anything from elsewhere. All text of a run is escaped."""

import base64
import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from electra_trainer.train import measures as words_for

if TYPE_CHECKING:
    from electra_trainer.inspection.run_read import Run

THRESHOLD = 0.5
"""Probability from which a token counts as called replaced."""
ROWS, TOKENS = 12, 192
"""Most sentences on the page, and most tokens of each."""

_CAPTIONS = {
    "losses": "Replaced token detection is learning where the discriminator's loss falls below the constant guess, which "
    "always answers with the share of replaced tokens.",
    "discrimination": "AUC: the chance that a replaced token gets a higher probability than an original one. "
    "Accuracy would mislead: most tokens are original.",
    "generator": "A generator near the uniform guess gives easy fakes; one that is nearly always right leaves no fakes.",
    "optimizer": "Learning rate and global norm of the gradient of each logged step.",
}


def page(runs: "Sequence[Run]", pictures: Mapping[str, bytes]) -> str:
    """The whole document."""
    title = " · ".join(run.name for run in runs)
    parts = [_headline(runs[0])] if len(runs) == 1 else [_comparison(runs)]
    parts += [f'<p class="health {kind}">{escape(text)}</p>' for kind, text in (_health_of(run, runs) for run in runs)]
    parts += [_notes(runs), "<h2>Curves</h2>"]
    parts += [_picture(name, png) for name, png in pictures.items()]
    parts += [_sentences(run, several=len(runs) > 1) for run in runs]
    parts += [_settings("Settings", runs, [run.config for run in runs], opened=len(runs) > 1)]
    parts += [_settings("Environment", runs, [run.environment for run in runs], opened=False)]
    style = Path(__file__).with_name("report_style.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}: pre-training report</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        f'<h1>{escape(title)}</h1>\n<p class="faint">Pre-training report of electra-trainer</p>\n'
        + "\n".join(part for part in parts if part)
        + "\n</main>\n</body>\n</html>\n"
    )


def health(run: "Run") -> tuple[str, str]:
    """("good" | "bad" | "", a sentence): is the run learning? As the log says it (train/measures.py)."""
    entropy, uniform = run.last("generator_entropy"), run.vocabulary_entropy
    loss, constant, auc = (run.last(f"discriminator_{name}") for name in ("loss", "constant_loss", "auc"))
    if math.isnan(loss):
        text = f"Masked language model at a loss of {_number(run.last('generator_loss'))} nats"
        if math.isnan(uniform):
            return "", f"{text}."
        learning = run.last("generator_loss") < 0.9 * uniform
        verdict = "learning" if learning else "no better than guessing yet"
        return "good" if learning else "bad", f"{text} against {uniform:.2f} for a uniform guess: {verdict}."
    if math.isnan(constant):
        rate = run.last("fake_rate")
        constant = words_for.binary_entropy(rate) if 0 < rate < 1 else math.nan
    text = f"Discriminator {_number(loss)} against {_number(constant)} for the constant guess, AUC {_number(auc)}: "
    if entropy > 0.9 * uniform:
        return "bad", f"{text}the generator is still close to a uniform guess ({entropy:.2f} of {uniform:.2f} nats)."
    words = words_for.verdict(loss, constant=constant, auc=auc)
    return {words_for.LEARNING: "good", words_for.BEGINNING: ""}.get(words, "bad"), f"{text}{words}."


def _health_of(run: "Run", runs: "Sequence[Run]") -> tuple[str, str]:
    kind, text = health(run)
    return kind, f"{run.name}: {text}" if len(runs) > 1 else text


def _number(value: float, *, powers: bool = False) -> str:
    """Three significant digits, thousands by suffix or all by powers of ten; a dash where there is none."""
    if not math.isfinite(value):
        return "–"
    if powers or value >= 1e15:
        return f"{value:.2e}".replace("e+", "e")
    for size, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if suffix == 'k' else size):.3g}{suffix}"
    return f"{value:.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:#.3g}".removesuffix(".")


def _duration(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "–"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def _values(run: "Run") -> dict[str, str]:
    """Headline numbers; held out wherever the run evaluated, and only what it has."""
    speeds = sorted(
        row["tokens_per_second"] for row in run.train if math.isfinite(row.get("tokens_per_second", math.nan))
    )
    rows = run.train + run.valid
    newest = {
        key: max((row.get(key, math.nan) for row in rows), default=math.nan) for key in ("step", "tokens", "flops")
    }
    seconds = max((row["seconds"] for row in rows if math.isfinite(row.get("seconds", math.nan))), default=math.nan)
    found = {
        "discriminator AUC": _number(run.last("discriminator_auc")),
        "discriminator loss": _number(run.last("discriminator_loss")),
        "loss of the constant guess": _number(run.last("discriminator_constant_loss")),
        "fake rate": _number(run.last("fake_rate")),
        "generator loss": _number(run.last("generator_loss")),
        "generator accuracy": _number(run.last("generator_accuracy")),
        "steps": _number(newest["step"]),
        "tokens": _number(newest["tokens"]),
        "FLOPs": _number(newest["flops"], powers=True),
        "time": _duration(seconds),
        "tokens per second": _number(speeds[len(speeds) // 2] if speeds else math.nan),
    }
    return {name: value for name, value in found.items() if value != "–"}


def _source(runs: "Sequence[Run]") -> str:
    held = all(run.valid for run in runs)
    where = "Quality is on held-out text" if held else "No held-out evaluation yet: quality is on training text"
    return f'<p class="faint">{where}; losses in nats; speed is the median.</p>'


def _headline(run: "Run") -> str:
    tiles = "".join(
        f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for name, value in _values(run).items()
    )
    return f'<div class="tiles">{tiles}</div>{_source([run])}'


def _comparison(runs: "Sequence[Run]") -> str:
    table = [_values(run) for run in runs]
    names = list(dict.fromkeys(name for values in table for name in values))
    head = "".join(f'<th class="number">{escape(run.name)}</th>' for run in runs)
    body = "".join(
        f"<tr><td>{escape(name)}</td>"
        + "".join(f'<td class="number">{escape(values.get(name, "–"))}</td>' for values in table)
        + "</tr>"
        for name in names
    )
    return f'<div class="wide"><table><tr><th></th>{head}</tr>{body}</table></div>{_source(runs)}'


def _notes(runs: "Sequence[Run]") -> str:
    notes = [note for run in runs for note in run.notes]
    return f'<ul class="notes">{"".join(f"<li>{escape(note)}</li>" for note in notes)}</ul>' if notes else ""


def _picture(name: str, png: bytes) -> str:
    data, caption = base64.b64encode(png).decode(), _CAPTIONS.get(name, "")
    return f'<figure><img alt="{name} over steps" src="data:image/png;base64,{data}"><figcaption>{caption}</figcaption></figure>'


def _sentences(run: "Run", *, several: bool) -> str:
    """Held-out text as the discriminator met it."""
    if not run.examples:
        return ""
    rows = run.examples[:ROWS]
    judged = all(row.get("probability") is not None for row in rows)
    of = f": {escape(run.name)}" if several else ""
    legend = '<span class="masked">chosen for masking, original word put back</span>'
    counts = ""
    if judged:
        legend = (
            f'{legend} &nbsp; <del>original</del> <ins class="hit">✓ replacement, detected</ins> &nbsp; '
            '<del>original</del> <ins class="miss">✗ replacement, missed</ins> &nbsp; '
            '<span class="alarm">! false alarm</span>'
        )
        counts = _counts(rows)
    body = "\n".join(f'<p class="sentence">{sentence(row)}</p>' for row in rows)
    return (
        f"<h2>Sentences at step {run.examples_step:,}{of}</h2>\n{counts}\n"
        f'<p class="sentence legend">{legend}</p>\n{body}'
    )


def _counts(rows: Sequence[Mapping[str, Any]]) -> str:
    judged = [pair for row in rows for pair in zip(_replaced(row), row["probability"], strict=True)]
    called = [replaced for replaced, probability in judged if probability >= THRESHOLD]
    fakes, hits = sum(replaced for replaced, _ in judged), sum(called)
    return (
        f"<p>At a probability of {THRESHOLD:g}: {hits} of {fakes} replaced tokens detected; false alarms: "
        f"{len(called) - hits} of {len(judged) - fakes:,} original tokens. Point at a token to see its probability of being a "
        "replacement.</p>"
    )


def _replaced(row: Mapping[str, Any]) -> list[bool]:
    """What was replaced; nothing in a run without a discriminator."""
    return row.get("replaced") or [False] * len(row["original"])


def sentence(row: Mapping[str, Any]) -> str:
    """HTML of one example: word pieces joined, masked, replaced and suspected tokens marked; all text escaped."""
    probabilities = row.get("probability") or [math.nan] * len(row["original"])
    masked, replaced = row["masked"], _replaced(row)
    html: list[str] = []
    for index, (original, read) in enumerate(zip(row["original"], row["input"], strict=True)):
        if original == "[PAD]":
            continue
        if index == TOKENS:
            html.append(" …")
            break
        glue = "" if not html or read.startswith("##") else " "
        html.append(glue + _token(original, read, masked[index], replaced[index], probabilities[index]))
    return "".join(html)


def _token(original: str, read: str, masked: bool, replaced: bool, probability: float) -> str:
    text, before = (escape(piece.removeprefix("##")) for piece in (read, original))
    tip = "" if math.isnan(probability) else f' title="replaced: {probability:.0%}"'
    called = probability >= THRESHOLD
    if replaced:
        kind, sign = ("hit", "✓") if called else ("miss", "✗")
        return f'<del>{before}</del><ins class="{kind}"{tip}>{sign}{text}</ins>'
    if called:
        return f'<span class="alarm"{tip}>!{text}</span>'
    if masked:
        return f'<span class="masked"{tip}>{before}</span>'
    if original in ("[CLS]", "[SEP]"):
        return f'<span class="special"{tip}>{text}</span>'
    return f"<span{tip}>{text}</span>" if tip else text


def _settings(title: str, runs: "Sequence[Run]", tables: Sequence[Mapping[str, str]], *, opened: bool) -> str:
    """Settings by name, one column a run; rows that differ are tinted and, with several runs, come first."""
    names = list(dict.fromkeys(name for table in tables for name in table))
    if not names:
        return ""
    differing = {name for name in names if len({table.get(name) for table in tables}) > 1}
    names.sort(key=lambda name: name not in differing)
    head = "".join(f"<th>{escape(run.name)}</th>" for run in runs) if len(runs) > 1 else "<th>value</th>"
    body = "".join(
        f"<tr{' class=differs' if name in differing else ''}><td>{escape(name)}</td>"
        + "".join(f"<td>{escape(table.get(name, '–'))}</td>" for table in tables)
        + "</tr>"
        for name in names
    )
    summary = f"{len(names)} entries" + (f", {len(differing)} differ" if len(runs) > 1 else "")
    return (
        f"<h2>{title}</h2><details{' open' if opened else ''}><summary>{summary}</summary>"
        f'<div class="wide"><table class="settings"><tr><th>name</th>{head}</tr>{body}</table></div></details>'
    )
