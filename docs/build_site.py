"""Build the site of these pages into build/site, strictly: `make docs`, or `python docs/build_site.py [FOLDER]`.

Pages link to records, source and one another with paths that work on GitHub. Here each page is copied, its links follow, and whatever
they lead to outside docs/ (a record's page, a notebook, a table) is copied as well, so that the site needs no repository. Three
things are written anew each time: the help of every verb, the reference of what `import electra_trainer` offers, and the map of the source.
"""

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

import electra_trainer
from electra_trainer.cli.main import VERBS, main

ROOT = Path(__file__).resolve().parents[1]
CODE = re.compile(r"(^ *```.*?^ *```|`[^`]+`)", re.S | re.M)
LINK = re.compile(r"(\[[^][]*\]\(|\]\()([^)\s#]+)(#[^)\s]*)?\)")
FULL_HELP = "--help-all"
MOVED = {"README.md": "readme.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
"""Files at the root of the repository that are pages of the site; the site begins with docs/index.md."""


def place(file: Path) -> PurePosixPath:
    """Where a file of the repository is in the site: docs/ at its root, a folder's README as its page, a notebook as a page."""
    path = PurePosixPath(file.relative_to(ROOT).as_posix())
    if str(path) in MOVED:
        return PurePosixPath(MOVED[str(path)])
    path = path.relative_to("docs") if path.parts[0] == "docs" else path
    if file.is_dir():
        return path / "index.md"
    if path.name == "README.md":
        return path.with_name("index.md")
    return path.with_suffix(".md") if path.suffix == ".ipynb" else path


def page_of(target: Path) -> Path:
    """What is shown of a folder: its README; without one a list of its files."""
    return page if (page := target / "README.md").is_file() else target


def text_of(file: Path) -> str:
    """A page's Markdown; a notebook's cells as a page."""
    if file.is_dir():
        return "\n".join([f"# {file.name}", "", *sorted(f"- `{path.name}`" for path in file.iterdir())])
    text = file.read_text(encoding="utf-8")
    if file.suffix != ".ipynb":
        return text
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
    return "\n\n".join(source if kind == "markdown" else f"```python\n{source}\n```" for kind, source in cells)


def linked(text: str, file: Path) -> tuple[str, list[Path]]:
    """The text with its links as they are in the site, and the files that they lead to; a link that leads nowhere ends the build."""
    found = []

    def moved(match: re.Match[str]) -> str:
        head, target, anchor = match[1], match[2], match[3] or ""
        if re.match(r"[a-z]+:", target):
            return match[0]
        source = page_of((file.parent / target).resolve())
        if not source.exists() and file.name != "README.md" and place(file).parts[0] == "records":
            return head[1:-2]  # in a table of an experiment: run folders are not recorded
        if not source.exists() or not source.is_relative_to(ROOT):
            sys.exit(f"{file.relative_to(ROOT)}: links to {target}, which is not in the repository")
        found.append(source)
        return f"{head}{os.path.relpath(place(source), place(file).parent)}{anchor})"

    parts = CODE.split(text)
    parts[::2] = [LINK.sub(moved, part) for part in parts[::2]]
    return "".join(parts), found


def copy_pages(start: list[Path], pages: Path) -> None:
    """Pages, and whatever they lead to, until nothing new is linked."""
    waiting, done = [*start], set[Path]()
    while waiting:
        file = waiting.pop()
        if file in done:
            continue
        done.add(file)
        goal = pages / place(file)
        goal.parent.mkdir(parents=True, exist_ok=True)
        if goal.suffix == ".md":
            text, found = linked(text_of(file), file)
            goal.write_text(text, encoding="utf-8")
            waiting += found
        else:
            shutil.copyfile(file, goal)


def helps(folder: Path) -> Iterator[dict[str, str]]:
    """A page for each verb; their entries in the navigation."""
    folder.mkdir(parents=True)
    for verb in ("", *VERBS):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            main([verb, FULL_HELP] if verb else ["--help"])
        title, file = (f"electra {verb}", f"{verb}.md") if verb else ("electra", "index.md")
        (folder / file).write_text(
            f"---\nhide: [toc]\n---\n\n# {title}\n\n```text\n{said.getvalue().strip()}\n```\n", encoding="utf-8"
        )
        yield {title if verb else "All verbs": f"cli/{file}"}


def reference() -> str:
    """The page of the Python interface: each name that the package exports, from where it is written."""
    parts = [
        "# Python\n\nAll of it is imported from `electra_trainer`; functions are named as the verbs of the command line are."
    ]
    offered = {name: getattr(electra_trainer, name) for name in electra_trainer.__all__ if not name.startswith("_")}
    for name, thing in sorted(offered.items(), key=lambda one: isinstance(one[1], type)):
        options = {"heading": f"electra_trainer.{name}", "toc_label": name, "heading_level": 2}
        parts.append(f"::: {thing.__module__}.{thing.__qualname__}\n    options: {json.dumps(options)}")
    return "\n\n".join(parts) + "\n"


def named_in(nav: Any) -> Iterator[str]:
    """The files of a navigation."""
    if isinstance(nav, str):
        yield nav
    else:
        for entry in nav.values() if isinstance(nav, dict) else nav:
            yield from named_in(entry)


def build(folder: Path) -> int:
    """Write the pages into FOLDER/pages and the site into FOLDER/site; returns the exit code."""
    os.environ |= {"COLUMNS": "100", "NO_COLOR": "1"}
    pages, config = folder / "pages", yaml.safe_load((ROOT / "docs" / "site.yml").read_text(encoding="utf-8"))
    for old in ("pages", "site", ".cache"):
        shutil.rmtree(folder / old, ignore_errors=True)
    written = sorted((ROOT / "docs").glob("*.md"))
    if unlisted := {place(file).name for file in written} - {*named_in(config["nav"])}:
        print(f"docs/site.yml: its nav does not name {', '.join(sorted(unlisted))}", file=sys.stderr)
        return 1
    copy_pages([*written, *(ROOT / name for name in MOVED)], pages)
    config["nav"][-1]["Reference"].append({"Command line": [*helps(pages / "cli")]})
    (pages / "reference.md").write_text(reference(), encoding="utf-8")
    source_map = subprocess.run(
        [sys.executable, "-m", "tests.house", "map"], cwd=ROOT, stdout=subprocess.PIPE, check=True
    )
    (pages / "map.md").write_bytes(source_map.stdout)
    config["plugins"][-1]["mkdocstrings"]["handlers"]["python"]["paths"] = [str(ROOT / "src")]
    if missing := [name for name in named_in(config["nav"]) if not (pages / name).is_file()]:
        print(f"docs/site.yml: its nav names {', '.join(missing)}, which no page is", file=sys.stderr)
        return 1
    (folder / "mkdocs.yml").write_text(json.dumps(config), encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "zensical",
        "build",
        "--strict",
        "--clean",
        "--config-file",
        str(folder / "mkdocs.yml"),
    ]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build").resolve()))
