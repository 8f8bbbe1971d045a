"""`pw.ladder(…)`: the table as data."""

import subprocess
import sys
from pathlib import Path
from typing import Any

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
    "asked",
    [
        {"to": "5"},
        {"to": 2.5},
        {"only": 2.5},
        {"only": [None]},
        {"only": {1: 2}, "swap": 3},
        {"seeds": "3"},
        {"seeds": True},
        {"without": 5},
        {"without": [5]},
        {"swap": 5},
        {"swap": [("norm", "rmsnorm")]},
        {"swap": {"norm": 3}},
        {"swap": {1: 2}},
        {"steps": 2.5},
        {"each": "yes"},
        {"name": 5},
        {"text": 5},
        {"root": 5},
        {"root": None},
        {"offline": "no"},
        {"workers": -1},
        {"device": "tpu"},
        {"device": None},
        {"stop": True},
        {"listen": 5},
    ],
    ids=str,
)
def test_a_value_of_another_type_is_one_line(asked: dict[str, Any]) -> None:
    with pytest.raises(pw.PartwiseError) as caught:
        pw.ladder(**{"only": 1, "text": "cats.txt", "workers": 0, "steps": 2, **asked})
    assert "\n" not in str(caught.value)
    assert not Path("ladders").exists()


def test_a_swapped_number_is_the_one_that_was_given() -> None:
    table = pw.ladder(
        only=[1],
        swap={"lr": 0.00123456789, "window": 3},
        steps=1,
        text=Path("cats.txt"),
        root=Path("here"),
        workers=0,
    )
    (variant,) = table.variants_of(1)
    assert pw.load(Path("here/cats-steps-1/runs") / variant.rows[0].run).record.train.lr == (
        0.00123456789
    )


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
