"""The pages: links and anchors lead somewhere, the site builds, each want has a command and a test, and the notebooks run."""

import contextlib
import functools
import importlib.util
import io
import json
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import pytest

from electra_trainer.cli.main import VERBS, main

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    *sorted((ROOT / "docs").glob("*.md")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "notebooks/README.md")),
]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@functools.cache
def help_of(verb: str, which: str = "--help-all") -> str:
    with contextlib.redirect_stdout(io.StringIO()) as said:
        assert main([verb, which]) == 0
    return said.getvalue()


def without_code(text: str) -> str:
    return re.sub(r"^ *```.*?^ *```|`[^`\n]+`", "", text, flags=re.S | re.M)


@functools.cache
def anchors(page: Path) -> frozenset[str]:
    """Anchors of its headings, as GitHub makes them."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    heads = (head.replace("`", "").strip().lower() for head in re.findall(r"^#+ (.*)$", text, re.M))
    return frozenset(re.sub(r"[^\w\- ]", "", head).replace(" ", "-") for head in heads)


def dead_links(page: Path) -> list[str]:
    found = []
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text(encoding="utf-8"))):
        target, _, anchor = link.partition("#")
        file = (page.parent / target).resolve() if target else page
        if not re.match(r"[a-z]+:", link) and not (file.exists() and (not anchor or anchor in anchors(file))):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere_on_github(page: Path) -> None:
    assert dead_links(page) == []


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# A `heading`, here\n")
    page = tmp_path / "page.md"
    page.write_text("[a](other.md#a-heading-here) [b](other.md#gone) [c](gone.md) [d](#gone) `[e](code)`\n")
    assert dead_links(page) == ["other.md#gone", "gone.md", "#gone"]


@pytest.fixture
def builder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_site", ROOT / "docs" / "build_site.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.mark.slow
def test_the_site_builds(
    builder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Strictly: zensical fails for links and anchors that lead nowhere, the builder for files; see docs/build_site.py."""
    for name in ("COLUMNS", "NO_COLOR"):
        monkeypatch.setenv(name, "")  # restored afterwards: the builder sets them
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    assert builder.build(tmp_path) == 0, capfd.readouterr()
    site = tmp_path / "site"
    assert not [
        verb for verb in VERBS if f"usage: electra {verb}" not in (site / "cli" / verb / "index.html").read_text()
    ]
    reference = (site / "reference" / "index.html").read_text()
    assert "electra_trainer.pretrain" in reference and "Pre-train on prepared data" in reference
    records = {path.name for path in (ROOT / "records").iterdir() if (path / "README.md").is_file()}
    assert len(records & {path.name for path in (site / "records").iterdir()}) > 20
    home = (site / "index.html").read_text()
    assert not re.findall(r"""(?:src|href)=["']?https?://(?!zensical\.org)[^"' >]+\.(?:js|css|woff2?)""", home), (
        "loaded from elsewhere"
    )


def test_the_builder_refuses_what_leads_nowhere(builder: ModuleType) -> None:
    page = ROOT / "docs" / "data.md"
    text, found = builder.linked("[a](../records/2026-11-20-data-path) [b](training.md#exit-codes) `[c](code)`", page)
    assert (
        text == "[a](records/2026-11-20-data-path/index.md) [b](training.md#exit-codes) `[c](code)`" and len(found) == 2
    )
    for target in ("gone.md", "../records/gone", "../../outside"):
        with pytest.raises(SystemExit, match="which is not in the repository"):
            builder.linked(f"[a]({target})", page)


def test_answers_name_verbs_and_flags() -> None:
    text = (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")
    text += (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    commands = [
        line
        for block in re.findall(r"```bash\n(.*?)```", text, re.S)
        for line in block.splitlines()
        if line.startswith("electra ")
    ]
    commands += [one.replace("\n", " ") for one in re.findall(r"`(electra [a-z][^`]+)`", text)]
    assert len(commands) >= 15
    for command in commands:
        words = command.split()
        assert words[1] in VERBS, command
        for flag in re.findall(r" (--[a-z.-]+)", command):
            assert re.search(rf"{re.escape(flag)}\b", help_of(words[1])), f"{command}: {flag}"


def cells(path: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_output(path: Path) -> None:
    code = [cell for cell in cells(path) if cell["cell_type"] == "code"]
    assert code and not [cell for cell in code if cell["outputs"] or cell["execution_count"]], (
        "type: jupyter nbconvert --clear-output"
    )
    for cell in code:
        source = "".join(cell["source"])  # type: ignore[arg-type]
        if source.startswith("%%bash\nelectra "):
            assert source.split()[2] in VERBS, source
        else:
            compile(source, str(path), "exec")
    listed = (ROOT / "notebooks" / "README.md").read_text(encoding="utf-8")
    assert f"({path.name})" in listed


SMALLER = {
    "range(1500)": "range(100)",
    "range(2000)": "range(200)",
    "range(600)": "range(100)",
    "epochs=10": "epochs=2",
    "epochs=4": "epochs=2",
    "topics.values()": "list(topics.values())[:20]",
}
NO_PICTURES = "from electra_trainer.inspection import report\n\nreport.rendered = lambda *_: b'<svg />'"


def code_of(name: str) -> list[str]:
    """The code of a notebook, on a smaller scale."""
    found = []
    for cell in cells(ROOT / "notebooks" / f"{name}.ipynb"):
        source = re.sub(r"(steps?[= ])[16]0", r"\g<1>4", "".join(cell["source"]))  # type: ignore[arg-type]
        for old, new in SMALLER.items():
            source = source.replace(old, new)
        if cell["cell_type"] == "code":
            found.append(source)
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("quick_measurement")
@pytest.mark.parametrize("name", ["own_language", "own_labels", "fine_tuning"])
def test_the_code_of_a_notebook_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, its commands included. The demo's is left to `make notebooks`: tests/cli/test_demo.py runs it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FORCE_COLOR", "")
    monkeypatch.setattr(tempfile, "mkdtemp", lambda: str(tmp_path))
    names: dict[str, object] = {"__name__": "notebook"}
    for number, source in enumerate(code_of(name)):
        if source.startswith("%%bash\n"):
            assert main(shlex.split(source)[2:]) == 0, source
        else:
            exec(compile(source, f"{name}, cell {number}", "exec"), names)


@pytest.mark.slow
def test_a_notebook_runs_in_jupyter(tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    cells = [nbformat.v4.new_code_cell(source) for source in [NO_PICTURES, *code_of("what_a_step_saw")]]
    notebook = nbformat.v4.new_notebook(cells=cells)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {
        **os.environ,
        "PATH": path,
        "PYTHONPATH": str(ROOT / "src"),
        "TMPDIR": str(tmp_path),
        "IPYTHONDIR": str(tmp_path / "ipython"),
    }
    NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute(env=env)
    assert len([cell for cell in notebook.cells if cell.outputs]) >= 3
