"""The page of `electra playground` in a browser: its numbers are the library's, it asks nobody else, and everybody can use it."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib import error, request

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.command import Electra
from tests.playground.conftest import Visit, serving, visiting

from electra_trainer import load, load_finetuned

SENTENCE = "The class returns a value of the object."


@pytest.fixture(scope="module")
def url(run: Path) -> Iterator[str]:
    with serving([run]) as address:
        yield address


@pytest.fixture
def visit(browser: Any, url: str) -> Iterator[Visit]:
    with visiting(browser, url) as found:
        yield found
        assert found.complaints == []


def test_probabilities_are_those_of_score(visit: Visit, run: Path) -> None:
    """Also of pieces, of unknown letters, and of "[MASK]", which is ordinary text here."""
    for text in (SENTENCE, "Unlikely, don't  日本 [MASK] naïve! ", "word " * 70):
        visit.type(text)
        scored = load(run).score(text)
        assert visit.scores() == pytest.approx(scored.replaced_probability, abs=1e-9)
        shown = visit.panel().locator(".word data").all_inner_texts()
        assert shown == [f"{share:.2f}" for share in visit.scores()], "not by colour alone"
    visit.type(SENTENCE)
    names = visit.panel().get_by_role("button").evaluate_all("all => all.map((one) => one.ariaLabel)")
    assert [re.sub(", replaced.*", "", name) for name in names] == "The class returns a value of the object .".split()


def test_candidates_are_those_of_fill_and_move_the_scores(visit: Visit, run: Path) -> None:
    visit.type(SENTENCE)
    visit.panel().get_by_role("button", name="value, replaced").click()
    shares = visit.panel().locator(".candidates button.share")
    shares.first.wait_for()
    expected = load(run).fill(SENTENCE.replace("value", "[MASK]"), top=12)[0]
    shown = visit.panel().locator(".candidates .share:has(data)")
    assert shown.locator("span").all_inner_texts() == [re.sub("^##", "…", one.token) for one in expected]
    assert visit.shares(".candidates") == pytest.approx([one.probability for one in expected], abs=1e-9)
    word = next(one.token for one in expected if one.token.isalpha())
    before = visit.scores()
    shares.filter(has=visit.page.get_by_text(word, exact=True)).first.click()
    visit.settle()
    changed = SENTENCE.replace("value", word)
    assert visit.page.get_by_label("Sentence", exact=True).input_value() == changed
    assert visit.scores() == pytest.approx(load(run).score(changed).replaced_probability, abs=1e-9)
    moves = visit.panel().locator(".change").all_inner_texts()
    assert visit.scores() != before and moves and all(re.fullmatch(r"[▲▼] [+−]0\.\d\d", move) for move in moves)
    shares.filter(has=visit.page.get_by_text("as it was", exact=True)).click()
    visit.settle()
    assert visit.scores() == pytest.approx(before, abs=1e-9), "and back"


def test_a_piece_is_joined_to_the_word_before(visit: Visit, run: Path) -> None:
    text = "a b"
    visit.type(text)
    visit.panel().get_by_role("button", name="b, replaced").click()
    visit.panel().locator(".candidates li").first.wait_for()
    pieces = visit.panel().locator(".candidates button.share").filter(has_text=re.compile("^…"))
    if not pieces.count():
        pytest.skip("the generator proposes no piece here")
    piece = pieces.first.locator("span").first.inner_text()
    pieces.first.click()
    visit.settle()
    assert visit.page.get_by_label("Sentence", exact=True).input_value() == "a" + piece.removeprefix("…")


def test_begins_with_a_held_out_sentence(visit: Visit) -> None:
    """Both as it was written and with a word exchanged."""
    start = visit.page.get_by_label("Sentence", exact=True).input_value()
    options = visit.page.get_by_label("Held-out sentences").locator("option").all_inner_texts()
    assert start in options and len(options) >= 2
    visit.page.get_by_label("Held-out sentences").select_option(options[-1])
    visit.settle()
    assert visit.page.get_by_label("Sentence", exact=True).input_value() == options[-1]
    assert visit.scores()


def test_a_slider_over_the_checkpoints(visit: Visit, run: Path) -> None:
    visit.type(SENTENCE)
    slider = visit.page.get_by_role("slider", name="Step")
    assert slider.get_attribute("aria-valuetext") == "step 12"
    slider.press("Home")
    visit.settle()
    assert slider.get_attribute("aria-valuetext") == "step 4"
    assert visit.scores() == pytest.approx(load(f"{run}@4").score(SENTENCE).replaced_probability, abs=1e-9)
    assert visit.panel().locator(".change").count(), "how they moved from step to step"


def test_two_runs_side_by_side(browser: Any, run: Path) -> None:
    """A word that is exchanged in one is read by both."""
    with serving([run, f"{run}@8"]) as url, visiting(browser, url) as visit:
        visit.type(SENTENCE)
        for panel, name in enumerate((run, f"{run}@8")):
            assert visit.scores(panel) == pytest.approx(load(name).score(SENTENCE).replaced_probability, abs=1e-9)
        assert visit.scores(0) != visit.scores(1)
        boxes = [visit.panel(number).bounding_box() for number in (0, 1)]
        assert boxes[0]["y"] == boxes[1]["y"] and boxes[0]["x"] < boxes[1]["x"]
        visit.panel(1).get_by_role("button", name="value, replaced").click()
        visit.panel(1).locator(".candidates button.share").first.click()
        visit.settle()
        text = visit.page.get_by_label("Sentence", exact=True).input_value()
        assert text != SENTENCE
        assert visit.scores(0) == pytest.approx(load(run).score(text).replaced_probability, abs=1e-9)
        visit.page.set_viewport_size({"width": 360, "height": 700})
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= 360, "a narrow screen"


def test_labels_of_fine_tuned_models(browser: Any, tuned: dict[str, Path]) -> None:
    """Predictions of `Finetuned.predict`: classes, and a tag for each word."""
    text = "we saw the old hammer"
    with serving([tuned["texts"], tuned["tags"]]) as url, visiting(browser, url) as visit:
        visit.type(text)
        said = load_finetuned(tuned["texts"]).predict([text])[0]
        labels = visit.panel(0).locator(".labels li")
        shown = dict(zip(labels.locator("span").all_inner_texts(), visit.shares(".labels"), strict=True))
        assert shown == pytest.approx(said["probabilities"], abs=1e-6)
        assert visit.panel(0).locator(".answer").inner_text() == said["label"]
        assert visit.panel(0).locator(".note").inner_text() == ""
        tags = load_finetuned(tuned["tags"]).predict([text.split()])[0]["tags"]
        assert visit.panel(1).locator(".word .tag").all_inner_texts() == tags
        assert visit.panel(1).locator(".word span:first-child").all_inner_texts() == text.split()
        visit.type("saw " * 60)  # rows have 32 tokens, [CLS] and [SEP] among them
        tokens = len(load_finetuned(tuned["texts"]).text.tokenizer.encode("saw " * 60, add_special_tokens=False).ids)
        share = f"{100 * (1 - 30 / tokens):.1f} % of the text is left out."
        assert visit.panel(0).locator(".note").inner_text() == f"The model reads 30 tokens of it: {share}"


def test_models_of_two_texts(browser: Any, tuned: dict[str, Path]) -> None:
    """Pairs, and a question with the text that may hold its answer."""
    for kind, label, one, two in (
        ("pairs", "Second text", "the old saw", "was eht"),
        ("squad", "Question", "A class is an object that makes others.", "What is it?"),
    ):
        with serving([tuned[kind]]) as url, visiting(browser, url) as visit:
            visit.page.locator("#text").fill(one)
            visit.settle()
            assert "give at least one word" in visit.panel().get_by_role("alert").inner_text()
            visit.page.get_by_label(label).fill(two)
            visit.settle()
            said = load_finetuned(tuned[kind]).predict([(two, one) if kind == "squad" else (one, two)])[0]
            assert visit.panel().locator(".answer").inner_text() == said["text" if kind == "squad" else "label"]


HOSTILE = '<img src=x onerror="document.title=1"> <script>document.title=1</script> <b>bold</b> &amp;'


def test_hostile_text_is_text(visit: Visit, run: Path) -> None:
    """Typed; and as a model's name, a word, a token, a candidate and an error that the server sends: nothing of it becomes an element."""
    visit.type(HOSTILE)
    names = visit.panel().get_by_role("button").evaluate_all("all => all.map((one) => one.ariaLabel.split(',')[0])")
    assert "img" in names and "script" in names and names[0] == "<"
    assert len(visit.scores()) == len(load(run).score(HOSTILE).tokens)
    word = {"before": "", "text": HOSTILE, "tokens": [HOSTILE, HOSTILE], "replaced_probability": [0.5, 0.5]}
    model = {"kind": "pretrained", "name": HOSTILE, "about": HOSTILE, "steps": [], "step": 1, "scores": True}
    answers: dict[str, Any] = {
        "models": {"models": [model | {"examples": [{"written": HOSTILE, "read": HOSTILE}]}]},
        "score": {"words": [word], "after": HOSTILE},
        "fill": {"gaps": [[{"token": HOSTILE, "probability": 0.5}]]},
    }
    visit.page.route("**/api/*", lambda route: route.fulfill(json=answers[route.request.url.rpartition("/")[2]]))
    visit.page.reload()
    visit.settle()
    visit.panel().get_by_role("button").first.click()
    visit.panel().locator(".candidates button.share").first.wait_for()
    shown = visit.page.locator("main").inner_text()
    assert shown.count(HOSTILE) >= 6, "name, description, two pieces, heading, candidate"
    visit.page.route("**/api/score", lambda route: route.fulfill(status=400, json={"error": HOSTILE}))
    visit.type("a")
    assert visit.panel().get_by_role("alert").inner_text() == HOSTILE
    assert visit.page.locator("main img, main script, main b").count() == 0
    assert visit.page.title() == "ELECTRA playground"
    visit.complaints[:] = [line for line in visit.complaints if "400" not in line]


