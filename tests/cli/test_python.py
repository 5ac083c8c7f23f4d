"""Arguments that a Python program may give: what is meant is taken, what is not is refused before anything is written."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest
import torch
from tests.prepared import small_config, write_store

from electra_trainer import OwnTask, api, preset
from electra_trainer.data.tokenizer import Text, as_plain_text
from electra_trainer.errors import ConfigError, DataError, MissingInputError
from electra_trainer.finetuning.model_folder import Finetuned
from electra_trainer.settings.calls import checked
from electra_trainer.tasks.multi_label import MultiLabelTask
from electra_trainer.tasks.tagging import TaggingTask
from electra_trainer.tasks.texts import Classification
from electra_trainer.train.device import choose_precision, placed


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("python")
    write_store(folder / "data")
    asked: dict[str, Any] = {"steps": np.int64(2), "seed": np.int64(3), "device": "cpu", "quiet": True}
    trained = api.pretrain(folder / "data", out=folder / "run", preset=small_config(), **asked)
    assert len(repr(trained)) < 200 and trained.step == 2
    return folder / "run"


def test_a_table_is_no_list_of_texts(run: Path) -> None:
    """Its items are the names of its columns."""
    table = pd.DataFrame({"text": ["one"], "more": ["two"]})
    for given in (table, {"text": ["one"]}):
        with pytest.raises(DataError, match=r'embed: is a (DataFrame|dict)\. Give its texts, for example df\["text"\]'):
            api.load(run).embed(given)  # type: ignore[arg-type]
    assert api.load(run).embed(table["text"]).shape[0] == 1
    with pytest.raises(DataError, match=r"embed: is None\. Give a list of texts\."):
        api.load(run).embed(None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="embed: device = 3: expected str, found int"):
        api.load(run).embed(["one"], device=3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="preset: name = 3: expected str, found int"):
        preset(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [{"steps": 1.5}, {"budget": 60}])
def test_a_length_is_refused_before_the_folder_is_made(run: Path, tmp_path: Path, given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"pretrain: (steps = 1.5: expected int|budget = 60: expected str), found"):
        api.pretrain(run.parent / "data", out=tmp_path / "run", preset=small_config(), **given)
    assert not (tmp_path / "run/config.json").exists()


def test_one_name_is_a_list_of_one(run: Path, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"preset": small_config(lanes=1), "steps": 1e0, "quiet": True, "device": "cpu"}
    found = api.compare(
        run.parent / "data", out=tmp_path / "exp", arms="electra,mlm", seeds=np.int64(1), probe="held-out", **asked
    )
    assert list(found.rows) == ["electra", "mlm"]
    assert api.report(run, out=tmp_path / "page.html").exists()


@checked
def called(
    path: str | Path,
    *,
    several: int | Sequence[int] = 3,
    share: float | None = None,
    form: Literal["a", "b"] | None = None,
    anything: Iterable[object] = (),
) -> tuple[Any, ...]:
    return path, several, share, form, anything


def test_values_become_pythons() -> None:
    """JSON refuses NumPy's, and a float would round a large seed."""
    large = 2**53 + 1
    for several in ([large, np.int64(2), 3.0], np.array([large, 2, 3]), pd.Series([large, 2, 3])):
        found = called("a", several=several)[1]  # type: ignore[arg-type]
        assert tuple(found) == (large, 2, 3) and {type(one) for one in found} == {int}
    assert tuple(called("a", several=range(2))[1]) == (0, 1) and called("a", several=4.0)[1] == 4  # type: ignore[arg-type]
    assert [called("a", share=one)[2] for one in (np.float32(2), np.int64(2), 2.0)] == [2.0] * 3
    assert {type(called("a", share=one)[2]) for one in (np.float32(2), np.int64(2), 2.0)} == {float}
    assert called(Path("b"))[0] == Path("b") and called(np.str_("b"))[0] == "b"
    table = pd.DataFrame({"a": [1]})
    assert called("a", anything=table)[4] is table


