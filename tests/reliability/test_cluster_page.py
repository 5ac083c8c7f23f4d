"""docs/gpu.md on clusters: its commands are ones that the program takes, and its job does what the page says."""

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml

from electra_trainer.cli.main import read
from electra_trainer.errors import CheckpointError, ConfigError, DataError, Diverged, Interrupted, MissingInputError
from electra_trainer.runs.signals import FORWARDS, STOP, WAITS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8").split("## On several processes")[1]
JOB = "examples/pretrain.sbatch"
COMMANDS = [line for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]


@pytest.mark.parametrize("line", [line for line in COMMANDS if not line.startswith(("export", "docker"))])
def test_commands_parse(line: str) -> None:
    words = shlex.split(line)
    if JOB in words:
        words[words.index(JOB)] = "pretrain"
        words += ["--out", "RUN"]
    parsed = read("pretrain", words[words.index("pretrain") + 1 :])
    assert parsed.settings.preset in ("base", "large")
    assert parsed.settings.batch.lanes >= max(8, parsed.processes)


def test_the_job() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    job = yaml.safe_load(text)
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    words = container["command"]
    assert read("pretrain", words[2:]).processes == container["resources"]["limits"]["nvidia.com/gpu"]
    ends, _ = job["spec"]["podFailurePolicy"]["rules"]
    assert set(ends["onExitCodes"]["values"]) == {
        e.exit_code for e in (DataError, CheckpointError, MissingInputError, Diverged, ConfigError)
    }
    assert Interrupted.exit_code not in ends["onExitCodes"]["values"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert pod["terminationGracePeriodSeconds"] >= max(map(int, WAITS.values()))
    assert "SIGTERM" in {number.name for number in STOP}  # what Kubernetes sends


def test_what_torchrun_passes_on() -> None:
    """The page, the job file and the supervisor set the same variables, and every signal that stops a run is in them."""
    (line,) = (line for line in COMMANDS if line.startswith("export"))
    found = dict(word.split("=") for word in line.removeprefix("export ").split())
    assert found == {**FORWARDS, **WAITS}
    assert all({number.name for number in STOP} <= set(value.split(",")) for value in FORWARDS.values())
    assert f"{line}\n" in (ROOT / JOB).read_text(encoding="utf-8")


def test_the_image() -> None:
    """Files that the Dockerfile copies are there and is not ignored; it installs what pyproject.toml has, by its constraints, and not as root."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    steps = [
        line.split(maxsplit=1) for line in re.sub(r"\\\n", " ", re.sub(r"(?m)^#.*\n", "", text)).splitlines() if line
    ]
    assert {word for word, _ in steps} == {"FROM", "RUN", "ARG", "WORKDIR", "COPY", "USER", "ENTRYPOINT", "CMD"}
    copied = [name for word, rest in steps if word == "COPY" for name in rest.split()[:-1]]
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert all((ROOT / name).exists() for name in copied) and sorted(copied) == sorted(kept)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"pyproject.toml", project["readme"], *project["license-files"], "src", "constraints.txt"} == set(copied)
    (install,) = (rest for word, rest in steps if word == "RUN" and "pip install" in rest)
    extras = re.search(r"'\.\[(.+)\]'", install)
    assert extras and extras[1] in project["optional-dependencies"] and "--constraint constraints.txt" in install
    (entry,) = (json.loads(rest)[0] for word, rest in steps if word == "ENTRYPOINT")
    words = [word for word, _ in steps]
    assert entry in project["scripts"] and words.index("USER") < words.index("ENTRYPOINT")
    (user,) = (rest for word, rest in steps if word == "USER")
    assert user == "1000" and f"--uid {user}" in text and f"runAsUser: {user}" in PAGE
    minor = project["requires-python"].removeprefix(">=3.")
    assert (found := re.search(r"FROM python:3\.(\d+)-", text)) and int(found[1]) >= int(minor)
    assert "--build-arg DEVICE=gpu" in PAGE and "ARG DEVICE=cpu" in text
