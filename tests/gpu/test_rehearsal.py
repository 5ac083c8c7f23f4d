"""The training step on a pretended card: what a capture records, what a step makes the host wait for, and what several ranks exchange.

`make gpu-rehearsal` runs these. Nothing is computed, so nothing here says that a number is right, or how long a kernel takes.
"""

import functools
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from tests.gpu.pretend import ROOT, Ledger, command, environment, needs_card, rehearse

from electra_trainer.presets.arms import ARMS
from electra_trainer.train.static_step import BUCKETS

pytestmark = [needs_card, pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(1200)]
EAGER = ("mlm-hard",)
"""Arms that no graph can record."""
WAITS = 3
"""Copies between host and card and waits of a step that is not logged: the inputs, the outcome, the wait for it."""


def quiet_steps(ledger: Ledger) -> list[Ledger]:
    """The steps that neither build (the first, and that at which two-stage training turns) nor are logged (the second)."""
    steps = [part for name, part in ledger.parts() if name.startswith("step ")]
    return [part for number, part in enumerate(steps) if number != 1 and not part.of("capture")]


@pytest.mark.parametrize("precision, lanes, compiled", [("bf16", 1, True), ("bf16", 2, True), ("fp32", 1, False)])
def test_every_arm(precision: str, lanes: int, compiled: bool, tmp_path: Path) -> None:
    """The default, with one lane and two, and the plain layers in fp32."""
    cases = [{"arm": arm, "precision": precision, "lanes": lanes, "compile": compiled} for arm in ARMS]
    for arm, (line, ledger) in zip(ARMS, rehearse(cases, tmp_path), strict=True):
        assert "error" not in line and not ledger.of("fault"), (arm, line, ledger.of("fault")[:3])
        assert not [one for one in ledger.of("copy", place="captured") if "pageable" in one.text], arm
        if arm in EAGER:
            assert (
                line["in use"] == ["one operation at a time"]
                and "follow from the text" in line["left out"]["the CUDA graph"]
            ), arm
            continue
        assert line["in use"] == ["CUDA graph", "compiled layers"][: 1 + compiled] and not line["said"], (arm, line)
        parts = quiet_steps(ledger)
        assert all(len(part.of("replay")) == (1 if lanes == 1 else lanes + 1) for part in parts), arm
        assert all(len(part.waits()) <= WAITS + 2 * (lanes - 1) for part in parts), (arm, parts[-1].waits())
        again = dict(ledger.parts())["again"].of("replay")
        assert again, f"{arm}: evaluation in between took the graph's memory"


@pytest.mark.parametrize("block", ["bert", "modern"])
def test_either_block(block: str, tmp_path: Path) -> None:
    [(line, ledger)] = rehearse([{"arm": "electra", "block": block, "compile": True}], tmp_path)
    assert "error" not in line and not line["said"] and not ledger.of("fault"), line
    assert line["in use"] == ["CUDA graph", "compiled layers"]


NODES = {"small": 1600, "base": 1800}
"""Most nodes of a step's graph."""


@pytest.mark.parametrize("preset, batch", [("small", 128), ("base", 64)])
def test_a_whole_compiled_step_waits_little_and_holds_what_is_estimated(
    preset: str, batch: int, tmp_path: Path
) -> None:
    case = {"arm": "electra", "preset": preset, "batch": batch, "layers": None, "compile": True}
    [(line, ledger)] = rehearse([case], tmp_path)
    assert "error" not in line and not line["said"] and not ledger.of("fault"), line
    assert line["in use"] == ["CUDA graph", "compiled layers"]
    parts = quiet_steps(ledger)
    gap = Ledger(one for part in parts for one in part).gap() / 1e6  # milliseconds, by this machine's clock
    print(preset, batch, parts[-1].nodes(), gap, line["peak"], line["reserved"], line["estimated"])
    assert max(len(part.waits()) for part in parts) <= WAITS and gap <= 0.3
    assert parts[-1].nodes() <= NODES[preset]
    assert abs(line["peak"] / line["estimated"] - 1) <= 0.1