def test_no_script_of_the_text_could_run(visit: Visit) -> None:
    """The policy refuses what the page itself would never do: inline scripts, handlers, eval, other hosts."""
    found = visit.page.evaluate(
        """async () => {
            document.body.insertAdjacentHTML("beforeend", '<img src="x" onerror="document.title = 1">');
            const inline = document.createElement("script");
            inline.textContent = "document.title = 2";
            document.body.append(inline);
            const away = await fetch("http://example.org/").then(() => "left", () => "refused");
            return [away, await new Promise((done) => setTimeout(() => done(document.title), 200))];
        }"""
    )
    assert found == ["refused", "ELECTRA playground"]
    refused = [line for line in visit.complaints if "Content Security Policy" in line or "Refused" in line]
    assert len(refused) >= 3
    visit.complaints.clear()
    visit.asked[:] = [
        asked for asked in visit.asked if "example.org" not in asked
    ]  # it did not leave: the policy is before the network


def test_by_keyboard_alone(visit: Visit) -> None:
    """From the text to a word, its candidates, one of them, and out again; the focus is visible all the way."""
    keys = visit.page.keyboard
    focused = visit.page.locator(":focus")
    keys.press("Tab")
    assert focused.get_attribute("id") == "text"
    keys.press("Control+a")
    keys.type("a class of value")
    visit.settle()
    while "word" not in (focused.get_attribute("class") or ""):
        keys.press("Tab")
    assert focused.evaluate("one => getComputedStyle(one).outlineStyle") == "solid"
    keys.press("Tab")
    keys.press("Enter")
    visit.panel().locator(".candidates button.share").first.wait_for()
    assert focused.get_attribute("aria-expanded") == "true"
    # A candidate that is a piece of a word would join the word before, whose scores are then fewer
    while "share" not in (focused.get_attribute("class") or "") or focused.inner_text().startswith("…"):
        keys.press("Tab")
    before = visit.scores()
    keys.press("Space")
    visit.settle()
    assert visit.scores() != before and focused.get_attribute("aria-pressed") == "true"
    keys.press("Escape")
    assert visit.panel().locator(".candidates").is_hidden()
    assert focused.get_attribute("aria-label").split(",")[0] != "class"


