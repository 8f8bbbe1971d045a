"""The dial's grid: which run comes next, that what stands is not run again, and what a row says."""

import json
from pathlib import Path
from typing import Any

import pytest

from partwise.bench import dial
from partwise.bench.dial import Cell, all_rows, judged_cell, law_cells, measure, of_family, take
from partwise.budget.family import SIZES, Size
from partwise.text.config import DataConfig
from partwise.text.prepare import prepare


def row(cell: Cell, size: Size, loss: float) -> dict[str, Any]:
    return {
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


def test_the_laws_runs_begin_with_the_cheapest_of_every_text() -> None:
    cells = law_cells()
    assert {cell.text for cell in cells[:3]} == {"100 KB", "1 MB", "30 MB"}
    assert all(cell.size == SIZES[0] and cell.tokens == 1 << 18 for cell in cells[:3])
    assert len({cell.name for cell in cells}) == len(cells)


def test_what_stands_in_the_file_is_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARTWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(dial, "take", lambda cell: {"cell": cell.name})
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
