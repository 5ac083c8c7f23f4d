"""The command as a person meets it: help, wrong words, wrong files, exit codes."""

import ast
import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from tests.command import Electra
from tests.prepared import small_config, write_store, write_text
from tests.reliability.children import in_a_child

from electra_trainer.cli import main as cli
from electra_trainer.cli.main import VERBS, main
from electra_trainer.errors import ConfigError, as_known
from electra_trainer.settings.config import Config
from electra_trainer.settings.records import to_dict
from electra_trainer.train.loop import pretrain

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """text.txt, tok/, data/, run/, config.json."""
    folder = tmp_path_factory.mktemp("cli")
    write_text(folder / "text.txt", documents=30)
    write_store(folder / "data")
    (folder / "config.json").write_text(json.dumps(to_dict(small_config(steps=4))))
    pretrain(small_config(steps=4), folder / "data", out=folder / "run", device="cpu", quiet=True)
    return folder


@pytest.mark.parametrize("words", [["--help"], ["pretrain", "--help"], ["finetune", "--help"]], ids=" ".join)
def test_help_is_quick(words: list[str]) -> None:
    """Under 1.2 seconds of the CPU from call to exit; other work can only slow it, so one of five is enough."""
    code = f"from electra_trainer.cli.main import main; main({words!r})"
    times = [10.0]
    while len(times) < 6 and min(times) >= 1.2:
        before = os.times()
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        after = os.times()
        times.append(after.children_user + after.children_system - before.children_user - before.children_system)
        assert "usage: electra" in done.stdout
    assert min(times) < 1.2, times