def test_everything_has_a_name(visit: Visit) -> None:
    """For a screen reader: language, one heading of the page, names of all that can be reached, an announcement of each answer."""
    visit.type(SENTENCE)
    assert visit.page.locator("html").get_attribute("lang") == "en"
    assert visit.page.get_by_role("heading", level=1).count() == 1
    tree = visit.page.locator("body").aria_snapshot()
    for line in tree.splitlines():
        if re.match(r"\s*- (button|slider|textbox|combobox|group|region)\b", line):
            assert re.match(r'\s*- \w+ "[^"]+"', line), f"without a name: {line}"
    said = visit.page.get_by_role("status").inner_text()
    assert re.fullmatch(r"9 words\. Most likely replaced: (\w+|\.), \d\.\d\d\.", said)
    assert 'slider "Step"' in tree


def test_dark_and_light(browser: Any, url: str) -> None:
    """Both are readable: contrast of text as WCAG AA asks, on the hottest word too."""
    for scheme in ("light", "dark"):
        with visiting(browser, url, color_scheme=scheme) as visit:
            visit.type(SENTENCE)
            ink, paper, faint, card, hot = (
                visit.page.evaluate("name => getComputedStyle(document.documentElement).getPropertyValue(name)", name)
                for name in ("--ink", "--paper", "--faint", "--card", "--hot")
            )
            hottest = 0.62 * colour(hot) + 0.38 * colour(card)
            pairs = [(ink, paper), (faint, paper), (faint, card), (ink, hottest)]
            assert (luminance(paper) > 0.5) == (scheme == "light")
            for lights in (sorted(map(luminance, pair)) for pair in pairs):
                assert (lights[1] + 0.05) / (lights[0] + 0.05) >= 4.5


