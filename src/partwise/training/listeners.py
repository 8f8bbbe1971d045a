"""Who listens to a training: a metrics file, TensorBoard, Weights & Biases."""

import importlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from partwise.errors import ConfigError
from partwise.storage import write_atomic
from partwise.storage.faults import reading, writing
from partwise.training.events import Evaluated, Event, Finished, Started, Stepped


class Listener(Protocol):
    """Is told every event, in order."""

    def __call__(self, event: Event) -> None: ...

    def close(self) -> None: ...


def metrics_of(event: Event) -> dict[str, Any] | None:
    """What an event says in numbers, or None for one that is not logged.

    Two runs of the same settings give the same, apart from `seconds` and `tokens_per_second`.
    """
    if isinstance(event, Stepped) and event.logged:
        return {
            "event": "step",
            "step": event.step,
            "loss": event.loss,
            "lr": event.lr,
            "grad_norm": event.grad_norm,
            "tokens": event.tokens,
            "seconds": round(event.seconds, 3),
            "tokens_per_second": round(event.tokens_per_second, 1),
        }
    if isinstance(event, Evaluated):
        return {
            "event": "evaluation",
            "step": event.step,
            "val_loss": event.val_loss,
            "best_val_loss": event.best_val_loss,
            "best_step": event.best_step,
            "tokens": event.tokens,
            "seconds": round(event.seconds, 3),
        }
    if isinstance(event, Finished):
        return {
            "event": "finished",
            "step": event.step,
            "reason": event.reason,
            "val_loss": event.val_loss,
            "best_val_loss": event.best_val_loss,
            "best_step": event.best_step,
            "tokens": event.tokens,
            "seconds": round(event.seconds, 3),
        }
    return None


class JsonLines:
    """`metrics.jsonl`: one logged event a line, there as soon as it has happened.

    When a run starts or goes on, the file is first cut back to the step from which it does.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, event: Event) -> None:
        if isinstance(event, Started):
            cut_back(self._path, event.step)
        metrics = metrics_of(event)
        if metrics is None:
            return
        line = json.dumps(_plain(metrics), ensure_ascii=False, allow_nan=False) + "\n"
        # Opened for each line: nothing is left open should the run be dropped without an end.
        with writing(self._path), self._path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(line)
            if isinstance(event, Evaluated):
                # A checkpoint may follow, and must not be on the disk before what led to it.
                file.flush()
                os.fsync(file.fileno())

    def close(self) -> None:
        """Nothing is left to do."""


def read_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a metrics file; a last line that was torn by a kill is left out."""
    if not path.exists():
        return
    with reading(path):
        text = path.read_bytes().decode("utf-8", errors="replace")
    for line in text.split("\n"):
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value


def cut_back(path: Path, step: int) -> None:
    """Leave in a metrics file only what led to `step`: later lines and ends are taken out."""
    if not path.exists():
        return
    kept = [
        json.dumps(line, ensure_ascii=False) + "\n"
        for line in read_metrics(path)
        if line.get("step", 0) <= step and line.get("event") != "finished"
    ]
    write_atomic(path, "".join(kept).encode("utf-8"))


def _plain(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no word for NaN and infinity; they become null."""
    return {
        name: None if isinstance(value, float) and value - value != 0 else value
        for name, value in metrics.items()
    }


class TensorBoard:
    """Curves for TensorBoard: `tensorboard --logdir FOLDER`.

    Args:
        folder: where its files go.

    Raises:
        ConfigError: the package is not installed.
    """

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ConfigError(
                "tensorboard=true needs the package tensorboard; run: pip install tensorboard"
            ) from error
        self._folder = folder
        self._open = SummaryWriter
        self._writer: Any = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, Started):
            # What an interrupted run wrote after its last checkpoint is hidden.
            self._writer = self._open(str(self._folder), purge_step=event.step + 1)
        metrics = metrics_of(event)
        if metrics is None or self._writer is None:
            return
        for name, value in _numbers(metrics).items():
            self._writer.add_scalar(name, value, metrics["step"])
        if isinstance(event, Evaluated | Finished):
            self._writer.flush()

    def close(self) -> None:
        """Write what is left."""
        if self._writer is not None:
            self._writer.close()


class WandB:
    """Metrics sent to Weights & Biases.

    Args:
        project: its name there.
        name: the run's name there; a resumed run goes on under it.
        settings: the run's settings, as plain data.

    Raises:
        ConfigError: the package is not installed.
    """

    def __init__(self, project: str, name: str, settings: Mapping[str, Any]) -> None:
        try:
            wandb: Any = importlib.import_module("wandb")
        except ImportError as error:
            raise ConfigError(
                "wandb={project} needs the package wandb; run: pip install wandb", project=project
            ) from error
        # The characters that an id may not have there.
        id = re.sub(r"[/\\#?%:]", "-", name)
        self._run: Any = wandb.init(
            project=project, name=name, id=id, resume="allow", config=dict(settings)
        )

    def __call__(self, event: Event) -> None:
        metrics = metrics_of(event)
        if metrics is not None:
            self._run.log(_numbers(metrics), step=metrics["step"])

    def close(self) -> None:
        """Send what is left."""
        self._run.finish()


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in metrics.items()
        if name not in ("event", "step") and isinstance(value, int | float)
    }