def test_help_is_without_torch() -> None:
    """Help of every verb, one after the other in a process that has imported nothing else."""
    code = f"""
import sys
from electra_trainer.cli.main import main
for verb in {[*VERBS]!r}:
    main([verb, "--help"])
    assert "torch" not in sys.modules, verb
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage: electra") == len(VERBS)


def test_every_flag_is_documented() -> None:
    """Each field of a request and of the configuration is followed by its docstring, which is its help."""
    package = ROOT / "src/electra_trainer"
    settings = (package / "settings/config.py",)
    kinds = {base for verb in VERBS.values() for base in verb.__mro__}
    names = {kind.__name__ for kind in kinds}
    sources = {Path(sys.modules[kind.__module__].__file__ or "") for kind in kinds if kind is not object}
    checked = 0
    for path in sorted({*sources, *settings, package / "tasks/recipe.py"}):
        for node in ast.parse(path.read_text()).body:
            if not (isinstance(node, ast.ClassDef) and (path in settings or node.name in names | {"Recipe"})):
                continue
            for field, after in zip(node.body, [*node.body[1:], None], strict=True):
                if not isinstance(field, ast.AnnAssign) or "tyro.conf.arg(name=" in ast.unparse(field.annotation):
                    continue
                if node.name == "Config" and isinstance(field.value, ast.Call):
                    continue  # a group of fields: its class has the words
                documented = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                assert documented, f"{path.name}: {node.name}.{ast.unparse(field.target)}"
                checked += 1
    assert checked > 70


def test_overview_and_version(electra: Electra) -> None:
    code, out, _ = electra()
    assert code == 0 and sorted(re.findall(r"^  (\S+)", out, re.MULTILINE)) == sorted(VERBS)
    assert electra("--version")[1].startswith("electra-trainer ")


WRONG: dict[str, tuple[list[str], int, list[str]]] = {
    "verb": (["pretrian"], 78, ["unknown verb 'pretrian'", "Did you mean 'pretrain'?"]),
    "flag": (["pretrain", "D", "--out", "R", "--optimizer.lerning-rate", "1"], 78, ["--optimizer.learning-rate"]),
    "no out": (["pretrain", "D"], 78, ["--out"]),
    "preset": (["pretrain", "D", "--out", "R", "--preset", "smal"], 78, ["Unknown preset 'smal'", "Did you mean 'small'?"]),
    "show": (["show", "larg"], 78, ["Did you mean 'large'?"]),
    "value": (["pretrain", "D", "--out", "R", "--masking.fraction", "3"], 78, ["masking.fraction = 3.0", "below 1"]),
    "type": (["pretrain", "D", "--out", "R", "--batch.size", "many"], 78, ["--batch.size"]),
    "heads": (["pretrain", "D", "--out", "R", "--model.num-attention-heads", "7"], 78, ["a multiple of model.num_attention_heads = 7"]),
    "width": (["pretrain", "D", "--out", "R", "--generator.width", "0.55"], 78, ["generator.width = 0.55", "Choose a multiplier"]),
    "two lengths": (["pretrain", "{data}", "--out", "R", "--steps", "1", "--budget", "1h"], 78, ["--steps and --budget"]),
    "budget": (["pretrain", "{data}", "--out", "R", "--budget", "soon"], 78, ["for example 90s, 20m, 4h or 2d"]),
    "device": (["pretrain", "{data}", "--out", "R", "--device", "quantum"], 78, ["expected auto, cpu, cuda"]),
    "config missing": (["pretrain", "{data}", "--out", "R", "--config", "none.json"], 66, ["none.json: no such file"]),
    "no data": (["pretrain", "nowhere", "--out", "R"], 66, ["nowhere", "electra prepare"]),
    "no run": (["score", "nowhere", "text"], 66, ["nowhere: no such folder. Expected a run folder"]),
    "no report": (["report", "nowhere"], 66, ["nowhere"]),
    "no text": (["tokenizer", "nowhere.txt", "--out", "T"], 66, ["nowhere.txt"]),
    "empty score": (["score", "{run}", ""], 65, ["the text is empty"]),
    "no gap": (["fill", "{run}", "no gap"], 65, ["no [MASK]"]),
    "no top": (["fill", "{run}", "a [MASK]", "--top", "-1"], 78, ["--top -1: expected at least 1"]),
    "long fill": (["fill", "{run}", "[MASK] " * 99], 65, ["Shorten it"]),
    "out is a file": (["pretrain", "{data}", "--out", "{text}", "--preset", "tiny"], 74, ["a file is where"]),
    "out is foreign": (["pretrain", "{data}", "--out", "{folder}", "--preset", "tiny"], 78, ["holds", "and no run"]),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_words(
    electra: Electra, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    words, expected, said = WRONG[case]
    places = {"data": folder / "data", "run": folder / "run", "text": folder / "text.txt", "folder": folder}
    monkeypatch.chdir(tmp_path)
    code, out, err = electra(*[word.format(**places) if "{" in word else word for word in words])
    assert code == expected, err
    for words_expected in said:
        assert words_expected in (out + err).replace("\n", " "), err
    assert not (tmp_path / "R").exists() or not list((tmp_path / "R").glob("checkpoints/step-*"))


CONFIGS: dict[str, tuple[str, list[str]]] = {
    "unknown field": ('{"optimzer": {}}', ["unknown field 'optimzer'", "Did you mean 'optimizer'?"]),
    "not json": ("{", ["not valid JSON"]),
    "not a table": ("[]", ["expected a JSON object"]),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_wrong_config_files(electra: Electra, folder: Path, tmp_path: Path, case: str) -> None:
    text, said = CONFIGS[case]
    path = tmp_path / "config.json"
    path.write_text(text)
    code, _, err = electra("pretrain", folder / "data", "--out", tmp_path / "run", "--config", path)
    assert code == 78
    for words in said:
        assert words in err
    assert "config.json" in err


def test_precedence_preset_file_flags(tmp_path: Path) -> None:
    from electra_trainer.cli.main import read

    toml = tmp_path / "c.toml"
    toml.write_text("seed = 5\n[optimizer]\nlearning_rate = 0.002\nbeta2 = 0.9\n")
    flags = "--preset base --optimizer.beta2 0.95 --objective mlm"
    words = ["D", "--out", "R", "--config", str(toml), *flags.split()]
    config = read("pretrain", words).settings
    assert (config.preset, config.seed) == ("base", 5)
    assert (config.optimizer.learning_rate, config.optimizer.beta2, config.optimizer.clip_norm) == (0.002, 0.95, 1.0)
    assert config.model.hidden_size == 768 and type(config.objective).__name__ == "MLM"
    assert read("pretrain", ["D", "--out", "R", "--preset=large"]).settings.optimizer.learning_rate == 2e-4


@pytest.mark.usefixtures("quick_measurement")
def test_the_journey(electra: Electra, folder: Path, tmp_path: Path) -> None:
    """From a text file to scores, through every verb."""
    tok, data, run = tmp_path / "tok", tmp_path / "data", tmp_path / "run"
    code, out, _ = electra("tokenizer", folder / "text.txt", "--vocab-size", 400, "--out", tok)
    assert code == 0 and "tokens a word" in out and "% of the letters are unreadable" in out
    code, out, err = electra(
        "prepare", folder / "text.txt", "--tokenizer", tok, "--seq-len", 32, "--out", data, "--valid-fraction", 0.1
    )
    assert code == 0 and "% padding" in out and "tokens of text are few. 5 passes" in out and "are held out" not in err
    train = ("pretrain", data, "--out", run, "--config", folder / "config.json", "--device", "cpu")
    code, out, _ = electra(*train, "--dry-run")
    assert code == 0 and "parameters, generator" in out and "time here" in out and not run.exists()
    code, out, err = electra(*train)
    assert code == 0 and "held-out: discriminator" in err
    assert "(a guess: 50)" in out and "Next: electra playground" in out
    more = tmp_path / "more"
    out = electra("prepare", folder / "text.txt", "--tokenizer", run, "--seq-len", 32, "--out", more)[1]
    assert out.endswith(f"Next: electra pretrain {more} --init {run} --out NEW\n") and "are few" not in out
    made = {path.name for path in run.iterdir()}
    assert made >= {"config.json", "environment.json", "metrics.jsonl", "log.txt", "report.html", "tokenizer"}
    code, out, _ = electra("evaluate", run, data, "--json")
    named = {"discriminator_standard_auc", "discriminator_constant_loss", "generator_loss"}
    assert code == 0 and named <= json.loads(out).keys()
    code, out, _ = electra("score", run, "a class with methods", "--json")
    scored = json.loads(out)
    assert code == 0 and scored.keys() == {"tokens", "replaced_probability"}
    assert len(scored["tokens"]) == len(scored["replaced_probability"])
    assert all(0 < p < 1 for p in scored["replaced_probability"])
    code, out, _ = electra("fill", run, "a [MASK] with [MASK]", "--json")
    assert code == 0 and [len(gap) for gap in json.loads(out)] == [5, 5]
    assert electra("score", run, "a class")[0] == electra("fill", run, "a [MASK]")[0] == 0
    code, out, _ = electra("export", run, "--out", tmp_path / "export")
    assert code == 0 and out.count("bit for bit") == 2 and "Next: electra finetune" in out
    card = (tmp_path / "export/discriminator/README.md").read_text(encoding="utf-8")
    assert "**Barely trained**" in card and "9,600,000 tokens" in card
    assert electra("score", tmp_path / "export", "a class", "--json")[0] == 0
    assert electra("report", run, folder / "run", "--out", tmp_path / "both.html")[0] == 0
    assert (tmp_path / "both.html").exists()


def test_metrics_rows(folder: Path) -> None:
    rows = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
    trained = next(row for row in rows if "split" not in row)
    assert trained.keys() >= {
        "step", "tokens", "flops", "seconds", "loss", "generator_loss", "discriminator_loss", "generator_accuracy",
        "generator_entropy", "fake_rate", "discriminator_auc", "learning_rate", "gradient_norm", "tokens_per_second",
    }  # fmt: skip
    held_out = next(row for row in rows if row.get("split") == "valid")
    assert {"discriminator_constant_loss", "discriminator_standard_auc"} <= held_out.keys()


def test_mlm_run(electra: Electra, folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "bert"
    words = ("pretrain", folder / "data", "--out", run, "--config", folder / "config.json")
    code, _, err = electra(*words, "--objective", "mlm", "--device", "cpu")
    assert code == 0 and "discriminator" not in err
    assert electra("export", run, "--out", tmp_path / "e")[0] == 0 and (tmp_path / "e/encoder").is_dir()
    assert electra("fill", run, "a [MASK]")[0] == 0
    assert electra("score", run, "a class")[0] == 78


def test_another_tokenizer_is_refused(electra: Electra, folder: Path, tmp_path: Path) -> None:
    other = write_store(tmp_path / "other", vocab_size=300)
    code, _, err = electra("evaluate", folder / "run", other)
    assert code == 65 and "another tokenizer" in err


def test_bad_vocabularies(electra: Electra, folder: Path, tmp_path: Path) -> None:
    cases = {
        "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n": "[MASK]",
        "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\na\n": ":7",
        "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n\na\n": ":6",
        "": "vocab.txt",
    }
    for number, (content, said) in enumerate(cases.items()):
        vocabulary = tmp_path / str(number) / "vocab.txt"
        vocabulary.parent.mkdir()
        vocabulary.write_text(content)
        code, _, err = electra(
            "prepare", folder / "text.txt", "--tokenizer", vocabulary, "--out", tmp_path / f"out{number}"
        )
        assert code == 65 and said in err, err
        assert not (tmp_path / f"out{number}" / "manifest.json").exists()


def test_really_full_disk(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A limit on file size that the kernel enforces, half-way into a checkpoint."""
    words = ["pretrain", folder / "data", "--out", tmp_path / "run", "--config", folder / "config.json"]

    def limited() -> int:
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
        return main([str(word) for word in words])

    assert in_a_child(limited) == 74 and "Traceback" not in capfd.readouterr().err
    assert not list((tmp_path / "run" / "checkpoints").glob(".tmp-*"))