@pytest.mark.parametrize(
    "given, said",
    [
        ({"path": 42}, "called: path = 42: expected str, found int."),
        ({"path": None}, "called: path = None: expected str, found NoneType."),
        ({"path": b"a"}, "called: path = b'a': expected str, found bytes."),
        ({"path": ["a"]}, r"called: path = \['a'\]: expected str, found list."),
        ({"path": {"a": 1}}, "called: path = {'a': 1}: expected str, found dict."),
        ({"path": pd.DataFrame()}, r"called: path is a DataFrame\. Write it with \.to_csv\(FILE, index=False\)"),
        ({}, "called: missing a required argument: 'path'. Its parameters: path, several, share, form, anything."),
        ({"path": "a", "severl": 2}, "called: unknown field 'severl'. Did you mean 'several'?"),
        ({"path": "a", "several": "3"}, "called: several = '3': expected int, found str."),
        ({"path": "a", "several": 1.5}, "called: several = 1.5: expected int, found float."),
        ({"path": "a", "several": [1, None]}, r"called: several\[1\] = None: expected int, found NoneType."),
        ({"path": "a", "several": True}, "called: several = True: expected int, found bool."),
        ({"path": "a", "share": "1"}, "called: share = '1': expected float, found str."),
        ({"path": "a", "form": "c"}, "called: form = 'c': expected one of None, 'a', 'b'"),
    ],
)
def test_a_wrong_value_is_a_sentence(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        called(**given)


def test_what_is_fine_tuned_on(run: Path, tmp_path: Path) -> None:
    """A file is OwnTask's; what is in memory is refused with what to give."""
    table = pd.DataFrame({"text": ["one"], "label": ["a"]})
    for given in (table, table.to_dict(), [("one", "a")], None, 42, OwnTask):
        with pytest.raises(
            ConfigError, match=r"finetune: task is a \w+\. Give a file of rows, or OwnTask\(train=FILE\)"
        ):
            api.finetune(run, given, out=tmp_path / "out")  # type: ignore[arg-type]
    for kind, more in ((OwnTask, {}), (TaggingTask, {}), (MultiLabelTask, {"label_separator": ";"})):
        with pytest.raises(ConfigError, match=rf"{kind.__name__}: dev is a DataFrame\. Write it"):
            kind(train=tmp_path / "a.csv", dev=table, **more)
    for path in ("missing.csv", tmp_path / "missing.csv"):
        with pytest.raises(MissingInputError, match=r"missing\.csv: no such file"):
            api.finetune(run, path, out=tmp_path / "out")
    with pytest.raises(ConfigError, match=r"documents: is 42\. Give a list of texts"):
        api.prepare(documents=42, tokenizer=run / "tokenizer", out=tmp_path / "out")  # type: ignore[arg-type]


def test_half_a_surrogate_pair_is_a_sentence(run: Path) -> None:
    model, bad = api.load(run), "a \ud83d b"
    plain = Text(tokenizer=as_plain_text(model.tokenizer), specials=model.specials, length=16)
    for ask in (
        lambda: model.embed(["a", bad]), lambda: plain.ids(["a"] * 1001 + [bad]), lambda: plain.encode_words([["a", bad]])
    ):  # fmt: skip
        with pytest.raises(DataError, match=r"'a \\ud83d b' holds half of a surrogate pair at character 3\."):
            ask()
    with pytest.raises(DataError, match="the text is not valid UTF-8"):
        model.score(bad)


def test_paths_of_runs_are_loaded(run: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"sentence_good": "the value", "sentence_bad": "value the", "UID": "x"}\n')
    asked: dict[str, Any] = {"scores": ["discriminator"]}
    one, two = (api.minimal_pairs(model, tmp_path, **asked) for model in (run, api.load(run)))
    assert one.text() == two.text()


def test_unknown_words_are_refused() -> None:
    with pytest.raises(ConfigError, match="TaggingTask: scheme = 'none': expected one of 'detect'"):
        TaggingTask(train="a.csv", scheme="none")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="precision 'fp16': expected auto, fp32 or bf16"):
        choose_precision("fp16", torch.device("cpu"))


def test_a_network_returns_to_its_device() -> None:
    network = torch.nn.Linear(2, 2, device="meta")
    with placed(network, None) as where:
        assert where.type == "meta"
    cpu = torch.nn.Linear(2, 2)
    with pytest.raises(ConfigError), placed(cpu, "cuda:77"):
        pass
    assert cpu.weight.device.type == "cpu"


def test_unreadable_text_is_reported(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From Python too, and once."""
    api.load(run).embed(["日本語の文章"])
    assert capsys.readouterr().err.count("100.0 % of the letters") == 1
    documents = [f"日本語の文章です。{number}" for number in range(40)]
    api.prepare(documents=documents, tokenizer=run / "tokenizer", seq_len=16, out=tmp_path / "d", valid_fraction=0.1)
    assert capsys.readouterr().err.count("is not a vocabulary of this language") == 1


def test_results_are_tables(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For `print` and in a notebook."""
    scored = api.load(run).score("the <value> of a name")
    assert str(scored).splitlines()[0] == "token  replaced" and len(str(scored).splitlines()) == 1 + len(scored.tokens)
    assert scored._repr_html_().startswith("<pre>token  replaced") and "&lt;" in scored._repr_html_()
    (tmp_path / "a.jsonl").write_text('{"sentence_good": "the value", "sentence_bad": "value the", "UID": "x"}\n')
    pairs = api.minimal_pairs(run, tmp_path, scores="discriminator")
    assert str(pairs) == pairs.text() and "ties, counted wrong" in pairs._repr_html_()
    evaluated = api.evaluate(run, run.parent / "data", device="cpu")
    assert re.search(r"^rows +\d+$", str(evaluated), re.MULTILINE) and "<pre>field" in evaluated._repr_html_()
    found = Finetuned(
        network=None, task=Classification(labels=("a", "b")), text=None, columns=None, pair=False,  # type: ignore[arg-type]
        table={"source": {"model": "run"}, "seed": 2, "scores": {"dev": {"accuracy": {"1": 0.5, "2": 0.7}}}},
    )  # fmt: skip
    assert str(found).splitlines()[-2:] == [
        "split  metric    n  median  mean    SD", "dev    accuracy  2    60.0  60.0  14.1",
    ]  # fmt: skip
    assert len(repr(found)) < 80


def test_quiet_hides_no_warning(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [("the value of a name", "a"), ("a class is an object", "b")]
    rows = [f"{text} {number},{label}" for number in range(12) for text, label in words]
    (tmp_path / "a.csv").write_text("\n".join(["text,label", *rows, rows[0][:-1] + "b"]) + "\n")
    asked: dict[str, Any] = {"epochs": 1, "learning_rate": 1e-9, "device": "cpu", "parallel": 1, "quiet": True}
    best = api.finetune(run, tmp_path / "a.csv", out=tmp_path / "out", seeds=1, **asked)
    said = capsys.readouterr().err
    assert "DOUBTFUL: seed 1: folds: collapsed" in said and "classification: warning: " in said
    assert str(best).splitlines()[-1].startswith("Right in ")
