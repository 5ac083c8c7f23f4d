"""The rooms: imports point down only, files stay small, nothing on a load path can run code."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest
from tests import house
from tests.house import FILES, ROOMS, ROOT, SOURCE, circles, imports, module_name, room, tree

TORCH_FREE = (
    "errors",
    "settings.methods",
    "settings.config",
    "settings.records",
    "presets.models",
    "presets.arms",
    "cost.flops",
    "cost.parameters",
    "cli.main",
    "cli.show",
    "data.corpus",
    "data.docstrings",
    "paper.published",
    "tasks.recipe",
    "tasks.task",
    "tasks.squad_files",
    "tasks.squad_score",
    "cli.predict",
    "tasks.glue_tasks",
    "finetuning.glue_table",
    "files.tables",
    "tasks.examples",
    "tasks.examples",
    "paper.paper_tables",
    "files.wording",
    "paper.paper_tables",
)


def is_module(name: str) -> bool:
    return (SOURCE.parent / (name.replace(".", "/") + ".py")).is_file()


def test_every_room_is_known() -> None:
    assert {room(module_name(path)) for path in FILES} == {*ROOMS}
    folders = [name for name in ROOMS if (SOURCE / name).is_dir()]
    assert len(folders) <= 20 and len(ROOMS) - len(folders) <= 8


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_imports_point_down(path: Path) -> None:
    """Also those inside functions."""
    mine = module_name(path)
    up = [target for target in imports(path) if ROOMS.index(room(target)) > ROOMS.index(room(mine))]
    assert not up, f"{mine} imports {up}"


def test_no_circles() -> None:
    assert circles() == []


def test_no_basename_occurs_twice() -> None:
    counts = Counter(path.name for path in FILES if path.name not in ("__init__.py", "request.py"))
    assert [name for name, count in counts.items() if count > 1] == []


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_every_file_says_its_purpose(path: Path) -> None:
    said = house.purpose(path)
    assert said.endswith((".", ":")) and len(said) <= 240, said


def test_data_and_model_do_not_know_each_other() -> None:
    for path in FILES:
        other = {"data": "model", "model": "data"}.get(room(module_name(path)))
        assert not [target for target in imports(path) if other and room(target) == other], path


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_files_and_functions_are_small(path: Path) -> None:
    """A long file is one idea; a function fits on a screen, its docstring apart."""
    text = path.read_text()
    assert text.count("\n") <= 800
    assert max(map(len, text.splitlines()), default=0) <= 120
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno is not None
            begin = node.body[0].end_lineno if ast.get_docstring(node) else node.lineno
            assert begin is not None and node.end_lineno - begin <= 60, f"{path.name}:{node.lineno} {node.name}"


def test_few_lines_are_kept_from_the_formatter() -> None:
    assert sum(path.read_text().count("# fmt: skip") for path in FILES) <= 40


def loaded_with(module: str) -> dict[str, Path]:
    """The packages of others that importing `module` loads at once -> the first of our files that asks for it."""
    seen, queue, others = set(), [module], {}
    while queue:
        name = queue.pop()
        seen.add(name)
        path = SOURCE / (name.replace(".", "/") + ".py")
        if not path.is_file():
            path = SOURCE / name.replace(".", "/") / "__init__.py"
        for node in tree(path).body:
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                parts = [f"{node.module}.{a.name}" for a in node.names]  # what is imported may be a module itself
                names += [node.module, *(part for part in parts if is_module(part))]
            others |= {n.split(".")[0]: path for n in names if not n.startswith("electra_trainer")}
            ours = [n.removeprefix("electra_trainer.") for n in names if n.startswith("electra_trainer.")]
            queue += [n for n in ours if n not in seen]
    return others


@pytest.mark.parametrize("module", TORCH_FREE)
def test_light_modules_do_not_import_torch(module: str) -> None:
    """Not at the top of the file; what they import from us is light as well."""
    assert not {"torch", *SLOW_TO_LOAD} & loaded_with(module).keys()


SLOW_TO_LOAD = ("matplotlib", "scipy", "sklearn", "transformers")


@pytest.mark.parametrize("module", ["train.loop", "finetuning.run"])
def test_training_begins_without_what_is_slow_to_load(module: str) -> None:
    """Each of these takes a second or more, as long as PyTorch itself: only what needs it loads it."""
    assert not set(SLOW_TO_LOAD) & loaded_with(module).keys()


FORBIDDEN = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_ATTRIBUTES = {("torch", "load"), ("torch", "save"), ("yaml", "load"), ("tarfile", "open"), ("os", "system")}


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_nothing_on_a_load_path_runs_code(path: Path) -> None:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [a.name for a in node.names] + ([node.module or ""] if isinstance(node, ast.ImportFrom) else [])
            assert not {"pickle", "marshal", "shelve", "dill", "cloudpickle"} & set(names), path
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name):
                assert called.id not in FORBIDDEN, f"{path}:{node.lineno}"
            if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
                assert (called.value.id, called.attr) not in FORBIDDEN_ATTRIBUTES, f"{path}:{node.lineno}"


@pytest.mark.parametrize("page", ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))])
def test_lines_of_prose_are_short(page: str) -> None:
    """Tables and commands apart."""
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.S)
    assert [line for line in text.splitlines() if len(line) > 120 and not line.startswith("|")] == []