@pytest.mark.parametrize("gigabytes", [3.2, 1.9, 1.5, 1.1])
def test_a_small_card_says_what_to_set(gigabytes: float, tmp_path: Path) -> None:
    """Whatever runs out, the first step, the compiled one or the graph, the end is one sentence, and never another path."""
    case = {"arm": "electra", "batch": 128, "layers": 4, "compile": True}
    [(line, _)] = rehearse([case], tmp_path, CARD_MEMORY=str(round(gigabytes * 1e9)))
    if "error" in line:
        assert re.match(
            r"ConfigError: cuda has not enough memory for a step: [\d.]+ \w+ more are needed", line["error"]
        )
        assert "Set --batch.lanes 2, or more" in line["error"] and not line["in use"]
    else:
        assert line["in use"] == ["CUDA graph", "compiled layers"] and not line["said"], line
    assert ("error" in line) == (gigabytes < 2)


def test_a_capture_that_fails_leaves_the_compiled_step(tmp_path: Path) -> None:
    [(line, _)] = rehearse([{"arm": "electra", "compile": True}], tmp_path, CARD_REFUSES="capture")
    assert "error" not in line and line["in use"] == ["compiled layers"], line
    [said] = line["said"]
    assert said.startswith("the CUDA graph is left out: ") and "ELECTRA_GPU_GRAPH=off and" in said
    assert line["left"] <= 1 << 20


