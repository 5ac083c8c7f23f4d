"""Parts of a release: the wheel, the source distribution and the repository itself."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from tests.house import ROOT, SOURCE

from electra_trainer.settings.records import BOX, DEFAULT
from electra_trainer.version import __version__


def tracked(*under: str) -> list[str]:
    """Paths of files that git tracks; skips where there is no repository, as in an unpacked source distribution."""
    done = subprocess.run(["git", "ls-files", *under], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode or not done.stdout:
        pytest.skip("needs the git repository")
    return [path for path in done.stdout.splitlines() if (ROOT / path).is_file()]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    words = [sys.executable, "-m", "hatchling", "build", "--directory", str(out)]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    return out


def test_twine_accepts_both(built: Path) -> None:
    words = [sys.executable, "-m", "twine", "check", "--strict", *map(str, built.iterdir())]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.count("PASSED") == 2, done.stdout + done.stderr


def test_the_wheel_holds_the_whole_package(built: Path) -> None:
    """Templates, C++ sources and the playground's page included; no test and no record."""
    with zipfile.ZipFile(built / f"electra_trainer-{__version__}-py3-none-any.whl") as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        metadata = wheel.read(f"electra_trainer-{__version__}.dist-info/METADATA").decode()
    package = {path.removeprefix("src/") for path in tracked(str(SOURCE.relative_to(ROOT)))}
    assert package <= names
    assert {Path(name).suffix for name in names} >= {".py", ".cpp", ".hpp", ".j2", ".html", ".css", ".js", ".toml"}
    assert f"Version: {__version__}" in metadata
    assert f"electra_trainer/encoders/{DEFAULT}/README.md" in names
    assert next(built.glob("*.whl")).stat().st_size <= 20_000_000


def test_the_source_distribution_holds_the_tests(built: Path) -> None:
    with tarfile.open(built / f"electra_trainer-{__version__}.tar.gz") as source:
        names = {name.partition("/")[2] for name in source.getnames()}
    assert {*tracked("src", "tests"), "Makefile", "constraints.txt", "CHANGELOG.md", "LICENSE"} <= names
    assert not any(name.startswith("records/") for name in names)


def test_no_weights_in_the_repository() -> None:
    """A record says the command that makes its weights again; one encoder comes with the package."""
    box = str(BOX.relative_to(ROOT))
    assert sum((ROOT / path).stat().st_size for path in tracked(box)) <= 16_000_000
    assert [path for path in tracked() if (ROOT / path).stat().st_size > 1_000_000 and not path.startswith(box)] == []
    assert [path for path in tracked("records") if path.endswith((".safetensors", ".bin", ".pt", ".npy"))] == []
    empty = {path for path in tracked() if not (ROOT / path).stat().st_size}
    assert {Path(path).name for path in empty} <= {"__init__.py", "py.typed"}, empty
