"""One table in every form: alignment and escapes."""

import csv
import io

from electra_trainer.files.wording import Table, escape_markdown

TABLE = Table(head=["", "a|b", "runs"], rows=[["x_y", "1.5", "1 2"], ["[dim]", "–", "10 %"]], words=1)


def test_markdown_escapes() -> None:
    assert TABLE.markdown().splitlines() == [
        r"|  | a\|b | runs |",
        "| --- | --: | --: |",
        r"| x\_y | 1.5 | 1 2 |",
        r"| \[dim\] | – | 10 % |",
    ]


def test_cells_may_hold_markdown_themselves() -> None:
    table = Table(head=["a", "b"], rows=[["[x](y)", "p|q\nr"]])
    assert table.markdown(escaped="|").splitlines() == ["| a | b |", "| --- | --- |", r"| [x](y) | p\|q r |"]


def test_latex() -> None:
    text = TABLE.latex(caption="50 %", notes=["a_b"])
    assert r"\caption{50 \%}" in text and r"a\_b\par" in text and r"\begin{tabular}{lrr}" in text
    assert r"x\_y & 1.5 & 1 2 \\" in text


def test_csv_parses_back() -> None:
    rows = list(csv.reader(io.StringIO(TABLE.csv())))
    assert rows == [["", "a|b", "runs"], ["x_y", "1.5", "1 2"], ["[dim]", "–", "10 %"]]


def test_text_is_aligned() -> None:
    assert TABLE.text().splitlines() == ["       a|b  runs", "x_y    1.5   1 2", "[dim]    –  10 %"]
    wide = Table(head=["n", "v"], rows=[["a", "1"], [], ["b", "22"]], words=1)
    assert wide.text(least=4).splitlines() == ["n     v", "a     1", "", "b    22"]


def test_markdown_of_texts() -> None:
    assert escape_markdown("a*b\n<c>  `d`") == r"a\*b \<c\> \`d\`"
    assert escape_markdown("\u202etxt.\x1b") == r"\\u202etxt.\\x1b"  # nothing turns the line around
