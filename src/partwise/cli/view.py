"""Draws a training as it goes: a live bar on a terminal, plain lines in a pipe, JSON for programs.

Each is a listener: call it with every event, and `close` it at the end.
"""

import dataclasses
import json
import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from partwise.cli.screen import console, harmless, is_terminal, say
from partwise.cli.units import clock
from partwise.messages import Notice, message
from partwise.run import Sampled
from partwise.training.events import Evaluated, Finished, Said, Saved, Started, Stepped

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

# A pipe gets a line at each evaluation, and this often in between (seconds).
PATIENCE = 10.0


@dataclass(frozen=True)
class Opened:
    """A run folder is there.

    Args:
        name: the run's name.
        path: its folder.
    """

    name: str
    path: Path


class View(Protocol):
    """Whoever draws events."""

    def __call__(self, event: object) -> None: ...

    def close(self) -> None:
        """Leave the terminal as it was."""


def view_for(*, quiet: bool, as_json: bool) -> View:
    """The view that suits what was asked for and where it is read."""
    if as_json:
        return JsonView()
    if quiet:
        return QuietView()
    return LiveView() if is_terminal(sys.stdout) else LineView()


class QuietView:
    """Draws nothing."""

    def __call__(self, event: object) -> None:
        return

    def close(self) -> None:
        """Nothing to leave."""


class JsonView(QuietView):
    """One JSON object a line; `docs/json.md` describes them."""

    def __call__(self, event: object) -> None:
        say(json.dumps(event_json(event), ensure_ascii=False))


class LineView(QuietView):
    """Plain lines."""

    def __init__(self) -> None:
        self._loss: float | None = None
        self._speed: float | None = None
        self._total: int | None = None
        self._told = time.monotonic()

    def __call__(self, event: object) -> None:
        match event:
            case Opened():
                self._line(message("run folder {path}", path=event.path))
            case Started():
                self._total = event.total
                self._line(started_line(event))
            case Stepped():
                self._step(event)
            case Evaluated():
                self._line(evaluated_line(event, self._loss, self._speed, self._total))
            case Sampled():
                self._text(event.text)
            case Said():
                self._line(str(event.notice))
            case Finished():
                self._line(finished_line(event))
            case Saved():
                pass

    def _step(self, event: Stepped) -> None:
        self._loss, self._speed, self._total = event.loss, event.tokens_per_second, event.total
        if time.monotonic() - self._told > PATIENCE:
            self._line(stepped_line(event))

    def _line(self, line: str) -> None:
        self._told = time.monotonic()
        say(harmless(line))

    def _text(self, text: str) -> None:
        say()
        for line in text.splitlines():
            say(f"    {harmless(line)}".rstrip())
        say()


