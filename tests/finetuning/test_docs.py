"""docs/finetuning.md: its Python is run word for word."""

import re
from pathlib import Path

import pytest
from tests.finetuning.toy import BAD, GOOD, write_model

PAGE = Path(__file__).resolve().parents[2] / "docs" / "finetuning.md"


@pytest.mark.slow
def test_the_python_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    write_model(tmp_path / "runs" / "mine")
    rows = [f"{(GOOD if n % 2 else BAD)[n % 8]} {GOOD[n % 5]},{'good' if n % 2 else 'bad'}" for n in range(80)]
    (tmp_path / "reviews.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("electra_trainer.experiments.engine.cores", lambda: 1)  # no further processes
    exec(compile(block.replace("seeds=3", "seeds=3, epochs=1, quiet=True"), str(PAGE), "exec"), {"__name__": "page"})
    assert (tmp_path / "exp" / "reviews" / "model" / "config.json").is_file()