def test_read_only_disk(electra: Electra, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refuse)
    for words in (
        ("pretrain", folder / "data", "--out", tmp_path / "run", "--preset", "tiny"),
        ("export", folder / "run", "--out", tmp_path / "export"),
        ("prepare", folder / "text.txt", "--tokenizer", folder / "data/tokenizer", "--out", tmp_path / "data"),
        ("tokenizer", folder / "text.txt", "--vocab-size", 300, "--out", tmp_path / "tok"),
    ):
        code, _, err = electra(*words)
        assert code == 74 and "the file system is read-only" in err, words


@pytest.mark.parametrize(
    ("what", "code", "told"),
    [
        ("oops", 70, ["please report"]),
        ("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes.", 78, ["not enough memory", "--batch.lanes"]),
    ],
)  # fmt: skip
def test_a_bug_says_that_it_is_one_and_too_little_memory_is_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], what: str, code: int, told: list[str]
) -> None:
    monkeypatch.setattr(cli, "_run", mock.Mock(side_effect=RuntimeError(what)))
    assert main(["doctor"]) == code
    said = capsys.readouterr().err
    assert all(words in said for words in told) and ("Traceback" in said) == (code == 70)


def test_flags_win_over_a_length(folder: Path, tmp_path: Path) -> None:
    """--steps fits what was not set by hand to the new length, and nothing else, even if that equals the preset's value."""
    from electra_trainer.cli.main import read
    from electra_trainer.train.plan import steps_for

    def planned(*words: str) -> Config:
        request = read("pretrain", ["D", "--out", "R", "--preset", "tiny", "--steps", "20", *words])
        return steps_for(request.length, request.settings, None)

    config = planned("--checkpoint.every", "15", "--schedule.warmup-steps=8", "--log-every", "10")
    assert (config.checkpoint.every, config.schedule.warmup_steps, config.log_every) == (15, 8, 10)
    assert config.evaluation.every == 10  # fitted
    fitted = planned()
    assert (fitted.schedule.warmup_steps, fitted.log_every) == (2, 1)


