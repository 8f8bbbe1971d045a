"""`partwise ladder`: what it shows, what it refuses, what a pipe and a program get."""

import dataclasses
import json
import re
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from partwise.cli import ladder_view, main
from partwise.cli.ladder_view import Grid, LineView, LiveView, headings, verdicts
from partwise.errors import StorageError
from partwise.ladder.events import Climbed, Event, Failed, Measured, Moved, Planned
from partwise.ladder.table import Failure, LadderTable, Row
from partwise.messages import Language, use_language

WORDS = "the cat sat on the mat and the dog sat on the log\n"


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PARTWISE_LANG", "en")
    Path("cats.txt").write_text(WORDS * 30, encoding="utf-8")
    monkeypatch.setattr("partwise.ladder.figures.ESTIMATE_BATCHES", 2)
    monkeypatch.setattr("partwise.ladder.work.SAMPLE_CHARS", 10)


def words(*more: str) -> list[str]:
    return ["ladder", "--text", "cats.txt", "--steps", "2", "--workers", "0", *more]


def test_show_prints_the_differences_and_trains_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["ladder", "--show", "--to", "6"]) == 0
    out = capsys.readouterr().out
    assert "model.residual: false -> true" in out
    assert "model.norm: none -> layernorm" in out
    assert "model.dropout: 0 -> 0.2" in out
    assert "model.d_model=32" in out
    assert all(len(line) <= 80 for line in out.splitlines())
    # Published values are no part of a definition.
    assert "2.28" not in out
    assert not Path("ladders").exists()


def test_show_with_a_variant(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ladder", "--show", "--only", "5", "--swap", "norm=rms", "--json"]) == 0
    (rung,) = json.loads(capsys.readouterr().out)["rungs"]
    assert rung["variants"] == [
        {
            "variant": "norm=rmsnorm",
            "changes": [
                {"config": "model", "field": "norm", "before": "layernorm", "after": "rmsnorm"}
            ],
        }
    ]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (["--swap", "n_heads=5"], "not divisible by n_heads=5; n_heads 2, 4, 8 would do"),
        (["--only", "5", "--swap", "norm=batchnorm,batch_size=1"], "give 2 or more"),
        (["--without", "residul"], "did you mean residual?"),
        (["--swap", "nrom=rms"], "did you mean norm?"),
        (["--only", "9"], "give 1 to 6"),
        (["--to", "two"], "a whole number"),
        (["--without", "residual", "--only", "2"], "changes nothing on rung 2"),
        (["--seeds", "0"], "1 or more"),
        (["--seed", "3"], "--seeds"),
    ],
)
def test_mistakes_are_one_line(
    said: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(*said)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert reason in err
    assert not Path("ladders").exists()


def test_a_pipe_gets_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words("--only", "1,2", "--seeds", "2", "--name", "cats")) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "The ladder on cats (published values belong to tiny Shakespeare" in out
    assert "models: 4, trained before: 0" in out
    assert "rung 2 heads, seed 2: validation loss" in out
    assert "within noise at 2 seeds" in out or "noise" not in out
    assert str(Path("ladders/cats/ladder.html")) in out
    assert "published values, for reference" not in out


def test_a_program_gets_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words("--only", "1", "--name", "cats", "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads(Path("ladders/cats/ladder.json").read_text(encoding="utf-8"))


def test_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words("--only", "1", "--name", "cats", "--quiet")) == 0
    assert capsys.readouterr().out == str(Path("ladders/cats/ladder.html")) + "\n"


def test_too_short_a_text_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("short.txt").write_text("abcd" * 10, encoding="utf-8")
    said = ["ladder", "--text", "short.txt", "--only", "1", "--steps", "2", "--workers", "0"]
    assert main(said) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "validation" in err
    assert not Path("ladders").exists()