class LiveView(LineView):
    """The same lines above a bar that shows where the training stands."""

    def __init__(self) -> None:
        super().__init__()
        self._console = console()
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._val_loss: float | None = None

    def __call__(self, event: object) -> None:
        if isinstance(event, Started):
            self._begin(event)
        if isinstance(event, Finished):
            self.close()
        if isinstance(event, Evaluated):
            self._val_loss = event.val_loss
        super().__call__(event)

    def close(self) -> None:
        """Take the bar away and bring the cursor back."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _begin(self, event: Started) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[figures]}", markup=False),
            console=self._console,
            transient=True,
            expand=True,
            refresh_per_second=4,
            # What others print must not be caught up in the bar.
            redirect_stdout=False,
            redirect_stderr=False,
        )
        words = message("compiling") if event.compiled else message("starting")
        self._task = self._bar.add_task(
            message("step {step}", step=event.step),
            total=event.total,
            completed=event.step,
            figures=words,
        )
        self._bar.start()

    def _step(self, event: Stepped) -> None:
        self._loss, self._speed, self._total = event.loss, event.tokens_per_second, event.total
        if self._bar is not None and self._task is not None:
            self._bar.update(
                self._task,
                completed=event.step,
                total=event.total,
                description=message("step {step}", step=_of(event.step, event.total)),
                figures=figures(event, self._val_loss),
            )

    def _line(self, line: str) -> None:
        self._above(harmless(line), style=None)

    def _text(self, text: str) -> None:
        self._above("", style=None)
        self._above(harmless(text), style="dim")
        self._above("", style=None)

    def _above(self, text: str, style: str | None) -> None:
        from rich.text import Text

        where = self._console if self._bar is None else self._bar.console
        where.print(Text(text, style=style or "", overflow="fold"))


def started_line(event: Started) -> str:
    """Where and how the training runs."""
    line = message(
        "training {parameters:,} parameters on {device} in {dtype} with {threads} threads, "
        "{tokens:,} tokens a step",
        parameters=event.parameters,
        device=event.device,
        dtype=event.dtype,
        threads=event.threads,
        tokens=event.tokens_per_step,
    )
    if event.compiled:
        line += message(", compiled")
    if event.resumed:
        line += message("; going on from step {step:,}", step=event.step)
    return line


def stepped_line(event: Stepped) -> str:
    """A sign of life between two evaluations."""
    return message(
        "step {step}: {figures}", step=_of(event.step, event.total), figures=figures(event, None)
    )


def evaluated_line(
    event: Evaluated, loss: float | None, speed: float | None, total: int | None
) -> str:
    """The validation loss, with what was last known of the rest."""
    parts = []
    if loss is not None:
        parts.append(message("loss {loss:.3f}", loss=loss))
    parts.append(message("validation loss {loss:.4f}", loss=event.val_loss))
    if not event.is_best:
        parts.append(
            message(
                "best {loss:.4f} at step {step:,}", loss=event.best_val_loss, step=event.best_step
            )
        )
    if speed is not None:
        parts.append(message("{speed:,.0f} tokens/s", speed=speed))
    parts.append(clock(event.seconds))
    return message(
        "step {step}: {figures}", step=_of(event.step, total), figures=message(", ").join(parts)
    )


def figures(event: Stepped, val_loss: float | None) -> str:
    """Loss, speed and time left, in one line."""
    parts = [message("loss {loss:.3f}", loss=event.loss)]
    if val_loss is not None:
        parts.append(message("validation {loss:.3f}", loss=val_loss))
    parts.append(message("{speed:,.0f} tokens/s", speed=event.tokens_per_second))
    if event.total is not None and event.step:
        left = event.seconds / event.step * max(0, event.total - event.step)
        parts.append(message("{time} left", time=clock(left)))
    return message(", ").join(parts)


def finished_line(event: Finished) -> str:
    """Why it ended, how long it took, and how good it became."""
    line = message(
        "{why} at step {step:,} after {time}",
        why=str(REASONS[event.reason]),
        step=event.step,
        time=clock(event.seconds),
    )
    if event.best_val_loss is not None:
        line += message(
            "; best validation loss {loss:.4f} at step {step:,}",
            loss=event.best_val_loss,
            step=event.best_step,
        )
    return line


REASONS = {
    "steps": Notice("finished"),
    "epochs": Notice("all epochs read"),
    "tokens": Notice("all tokens read"),
    "minutes": Notice("the time is up"),
    "target_loss": Notice("the target loss is reached"),
    "patience": Notice("no better validation loss any more"),
    "interrupted": Notice("interrupted and saved"),
    "not_finite": Notice("stopped, as the loss is not a number"),
}


def event_json(event: object) -> dict[str, Any]:
    """An event as plain data, its kind under "event"."""
    assert dataclasses.is_dataclass(event)
    found: dict[str, Any] = {"event": type(event).__name__.lower()}
    for field in dataclasses.fields(event):
        value = getattr(event, field.name)
        if isinstance(value, Notice):
            found["text"] = str(value)
        elif isinstance(value, Path):
            found[field.name] = str(value)
        elif isinstance(value, float) and not math.isfinite(value):
            found[field.name] = None  # JSON has no word for it
        else:
            found[field.name] = value
    return found


def _of(step: int, total: int | None) -> str:
    return f"{step:,}" if total is None else f"{step:,}/{total:,}"
