"""What a training looks like: a line of JSON, a line of text."""

import json
import math
from pathlib import Path

import pytest

from partwise.cli.units import clock, count, data_size, duration, operations
from partwise.cli.view import JsonView, LineView, Opened, QuietView, event_json, view_for
from partwise.messages import Notice, use_language
from partwise.run import Sampled
from partwise.training.events import Evaluated, Finished, Said, Saved, Started, Stepped

STARTED = Started(0, 2000, 65, 4096, "cpu", "float32", False, 2, False)
STEPPED = Stepped(1000, 1.5, 1e-3, 0.5, 4_096_000, 100.0, 40_960.4, 2000, True)
EVALUATED = Evaluated(1000, 1.75, 1.7, 750, False, 4_096_000, 100.0)
FINISHED = Finished("steps", 2000, 8_192_000, 3723.4, 1.6, 1.6, 2000)
EVENTS = [
    Opened("x", Path("runs/x")),
    Said(Notice("interrupted")),
    STARTED,
    STEPPED,
    EVALUATED,
    Sampled(1000, "To be\n\x1b[2J", Path("s.txt")),
    Saved(1000, Path("c")),
    FINISHED,
]


def test_lines(capsys: pytest.CaptureFixture[str]) -> None:
    view = LineView()
    for event in EVENTS:
        view(event)
    out, err = capsys.readouterr()
    assert err == ""
    assert out.splitlines() == [
        "run folder " + str(Path("runs/x")),
        "interrupted",
        "training 65 parameters on cpu in float32 with 2 threads, 4,096 tokens a step",
        "step 1,000/2,000: loss 1.500, validation loss 1.7500, best 1.7000 at step 750, "
        "40,960 tokens/s, 1:40",
        "",
        "    To be",
        "    \\x1b[2J",
        "",
        "finished at step 2,000 after 1:02:03; best validation loss 1.6000 at step 2,000",
    ]


def test_lines_in_chinese(capsys: pytest.CaptureFixture[str]) -> None:
    with use_language("zh"):
        view = LineView()
        for event in (STARTED, STEPPED, EVALUATED, FINISHED):
            view(event)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == (
        "第 1,000/2,000 步：损失 1.500，验证损失 1.7500，最好 1.7000（第 750 步），"
        "每秒 40,960 个词元，1:40"
    )
    assert all(any(char > "\u4e00" for char in line) for line in lines)


def test_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    view = JsonView()
    for event in EVENTS:
        view(event)
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    kinds = ["opened", "said", "started", "stepped", "evaluated", "sampled", "saved", "finished"]
    assert [event["event"] for event in found] == kinds
    assert found[1]["text"] == "interrupted"
    assert found[5]["text"] == "To be\n\x1b[2J"


def test_json_has_no_word_for_what_is_not_a_number() -> None:
    broken = Finished("not_finite", 3, 4, 5.0, math.nan, math.inf, None)
    found = json.loads(json.dumps(event_json(broken), allow_nan=False))
    assert found["val_loss"] is None
    assert found["best_val_loss"] is None


def test_a_pipe_gets_lines() -> None:
    assert type(view_for(quiet=False, as_json=False)) is LineView
    assert type(view_for(quiet=True, as_json=False)) is QuietView
    assert type(view_for(quiet=True, as_json=True)) is JsonView


def test_units() -> None:
    assert [clock(s) for s in (0, 59.6, 3599, 3600)] == ["0:00", "1:00", "59:59", "1:00:00"]
    assert [count(n) for n in (0, 999, 124_439_808, 2.5e15)] == [
        "0",
        "999",
        "124.4 M",
        "2,500.0 T",
    ]
    assert data_size(37_500_000_000) == "37.5 GB"
    assert operations(266e6) == "266.0 MFLOP"
    assert [duration(h) for h in (0.01, 1, 10, 100, 1e5)] == [
        "36 seconds",
        "60 minutes",
        "10.0 hours",
        "4.2 days",
        "11.4 years",
    ]
