"""A sentence encoder made from an export by sentence-transformers, as docs/serving.md says."""

import re
from pathlib import Path

import numpy as np
import pytest
from tests.command import Electra

PAGE = Path(__file__).resolve().parents[2] / "docs" / "serving.md"


@pytest.mark.slow
def test_the_lines_of_the_page(
    electra: Electra, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts that belong together are nearer to one another afterwards than to others."""
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S) if "Trainer" in block]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / "mine").symlink_to(exported)
    names = ["list", "string", "number", "class", "module", "function", "value", "name", "object", "statement"]
    pairs = [(f"the {name} is one of all these", f"and so on with a {name}") for name in names]
    (tmp_path / "pairs.csv").write_text("one,other\n" + "".join(f"{one},{other}\n" for one, other in pairs * 20))

    def right(model: Path) -> int:
        """Pairs whose second text is nearest to the first."""
        vectors = []
        for side in range(2):
            (tmp_path / "texts.txt").write_text("\n".join(pair[side] for pair in pairs))
            assert electra("embed", model, "texts.txt", "--out", "vectors.npy")[0] == 0
            found = np.load("vectors.npy")
            vectors.append(found / np.linalg.norm(found, axis=1, keepdims=True))
        return int(((vectors[0] @ vectors[1].T).argmax(1) == np.arange(len(pairs))).sum())

    before = right(exported / "discriminator")
    code = code.replace("batch_size=64", "batch_size=10, use_cpu=True").replace("2e-4", "1e-2")
    exec(code)
    assert before < right(tmp_path / "sentences" / "model") >= 8
