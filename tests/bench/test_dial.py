"""The dial's grid: which run comes next, that what stands is not run again, and what a row says."""

import json
from pathlib import Path
from typing import Any

import pytest

from partwise.bench import dial
from partwise.bench.dial import (
    Cell,
    all_rows,
    fitted,
    judged_cell,
    law_cells,
    measure,
    of_family,
    points_of,
    take,
)
from partwise.budget.family import SIZES, Size, member, settings_of
from partwise.cli import main
from partwise.errors import RunError, StorageError
from partwise.text.config import DataConfig
from partwise.text.prepare import prepare


def row(cell: Cell, size: Size, loss: float) -> dict[str, Any]:
    tokens = cell.tokens or 1 << 20
    return {
        "tokens": tokens,
        "text_tokens": 90_000,
        "settings": settings_of(member(size, 65, 90_000, readings=tokens / 90_000)),
        "cell": cell.name,
        "text": cell.text,
        "size": str(size),
        "minutes": cell.minutes,
        "loss": loss,
    }


def test_sizes_are_tried_outward_until_the_best_has_a_worse_one_on_either_side() -> None:
    by_size = [9, 8, 7, 6, 5, 6, 7, 8, 9, 9]
    losses = {str(size): loss for size, loss in zip(SIZES, by_size, strict=True)}
    first = judged_cell([])
    assert first == Cell("100 KB", None, minutes=1.0)
    rows = [row(first, SIZES[2], losses[str(SIZES[2])])]
    tried = []
    while (cell := judged_cell(rows)) is not None and cell.text == "100 KB":
        assert cell.size is not None and cell.minutes == 1.0
        tried.append(SIZES.index(cell.size))
        rows.append(row(cell, cell.size, losses[str(cell.size)]))
    assert tried == [1, 3, 4, 5]
    assert cell == Cell("1 MB", None, minutes=1.0)


def test_the_smallest_size_has_no_smaller_one_beside_it() -> None:
    rows = [row(Cell("100 KB", None, minutes=1.0), SIZES[0], 1.0)]
    assert judged_cell(rows) == Cell("100 KB", SIZES[1], minutes=1.0)


def test_runs_of_an_earlier_form_or_of_a_size_that_there_is_no_more_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = row(Cell("100 KB", None, minutes=1.0), SIZES[2], 2.0)
    older = row(Cell("100 KB", SIZES[1], minutes=1.0), SIZES[1], 1.0)
    older["settings"]["model"]["ngram"] = 3
    gone = row(Cell("100 KB", SIZES[3], minutes=1.0), Size(5, 80, 1), 1.0)
    assert of_family(own) and not of_family(older) and not of_family(gone)
    assert judged_cell([own, older, gone]) == Cell("100 KB", SIZES[1], minutes=1.0)
    assert len(points_of([{**each, "parameters": 1, "surprise": 1.0} for each in (own, gone)])) == 1

    first = law_cells()[0]
    assert first.size is not None
    older = row(first, first.size, 1.0)
    older["settings"]["train"]["muon_lr"] *= 2
    results = tmp_path / "dial.jsonl"
    results.write_text(json.dumps(older) + "\n", encoding="utf-8")
    monkeypatch.setenv("PARTWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(dial, "take", lambda cell: row(cell, cell.size, 1.0))
    assert next(iter(measure(results)))["cell"] == first.name


def test_a_run_that_was_cut_to_whole_steps_has_the_settings_it_was_made_with() -> None:
    made = row(Cell("100 KB", SIZES[1], tokens=540_001), SIZES[1], 1.0)
    assert made["settings"] != settings_of(member(SIZES[1], 65, 90_000, readings=6.0))
    made["tokens"] = 540_001 // 1024 * 1024
    assert of_family(made)


def test_the_laws_runs_begin_with_the_cheapest_of_every_text() -> None:
    cells = law_cells()
    assert {cell.text for cell in cells[:3]} == {"100 KB", "1 MB", "30 MB"}
    assert all(cell.size == SIZES[0] and cell.tokens == 1 << 18 for cell in cells[:3])
    assert len({cell.name for cell in cells}) == len(cells)


def test_what_stands_in_the_file_is_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARTWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(dial, "take", lambda cell: row(cell, cell.size, 1.0))
    results = tmp_path / "dial.jsonl"
    times = iter(range(100))
    done = list(measure(results, minutes=2.5 / 60, clock=lambda: float(next(times))))
    assert [each["cell"] for each in done] == [cell.name for cell in law_cells()[:2]]
    another = next(iter(measure(results)))
    assert another["cell"] == law_cells()[2].name
    assert [json.loads(line) for line in results.read_text("utf-8").splitlines()] == [
        *done,
        another,
    ]
    (tmp_path / "dial-other.jsonl").write_text('{"cell": "x"}\n', encoding="utf-8")
    assert len(all_rows(results)) == 4


def test_a_run_has_the_minutes_of_a_core_and_says_with_what_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("a run of the grid, judged by its loss. " * 500, encoding="utf-8")
    monkeypatch.setenv("PARTWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(dial, "text_file", lambda name, folder: text)
    monkeypatch.setattr(dial, "SIZES", (Size(1, 16, 1),))
    monkeypatch.setattr(dial, "speeds", lambda facts, sizes=(), clock=None: [(Size(1, 16, 1), 1e4)])
    found = take(Cell("100 KB", None, minutes=1 / 60))
    prepared = prepare(str(text), DataConfig(), cache=tmp_path / "cache")
    assert found["text_tokens"] == len(prepared.train)
    assert 6000 < found["tokens"] <= 10_000 and not found["enough"]
    assert found["interval"][0] < found["expected"] < found["interval"][1]
    assert found["loss"] < 4 and found["core_seconds"] > 0
    assert found["settings"]["model"]["n_layers"] == 1 and of_family(found)
    given = take(Cell("100 KB", Size(1, 16, 1), tokens=5000))
    assert given["tokens"] == 4096 and given["minutes"] is None


@pytest.mark.parametrize("line", ["{", "[]", "4", "\udcff"])
def test_a_torn_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "dial.jsonl"
    whole = json.dumps({"cell": "a"}) + "\n\n"
    path.write_bytes((whole + line).encode("utf-8", "surrogateescape"))
    with pytest.raises(StorageError, match="line 3"):
        dial.read(path)


def test_a_law_of_too_few_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"holds 0 of the dial's runs"):
        fitted(tmp_path / "none.jsonl")


@pytest.mark.parametrize("minutes", ["-1", "0", "nan", "inf", "x"])
def test_minutes_that_are_none_are_refused(
    minutes: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "dial", f"--dial.for-minutes={minutes}"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