def test_a_fault_that_ends_the_climb_is_the_user_s(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(run: Path, record: object) -> None:
        raise StorageError("{path} cannot be written: the disk is full", path=run)

    monkeypatch.setattr("partwise.ladder.work.write_record", full)
    assert main(words("--only", "1,2")) == 2
    out = capsys.readouterr().out
    assert out.count("the disk is full") == 1


def row(rung: int, name: str, variant: str | None, seed: int, loss: float) -> Row:
    return Row(
        rung=rung,
        name=name,
        variant=variant,
        seed=seed,
        steps=5000,
        seconds=17_000.0,
        tokens_per_second=1e5,
        parameters=10_788_929,
        train_loss=loss,
        val_loss=loss,
        best_val_loss=loss,
        estimate=loss,
        published=None if variant else 2.24,
        run=f"{rung}{variant}{seed}",
    )


def widest() -> LadderTable:
    """The longest names and numbers."""
    rows = [row(2, "heads", None, seed, 2.5) for seed in (1, 2)]
    rows += [row(3, "feedforward", None, seed, 2.4 + 0.05 * seed) for seed in (1, 2)]
    variant = "without residual, norm=rmsnorm, norm_placement=post"
    rows += [row(3, "feedforward", variant, seed, 4.0 + seed) for seed in (1, 2)]
    return LadderTable("tinyshakespeare", Path(), {}, {}, tuple(rows))


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_widest_table_fits_80_columns(
    language: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARTWISE_LANG", language)
    ladder_view.show_table(widest())
    lines = capsys.readouterr().out.splitlines()
    assert max(cell_len(line) for line in lines) <= 80
    assert "3 feedforward" in "\n".join(lines)
    assert "2.475" in "\n".join(lines)
    assert "(2.24)" in "\n".join(lines)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("width", [20, 30, 40, 50, 60, 70])
def test_a_narrow_terminal_loses_columns_and_no_digits(language: Language, width: int) -> None:
    screen = Console(width=width, highlight=False)
    with use_language(language), screen.capture() as captured:
        rows = [ladder_view.cells(widest(), group, True, True) for group in widest().groups]
        screen.print(Grid(headings(True, True), rows))
    lines = captured.get().splitlines()
    assert max(cell_len(line.rstrip()) for line in lines) <= width
    words = " ".join(lines).split()
    assert {"heads", "feedforward", "2.500", "2.475"} <= set(words)
    whole = {word for row in rows for cell in row[1:] for word in cell.split()}
    numbers = [word for word in words if re.search(r"\d[.]\d|\d[kMhms]", word)]
    assert set(numbers) <= whole


def test_verdicts_name_noise_and_say_what_brackets_are() -> None:
    lines = "\n".join(verdicts(widest()))
    assert "heads to feedforward" in lines
    assert "within noise at 2 seeds" in lines
    assert "published values, for reference; not results" in lines


def test_one_rung_has_no_difference_to_explain() -> None:
    table = widest()
    assert verdicts(dataclasses.replace(table, rows=table.rows[:2])) == [
        "(in brackets: published values, for reference; not results)"
    ]


def test_live_view_fills_as_rungs_are_trained(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows that the live table holds, without a terminal."""
    drawn: list[list[list[str]]] = []
    monkeypatch.setattr(ladder_view, "Grid", lambda names, rows: drawn.append(rows) or "")
    view = LiveView()
    table = widest()
    events: list[Event] = [
        Planned("tinyshakespeare", ((2, None, 1), (3, None, 1)), 0, 2, True),
        Moved(2, None, 1, 2500, 5000, 2.6, 2.55, 3.0),
        Measured(table.rows[0], False, LadderTable("t", Path(), {}, {}, table.rows[:1])),
        Failed(Failure(3, "feedforward", None, 1, "out of memory"), False),
    ]
    for event in events:
        view(event)
    view.close()
    first, moving, done = drawn[0], drawn[1], drawn[2]
    assert first[0][-1] == "waits"
    assert moving[0][2] == "2.55…"
    assert moving[0][-1] == "50 %"
    assert done[0][2] == "2.500"
    assert "out of memory" in capsys.readouterr().out


def test_interruption_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    LineView().conclude(Climbed(widest(), "interrupted", Path("ladders/x/ladder.html")))
    assert "the same command goes on" in capsys.readouterr().out


def test_columns_match_their_headings() -> None:
    for several in (False, True):
        for published in (False, True):
            table = widest()
            cells = ladder_view.cells(table, table.groups[0], several, published)
            assert len(cells) == len(headings(several, published))
    assert len(Grid(headings(True, True), []).fitted(80).columns) == len(headings(True, True))
