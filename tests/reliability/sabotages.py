"""The promises that sabotage.py breaks one by one: what is edited out of the source, and the tests that must notice.

The first nine are those that every trainer should be asked for; the others are as easily lost in a change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


class Stale(Exception):
    """An edit that no longer fits the source."""


@dataclass(frozen=True, kw_only=True)
class Sabotage:
    """One edit."""

    name: str
    takes_away: str
    """The promise that is broken by it."""
    file: str
    """Under src/electra_trainer."""
    sought: str
    """Text that must occur there exactly once."""
    put: str
    """Text that replaces it."""
    caught_by: Mapping[str, str]
    """Tests that must fail, each with what its failed assertion says (a regular expression over its lines)."""

    def edited(self, package: Path) -> str:
        """The text of the file after the edit; Stale."""
        path = package / self.file
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if (count := text.count(self.sought)) != 1:
            raise Stale(f"{self.name}: {self.file} holds the text sought {count} times, expected once:\n{self.sought}")
        return text.replace(self.sought, self.put)

    def apply(self, package: Path) -> None:
        """Edit a copy of the package; Stale."""
        (package / self.file).write_text(self.edited(package), encoding="utf-8")


_BITS = "tests/reliability/test_numbers.py::test_uneven_counts_are_one_batch[True]"
_ROUNDING = "tests/reliability/test_numbers.py::test_uneven_counts_are_one_batch[False]"
_POWER = "tests/reliability/test_power_loss.py::test_power_loss"
_CORRUPTION = "tests/reliability/test_corruption.py::test_corruption"
_KILL = "tests/reliability/test_kill_in_save.py::test_kill_in_save"
_BAD_STEP = "tests/reliability/test_numbers.py::test_a_bad_step_moves_nothing"
_CHECKPOINT = "tests/train/test_checkpoint.py"

NINE = (
    Sabotage(
        name="fsync",
        takes_away="the bytes of a file are on the disk before its name is given",
        file="files/durable.py",
        sought="        write_all(descriptor, content)\n        sync(descriptor)\n",
        put="        write_all(descriptor, content)\n",
        caught_by={_POWER: r"assert .*'(lost|half|garbage|least)'"},
    ),
    Sabotage(
        name="directory-fsync",
        takes_away="the name of a checkpoint is on the disk before it counts as saved",
        file="files/durable.py",
        sought="    sync_file(folder)\n",
        put="    return\n",
        caught_by={_POWER: r"assert .*'(undone|least)'"},
    ),
    Sabotage(
        name="manifest-check",
        takes_away="bytes that are not those of the manifest are not loaded",
        file="runs/verified.py",
        sought='    if len(content) != entry["bytes"] or hashlib.sha256(content).hexdigest() != entry["sha256"]:\n',
        put="    if False:\n",
        caught_by={_CORRUPTION: r"assert not \{.*'flip'"},
    ),
    Sabotage(
        name="rename",
        takes_away="a checkpoint appears whole or not at all",
        file="runs/checkpoint.py",
        sought='        _write(folder / f"{UNFINISHED}{saved.step}-{uuid.uuid4().hex[:8]}", final, saved, origin)\n',
        put="        _write(final, final, saved, origin)\n",
        caught_by={_KILL: r"where False = all\(\["},
    ),
    Sabotage(
        name="keyed-randomness",
        takes_away="what a step draws follows from (seed, purpose, step, lane) and not from what was drawn before",
        file="randomness.py",
        sought='    return int.from_bytes(digest, "little") >> 1\n',
        put='    return int.from_bytes(digest, "little") >> 1 ^ int(torch.randint(1 << 62, ()))\n',
        caught_by={
            "tests/train/test_step.py::test_a_step_is_a_function_of_weights_and_step[3]": r"assert torch\.equal\(value, ends\[1\]\[name\]\)",
            "tests/train/test_resume.py::test_stop_at_every_step[6]": r"assert torch\.equal\(mine\[name\], theirs\[name\]\)",
        },
    ),
    Sabotage(
        name="lane-order",
        takes_away="gradients of lanes are added in one order, whatever the number of processes",
        file="ranks/world.py",
        sought="        return range(self.rank * things // self.size, (self.rank + 1) * things // self.size)\n",
        put="        return range(self.rank, things, self.size)\n",
        caught_by={_BITS: r"assert apart == 0"},
    ),
    Sabotage(
        name="count-all-reduce",
        takes_away="sums are divided by the counts of all ranks",
        file="ranks/world.py",
        sought="    dist.all_reduce(total)\n",
        put="",
        caught_by={_ROUNDING: r"0 <= apart < 1e-6"},
    ),
    Sabotage(
        name="finite-flag",
        takes_away="a gradient that is not finite moves nothing",
        file="train/step.py",
        sought="    if finite:\n",
        put="    if True:\n",
        caught_by={
            "tests/train/test_step.py::test_a_bad_step_leaves_everything_untouched[adam]": r"assert torch\.equal\(value, before\[key\]\)",
            f"{_BAD_STEP}[loss nan-2]": r"assert \[76, 76\] == ",
        },
    ),
    Sabotage(
        name="signal-mask",
        takes_away="a signal while the process is replaced by its tuned self waits until somebody hears it",
        file="runs/signals.py",
        sought="    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP)\n",
        put="    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())\n",
        caught_by={
            "tests/reliability/test_signals.py::test_a_signal_while_the_process_is_replaced_waits": r"assert -\d+ == 75"
        },
    ),
)  # fmt: skip

FURTHER = (
    Sabotage(
        name="read-back",
        takes_away="what the disk keeps is compared with what was written before older checkpoints go",
        file="runs/checkpoint.py",
        sought="            if _read_back(temporary / name) != facts[name]:\n",
        put="            if False:\n",
        caught_by={
            f"{_CHECKPOINT}::test_a_disk_that_keeps_something_else_is_found_out_before_old_ones_go": r"DID NOT RAISE"
        },
    ),
    Sabotage(
        name="manifest-seal",
        takes_away="a manifest that was changed is refused",
        file="runs/verified.py",
        sought="        if sealed(manifest) != content:\n",
        put="        if False:\n",
        caught_by={f"{_CHECKPOINT}::test_every_byte_is_watched": r"DID NOT RAISE"},
    ),
    Sabotage(
        name="origin-check",
        takes_away="a checkpoint of another run is refused",
        file="runs/verified.py",
        sought='    if manifest["run_id"] != origin.run_id:\n',
        put="    if False:\n",
        caught_by={f"{_CHECKPOINT}::test_another_runs_checkpoint_is_refused": r"DID NOT RAISE"},
    ),
    Sabotage(
        name="quarantine",
        takes_away="a checkpoint that does not verify is set aside",
        file="runs/checkpoint.py",
        sought="                aside = _set_aside(path)\n",
        put="                aside = path\n",
        caught_by={
            f"{_CHECKPOINT}::test_damage_is_found_and_the_one_before_taken[bit-flipped-weights.safetensors]": r"assert .*not True"
        },
    ),
    Sabotage(
        name="disk-is-not-damage",
        takes_away="a checkpoint that the disk does not give now is not taken for a damaged one",
        file="runs/verified.py",
        sought="        if error.errno in _DAMAGED:\n",
        put="        if True:\n",
        caught_by={
            "tests/train/test_resume_refused.py::test_a_disk_that_does_not_answer_and_then_does": r"isinstance\(CheckpointError\("
        },
    ),
    Sabotage(
        name="never-silently-again",
        takes_away="a run whose checkpoints are gone does not begin again in silence",
        file="train/loop.py",
        sought="        self.folder.require_unsaved()\n",
        put="",
        caught_by={
            "tests/train/test_resume_refused.py::test_checkpoints_that_are_gone_are_asked_for[nothing]": r"DID NOT RAISE"
        },
    ),
    Sabotage(
        name="rotation-after-commit",
        takes_away="an old checkpoint goes only when the new one is complete",
        file="runs/checkpoint.py",
        sought='        _write(folder / f"{UNFINISHED}{saved.step}-',
        put='        for _, old in numbered(folder)[: 1 - keep or None]:\n'
        '            shutil.rmtree(old)\n        _write(folder / f"{UNFINISHED}{saved.step}-',
        caught_by={f"{_CHECKPOINT}::test_old_ones_go_only_after_the_new_one_is_complete": r"assert seen == "},
    ),
    Sabotage(
        name="copy-before-saving",
        takes_away="a checkpoint written beside the steps holds the numbers of its step",
        file="runs/checkpoint.py",
        sought="        copied = replace(saved, weights=_copied(saved.weights), optimizer=_copied(saved.optimizer))\n",
        put="        copied = replace(saved)\n",
        caught_by={
            "tests/train/test_saving.py::test_training_continues_while_the_disk_is_slow": r"assert .*torch\.equal\(saved\.weights"
        },
    ),
    Sabotage(
        name="moments",
        takes_away="the optimizer's moments are put back",
        file="train/resumable.py",
        sought="        load_optimizer_tensors(self.network, self.optimizer, handed_out(moments))\n",
        put="        list(handed_out(moments))\n",
        caught_by={
            "tests/train/test_resume.py::test_stop_at_every_step[6]": r"assert torch\.equal\(mine\[name\], theirs\[name\]\)"
        },
    ),
    Sabotage(
        name="rows-taken-back",
        takes_away="rows of metrics beyond the checkpoint are taken back before their steps are done again",
        file="train/resumable.py",
        sought="            self.metrics.forget_after(self.step)\n",
        put="",
        caught_by={
            "tests/train/test_resume.py::test_sigkill_between_checkpoints": r"assert curve\(one\) == curve\(two\)"
        },
    ),
    Sabotage(
        name="numbers-only",
        takes_away="weights that are no numbers are never saved",
        file="train/resumable.py",
        sought="            if bad is not None:\n",
        put="            if False:\n",
        caught_by={
            "tests/reliability/test_numbers.py::test_bad_weights_and_moments_are_never_saved[weight nan-1]": r"assert \(?\d+ == 4"
        },
    ),
    Sabotage(
        name="finite-on-every-rank",
        takes_away="a gradient that is not finite on one rank skips the step on all",
        file="ranks/world.py",
        sought="    flat = flat_gradients(learning)\n",
        put="    flat = flat_gradients(learning).nan_to_num(0.0, 0.0, 0.0)\n",
        caught_by={f"{_BAD_STEP}[loss nan-2]": r"assert all\(torch\.equal\(mine\[name\], theirs\[name\]\)"},
    ),
    Sabotage(
        name="step-before-signal",
        takes_away="a signal while weights move waits for the end of the step",
        file="train/step.py",
        sought="    finish_first()\n",
        put="",
        caught_by={
            "tests/reliability/test_signals.py::test_a_signal_while_weights_move_waits_for_the_step": r"assert digest\("
        },
    ),
    Sabotage(
        name="workers-deaf",
        takes_away="worker processes ignore the signals that their parent answers",
        file="files/processes.py",
        sought="        signal.signal(number, signal.SIG_IGN)  # the parent says when to stop\n",
        put="        pass\n",
        caught_by={
            "tests/reliability/test_signals.py::test_a_worker_does_not_hear_a_signal_to_all": r"assert \[(70|-\d+)\] == \[1\]"
        },
    ),
    Sabotage(
        name="lane-key",
        takes_away="a lane's masks, samples and dropout are the same on whatever rank it is",
        file="train/step.py",
        sought="            rng = Rng(config.seed, step, lane)\n",
        put="            rng = Rng(config.seed, step, len(found))\n",
        caught_by={_ROUNDING: r"0 <= apart < 1e-6"},
    ),
    Sabotage(
        name="dropout-seed",
        takes_away="dropout is seeded by the step",
        file="randomness.py",
        sought='number = key(self.seed, "dropout", self.step, self.lane)\n',
        put='number = key(self.seed, "dropout", self.lane)\n',
        caught_by={"tests/train/test_step.py::test_dropout_changes_from_step_to_step": r"assert sums\[0\] == "},
    ),
    Sabotage(
        name="gradient-tree",
        takes_away="gradients are added along one fixed tree with --deterministic",
        file="ranks/world.py",
        sought="        while self._sums and self._sums[-1][0] == level:\n",
        put="        while self._sums:\n",
        caught_by={_BITS: r"assert apart == 0"},
    ),
    Sabotage(
        name="gradient-all-reduce",
        takes_away="gradients are added up over the ranks",
        file="ranks/world.py",
        sought="            dist.all_reduce(flat)\n",
        put="            pass\n",
        caught_by={_ROUNDING: r"0 <= apart < 1e-6"},
    ),
    Sabotage(
        name="held-out-once",
        takes_away="each held-out row is counted once, by one of the ranks",
        file="train/step.py",
        sought="        for chunk in among.share(self.chunks(limit)):\n",
        put="        for chunk in range(self.chunks(limit)):\n",
        caught_by={
            "tests/reliability/test_ranks.py::test_each_held_out_row_is_counted_once": r"assert \[row for seen, _, _ in parts"
        },
    ),
    Sabotage(
        name="rows-verified",
        takes_away="rows are those that were prepared, to the last byte, before they are trained on",
        file="train/loop.py",
        sought="verify=verifies)",
        put="verify=False)",
        caught_by={"tests/reliability/test_corrupt_rows.py::test_nothing_is_trained_on_them": r"DID NOT RAISE .*DataError"},
    ),
    Sabotage(
        name="loss-is-a-number",
        takes_away="a loss that is not finite moves nothing, whatever its gradient is",
        file="train/step.py",
        sought="    (loss * (1 + 0 * loss.detach())).backward()",
        put="    loss.backward()",
        caught_by={f"{_BAD_STEP}[loss + inf-1]": r"assert all\(torch\.equal\(mine\[name\], theirs\[name\]\)"},
    ),
    Sabotage(
        name="rows-of-all-ranks",
        takes_away="the rows that are named are those whose loss is not finite, on whatever rank",
        file="train/step.py",
        sought="ranks.gathered(json.dumps(found).encode())",
        put="[json.dumps(found).encode()]",
        caught_by={f"{_BAD_STEP}[loss nan-2]": r"assert named_rows\(log\) == |assert \[\d+, .* == \["},
    ),
)  # fmt: skip
