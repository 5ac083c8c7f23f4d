"""No code in data, as far as the source can say it; and no network at run time unless a Hub name is given."""

from __future__ import annotations

import ast
import json
import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.command import Electra
from tests.finetuning.own_files import rows, write_csv
from tests.prepared import small_config, write_text
from tests.reliability.figures import report

from electra_trainer.settings.records import to_dict

SOURCE = Path(__file__).resolve().parents[2] / "src" / "electra_trainer"
FILES = sorted(SOURCE.rglob("*.py"))
MODULES = {
    "pickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "yaml", "tarfile", "zipfile", "xml", "pty", "telnetlib",
    "multiprocessing", "ctypes", "runpy", "code", "imp",
}  # fmt: skip
"""Calls that unpickle, unpack or run their arguments."""
NAMES = {"eval", "exec", "compile", "__import__", "input", "breakpoint"}
ATTRIBUTES = {
    "torch.load", "torch.save", "torch.hub.load", "torch.jit.load", "torch.package.PackageImporter", "numpy.load", "np.load", "os.system", "os.popen",
    "os.startfile", "shutil.unpack_archive", "pandas.read_pickle", "importlib.reload", "subprocess.getoutput", "subprocess.getstatusoutput",
    "asyncio.create_subprocess_shell", "tempfile.mktemp",
}  # fmt: skip
METHODS = {"extractall", "extract", "from_pretrained", "loads_pickle"}
KEYWORDS = {"allow_pickle", "trust_remote_code", "weights_only"}
GLOBAL_RNG = {
    *(f"random.{name}" for name in "random randint choice choices shuffle sample uniform gauss seed".split()),
    *(f"{module}.random.{name}" for module in ("np", "numpy") for name in "rand randn randint random choice shuffle permutation seed normal uniform".split()),
    *(f"torch.{name}" for name in "rand randn randint randperm multinomial bernoulli normal rand_like randn_like randint_like".split()),
    "torch.seed",
}  # fmt: skip
NETWORK = {
    *"socket http urllib requests httpx aiohttp ftplib smtplib huggingface_hub datasets fsspec webbrowser".split()
}

ALLOWED = {
    # the private channel between a process and the child that it started; nothing of it is a file
    ("files/processes.py", "multiprocessing"),
    ("experiments/engine.py", "multiprocessing"),
    # the library that native/ has compiled from the source beside it
    ("kernels/native/library.py", "ctypes"),
    ("kernels/native/layers.py", "ctypes"),
    ("kernels/native/native_softmax.py", "ctypes"),
    ("kernels/native/native_muon.py", "ctypes"),
    # one call of the system's library, which asks for a signal at the end of the parent
    ("runs/signals.py", "ctypes"),
    # an error of the thread that saves is kept, and raised again where the steps are
    ("runs/checkpoint.py", "except that hides"),
    # an error of a tracker's thread is reported, and ends nothing else
    ("inspection/trackers.py", "except that hides"),
    # GLUE's submission is written as a zip; none is read
    ("finetuning/glue_table.py", "zipfile"),
    # a folder that was just exported, read by transformers to compare ids and logits, and to write ONNX
    ("pretrained/agreement.py", ".from_pretrained"),
    ("finetuning/onnx.py", ".from_pretrained"),
    # drawn from the generator that randomness.py has seeded with the key of the step and lane
    ("kernels/vmapped.py", "torch.randint"),
    ("kernels/native/layers.py", "torch.randint"),
    # asked only for a name that is no folder and looks like one of the Hub
    ("pretrained/located.py", "huggingface_hub"),
    # the YAML of a model card; nothing is asked of the Hub
    ("pretrained/model_card.py", "huggingface_hub"),
    # the playground listens where it is told, by default on this machine alone; its page is opened in the user's browser
    ("playground/server.py", "socket"),
    ("playground/server.py", "http"),
    # only for an input that is a URL, or looks like a name of the Hub and is not on the disk
    ("files/opening.py", "fsspec"),
    ("files/sources.py", "huggingface_hub"),
    ("files/sources.py", "datasets"),
}


