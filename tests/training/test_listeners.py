"""Who listens: lines that a resumed run continues, and packages that may be missing."""

import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from partwise.errors import ConfigError, StorageError
from partwise.messages import Notice
from partwise.training.events import Evaluated, Event, Finished, Said, Saved, Started, Stepped
from partwise.training.listeners import JsonLines, TensorBoard, WandB, cut_back, read_metrics
from training.doubles import run


def started(step: int = 0) -> Started:
    return Started(step, 100, 10, 32, "cpu", "float32", False, 1, step > 0)


def stepped(step: int, logged: bool = True, loss: float = 2.5) -> Stepped:
    return Stepped(step, loss, 0.001, 0.5, 32 * step, 1.23456, 99.99, 100, logged)


def evaluated(step: int) -> Evaluated:
    return Evaluated(step, 2.0, 1.9, 1, False, 32 * step, 1.5)


def finished(step: int) -> Finished:
    return Finished("steps", step, 32 * step, 2.0, 2.0, 1.9, 1)


def tell(listener: Any, *events: Event) -> None:
    for event in events:
        listener(event)


def test_each_logged_event_is_a_line_at_once(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    listener = JsonLines(path)
    tell(listener, started(), Said(Notice("hello")), stepped(10))
    assert path.read_text("utf-8").endswith("}\n")
    tell(listener, stepped(11, logged=False), evaluated(20), Saved(20, tmp_path), finished(20))
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert [(line["event"], line["step"]) for line in lines] == [
        ("step", 10),
        ("evaluation", 20),
        ("finished", 20),
    ]
    assert lines[0] == {
        "event": "step",
        "step": 10,
        "loss": 2.5,
        "lr": 0.001,
        "grad_norm": 0.5,
        "tokens": 320,
        "seconds": 1.235,
        "tokens_per_second": 100.0,
    }
    assert lines[1]["val_loss"] == 2.0
    assert lines[2]["reason"] == "steps"


def test_losses_keep_every_digit(tmp_path: Path) -> None:
    loss = 1 / 3 + 1e-16
    tell(JsonLines(tmp_path / "m"), stepped(1, loss=loss))
    assert next(read_metrics(tmp_path / "m"))["loss"] == loss


def test_a_number_that_is_none_is_null(tmp_path: Path) -> None:
    tell(JsonLines(tmp_path / "m"), stepped(1, loss=math.nan), stepped(2, loss=math.inf))
    assert [line["loss"] for line in read_metrics(tmp_path / "m")] == [None, None]
    assert "NaN" not in (tmp_path / "m").read_text("utf-8")


def test_going_on_takes_out_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    tell(JsonLines(path), started(), stepped(10), evaluated(20), stepped(20), stepped(30))
    tell(JsonLines(path), finished(20))
    with path.open("a", encoding="utf-8") as file:
        file.write('{"event": "step", "st')  # killed in the middle of a line
    tell(JsonLines(path), started(20), stepped(30))
    steps = [(line["event"], line["step"]) for line in read_metrics(path)]
    assert steps == [("step", 10), ("evaluation", 20), ("step", 20), ("step", 30)]


def test_cutting_back_changes_no_byte_that_stays(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    tell(JsonLines(path), stepped(10, loss=0.1 + 0.2), evaluated(20))
    before = path.read_bytes()
    tell(JsonLines(path), stepped(30))
    cut_back(path, 20)
    assert path.read_bytes() == before
    cut_back(tmp_path / "none.jsonl", 20)
    assert not (tmp_path / "none.jsonl").exists()


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        tell(JsonLines(tmp_path / "no such folder" / "m"), stepped(1))


def test_tensorboard_gets_the_numbers(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    listener = TensorBoard(tmp_path)
    tell(listener, started(), stepped(10), evaluated(20), finished(20))
    listener.close()
    curves = EventAccumulator(str(tmp_path))
    curves.Reload()
    assert [(point.step, point.value) for point in curves.Scalars("loss")] == [(10, 2.5)]
    assert [point.step for point in curves.Scalars("val_loss")] == [20, 20]


def test_without_tensorboard_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ConfigError, match="pip install tensorboard"):
        TensorBoard(tmp_path)


def test_without_wandb_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match="pip install wandb"):
        WandB("project", "run", {})


def test_wandb_gets_the_numbers_under_the_runs_name(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[tuple[int, dict[str, float]]] = []
    opened: dict[str, Any] = {}

    def log(numbers: dict[str, float], step: int) -> None:
        logged.append((step, numbers))

    def init(**options: Any) -> Any:
        opened.update(options)
        return SimpleNamespace(log=log, finish=lambda: logged.append((-1, {})))

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    listener = WandB("project", "run #1", {"lr": 1})
    tell(listener, started(), stepped(10))
    listener.close()
    assert (opened["project"], opened["name"]) == ("project", "run #1")
    assert (opened["id"], opened["resume"]) == ("run -1", "allow")
    assert logged[0][0] == 10
    assert logged[0][1]["loss"] == 2.5
    assert logged[-1][0] == -1


def test_the_events_of_a_real_run_are_all_understood(tmp_path: Path) -> None:
    _, events = run(folder=tmp_path)
    tell(JsonLines(tmp_path / "m"), *events)
    kinds = [line["event"] for line in read_metrics(tmp_path / "m")]
    assert kinds.count("step") == 4
    assert kinds.count("evaluation") == 3
    assert kinds[-1] == "finished"
