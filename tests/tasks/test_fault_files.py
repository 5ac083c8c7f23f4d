"""Tag files and question files of `../shared/faults`: each gives the right value, or one true sentence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from electra_trainer.errors import DataError
from electra_trainer.tasks.squad_files import read_squad
from electra_trainer.tasks.tagging import TaggingTask

FAULTS = Path(__file__).resolve().parents[3] / "shared" / "faults"
pytestmark = pytest.mark.skipif(not FAULTS.is_dir(), reason="../shared/faults is not here")
USUAL, PARTS = "B-LOC B-PER I-PER O", "ADV NOUN PUNCT VERB"
TAGS = {  # file: sentences, words, labels, words of the notes
    "span-notations/lower.txt": (80, 480, "B-loc B-per I-per O", "'i-per' as 'I-per'"),
    "span-notations/suffix.txt": (80, 480, USUAL, "'PER-B' as 'B-PER'"),
    "span-notations/zero-outside.txt": (80, 480, USUAL, "'0' as 'O'"),
    "outside-as-nothing/underscore.txt": (80, 480, USUAL, "480 words in 80 sentences, 240 without a label"),
    "outside-as-nothing/null.jsonl": (80, 480, USUAL, "warning: .*words without a label as 'O'"),
    "lone-cr/tags-cr.txt": (80, 480, USUAL, "BIO of LOC, PER"),
    "hash-first-word/spaces.txt": (80, 440, "B-EVT B-LOC B-PER I-PER O", "440 words in 80 sentences; "),
    "hash-words/ner.txt": (30, 60, "B-PER O", "60 words in 30 sentences, 30 comment lines"),
    "hash-words/ner-dev.txt": (40, 600, "B-PER O", "40 comment lines"),
    "hash-words/pos.txt": (30, 60, "NOUN VERB", "30 comment lines"),
    "hash-words/spaces.txt": (5, 10, "B-A B-TAG O", "10 words in 5 sentences; "),
    "hash-words/tabs.txt": (5, 10, "B-A B-TAG O", "10 words in 5 sentences; "),
    "tag-notations/bilou-train.txt": (200, 1678, "B-LOC B-PER I-PER L-LOC L-PER O U-LOC U-PER", "BIOES of LOC, PER"),
    "tag-notations/bmes-train.txt": (200, 1678, "B-LOC B-PER E-LOC E-PER M-PER O S-LOC S-PER", "BIOES of LOC, PER"),
    "tag-notations/colon-train.txt": (200, 1678, "B:LOC B:PER I:LOC I:PER O", "BIO of LOC, PER"),
    "tag-notations/underscore-train.txt": (200, 1678, "B_LOC B_PER I_LOC I_PER O", "BIO of LOC, PER"),
    "tag-notations/io-train.txt": (200, 1678, "LOC O PER", "3 without spans, scored by accuracy"),
    "tag-notations/io-marked-train.txt": (200, 1678, "I-LOC I-PER O", "BIO of LOC, PER"),
    "tags-as-tables/doccano.jsonl": (60, 266, "B-LOC B-PER O", "words = 'text', labels = 'label'"),
    "tags-as-tables/numbers.jsonl": (60, 266, "0 1 2", "3 without spans"),
    "conllu/no-blank-line-at-the-end.conllu": (41, 143, PARTS, "accuracy"),
    "conllu/numbers-go-on.conllu": (41, 143, PARTS, "accuracy"),
    "conllu/ten-columns-no-number.conllu": (41, 143, PARTS, "accuracy"),
    "conllu/own-upos-unk.conllu": (41, 144, "ADV NOUN PUNCT UNK VERB", "accuracy"),
    "conllu/space-of-spacy.conllu": (41, 144, "ADV NOUN PUNCT SPACE VERB", "accuracy"),
    "conllu/ud-1-conj.conllu": (41, 144, "ADV CONJ NOUN PUNCT VERB", "accuracy"),
}
REFUSED = {
    "no-blank-lines/train.txt": r"no blank line in 480 lines, 80 full stops.*awk",
    "tags-as-tables/one-line.txt": r":2: expected 4 columns, as line 1 has, found 5",
    "tags-as-tables/three.csv": r":1: has 1 column;.*no commas\.",
    "words-column/train.tsv": r"column 1 holds numbers\. Name the column of the words: --words N",
}
QUESTIONS = {
    "plain": 2, "no-title": 2, "id-is-a-number": 2, "hub-layout-of-answers": 2, "context-on-two-lines": 2, "no-answer-as-empty-text": 3,
    "impossible-as-text": r"is_impossible: expected true or false, found 'False'",
    "start-as-text": r"answer_start: expected a whole number, found '38'",
    "no-id": r"expected an object with 'id'",
    "list-of-paragraphs": r"expected an object with 'data'",
}  # fmt: skip


@pytest.mark.parametrize("name", TAGS)
def test_a_tag_file_is_read(name: str) -> None:
    sentences, words, labels, note = TAGS[name]
    data = TaggingTask(train=FAULTS / name, dev=FAULTS / name).load()
    assert (len(data.train), sum(len(one.words) for one in data.train)) == (sentences, words)
    assert " ".join(data.task.labels) == labels  # type: ignore[attr-defined]
    assert any(re.search(note, one) for one in data.notes), data.notes


@pytest.mark.parametrize("name", REFUSED)
def test_a_tag_file_is_refused(name: str) -> None:
    with pytest.raises(DataError, match=REFUSED[name]):
        TaggingTask(train=FAULTS / name, dev=FAULTS / name).load()


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_file(name: str) -> None:
    expected, path = QUESTIONS[name], FAULTS / "question-files" / f"{name}.json"
    if isinstance(expected, str):
        with pytest.raises(DataError, match=expected):
            read_squad(path, version=2)
    else:
        questions = read_squad(path, version=2).questions
        assert len(questions) == expected and (questions[0].answers[0].text, questions[0].answers[0].start) == (
            "1911",
            38,
        )
