"""Runs side by side: damaged folders are listed with what is wrong, differences are found."""

import dataclasses
from pathlib import Path

import pytest

from partwise.errors import RunError
from partwise.model.config import ModelConfig
from partwise.run import Run, compare, find, list_runs
from partwise.text.config import DataConfig
from partwise.training.config import TrainConfig

MODEL = ModelConfig(context_length=8, n_layers=1, d_model=16, n_heads=2)
TRAIN = TrainConfig(steps=4, batch_size=4, eval_every=2, sample_chars=0, dtype="float32")


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("the cat sat on the mat\n" * 30, encoding="utf-8")


def make(name: str, **changes: object) -> Run:
    train = dataclasses.replace(TRAIN, **changes)  # type: ignore[arg-type]
    return Run.create("runs", name, "text.txt", MODEL, train, DataConfig())


def test_runs_of_every_state_are_listed() -> None:
    make("new")
    done = make("done")
    list(done.train())
    for _ in (stopped := make("stopped")).train(stop=lambda: True):
        pass
    half = make("half")
    events = half.train()
    while not half.metrics():
        next(events)
    events.close()
    (broken := make("broken")).path.joinpath("run.toml").write_bytes(b"[")
    Path("runs/empty").mkdir()
    Path("runs/.hidden").mkdir()
    Path("runs/file").write_bytes(b"")
    torn = make("torn")
    torn.path.joinpath("metrics.jsonl").write_bytes(b'{"step": 3}\n{"step"\xff')
    found = {summary.name: summary for summary in list_runs("runs")}
    assert set(found) == {"new", "done", "stopped", "half", "broken", "empty", "torn"}
    assert found["new"].status == "new"
    assert found["done"].status == "steps"
    assert found["done"].step == 4
    assert found["done"].val_loss == done.metrics()[-1]["val_loss"]
    assert found["done"].best_val_loss == min(
        m["val_loss"] for m in done.metrics() if m["event"] == "evaluation"
    )
    assert found["done"].parameters == sum(p.numel() for p in done.model().parameters())
    assert found["stopped"].status == "interrupted"
    assert found["half"].status == "unfinished"
    assert found["torn"].step == 3
    for name, word in (("broken", "is not TOML"), ("empty", "it has no run.toml")):
        assert found[name].status == "damaged"
        assert word in str(found[name].problem)
    assert all(found[name].problem is None for name in ("new", "done", "stopped", "half", "torn"))
    assert stopped.path.exists()
    assert broken.path.exists()


def test_a_folder_without_runs() -> None:
    assert list_runs("nowhere") == []


def test_differences_are_found_and_nothing_else() -> None:
    runs = [make("a"), make("b", lr=2e-3, grad_clip=None)]
    assert {(row.name, row.values) for row in compare([run.path for run in runs])} == {
        ("train.lr", (1e-3, 2e-3)),
        ("train.grad_clip", (1.0, "none")),
    }
    list(runs[0].train())
    names = {row.name for row in compare([run.path for run in runs])}
    assert {"step", "best_val_loss", "seconds"} <= names
    assert compare([runs[0].path] * 2) == []
    with pytest.raises(RunError):
        compare([runs[0].path, Path("nowhere")])


def test_a_run_is_found_by_path_and_by_name() -> None:
    run = make("novel")
    assert find("novel") == run.path
    assert find(run.path) == run.path
    assert find(run.path.absolute()) == run.path.absolute()
    with pytest.raises(RunError, match="did you mean novel"):
        find("nevel")
    with pytest.raises(RunError, match="elsewhere has none"):
        find("novel", "elsewhere")
