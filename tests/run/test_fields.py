"""The fields of `TrainConfig` that concern the run folder: each has its effect there."""

import importlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from partwise.model.config import ModelConfig
from partwise.run import Run
from partwise.text.config import DataConfig
from partwise.training import listeners
from partwise.training.config import TrainConfig

MODEL = ModelConfig(context_length=8, n_layers=1, d_model=16, n_heads=2)
TRAIN = TrainConfig(
    steps=2, batch_size=4, eval_every=2, warmup_steps=1, sample_chars=10, dtype="float32"
)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("the cat sat on the mat\n" * 30, encoding="utf-8")


def trained(name: str, **changes: Any) -> Run:
    settings = replace(TRAIN, compile="off", **changes)
    run = Run.create("runs", name, "text.txt", MODEL, settings, DataConfig())
    list(run.train())
    return run


def samples(run: Run) -> list[str]:
    return [path.read_text(encoding="utf-8") for path in sorted((run.path / "samples").iterdir())]


def test_sample_chars() -> None:
    assert [len(text) for text in samples(trained("some"))] == [10]
    assert [len(text) for text in samples(trained("more", sample_chars=20))] == [20]
    assert samples(trained("none", sample_chars=0)) == []


def test_order() -> None:
    def weights(run: Run) -> list[float]:
        found: list[float] = run.model("last").token_embedding.weight.flatten().tolist()
        return found

    assert weights(trained("random")) != weights(trained("epochs", order="epochs"))


def test_tensorboard(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Path] = []

    class Board:
        def __init__(self, folder: Path) -> None:
            kept.append(folder)

        def __call__(self, event: object) -> None:
            return

        def close(self) -> None:
            return

    monkeypatch.setattr("partwise.run.training.TensorBoard", Board)
    trained("without")
    assert kept == []
    run = trained("with", tensorboard=True)
    assert kept == [run.path / "tensorboard"]


def test_wandb(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Any] = []
    run = SimpleNamespace(log=lambda *_, **__: None, finish=lambda: None)

    def init(**settings: Any) -> Any:
        begun.append(settings["project"])
        return run

    def imported(name: str) -> Any:
        return SimpleNamespace(init=init) if name == "wandb" else importlib.__import__(name)

    monkeypatch.setattr(listeners.importlib, "import_module", imported)
    trained("without")
    assert begun == []
    trained("with", wandb="plays")
    assert begun == ["plays"]