def colour(text: str) -> NDArray[np.float64]:
    """Red, green and blue of `#rgb` or `#rrggbb`, from 0 to 1."""
    digits = text.strip().removeprefix("#")
    parts = [2 * digit for digit in digits] if len(digits) == 3 else [digits[at : at + 2] for at in (0, 2, 4)]
    return np.array([int(part, 16) / 255 for part in parts])


def luminance(given: str | NDArray[np.float64]) -> float:
    """As WCAG defines it."""
    value = colour(given) if isinstance(given, str) else given
    linear = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_the_page_is_small(browser: Any, url: str) -> None:
    with visiting(browser, url) as visit:
        files = {asked for asked in visit.asked if "/api/" not in asked}
        sizes = [len(request.urlopen(file).read()) for file in files]
    assert {file.rpartition("/")[2] for file in files} >= {"", "page.js", "panel.js", "engine.js", "style.css"}
    assert sum(sizes) < 60_000


def test_errors_are_the_librarys_sentences(visit: Visit) -> None:
    visit.type(" ")
    assert visit.panel().get_by_role("alert").inner_text() == "the text is empty: give at least one word."
    visit.type("word " * 40)
    assert len(visit.scores()) >= 40, "scored in windows"
    visit.panel().get_by_role("button").first.click()
    said = visit.panel().get_by_role("alert").inner_text()
    assert re.fullmatch(r"fill: the text has \d+ tokens; the training rows had 32\. Shorten it\.", said)
    visit.type("x" * 70_000)
    assert "the text has more than 65,536 bytes. Shorten it." in visit.panel().get_by_role("alert").inner_text()
    visit.complaints[:] = [
        line for line in visit.complaints if "400" not in line and "413" not in line
    ]  # the browser's own lines


def asked(url: str, body: bytes = b"{}", **headers: str) -> tuple[int, str, Any]:
    """Status, text and headers of a question that is no page's."""
    question = request.Request(f"{url}api/score", data=body, headers={"Content-Type": "application/json", **headers})
    try:
        with request.urlopen(question) as found:
            return found.status, found.read().decode(), found.headers
    except error.HTTPError as refusal:
        return refusal.code, refusal.read().decode(), refusal.headers


def test_other_sites_are_refused(url: str) -> None:
    """Another Host (DNS rebinding), a form's content type, a giant, what is not JSON; each answer has its headers."""
    good = json.dumps({"model": 0, "text": "a class"}).encode()
    assert asked(url, good)[0] == 200
    for status, body, headers, words in (
        (400, good, {"Host": "evil.example"}, "Invalid host"),
        (415, good, {"Content-Type": "text/plain"}, "expected Content-Type: application/json"),
        (413, b" " * 70_000, {}, "more than 65,536 bytes"),
        (400, b"[1]", {}, "expected a JSON object"),
        (400, b'{"model": 7, "text": ""}', {}, "expected 0 to 0"),
        (400, b'{"model": 0, "text": 5}', {}, "text = 5: expected str"),
        (400, b'{"model": 0, "text": "a", "step": 5}', {}, "no checkpoint of step 5"),
    ):
        code, said, found = asked(url, body, **headers)
        assert (code, words in said) == (status, True), said
        assert found["Content-Security-Policy"].startswith("default-src 'self'")
        assert found["X-Content-Type-Options"] == "nosniff" and found["Referrer-Policy"] == "no-referrer"
        assert "Access-Control-Allow-Origin" not in found


def test_the_verb_refuses_in_words(electra: Electra, run: Path) -> None:
    for words, sentence in (
        ([run, run, run], "3 models were given"),
        ([run.parent], "neither a run nor an exported model"),
        ([run, "--port", "99999"], "cannot listen on 127.0.0.1, port 99999"),
    ):
        code, _, err = electra("playground", *words)
        assert code not in (0, 70) and sentence in err


def test_the_verb_serves_until_it_is_interrupted(run: Path) -> None:
    """The verb prints its address, answers there, and Ctrl-C is no failure."""
    command = [sys.executable, "-m", "electra_trainer", "playground", run, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        url = started.stdout.readline().split()[0]
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", url)
        with request.urlopen(url) as page:
            assert b"ELECTRA playground" in page.read()
        started.send_signal(signal.SIGINT)
        assert started.wait(timeout=60) == 0
