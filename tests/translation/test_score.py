"""Scores: exact by hand, BLEU by sacreBLEU where it is installed."""

import importlib.util

import pytest

from partwise.translation import score
from partwise.translation.score import copied, scored, unscored, words_of

PAIRS = [
    ("le chat dort sur le lit", "the cat sleeps on the bed"),
    ("oui", "yes"),
    ("Python", "Python 3"),
    ("menu", "menu"),
]


def test_exact_is_the_share_that_is_the_same() -> None:
    written = ["the cat sleeps on the bed", "Yes", "Python 3", "menu"]
    assert scored("x", written, PAIRS).exact == 0.75
    assert copied(PAIRS).exact == 0.25
    assert copied(PAIRS).system == "copy"


@pytest.mark.skipif(not importlib.util.find_spec("sacrebleu"), reason="sacrebleu is not installed")
def test_bleu_is_sacrebleus() -> None:
    import sacrebleu

    written = ["the cat sleeps in the bed", "yes", "Python", "menu"]
    found = scored("x", written, PAIRS)
    given = [[target for _, target in PAIRS]]
    assert found.bleu == pytest.approx(sacrebleu.corpus_bleu(written, given).score)
    assert found.chrf == pytest.approx(sacrebleu.corpus_chrf(written, given).score)
    assert found.signature is not None
    assert "version:" in found.signature
    assert scored("x", given[0], PAIRS).bleu == pytest.approx(100)
    assert unscored() is None
    # Single words have no four in a row, and a BLEU of 0 would say nothing.
    words = [("abc", "cba"), ("de", "ed")]
    assert scored("x", ["cba", "ed"], words).bleu is None
    assert scored("x", ["cba", "ed"], words).chrf == pytest.approx(100)


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("the cat sleeps", "13a"),
        ("le chat {1} 你", "13a"),
        ("保存 Python 文件到磁盘上去", "zh"),
        ("ファイルを保存する", "char"),
        ("บันทึกไฟล์", "char"),
        ("파일을 저장합니다", "13a"),
        ("", "13a"),
    ],
)
def test_texts_without_spaces_are_cut_into_characters(text: str, cut: str) -> None:
    assert words_of([text]) == cut


def test_without_sacrebleu_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score, "_sacrebleu", lambda: None)
    assert scored("x", ["a"] * 4, PAIRS).bleu is None
    assert 'pip install "partwise[translate]"' in str(unscored())