def dotted(node: ast.AST) -> str:
    """`a.b.c` of an expression of names, else an empty string."""
    if isinstance(node, ast.Name):
        return node.id
    inner = dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{inner}.{node.attr}" if inner and isinstance(node, ast.Attribute) else ""


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name.split(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module not in (None, "urllib.parse"):
        return [str(node.module).split(".")[0]]
    return []


def _of_call(node: ast.Call) -> Iterator[str]:
    name = dotted(node.func)
    keywords = {keyword.arg: keyword.value for keyword in node.keywords}
    if name in NAMES or name in ATTRIBUTES:
        yield name
    if isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
        yield f".{node.func.attr}"
    yield from (str(word) for word in KEYWORDS & keywords.keys())
    shell = keywords.get("shell")
    if shell is not None and not (isinstance(shell, ast.Constant) and shell.value is False):
        yield "shell="
    if name.startswith("subprocess.") and node.args and isinstance(node.args[0], ast.Constant | ast.JoinedStr):
        yield "a command as a text"
    if name in GLOBAL_RNG and "generator" not in keywords:
        yield name
    unseeded = name.endswith(("default_rng", "random.Random", "SeedSequence", "RandomState"))
    if unseeded and not node.args and not keywords:
        yield f"{name}()"


def findings(source: str) -> list[tuple[int, str]]:
    """Line and name of everything in a file that can run data as code, hide an error, or draw from nowhere."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(source)):
        found += [(node.lineno, name) for name in imported(node) if name in MODULES | NETWORK]  # type: ignore[attr-defined]
        if isinstance(node, ast.Call):
            found += [(node.lineno, name) for name in _of_call(node)]
        if isinstance(node, ast.ExceptHandler):
            silent = all(isinstance(line, ast.Pass) for line in node.body)
            broad = node.type is None or dotted(node.type) in ("Exception", "BaseException")
            raises = any(isinstance(inner, ast.Raise) for line in node.body for inner in ast.walk(line))
            if node.type is None or (broad and silent) or (dotted(node.type) == "BaseException" and not raises):
                found.append((node.lineno, "except that hides"))
    return found


SABOTAGE = {
    "pickle": "import pickle", "torch.load": "torch.load('f', weights_only=False)", "allow_pickle": "np.load('f', allow_pickle=True)",
    "yaml": "import yaml", "eval": "eval(text)", "exec": "exec(text)", "compile": "compile(text, 'f', 'exec')",
    ".extractall": "archive.extractall(folder)", "shell=": "subprocess.run('ls', shell=True)", "a command as a text": "subprocess.run(f'ls {name}')",
    "except that hides": "try:\n    f()\nexcept:\n    pass", "torch.randn": "torch.randn(3)", "np.random.rand": "np.random.rand(3)",
    "random.shuffle": "random.shuffle(rows)", "default_rng()": "default_rng()", "trust_remote_code": "load(name, trust_remote_code=True)",
    "urllib": "from urllib.request import urlopen",
}  # fmt: skip


def test_nothing_in_the_source_runs_data() -> None:
    found = {
        (path.relative_to(SOURCE).as_posix(), name): line for path in FILES for line, name in findings(path.read_text())
    }
    caught = sum(name in [one for _, one in findings(text)] for name, text in SABOTAGE.items())
    report(
        "static_gate", files=len(FILES), allowed=len(ALLOWED), control_sabotages=len(SABOTAGE), control_caught=caught
    )
    assert {name: line for name, line in found.items() if name not in ALLOWED} == {}
    assert ALLOWED - found.keys() == set(), "an exception that nothing needs any more"
    assert caught == len(SABOTAGE)


class Refused(BaseException):
    """Not an `Exception`: nobody can take it for a network that is down."""


JOURNEY = (
    "tokenizer text.txt --vocab-size 400 --out tok",
    "prepare text.txt --tokenizer tok --seq-len 32 --valid-fraction 0.1 --workers 1 --out data",
    "pretrain data --config c.json --device cpu --quiet --out run",
    "evaluate run data",
    "export run --out export",
    "finetune export --train train.csv --seeds 1 --epochs 1 --parallel 1 --device cpu --quiet --out tuned",
    "predict tuned/model train.csv --device cpu --out said.csv",
    "report run",
)


@pytest.mark.alone  # in a separate process: what other tests have loaded may hold sockets
@pytest.mark.draws  # matplotlib opens none either
def test_no_network_at_run_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, electra: Electra) -> None:
    """From text to predictions without a socket; a Hub name is what opens one."""
    opened: list[object] = []

    def refuse(*words: object, **_: object) -> None:
        opened.append(words)
        raise Refused

    monkeypatch.setattr(socket.socket, "__init__", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / "text.txt", documents=10)
    write_csv(tmp_path / "train.csv", rows(24))
    (tmp_path / "c.json").write_text(json.dumps(to_dict(small_config(steps=3, layers=1))))
    for command in JOURNEY:
        assert electra(*command.split())[0] == 0, command
    assert not opened
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)  # some machines set it for all
    with pytest.raises(Refused):  # the control: this is how a socket would be seen
        electra(*f"finetune somebody/model{random.Random(0).random()} --train train.csv --seeds 1 --out other".split())
    report("no_network", verbs=len(JOURNEY), sockets=0, control_sockets_of_a_hub_name=len(opened))
