"""The rooms: imports point down only, files stay small, nothing on a load path can run code."""

import ast
import re
from collections import Counter
from pathlib import Path

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
    "paper.paper_tables",
    "files.wording",
)

BRANCHED, MOST_BRANCHES = 10, 25
"""Functions above 15 branches, and the most of one: they only fall."""


def is_module(name: str) -> bool:
    return (SOURCE.parent / (name.replace(".", "/") + ".py")).is_file()


def test_every_room_is_known() -> None:
    assert {room(module_name(path)) for path in FILES} == {*ROOMS}
    folders = [name for name in ROOMS if (SOURCE / name).is_dir()]
    assert len(folders) <= 20 and len(ROOMS) - len(folders) <= 8


def test_imports_point_down() -> None:
    """Also those inside functions."""
    height = {name: number for number, name in enumerate(ROOMS)}
    pairs = [(module_name(path), target) for path in FILES for target in imports(path)]
    assert [(mine, target) for mine, target in pairs if height[room(target)] > height[room(mine)]] == []


def test_no_circles() -> None:
    assert circles() == []


def test_no_basename_occurs_twice() -> None:
    counts = Counter(path.name for path in FILES if path.name not in ("__init__.py", "request.py"))
    assert [name for name, count in counts.items() if count > 1] == []


def test_every_file_says_its_purpose() -> None:
    said = {module_name(path): house.purpose(path) for path in FILES}
    assert {name: text for name, text in said.items() if not text.endswith((".", ":")) or len(text) > 240} == {}


def test_data_and_model_do_not_know_each_other() -> None:
    for path in FILES:
        other = {"data": "model", "model": "data"}.get(room(module_name(path)))
        assert not [target for target in imports(path) if other and room(target) == other], path


def test_files_are_small() -> None:
    """A long file is one idea."""
    texts = {module_name(path): path.read_text(encoding="utf-8") for path in FILES}
    assert [name for name, text in texts.items() if text.count("\n") > 800] == []
    assert [name for name, text in texts.items() if max(map(len, text.splitlines()), default=0) > 120] == []


def test_rooms_stay_below_their_ceilings() -> None:
    found = {name: sum(one.code for one in sizes) for name, sizes in house.rooms().items()}
    found |= {"all": sum(found.values()), **{name: house.code_in(ROOT / name) for name in ("tests", "benchmarks")}}
    assert found.keys() == house.CEILINGS.keys()
    assert {name: lines for name, lines in found.items() if lines > house.CEILINGS[name]} == {}


def test_pages_and_records_are_few() -> None:
    """Their numbers only fall."""
    pages = [*(ROOT / "docs").glob("*.md")]
    texts = [*pages, ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]
    assert len(pages) <= 16 and sum(len(page.read_text(encoding="utf-8").split()) for page in texts) <= 32_000
    assert len([path for path in (ROOT / "records").iterdir() if path.is_dir()]) <= 30


def test_functions_have_few_branches() -> None:
    """Limits hold for what a reader has in mind, not for length: at most 15 branches, 80 lines of code after the docstring."""
    found = [(house.branches(node), f"{module_name(path)}.{node.name}") for path in FILES for node in functions(path)]
    many = sorted((count, name) for count, name in found if count > 15)
    assert len(many) <= BRANCHED and max(many, default=(0, ""))[0] <= MOST_BRANCHES, many
    lengths = [(house.length(node), f"{module_name(path)}.{node.name}") for path in FILES for node in functions(path)]
    assert [(lines, name) for lines, name in lengths if lines > 80] == []


def functions(path: Path) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(tree(path)) if isinstance(node, ast.FunctionDef)]


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


SLOW_TO_LOAD = ("matplotlib", "scipy", "sklearn", "transformers")


def test_light_modules_do_not_import_torch() -> None:
    """Not at the top of the file; what they import from us is light as well."""
    heavy = {name: {"torch", *SLOW_TO_LOAD} & loaded_with(name).keys() for name in TORCH_FREE}
    assert {name: found for name, found in heavy.items() if found} == {}


def test_training_begins_without_what_is_slow_to_load() -> None:
    """Each of these takes a second or more, as long as PyTorch itself: only what needs it loads it."""
    for module in ("train.loop", "finetuning.run"):
        assert not set(SLOW_TO_LOAD) & loaded_with(module).keys(), module


FORBIDDEN = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_ATTRIBUTES = {("torch", "load"), ("torch", "save"), ("yaml", "load"), ("tarfile", "open"), ("os", "system")}


def test_nothing_on_a_load_path_runs_code() -> None:
    for path, node in [(file, node) for file in FILES for node in ast.walk(tree(file))]:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [a.name for a in node.names] + ([node.module or ""] if isinstance(node, ast.ImportFrom) else [])
            assert not {"pickle", "marshal", "shelve", "dill", "cloudpickle"} & set(names), path
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name):
                assert called.id not in FORBIDDEN, f"{path}:{node.lineno}"
            if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
                assert (called.value.id, called.attr) not in FORBIDDEN_ATTRIBUTES, f"{path}:{node.lineno}"


def test_lines_of_prose_are_short() -> None:
    """Tables and commands apart."""
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
        assert [line for line in text.splitlines() if len(line) > 120 and not line.startswith("|")] == [], page.name
