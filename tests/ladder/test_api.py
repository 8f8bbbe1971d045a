"""`pw.ladder(…)`: the table as data."""

import subprocess
import sys
from pathlib import Path

import pytest

import partwise as pw
from partwise.ladder.events import Event, Measured
from partwise.ladder.table import LadderTable

WORDS = "the cat sat on the mat and the dog sat on the log\n"


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cats.txt").write_text(WORDS * 30, encoding="utf-8")
    monkeypatch.setattr("partwise.ladder.figures.ESTIMATE_BATCHES", 2)
    monkeypatch.setattr("partwise.ladder.work.SAMPLE_CHARS", 10)


def test_ladder_returns_its_table() -> None:
    heard: list[Event] = []
    table = pw.ladder(
        only=(4, "layernorm"),
        without="residual",
        swap={"norm_placement": "post"},
        each=True,
        seeds=2,
        steps=2,
        text="cats.txt",
        workers=0,
        listen=heard.append,
    )
    assert isinstance(table, LadderTable)
    assert {group.key for group in table.groups} == {
        (4, None),
        (4, "without residual"),
        (5, None),
        (5, "without residual"),
        (5, "norm_placement=post"),
    }
    assert all(len(group.rows) == 2 for group in table.groups)
    assert sum(isinstance(event, Measured) for event in heard) == 10
    (residual,) = table.variants_of(4)
    difference = table.step(residual)
    assert difference is not None
    assert difference.seeds == (1, 2)


def test_mistakes_are_errors() -> None:
    with pytest.raises(pw.PartwiseError, match="did you mean residual"):
        pw.ladder(only=4, without="resdual", text="cats.txt")
    with pytest.raises(pw.PartwiseError, match="1 to 6"):
        pw.ladder(9)
    Path("short.txt").write_text("abcd" * 10, encoding="utf-8")
    with pytest.raises(pw.PartwiseError, match="validation"):
        pw.ladder(only=1, steps=2, text="short.txt", workers=0)


@pytest.mark.parametrize(
    "first", ["import partwise.ladder.rungs", "import partwise; partwise.ladder", "pass"]
)
def test_package_and_function_go_by_one_name(first: str) -> None:
    script = f"""
{first}
import sys
import partwise as pw
assert callable(pw.ladder)
import partwise.ladder.statistics as statistics
assert statistics.paired and callable(pw.ladder)
from partwise.ladder import rungs
assert rungs.rung(1).number == 1
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