def test_a_vocabulary_of_another_language_and_few_held_out_tokens_are_told(
    electra: Electra, folder: Path, tmp_path: Path
) -> None:
    text = tmp_path / "other.txt"
    text.write_text(
        "\n\n".join("日本語の文章です 東京は大きい都市です " * 5 + str(n) for n in range(20)), encoding="utf-8"
    )
    code, out, err = electra(
        "prepare", text, "--tokenizer", folder / "data/tokenizer", "--seq-len", 32, "--out", tmp_path / "data"
    )
    assert code == 0 and "% of the letters are unreadable ([UNK])" in out and "not a vocabulary of this language" in err
    assert "tokens are held out" in err and "--valid-fraction (now 0.005)" in err


def test_verbs_that_train_restart_tuned() -> None:
    from electra_trainer.runs.launcher import trains

    assert {*"demo pretrain finetune glue squad compare".split()} == {verb for verb in VERBS if trains([verb])}
    assert trains(["pretrain", "D"]) and not trains(["pretrain", "--help"]) and not trains([])


def test_allocator_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    from electra_trainer.runs import launcher

    started: list[tuple[Any, ...]] = []
    monkeypatch.setattr(os, "execve", lambda *arguments: started.append(arguments))
    monkeypatch.setenv("GLIBC_TUNABLES", "")
    launcher.restart_tuned()
    assert not started
    monkeypatch.delenv("GLIBC_TUNABLES")
    launcher.restart_tuned()
    if sys.platform.startswith("linux") and (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc"):
        ((executable, words, environment),) = started
        assert executable == words[0] == sys.executable and words[1:] == sys.orig_argv[1:]
        assert "hugetlb=1" in environment["GLIBC_TUNABLES"]


def test_a_missing_package_is_not_a_bug(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "tyro", None)
    assert main(["show", "small"]) == ConfigError.exit_code
    told = capsys.readouterr().err
    assert "the Python package tyro is missing here" in told and "bug" not in told
    assert "pip install -c constraints.txt '.'" in told
    assert as_known(ModuleNotFoundError("no module", name="electra_trainer.nowhere")) is None


def test_text_that_the_model_does_not_know_is_reported(electra: Electra, folder: Path) -> None:
    code, out, err = electra("score", folder / "run", "日本語", "--json")
    assert code == 0 and json.loads(out)["tokens"] == ["[UNK]"] * 3
    assert "100.0 % of the letters are unreadable ([UNK])" in err
    assert "model says means nothing" in err
    code, _, err = electra("score", folder / "run", "a class of 本")
    assert code == 0 and "10.0 % of the letters" not in err and "for example '本'" in err and "little near them" in err
    assert electra("score", folder / "run", "a class")[2] == ""
    assert "for example '本'" in electra("fill", folder / "run", "本 [MASK] is")[2]
    assert electra("fill", folder / "run", "the [MASK] is")[2] == ""
    code, _, err = electra("fill", folder / "run", "the <mask> is")
    assert code == 65 and "the text has no [MASK]" in err


def test_the_model_is_looked_for_before_the_data(
    electra: Electra, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "a.csv").write_text("text,label\n" + "good,1\nbad,0\n" * 20)
    code, out, err = electra("finetune", "nobody/nothing", "--train", tmp_path / "a.csv", "--out", tmp_path / "e")
    assert code == 66 and out == "" and "nobody/nothing: no such folder" in err


@pytest.mark.parametrize("code", ["import electra_trainer", "import runpy; runpy.run_module('electra_trainer')"])
def test_windows_is_refused_in_one_sentence(code: str) -> None:
    """A Python without fcntl that says it is on Windows: WSL is named, and there is no traceback."""
    before = "import sys, runpy; sys.platform = 'win32'; sys.modules['fcntl'] = None; "
    done = subprocess.run([sys.executable, "-c", before + code], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stdout == "" and "WSL" in done.stderr
    assert len(done.stderr.splitlines()) == 1 and "Traceback" not in done.stderr