def test_without_a_compiler_the_graph_is_left(tmp_path: Path) -> None:
    """A machine without gcc, and nothing compiled before."""
    (tmp_path / "bin").mkdir()
    caches = {"TRITON_CACHE_DIR": str(tmp_path / "triton"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}
    [(line, _)] = rehearse([{"arm": "electra", "compile": True}], tmp_path, PATH=str(tmp_path / "bin"), **caches)
    assert "error" not in line and line["in use"] == ["CUDA graph"], line
    [said] = line["said"]
    assert said.startswith("torch.compile is left out: ") and "apt install gcc python3-dev" in said


@functools.cache
def forbidden() -> dict[str, tuple[str, list[str]]]:
    """Errors and noted faults, by deed."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = Path(folder) / "ledger"
        done = subprocess.run(
            command("tests.gpu.forbidden"), cwd=ROOT, env=environment(ledger), capture_output=True, check=True
        )
        noted = {name: [one.text for one in part.of("fault")] for name, part in Ledger.read(ledger).parts()}
    return {deed: (raised, noted[deed]) for deed, raised in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("deed", ["wait", "read", "query", "escape", "outside", "unjoined"])
def test_the_card_notes_what_a_capture_forbids(deed: str) -> None:
    raised, noted = forbidden()[deed]
    assert noted and (raised or deed == "escape")  # which a real card would refuse as well


def test_the_card_lets_pass_what_is_allowed() -> None:
    assert forbidden()["both"] == ("", [])
    assert "pinned" in forbidden()["pageable"][0]  # PyTorch refuses it before the card does


def atomics(ledger: Ledger) -> set[str]:
    return {one.text[:200] for one in ledger.of("kernel") if "atomic" in one.text.lower()}


@pytest.mark.parametrize("lanes", [1, 2])
def test_deterministic_has_no_atomics(lanes: int, tmp_path: Path) -> None:
    rows = 32 * lanes  # of fewer tokens PyTorch makes these gradients in another way
    cases = [
        {"arm": arm, "deterministic": True, "lanes": lanes, "batch": rows}
        for arm in ("electra", "mlm", "two-stage", "unigram")
    ]
    for line, ledger in rehearse(cases, tmp_path):
        assert "error" not in line and not ledger.of("fault"), line
        assert atomics(ledger) == set()
        assert lanes > 1 or line["in use"][:1] == ["CUDA graph"]


def test_memory_comes_back(tmp_path: Path) -> None:
    cases = [{"arm": "electra", "layers": 4, "batch": 64}] * 3
    lines = [line for line, _ in rehearse(cases, tmp_path)]
    # layers that are not compiled keep more in the rehearsals before a capture than compiled ones: 1.05 there
    assert all(line["peak"] <= 1.2 * line["reserved"] for line in lines), [
        (line["peak"], line["reserved"]) for line in lines
    ]
    assert all(line["left"] <= 1 << 20 for line in lines[1:]), [line["left"] for line in lines]


def test_the_second_card(tmp_path: Path) -> None:
    """After the first one in the same process: nothing happens on the first."""
    cases = [
        {"arm": "electra"},
        {"arm": "electra", "device": "cuda:1"},
        {"arm": "electra", "lanes": 6, "batch": 24, "device": "cuda:1"},
    ]
    for line, ledger in rehearse(cases, tmp_path, cards=2)[1:]:
        assert "error" not in line and not line["said"] and not ledger.of("fault"), (line, ledger.of("fault")[:2])
        inside = Ledger(one for name, part in ledger.parts() if name.startswith(("step", "again")) for one in part)
        assert {one.device for one in inside.of("kernel", "product", "copy", "fill", "record", "replay", "wait")} == {1}


@pytest.mark.parametrize("asked", ["", "tuning"])
def test_fine_tuning(asked: str, tmp_path: Path) -> None:
    """A graph of each pass for each shape of rows, and what is left of 307 launches is the head, the loss and the update."""
    variables = environment(tmp_path / "ledger", ELECTRA_GPU_TRY=asked)
    done = subprocess.run(command("tests.gpu.tune"), cwd=ROOT, env=variables, capture_output=True, check=True)
    line, ledger = json.loads(done.stdout), Ledger.read(tmp_path / "ledger")
    assert not line["said"] and not ledger.of("fault"), (line, ledger.of("fault")[:3])
    last = dict(ledger.parts())["step 5"]
    assert len(line["shapes"]) == (3 if asked else 0) and len(last.of("replay")) == (2 if asked else 0)
    assert len(last.of("kernel", "product")) <= (40 if asked else 320)


class Ranks:
    """Two ranks of a run, each on its card."""

    def __init__(self, folder: Path, data: Path, buckets: int = 1, **options: Any) -> None:
        self.ledgers = [folder / f"ledger{rank}" for rank in range(2)]
        self._said = [(folder / f"said{rank}").open("w+") for rank in range(2)]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        shared[BUCKETS] = str(buckets)
        self.processes = [
            subprocess.Popen(
                command("tests.gpu.one_rank", data, folder / "run", json.dumps(options)), cwd=ROOT, stderr=said, stdout=said,
                env=environment(ledger, cards=2, RANK=str(rank), LOCAL_RANK=str(rank), CARD_WORLD=str(folder), **shared),
            )
            for rank, (ledger, said) in enumerate(zip(self.ledgers, self._said, strict=True))
        ]  # fmt: skip

    def ended(self, limit: float) -> list[int | None]:
        """Exit codes; None for one that still runs after `limit` seconds, which is then killed."""
        deadline, codes = time.monotonic() + limit, []
        for process in self.processes:
            try:
                codes.append(process.wait(max(0.0, deadline - time.monotonic())))
            except subprocess.TimeoutExpired:
                codes.append(None)
                process.kill()
                process.wait()
        return codes

    def said(self) -> str:
        for file in self._said:
            file.seek(0)
        return "\n".join(file.read()[-1500:] for file in self._said)


@pytest.mark.parametrize(
    "options", [{}, {"deterministic": True}, {"buckets": 3}], ids=["plain", "deterministic", "buckets"]
)
def test_two_ranks(options: dict[str, Any], data: Path, tmp_path: Path) -> None:
    """Both call the same collectives in the same order, none with memory of the host."""
    ranks = Ranks(tmp_path, data, **options)
    assert ranks.ended(600) == [0, 0], ranks.said()
    ledgers = [Ledger.read(path) for path in ranks.ledgers]
    assert not any(ledger.of("fault") for ledger in ledgers), [ledger.of("fault")[:3] for ledger in ledgers]
    called = [[one.text for one in ledger.of("collective") if not one.text.startswith("begin")] for ledger in ledgers]
    assert len(called[0]) >= 6 and [sorted(one.split()[:2]) for one in called[0]] == [
        sorted(one.split()[:2]) for one in called[1]
    ]
    for rank, ledger in enumerate(ledgers):
        assert len(ledger.of("record", place="captured")) >= options.get("buckets", 0)
        assert {one.device for one in ledger.of("kernel", "product", "collective", "replay") if one.stream >= 0} == {
            rank
        }


def test_a_rank_is_killed(data: Path, tmp_path: Path) -> None:
    """The other one leaves within a minute and a half, with the code for it."""
    ranks = Ranks(tmp_path, data, steps=2000, pause=0.05)
    deadline = time.monotonic() + 180
    while not (tmp_path / "run" / "checkpoints").is_dir() or not any((tmp_path / "run" / "checkpoints").glob("step-*")):
        assert time.monotonic() < deadline and ranks.processes[0].poll() is None, ranks.said()
        time.sleep(0.2)
    os.kill(ranks.processes[1].pid, signal.SIGKILL)
    assert ranks.ended(90) == [70, -signal.SIGKILL], ranks.said()
