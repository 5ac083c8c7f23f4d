"""A run that is trained longer, or ended sooner, from one of its checkpoints: the bits of the run that had those steps from the start."""

import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.command import Electra
from tests.prepared import small_config, write_store
from tests.train.test_resume import assert_same_state, curve

from electra_trainer.cost.flops import run_flops
from electra_trainer.errors import ConfigError, Interrupted, MissingInputError
from electra_trainer.experiments.engine import run_facts
from electra_trainer.inspection.replay import replay
from electra_trainer.runs.checkpoint import numbered
from electra_trainer.runs.run_folder import RunFolder
from electra_trainer.settings.config import Config, changed
from electra_trainer.settings.methods import Learned, TwoStage
from electra_trainer.settings.records import to_dict
from electra_trainer.train import fast_step
from electra_trainer.train.begin import settle
from electra_trainer.train.begin.continued import ContinueFrom
from electra_trainer.train.loop import pretrain
from electra_trainer.train.optim import flat_ends
from electra_trainer.train.plan import Length, Timing

SHORT, LONG, FROM = 12, 20, 8
"""Steps. Both are flat at step 8: they decay over their last 3 and 5."""


def config(steps: int, *, shape: str = "wsd", name: str = "muon") -> Config:
    schedule = {"shape": shape, "decay_share": 0.25}
    made = small_config(steps=steps, lanes=1, layers=1)
    return changed(made, schedule=schedule, optimizer={"name": name}, checkpoint={"keep": 100})


