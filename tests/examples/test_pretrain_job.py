"""The job file: bash reads it, and with stand-ins for Slurm's programs it trains, is stopped, is queued again and ends."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.prepared import small_config, write_store
from tests.reliability.ranks import free_port

from electra_trainer.settings.records import to_dict

STANDINS = {
    "srun": 'shift\nexec "$@"\n',
    "scontrol": 'if [ "$1" = show ]; then echo 127.0.0.1; else echo "$@" >> "$QUEUE"; fi\n',
    "torchrun": f'printf "%s\\n" "$@" > "$QUEUE.words"\nexec {sys.executable} -m torch.distributed.run "$@"\n',
}


JOB = Path(__file__).resolve().parents[2] / "examples" / "pretrain.sbatch"


@pytest.mark.slow
def test_a_job_is_stopped_queued_again_and_ends(tmp_path: Path) -> None:
    data = write_store(tmp_path / "data")
    config, out, queue = tmp_path / "config.json", tmp_path / "my run", tmp_path / "queue"
    config.write_text(json.dumps(to_dict(small_config(steps=150, lanes=1, layers=1))))
    number = str(free_port())  # of the job, and so of its port: another run of this test may be going on
    job = ["bash", str(JOB), str(data), "--config", str(config), "--device", "cpu", "--quiet"]
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in STANDINS.items():
        (programs / name).write_text("#!/bin/bash\n" + text)
        (programs / name).chmod(0o755)
    environment = {
        **os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "QUEUE": str(queue), "RUN": str(out), "SLURM_JOB_ID": number,
        "SLURM_NNODES": "1", "SLURM_JOB_NODELIST": "here", "SLURM_CPUS_PER_TASK": "1",
    }  # fmt: skip
    with (tmp_path / "first.log").open("w") as log:
        first = subprocess.Popen(job, env=environment, start_new_session=True, stdout=log)
    while not (out / "metrics.jsonl").exists():
        assert first.poll() is None
        time.sleep(0.02)
    for path in Path("/proc").glob("[0-9]*/cmdline"):  # as Slurm does: all processes of the step but the batch shell
        if str(out).encode() in path.read_bytes().split(b"\0") and int(path.parent.name) != first.pid:
            os.kill(int(path.parent.name), signal.SIGUSR1)
    first.wait(timeout=60)
    assert queue.read_text() == f"requeue {number}\n"
    said = (tmp_path / "first.log").read_text()  # 138: torchrun died of the signal and left its processes behind
    assert "electra: ended with code 75" in said, said
    assert json.loads((out / "status.json").read_text())["exit_code"] == 75
    words_of_torchrun = queue.with_suffix(".words")
    first_words = words_of_torchrun.read_text()
    (programs / "torchrun").write_text(  # without torchrun, which one process does not need
        f'#!/bin/bash\nprintf "%s\\n" "$@" > "$QUEUE.words"\n'
        f'while [ "$1" != -m ]; do shift; done\nexec {sys.executable} "$@"\n'
    )
    again = subprocess.run(job, env={**environment, "SLURM_RESTART_COUNT": "1"}, check=False, timeout=300)
    assert again.returncode == 0
    assert queue.read_text() == f"requeue {number}\n"
    assert words_of_torchrun.read_text() == first_words
    assert json.loads((out / "status.json").read_text())["state"] == "done"


def queued(
    tmp_path: Path,
    torchrun: str | None,
    *,
    starts: int,
    restarts: int = 0,
    out: str = "run",
    words: tuple[str, ...] = ("DATA",),
    more: Mapping[str, str] = {},
) -> list[int | str]:
    """Each start of the job, with stand-ins: `queued again`, or its exit code, after which there is no further one."""
    out = str(tmp_path / out)
    programs, queue = tmp_path / "bin", tmp_path / "queue"
    programs.mkdir(exist_ok=True)
    for name, text in STANDINS.items():
        (programs / name).unlink(missing_ok=True)
        if name != "torchrun" or torchrun is not None:
            (programs / name).write_text("#!/bin/bash\n" + (torchrun or "" if name == "torchrun" else text))
            (programs / name).chmod(0o755)
    found: list[int | str] = []
    for start in range(restarts, restarts + starts):
        queue.unlink(missing_ok=True)
        environment = {
            "PATH": f"{programs}:/usr/bin:/bin", "QUEUE": str(queue), "SLURM_JOB_ID": "77", "SLURM_NNODES": "1", "RUN": out,
            "SLURM_JOB_NODELIST": "here", "SLURM_RESTART_COUNT": str(start), "SLURM_CPUS_PER_TASK": "1", **more,
        }  # fmt: skip
        ended = subprocess.run(["bash", str(JOB), *words], env=environment, check=False, capture_output=True, text=True)
        found.append("queued again" if queue.exists() else ended.returncode)
        if not queue.exists():
            break
    return found


AGAIN = "queued again"
SAVES = 'mkdir -p "$RUN/checkpoints/step-0000000$SLURM_RESTART_COUNT"; '


@pytest.mark.parametrize(
    ("torchrun", "expected"),
    [
        (None, [127]),  # no such program: the next start would not find it either
        ("exit 126", [126]),
        ("exit 1", [AGAIN, AGAIN, 1]),
        (SAVES + "exit 1", [AGAIN] * 9),
        (SAVES + 'rm -rf "$RUN"/checkpoints/step-*[3-9]; exit 137', [AGAIN] * 5 + [137]),
        ("exit 75", [AGAIN] * 9),  # told to stop before a step: a busy queue is no crash
        ('echo damaged > "$RUN/.crashes"; exit 1', [AGAIN] * 9),
        (
            'echo \'{"launch": "\'$ELECTRA_LAUNCH\'", "state": "running"}\' > "$RUN/status.json"; exit 1',
            [AGAIN, AGAIN, 1],
        ),
    ],
    ids=["missing", "not a program", "crashes", "goes on", "goes on, then crashes", "told", "damaged", "killed"],
)
def test_a_crash_loop_is_not_queued_again(tmp_path: Path, torchrun: str | None, expected: list[int | str]) -> None:
    (tmp_path / "run").mkdir()
    assert queued(tmp_path, torchrun, starts=9) == expected


def test_where_nothing_can_be_written_slurms_own_count_holds(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert queued(tmp_path, "exit 1", starts=9, out="file/run") == [AGAIN, AGAIN, 1]
    assert queued(tmp_path, "exit 1", starts=9, restarts=40, out="file/run") == [1]


def test_a_process_for_each_gpu_with_its_cores(tmp_path: Path) -> None:
    """The words of the command arrive as they were typed."""
    words = ("my data", "--preset", "base")
    torchrun = 'printf "%s\\n" "$OMP_NUM_THREADS" "$SRUN_CPUS_PER_TASK" "$@" > "$QUEUE.words"\n'
    gpus = {"SLURM_GPUS_ON_NODE": "4", "SLURM_CPUS_PER_TASK": "32"}
    assert queued(tmp_path, torchrun, starts=1, out="it's here", words=words, more=gpus) == [0]
    threads, cores, *given = (tmp_path / "queue.words").read_text().splitlines()
    assert (threads, cores) == ("8", "32") and "--nproc-per-node=4" in given
    assert given[-7:] == ["electra_trainer", "pretrain", *words, "--out", str(tmp_path / "it's here")]
