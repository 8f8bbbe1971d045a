"""The table: groups, steps, `ladder.json`."""

import dataclasses
import json
import math
from pathlib import Path

import pytest

from ladder.made import ladder, record
from partwise.errors import StorageError
from partwise.ladder.record import read_record, write_record
from partwise.ladder.report import report
from partwise.ladder.rungs import rungs
from partwise.ladder.table import SCHEMA, Failure, Silenced, read_table, write_table


def test_groups_stand_rung_by_rung_with_their_variants() -> None:
    table, _ = ladder(variants={"without residual": 0.5, "norm=rmsnorm": 0.0})
    assert [(group.rung, group.variant) for group in table.groups] == [
        (1, None),
        (2, None),
        (3, None),
        (4, None),
        (5, None),
        (5, "norm=rmsnorm"),
        (5, "without residual"),
    ]
    assert [one.seed for one in table.groups[0].rows] == [1, 2, 3]


def test_a_rung_is_compared_with_the_one_below_and_a_variant_with_its_rung() -> None:
    table, _ = ladder(variants={"without residual": 0.5})
    rungs = {group.rung: group for group in table.rungs}
    step = table.step(rungs[4])
    assert step is not None
    assert step.mean == pytest.approx(2.09 - 2.26, abs=2e-3)
    assert step.verdict == "lower"
    (variant,) = table.variants_of(5)
    change = table.step(variant)
    assert change is not None
    assert change.mean == pytest.approx(0.5, abs=3e-3)
    assert change.verdict == "higher"
    assert table.step(rungs[1]) is None


def test_rungs_without_a_seed_in_common_have_no_difference_yet(tmp_path: Path) -> None:
    """With several workers seed 2 of one rung and seed 1 of the next may be the first to end."""
    table, records = ladder(seeds=2, variants={"mask": 0.1})
    kept = {(1, None, 1), (2, None, 2), (4, None, 2), (5, None, 1), (5, "mask", 2)}
    rows = tuple(row for row in table.rows if (row.rung, row.variant, row.seed) in kept)
    table = dataclasses.replace(table, rows=rows)
    assert [table.step(group) for group in table.groups] == [None] * 5
    write_table(tmp_path / "ladder.json", table)
    found = json.loads((tmp_path / "ladder.json").read_text(encoding="utf-8"))
    assert found["differences"] == []
    page = report(table, records, rungs())
    assert "nan" not in page.partition("</style>")[2].lower()


def test_json_has_the_schema_s_fields(tmp_path: Path) -> None:
    """The fields that ladder.md names, one entry a rung, variant and seed."""
    table, _ = ladder(seeds=2, variants={"without residual": 0.5})
    write_table(tmp_path / "ladder.json", table)
    found = json.loads((tmp_path / "ladder.json").read_text(encoding="utf-8"))
    assert {"corpus", "machine", "versions", "rungs", "schema"} <= set(found)
    assert found["schema"] == SCHEMA
    assert len(found["rungs"]) == 12
    names = "rung name seed steps seconds tokens_per_second parameters train_loss val_loss "
    names += "best_val_loss estimate published variant standard_error"
    for entry in found["rungs"]:
        assert set(names.split()) <= set(entry)
    first = found["rungs"][0]
    a, b = (row.val_loss for row in table.groups[0].rows)
    assert first["standard_error"] == pytest.approx(abs(a - b) / 2)
    assert first["published"] == 2.40
    assert found["rungs"][-1]["published"] is None


def test_standard_error_of_one_seed_is_unknown() -> None:
    table, _ = ladder(seeds=1)
    assert all(entry["standard_error"] is None for entry in table.to_dict()["rungs"])
    assert all(one["verdict"] == "one seed" for one in table.to_dict()["differences"])


def test_read_gives_what_was_written(tmp_path: Path) -> None:
    silenced = (Silenced(5, 1, "positions", 2.6, 0.5),)
    table, _ = ladder(variants={"mask": 0.1}, silenced=silenced)
    failure = Failure(4, "residual", "lr=100", 1, "no number")
    table = dataclasses.replace(table, folder=tmp_path, failures=(failure,))
    write_table(tmp_path / "ladder.json", table)
    found = read_table(tmp_path / "ladder.json")
    assert sorted(found.rows, key=str) == sorted(table.rows, key=str)
    assert dataclasses.replace(found, rows=()) == dataclasses.replace(table, rows=())


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"schema": 1}', "\udcff"])
def test_torn_files_are_one_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "ladder.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(StorageError, match=r"ladder\.json"):
        read_table(path)


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    table, _ = ladder()
    content = {**table.to_dict(), "schema": SCHEMA + 1}
    (tmp_path / "ladder.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(StorageError, match="upgrade"):
        read_table(tmp_path / "ladder.json")


def test_missing(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no file"):
        read_table(tmp_path / "ladder.json")


def test_record_round_trip(tmp_path: Path) -> None:
    table, _ = ladder()
    one = record(table.rows[0])
    write_record(tmp_path, one)
    assert read_record(tmp_path) == one
    assert read_record(tmp_path / "nowhere") is None
    path = tmp_path / "ladder.json"
    path.write_text(path.read_text(encoding="utf-8").replace("2.4", "2.5"), encoding="utf-8")
    with pytest.raises(StorageError, match="checksum"):
        read_record(tmp_path)


def test_mean_of_nothing_is_no_number() -> None:
    table, _ = ladder(seeds=0)
    assert table.groups == ()
    assert not math.isnan(0.0)
