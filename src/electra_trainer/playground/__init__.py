"""Networks on one page in the browser: words with their probabilities, candidates, labels."""

from pathlib import Path

PAGE = Path(__file__).with_name("page")
FILES = {
    "index.html": "text/html",
    "style.css": "text/css",
    "page.js": "text/javascript",
    "panel.js": "text/javascript",
    "engine.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
"""Files of the page, with their kinds."""
