"""The authors' thirteen totals, and the notes on the rows next to them."""

import pytest
from tests.cost.architectures import ARCHITECTURES, ELMO_MEASURED, XLNET_MEASURED, elmo_softmax, elmo_word, xlnet_row

from electra_trainer.cost.flops import step_flops
from electra_trainer.errors import ConfigError
from electra_trainer.paper.published import PUBLISHED, TABLES, cost_of
from electra_trainer.presets.models import PRESETS

TOTALS = {
    "elmo": 3.4114394716164127e18,
    "xlnet": 3.856582065028608e21,
    "gpt": 3.968752230785352e19,
    "bert_small": 1.4187399146496e18,
    "bert_base": 6.428335104e19,
    "bert_large": 1.91720905883648e20,
    "electra_small": 1.293743798272e18,
    "electra_base": 6.424541834277683e19,
    "electra_400k": 7.117606040895488e20,
    "electra_1.75M": 3.113952642891776e21,
    "roberta": 3.187221435776e21,
    "albert": 3.113923955392512e22,
    "t5_11b": 4.581900124212429e22,
}
"""The output of the authors' script."""
PRINTED = {
    "xlnet": 9.6e20,
    "gpt": 4.0e19,
    "bert_small": 1.4e18,
    "bert_base": 6.4e19,
    "bert_large": 1.9e20,
    "electra_small": 1.4e18,
    "electra_base": 6.4e19,
    "electra_400k": 7.1e20,
    "roberta": 3.2e21,
}
"""The paper's numbers in Tables 1 and 2."""


@pytest.mark.parametrize("name", TOTALS)
def test_totals_are_those_of_the_authors_script(name: str) -> None:
    assert PUBLISHED.keys() == TOTALS.keys()
    assert cost_of(name).train_paper == pytest.approx(TOTALS[name], rel=1e-9)


def test_ratios_that_the_text_gives() -> None:
    """Ratios of docs/paper_map.md and docs/analysis.md: 30, 135, 20 and 4 times in the paper."""
    small, gpt, bert, large, roberta = (
        cost_of(name) for name in ("electra_small", "gpt", "bert_large", "electra_400k", "roberta")
    )
    assert gpt.train_paper / small.train_paper == pytest.approx(30.7, abs=0.05)
    assert bert.train_paper / small.train_paper == pytest.approx(148, abs=0.5)
    with_head, without_generator = 335_174_458, 13_549_057
    assert with_head / without_generator == pytest.approx(24.7, abs=0.05)
    assert roberta.train_paper / large.train_paper == pytest.approx(4.48, abs=0.005)
    electra, mlm = (step_flops(PRESETS[name]()) for name in ("small", "bert_small"))
    assert electra.paper / mlm.paper == pytest.approx(1 + 32 / 100, abs=0.005)
    assert electra.real / mlm.real == pytest.approx(1 + 8 / 100, abs=0.005)


def test_two_of_the_totals_are_not_as_printed() -> None:
    """XLNet's and ELECTRA-Small's, where the script is later than the paper; the others agree within its rounding."""
    cells = {row.values.get("train_flops") for table in (1, 2) for row in TABLES[table].rows}
    assert cells >= {*PRINTED.values()}
    apart = {name for name, flops in PRINTED.items() if abs(TOTALS[name] / flops - 1) > 0.02}
    assert apart == {"xlnet", "electra_small"}
    assert TOTALS["xlnet"] == pytest.approx(3.86e21, rel=1e-3)
    assert TOTALS["xlnet"] / TOTALS["electra_400k"] == pytest.approx(5.4, abs=0.05)
    assert PRINTED["xlnet"] / PRINTED["electra_400k"] == pytest.approx(1.3, abs=0.1)
    assert TOTALS["electra_small"] == pytest.approx(1.29e18, rel=3e-3)


@pytest.mark.parametrize("name", [name for name, row in PUBLISHED.items() if "preset" not in row])
def test_numbers_of_other_architectures_follow_from_them(name: str) -> None:
    """To the last bit."""
    assert cost_of(name) == ARCHITECTURES[name]()


@pytest.mark.parametrize(
    ("name", "forward"),
    [("elmo", 2.6e10), ("gpt", 3.0e10), ("bert_base", 2.9e10), ("electra_base", 2.9e10), ("electra_small", 3.7e9), ("bert_small", 3.7e9)],
)  # fmt: skip
def test_inference_is_that_of_table_1(name: str, forward: float) -> None:
    """To the two digits that it prints; GPT's is 3.048."""
    assert cost_of(name).infer_paper == pytest.approx(forward, rel=0.02)


def test_architectures_explain_what_was_measured() -> None:
    """ELMo's and XLNet's matrix products are all but half a percent of what TensorFlow counted, pointwise work included."""
    assert 20 * 128 * (elmo_word() + elmo_softmax()) / ELMO_MEASURED == pytest.approx(0.996, abs=5e-4)
    assert 32 * xlnet_row() / XLNET_MEASURED == pytest.approx(0.997, abs=5e-4)


def test_real_counts_by_hand() -> None:
    """ALBERT; and of BERT-Large look-ups that are free are a fifth of what the paper counts of a pass."""
    words = 77 * 2 * 128 * (4096 + 30000)
    albert = 3 * 1.5e6 * 4096 * (512 * (12 * (24 * 4096**2 + 4 * 512 * 4096) + 2 * 128 * 4096) + words)
    assert cost_of("albert").train_real == pytest.approx(albert)
    assert 1.2 < cost_of("bert_large").train_real / cost_of("bert_large").train_paper < 1.5


def test_a_wrong_name_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"Unknown name 'robert'\. Did you mean 'roberta'\?"):
        cost_of("robert")
