"""The promises that sabotage.py breaks one by one: what is edited out of the source, and the tests that must notice.

The first nine are those that every trainer should be asked for; others are as easily lost in a change. Each of NUMBERS, which are
about what is measured and reported, went unnoticed once, with every test green.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path


class Stale(Exception):
    """An edit that no longer fits the source."""


@dataclass(frozen=True)
class Sabotage:
    """One edit."""

    name: str
    takes_away: str
    """The promise that is broken by it."""
    file: str
    """Under src/electra_trainer."""
    _: KW_ONLY
    sought: str
    """Text that must occur there exactly once."""
    put: str
    """Text that replaces it."""
    caught_by: Mapping[str, str]
    """Tests that must fail, each with what its failed assertion says (a regular expression over its lines)."""

    def edited(self, package: Path) -> str:
        """The text of the file after the edit. Raises Stale."""
        path = package / self.file
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if (count := text.count(self.sought)) != 1:
            raise Stale(f"{self.name}: {self.file} holds the text sought {count} times, expected once:\n{self.sought}")
        return text.replace(self.sought, self.put)


_BITS = "tests/reliability/test_numbers.py::test_uneven_counts_are_one_batch[True]"
_ROUNDING = "tests/reliability/test_numbers.py::test_uneven_counts_are_one_batch[False]"
_POWER = "tests/reliability/test_power_loss.py::test_power_loss"
_CORRUPTION = "tests/reliability/test_corruption.py::test_corruption"
_KILL = "tests/reliability/test_stopped_saves.py::test_a_save_that_is_stopped[kill_in_save]"
_BAD_STEP = "tests/reliability/test_numbers.py::test_a_bad_step_moves_nothing"
_CHECKPOINT = "tests/train/test_checkpoint.py"
_END = "tests/google/test_mini_curve.py::test_a_run_ends_where_googles_ended"
_ARM = "tests/presets/test_published_presets.py::test_an_arm_differs_from_its_neighbour_by_its_field"

NINE = (
    Sabotage("fsync", "the bytes of a file are on the disk before its name is given", "files/durable.py",
        sought="        write_all(descriptor, content)\n        sync(descriptor)\n",
        put="        write_all(descriptor, content)\n",
        caught_by={_POWER: r"assert .*'(lost|half|garbage|least)'"}),
    Sabotage("directory-fsync", "the name of a checkpoint is on the disk before it counts as saved", "files/durable.py",
        sought="    sync_file(folder)\n", put="    return\n",
        caught_by={_POWER: r"assert .*'(undone|least)'"}),
    Sabotage("manifest-check", "bytes that are not those of the manifest are not loaded", "runs/verified.py",
        sought='    if len(content) != entry["bytes"] or hashlib.sha256(content).hexdigest() != entry["sha256"]:\n',
        put="    if False:\n",
        caught_by={_CORRUPTION: r"assert not \{.*'flip'"}),
    Sabotage("rename", "a checkpoint appears whole or not at all", "runs/checkpoint.py",
        sought='        _write(folder / f"{UNFINISHED}{saved.step}-{uuid.uuid4().hex[:8]}", final, saved, origin)\n',
        put="        _write(final, final, saved, origin)\n",
        caught_by={_KILL: r"where False = all\(\["}),
    Sabotage("keyed-randomness", "what a step draws follows from (seed, purpose, step, lane) and not from what was drawn before",
        "randomness.py", sought='    return int.from_bytes(digest, "little") >> 1\n',
        put='    return int.from_bytes(digest, "little") >> 1 ^ int(torch.randint(1 << 62, ()))\n',
        caught_by={"tests/train/test_step.py::test_a_step_is_a_function_of_weights_and_step[3]": r"assert torch\.equal\(value, ends\[1\]\[name\]\)",
            "tests/train/test_resume.py::test_stop_at_every_step[6]": r"assert torch\.equal\(mine\[name\], theirs\[name\]\)"}),
    Sabotage("lane-order", "gradients of lanes are added in one order, whatever the number of processes",
        "ranks/world.py",
        sought="        return range(self.rank * things // self.size, (self.rank + 1) * things // self.size)\n",
        put="        return range(self.rank, things, self.size)\n",
        caught_by={_BITS: r"assert apart == 0"}),
    Sabotage("count-all-reduce", "sums are divided by the counts of all ranks", "ranks/world.py",
        sought="    dist.all_reduce(total)\n", put="",
        caught_by={_ROUNDING: r"0 <= apart < 1e-6"}),
    Sabotage("finite-flag", "a gradient that is not finite moves nothing", "train/step.py",
        sought="    if finite:\n", put="    if True:\n",
        caught_by={"tests/train/test_step.py::test_a_bad_step_leaves_everything_untouched[adam]": r"assert torch\.equal\(value, before\[key\]\)",
            f"{_BAD_STEP}[loss nan-2]": r"assert \[76, 76\] == "}),
    Sabotage("signal-mask", "a signal while the process is replaced by its tuned self waits until somebody hears it",
        "runs/signals.py", sought="    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP)\n",
        put="    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())\n",
        caught_by={"tests/reliability/test_signals.py::test_a_signal_while_the_process_is_replaced_waits": r"assert -\d+ == 75"}),
)  # fmt: skip
FURTHER = (
    Sabotage("read-back", "what the disk keeps is compared with what was written before older checkpoints go",
        "runs/checkpoint.py",
        sought="            if _read_back(temporary / name) != facts[name]:\n", put="            if False:\n",
        caught_by={f"{_CHECKPOINT}::test_a_disk_that_keeps_something_else_is_found_out_before_old_ones_go": r"DID NOT RAISE"}),
    Sabotage("manifest-seal", "a manifest that was changed is refused", "runs/verified.py",
        sought="        if sealed(manifest) != content:\n", put="        if False:\n",
        caught_by={f"{_CHECKPOINT}::test_every_byte_is_watched": r"DID NOT RAISE"}),
    Sabotage("origin-check", "a checkpoint of another run is refused", "runs/verified.py",
        sought='    if manifest["run_id"] != origin.run_id:\n', put="    if False:\n",
        caught_by={f"{_CHECKPOINT}::test_another_runs_checkpoint_is_refused": r"DID NOT RAISE"}),
    Sabotage("quarantine", "a checkpoint that does not verify is set aside", "runs/checkpoint.py",
        sought="                aside = _set_aside(path)\n", put="                aside = path\n",
        caught_by={f"{_CHECKPOINT}::test_damage_is_found_and_the_one_before_taken[bit-flipped-weights.safetensors]": r"assert .*not True"}),
    Sabotage("disk-is-not-damage", "a checkpoint that the disk does not give now is not taken for a damaged one",
        "runs/verified.py", sought="        if error.errno in _DAMAGED:\n", put="        if True:\n",
        caught_by={"tests/train/test_resume_refused.py::test_a_disk_that_does_not_answer_and_then_does": r"isinstance\(CheckpointError\("}),
    Sabotage("never-silently-again", "a run whose checkpoints are gone does not begin again in silence",
        "train/loop.py", sought="        self.folder.require_unsaved()\n", put="",
        caught_by={"tests/train/test_resume_refused.py::test_checkpoints_that_are_gone_are_asked_for[nothing]": r"DID NOT RAISE"}),
    Sabotage("rotation-after-commit", "an old checkpoint goes only when the new one is complete", "runs/checkpoint.py",
        sought='        _write(folder / f"{UNFINISHED}{saved.step}-',
        put='        for _, old in numbered(folder)[: 1 - keep or None]:\n'
        '            shutil.rmtree(old)\n        _write(folder / f"{UNFINISHED}{saved.step}-',
        caught_by={f"{_CHECKPOINT}::test_old_ones_go_only_after_the_new_one_is_complete": r"assert seen == "}),
    Sabotage("copy-before-saving", "a checkpoint written beside the steps holds the numbers of its step",
        "runs/checkpoint.py",
        sought="        copied = replace(saved, weights=_copied(saved.weights), optimizer=_copied(saved.optimizer))\n",
        put="        copied = replace(saved)\n",
        caught_by={"tests/train/test_saving.py::test_training_continues_while_the_disk_is_slow": r"assert .*torch\.equal\(saved\.weights"}),
    Sabotage("moments", "the optimizer's moments are put back", "train/resumable.py",
        sought="        load_optimizer_tensors(self.network, self.optimizer, handed_out(moments))\n",
        put="        list(handed_out(moments))\n",
        caught_by={"tests/train/test_resume.py::test_stop_at_every_step[6]": r"assert torch\.equal\(mine\[name\], theirs\[name\]\)"}),
    Sabotage("rows-taken-back", "rows of metrics beyond the checkpoint are taken back before their steps are done again",
        "train/resumable.py", sought="            forget_after(self.folder, self.step, self.warn)\n", put="",
        caught_by={"tests/train/test_resume.py::test_sigkill_between_checkpoints": r"assert curve\(one\) == curve\(two\)"}),
    Sabotage("numbers-only", "weights that are no numbers are never saved", "train/resumable.py",
        sought="            if bad is not None:\n", put="            if False:\n",
        caught_by={"tests/reliability/test_numbers.py::test_bad_weights_and_moments_are_never_saved[weight nan-1]": r"assert \(?\d+ == 4"}),
    Sabotage("finite-on-every-rank", "a gradient that is not finite on one rank skips the step on all",
        "ranks/world.py", sought="    flat = flat_gradients(learning)\n",
        put="    flat = flat_gradients(learning).nan_to_num(0.0, 0.0, 0.0)\n",
        caught_by={f"{_BAD_STEP}[loss nan-2]": r"assert all\(torch\.equal\(mine\[name\], theirs\[name\]\)"}),
    Sabotage("step-before-signal", "a signal while weights move waits for the end of the step", "train/step.py",
        sought="    finish_first()\n", put="",
        caught_by={"tests/reliability/test_signals.py::test_a_signal_while_weights_move_waits_for_the_step": r"assert digest\("}),
    Sabotage("workers-deaf", "worker processes ignore the signals that their parent answers", "files/processes.py",
        sought="        signal.signal(number, signal.SIG_IGN)  # the parent says when to stop\n", put="        pass\n",
        caught_by={"tests/reliability/test_signals.py::test_a_worker_does_not_hear_a_signal_to_all": r"assert \[(70|-\d+)\] == \[1\]"}),
    Sabotage("lane-key", "a lane's masks, samples and dropout are the same on whatever rank it is", "train/step.py",
        sought="            rng = Rng(config.seed, step, lane)\n",
        put="            rng = Rng(config.seed, step, len(found))\n",
        caught_by={_ROUNDING: r"0 <= apart < 1e-6"}),
    Sabotage("dropout-seed", "dropout is seeded by the step", "randomness.py",
        sought='number = key(self.seed, "dropout", self.step, self.lane)\n',
        put='number = key(self.seed, "dropout", self.lane)\n',
        caught_by={"tests/train/test_step.py::test_dropout_changes_from_step_to_step": r"assert sums\[0\] == "}),
    Sabotage("gradient-tree", "gradients are added along one fixed tree with --deterministic", "ranks/world.py",
        sought="        while self._sums and self._sums[-1][0] == level:\n", put="        while self._sums:\n",
        caught_by={_BITS: r"assert apart == 0"}),
    Sabotage("gradient-all-reduce", "gradients are added up over the ranks", "ranks/world.py",
        sought="            dist.all_reduce(flat)\n", put="            pass\n",
        caught_by={_ROUNDING: r"0 <= apart < 1e-6"}),
    Sabotage("held-out-once", "each held-out row is counted once, by one of the ranks", "train/step.py",
        sought="        for chunk in among.share(self.chunks(limit)):\n",
        put="        for chunk in range(self.chunks(limit)):\n",
        caught_by={"tests/reliability/test_ranks.py::test_each_held_out_row_is_counted_once": r"assert \[row for seen, _, _ in parts"}),
    Sabotage("rows-verified", "rows are those that were prepared, to the last byte, before they are trained on",
        "train/loop.py", sought="verify=verifies)", put="verify=False)",
        caught_by={"tests/reliability/test_corrupt_rows.py::test_nothing_is_trained_on_them": r"DID NOT RAISE .*DataError"}),
    Sabotage("loss-is-a-number", "a loss that is not finite moves nothing, whatever its gradient is", "train/step.py",
        sought="    (loss * (1 + 0 * loss.detach())).backward()", put="    loss.backward()",
        caught_by={f"{_BAD_STEP}[loss + inf-1]": r"assert all\(torch\.equal\(mine\[name\], theirs\[name\]\)"}),
)  # fmt: skip
NUMBERS = (
    Sabotage("regression-scale", "a number is learned divided by its scale", "tasks/texts.py",
        sought="(example.value - self.shift) / self.scale for", put="(example.value - self.shift) for",
        caught_by={"tests/tasks/test_metrics.py::test_a_number_is_learned_in_its_scale_and_given_in_the_files": r"assert \[.*approx"}),
    Sabotage("arm-mlm-rare", "the arm mlm-rare masks rare words more often", "presets/arms.py",
        sought="replace(config.masking, rarity=0.5)", put="config.masking",
        caught_by={f"{_ARM}[mlm-rare]": r"assert \[.*== \["}),
    Sabotage("arm-warm-sampling", "the arm warm-sampling samples at temperature 1.5", "presets/arms.py",
        sought="_learned(config, temperature=1.5)", put="_learned(config)",
        caught_by={f"{_ARM}[warm-sampling]": r"assert \[.*== \["}),
    Sabotage("arm-replace-mlm", "the arm replace-mlm puts samples into the input", "presets/arms.py",
        sought="objective=methods.ReplaceMLM()", put="objective=methods.MLM()",
        caught_by={f"{_ARM}[replace-mlm]": r"assert \[.*== \["}),
    Sabotage("rate-of-fakes", "the rate of fakes is that of real tokens, whatever the loss counts", "train/measures.py",
        sought='diagnostics["replaced_BT"][diagnostics["real_BT"]]', put='diagnostics["replaced_BT"][counted_BT]',
        caught_by={"tests/train/test_measures.py::test_the_rate_of_fakes_is_that_of_real_tokens_whatever_the_loss_counts": r"assert 0\.75 == "}),
    Sabotage("score-of-replaced", "electra score gives the probability of replaced", "pretrained/pretrained.py",
        sought="[0, 1:-1].sigmoid()", put="[0, 1:-1].neg().sigmoid()",
        caught_by={"tests/pretrained/test_export.py::test_a_score_is_the_probability_of_replaced": r"assert \[.*approx"}),
    Sabotage("learned-mix", "the part-of-speech probe learns which layers it reads", "paper/probes.py",
        sought="nn.Parameter(torch.zeros(states))", put="nn.Parameter(torch.zeros(states), requires_grad=False)",
        caught_by={"tests/paper/test_part_of_speech.py::test_the_probe_learns_which_layer_to_read": r"assert 0\.3.* > 0\.5"}),
    Sabotage("seed-of-the-glue-probe", "the GLUE probe has the seed of its cell", "paper/probes.py",
        sought="recipe=settings, seed=seed)", put="recipe=settings, seed=1)",
        caught_by={"tests/paper/test_probes.py::test_glue_is_fine_tuned_with_the_papers_recipe": r"assert \(?1 == 3"}),
    Sabotage("heads-in-an-export", "an export says how many heads its attention has", "pretrained/read_back.py",
        sought='"num_hidden_layers", "num_attention_heads", "intermediate_size",',
        put='"num_hidden_layers", "intermediate_size",',
        caught_by={"tests/pretrained/test_export.py::test_same_logits_in_transformers[discriminator]": r"logits differ from transformers'|CheckpointError"}),
    Sabotage("lambda", "the discriminator's loss is weighted by λ", "objectives/rtd.py",
        sought='Term(sum=loss, count=count, weight=self.settings.weight)}',
        put='Term(sum=loss, count=count, weight=1.0)}',
        caught_by={f"{_END}[words]": r"assert .* == .* ± ", f"{_END}[output_bias]": r"assert .* == .* ± "}),
    Sabotage("samples", "the generator's words are samples, not its likeliest", "objectives/generation.py",
        sought="return Generated(tokens.loss, tokens.sampled_K,",
        put="return Generated(tokens.loss, (project.float() @ generator.output()[0].T + generator.output()[1]).argmax(-1),",
        caught_by={f"{_END}[discriminator_loss]": r"assert .* == .* ± ", f"{_END}[words]": r"assert .* == .* ± "}),
)  # fmt: skip