@pytest.fixture(scope="module")
def runs(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Uninterrupted ones, by their steps."""
    folder = tmp_path_factory.mktemp("continued")
    return {n: pretrain(config(n), data, out=folder / str(n), device="cpu", quiet=True) for n in (SHORT, LONG)}


def go_on(settings: Config, data: Path, out: Path, name: object) -> Path:
    return pretrain(settings, data, out=out, init=ContinueFrom(name=str(name)), device="cpu", quiet=True)


def assert_same_end(one: Path, two: Path) -> None:
    """The state, and the curve after step 8."""
    assert_same_state(one, two)
    mine, theirs = ([row for row in curve(run) if row["step"] > FROM] for run in (one, two))
    assert mine == theirs != []


def test_where_the_rate_begins_to_fall_a_checkpoint_stays(data: Path, runs: dict[int, Path], tmp_path: Path) -> None:
    """However few are kept: it is what a longer run continues from."""
    settings = changed(config(SHORT), checkpoint={"every": 2, "keep": 1})
    trunk = pretrain(settings, data, out=tmp_path / "trunk", device="cpu", quiet=True)
    assert [step for step, _ in numbered(RunFolder(trunk).checkpoints)] == [9, SHORT]
    assert_same_state(go_on(config(LONG), data, tmp_path / "longer", f"{trunk}@9"), runs[LONG])


def test_each_stage_has_the_end_of_its_flat_part() -> None:
    staged = replace(config(LONG), sharing="none", generator=Learned(width=1.0), phases=TwoStage(share=0.4))
    assert flat_ends(staged) == {6, 8 + 9}
    assert flat_ends(config(LONG, shape="linear")) == frozenset()
    assert flat_ends(changed(config(90), schedule={"decay_share": 0.3})) == {63}  # 0.7 * 90 is 62.99999999999999
    assert flat_ends(changed(staged, schedule={"decay_share": 1.0})) == frozenset()


@pytest.mark.parametrize(("begun", "ends"), [(SHORT, SHORT), (SHORT, LONG), (LONG, SHORT)])
def test_it_ends_as_the_uninterrupted_run(
    data: Path, runs: dict[int, Path], tmp_path: Path, begun: int, ends: int
) -> None:
    """With the same steps; with more, where the flat part continues; with fewer, a decay branch of a longer run."""
    run = go_on(config(ends), data, tmp_path / "run", f"{runs[begun]}@{FROM}")
    assert_same_end(run, runs[ends])
    assert numbered(run / "checkpoints")[0][0] == FROM
    log = (run / "log.txt").read_text()
    assert f"continues {runs[begun]} after step 8: learning rate 0.001" in log and "jumps" not in log


def test_tokens_and_operations_before_it_cost_what_they_did_there(
    data: Path, runs: dict[int, Path], tmp_path: Path
) -> None:
    """With another batch; and again from there."""
    first = run_facts(runs[SHORT], step=FROM)
    for name, out, size in ((f"{runs[SHORT]}@{FROM}", "one", 4), (f"{tmp_path / 'one'}@10", "two", 2)):
        settings = changed(config(SHORT), batch={"size": size}, checkpoint={"every": 2})
        run = go_on(settings, data, tmp_path / out, name)
        own, at = run_facts(run), int(name.split("@")[1])
        before = run_facts(runs[SHORT] if out == "one" else tmp_path / "one", step=at)
        assert own["tokens"] == before["tokens"] + (SHORT - at) * settings.tokens_per_step
        assert own["flops_real"] == before["flops_real"] + run_flops(settings, steps=SHORT - at).real
        last = curve(run)[-1]
        assert [last[each] for each in ("tokens", "flops_real")] == [own["tokens"], own["flops_real"]]
    assert own["tokens"] > first["tokens"] > 0


def test_both_learning_rates_are_reported(data: Path, tmp_path: Path) -> None:
    made = config(SHORT, shape="released", name="adam")
    first = pretrain(made, data, out=tmp_path / "first", device="cpu", quiet=True)
    run = go_on(changed(made, schedule={"steps": 14}), data, tmp_path / "run", first)
    assert "after step 12: learning rate 0 there, 7.14e-05 here" in (run / "log.txt").read_text()
    same = go_on(made, data, tmp_path / "same", f"{first}@4")
    assert_same_end(same, first)


def test_it_resumes_and_is_replayed_as_other_runs(
    data: Path, runs: dict[int, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before its first checkpoint and after it; the first run is then needed no more, but to replay from its state."""

    class Killed(BaseException):
        pass

    def killed(*_: object, **__: object) -> None:
        raise Killed

    first, out = shutil.copytree(runs[SHORT], tmp_path / "first"), tmp_path / "run"
    for module, moment in ((settle, "begin_run"), (settle, "check_continued"), (fast_step, "train_step")):
        monkeypatch.setattr(module, moment, killed)
        with pytest.raises(Killed):
            go_on(config(LONG), data, out, f"{first}@{FROM}")
        monkeypatch.undo()
    with pytest.raises(
        ConfigError, match=f"began with --continue-from {first}@{FROM}, and this command asks for fresh weights"
    ):
        pretrain(config(LONG), data, out=out, device="cpu", quiet=True)
    go_on(config(LONG), data, out, f"{first}@{FROM}")
    assert_same_end(out, runs[LONG])
    began = RunFolder(out).environment()["init"]
    assert (began["name"], began["step"]) == (f"{first}@{FROM}", FROM)
    RunFolder(out).note(init={name: began[name] for name in ("name", "sha256", "step")})  # as earlier versions wrote it
    shutil.rmtree(out / "checkpoints" / f"step-{FROM:08d}")
    found = replay(out, step=FROM + 2)
    assert found.identical and found.began == FROM
    with pytest.raises(ConfigError, match=r"begins after step 8 of .*Replay it there"):
        replay(out, step=FROM)
    shutil.rmtree(first)
    go_on(config(LONG), data, out, f"{first}@{FROM}")
    assert replay(out, step=LONG).identical


def test_what_does_not_fit_is_refused(data: Path, runs: dict[int, Path], tmp_path: Path) -> None:
    first, out = runs[SHORT], tmp_path / "run"
    other = write_store(tmp_path / "other", vocab_size=390)
    with pytest.raises(ConfigError, match=r"another tokenizer.*--tokenizer"):
        go_on(config(LONG), other, out, first)
    with pytest.raises(ConfigError, match=r"other settings \(optimizer.name: 'muon' -> 'adam'\)"):
        go_on(config(LONG, name="adam"), data, out, first)
    with pytest.raises(ConfigError, match=r"model.num_attention_heads: 2 -> 4"):
        go_on(changed(config(LONG), model={"num_attention_heads": 4}), data, out, first)
    with pytest.raises(ConfigError, match=r"is at step 12, and the new run has 12 steps.*@STEP"):
        go_on(config(SHORT), data, out, first)
    with pytest.raises(MissingInputError, match=r"no checkpoint of step 5 is there. Give one of 0, 4, 8, 9, 12;"):
        go_on(config(LONG), data, out, f"{first}@5")
    with pytest.raises(MissingInputError, match="no run is here"):
        go_on(config(LONG), data, out, tmp_path / "nowhere")
    assert not (out / "config.json").exists()


def test_two_stages_keep_their_switch(data: Path, tmp_path: Path) -> None:
    made = replace(
        small_config(lanes=1, layers=1), phases=TwoStage(start="fresh"), sharing="none", generator=Learned(width=0.5)
    )
    first = pretrain(made, data, out=tmp_path / "first", device="cpu", quiet=True)
    with pytest.raises(ConfigError, match="after step 6 there and after step 8 here, and step 12 lies beyond"):
        go_on(changed(made, schedule={"steps": 16}), data, tmp_path / "run", first)


def test_a_switch_that_lies_ahead_may_move(data: Path, tmp_path: Path) -> None:
    """From a checkpoint of the first stage, also the last one of it, the run is that which had the other switch from the start."""
    made = replace(small_config(lanes=1, layers=1), phases=TwoStage(), sharing="none", generator=Learned(width=1.0))
    made = changed(made, schedule={"shape": "wsd", "warmup_steps": 2}, checkpoint={"every": 1, "keep": 100})
    short = changed(made, schedule={"steps": 8})
    first = pretrain(short, data, out=tmp_path / "first", device="cpu", quiet=True)
    whole = pretrain(made, data, out=tmp_path / "whole", device="cpu", quiet=True)
    go_on(made, data, tmp_path / "run", Path(f"{first}@2"))
    assert_same_end(tmp_path / "run", whole)
    last = go_on(made, data, tmp_path / "last", Path(f"{first}@4"))  # decayed by then: other weights, the same switch
    with pytest.raises(ConfigError, match="after step 6 there and after step 4 here, and step 5 lies beyond one"):
        go_on(short, data, tmp_path / "back", Path(f"{whole}@5"))
    switched = [row["step"] for row in curve(last) if "discriminator_loss" in row and "split" not in row]
    assert min(switched) == 7


def test_the_command(data: Path, runs: dict[int, Path], tmp_path: Path, electra: Electra) -> None:
    """A continued run takes the settings of the first; the same command resumes, even where that run is gone."""
    first = shutil.copytree(runs[SHORT], tmp_path / "first")
    words = ("pretrain", data, "--out", tmp_path / "run", "--continue-from", f"{first}@{FROM}", "--device", "cpu")
    assert electra(*words, "--steps", LONG)[0] == 0
    assert_same_end(tmp_path / "run", runs[LONG])
    code, _, err = electra(*words)
    assert code == 78 and "schedule.steps: 20 -> 12" in err
    shutil.rmtree(first)
    assert electra(*words, "--steps", LONG)[0] == 0
    for more, told in ((("--init", "x"), "give one"), (("--budget", "1m"), "Give --steps")):
        code, _, err = electra(*words, *more)
        assert code == 78 and told in err


def test_a_folder_may_have_an_at_in_its_name(data: Path, runs: dict[int, Path], tmp_path: Path) -> None:
    first = shutil.copytree(runs[SHORT], tmp_path / "run@8")
    assert ContinueFrom(name=str(first)).read().saved.step == SHORT
    assert [ContinueFrom(name=f"{first}@{step}").read().saved.step for step in (0, 4)] == [0, 4]


def test_other_flags_are_told_the_command_that_the_run_began_with(
    data: Path, tmp_path: Path, electra: Electra, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both commands of the message work: the one that resumes, and for more steps the one that trains longer."""
    (tmp_path / "config.json").write_text(json.dumps(to_dict(config(SHORT))))
    run = tmp_path / "my run"
    words = ("pretrain", data, "--out", run, "--config", tmp_path / "config.json", "--device", "cpu")
    monkeypatch.setattr("sys.argv", ["electra", *map(str, words)])
    assert electra(*words)[0] == 0
    monkeypatch.setattr("sys.argv", ["electra", "another", "command"])
    code, _, err = electra(*words, "--optimizer.beta2", "0.9")
    assert code == 78 and "optimizer.beta2: 0.999 -> 0.9" in err and "train it longer" not in err
    began = re.search(r"what it began with: electra (.*?)  ", err)
    assert began and shlex.split(began[1]) == [*map(str, words)]
    code, _, err = electra(*words, "--steps", LONG)
    assert code == 78 and f"To train it longer, add --continue-from '{run}'" in err, err
    code, _, err = electra(*words, "--steps", LONG, "--continue-from", run, "--out", tmp_path / f"my run-{LONG}")
    assert code == 0, err
    assert RunFolder(tmp_path / f"my run-{LONG}").config().schedule.steps == LONG
    monkeypatch.setattr("sys.argv", ["train.py", "data"])  # from Python
    RunFolder(run).note(command=["electra", "data"])
    assert "Repeat the command that it began with" in electra(*words, "--seed", "9")[2]


def test_another_budget_is_refused(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The length is settled when a run begins, and not measured again."""
    monkeypatch.setattr(settle, "measure_time", lambda *_, **__: Timing(step=1.0, evaluation=0.0))
    out = tmp_path / "run"

    def train(budget: str, steps: int = 99) -> str:
        pause = lambda run: run.step >= steps  # noqa: E731
        pretrain(config(SHORT), data, out=out, length=Length(budget=budget), device="cpu", pause=pause)
        return capfd.readouterr().err

    with pytest.raises(Interrupted):
        train("6s", steps=2)
    assert "measuring the speed of this machine" in capfd.readouterr().err
    with pytest.raises(ConfigError, match=r"budget: 6s -> 12s.* To train it longer, add --continue-from"):
        train("12s")
    resumed = train("6s")
    assert "resuming at step 2 of 5" in resumed and "measuring" not in resumed
    assert "all 5 steps are done already; a longer run needs another --out" in train("6s")
