"""Draw the pictures of docs/serving.md: `python -m tests.playground.pictures RUN [RUN] SENTENCE WORD OTHER`."""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright
from tests.playground.conftest import ARGUMENTS, BROWSERS, serving, visiting

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"


def draw(names: list[str], text: str, word: str, other: str) -> None:
    """A sentence in light and in dark, with the candidates for a word; in dark the other one is put in."""
    found = next(filter(None, map(shutil.which, BROWSERS)))
    with sync_playwright() as started, serving(names) as url:
        browser = started.chromium.launch(executable_path=found, args=ARGUMENTS)
        for scheme in ("light", "dark"):
            size = {"width": 900, "height": 640}
            with visiting(browser, url, color_scheme=scheme, viewport=size) as visit:
                visit.type(text)
                visit.panel().get_by_role("button", name=f"{word}, replaced").click()
                visit.panel().locator(".candidates button.share").first.wait_for()
                if scheme == "dark":
                    visit.panel().locator(".candidates").get_by_text(other, exact=True).click()
                    visit.settle()
                visit.page.screenshot(path=IMAGES / f"playground-{scheme}.png", full_page=True)
        browser.close()


if __name__ == "__main__":
    *runs, sentence, chosen, put_in = sys.argv[1:]
    draw(runs, sentence, chosen, put_in)
