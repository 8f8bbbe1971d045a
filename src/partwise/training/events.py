"""What happens while a model is trained, as data: whoever listens draws it or writes it down."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from partwise.messages import Notice

Reason = Literal[
    "steps",
    "epochs",
    "tokens",
    "minutes",
    "target_loss",
    "patience",
    "interrupted",
    "not_finite",
]


@dataclass(frozen=True)
class Started:
    """Training begins, or goes on.

    Args:
        step: steps already done; above 0 only when resumed.
        total: steps of the whole schedule; None while it is not known yet.
        parameters: numbers that are trained.
        tokens_per_step: tokens a step.
        device: where it runs.
        dtype: what matrix products are computed in, e.g. "bfloat16".
        compiled: whether the step is compiled.
        threads: CPU threads.
        resumed: whether a checkpoint was loaded.
        compile_seconds: what compiling took; next to nothing where what it makes is kept from an
            earlier run.
    """

    step: int
    total: int | None
    parameters: int
    tokens_per_step: int
    device: str
    dtype: str
    compiled: bool
    threads: int
    resumed: bool
    compile_seconds: float = 0.0


@dataclass(frozen=True)
class Stepped:
    """A step is done.

    Args:
        step: steps done.
        loss: mean training loss since the last logged step (nats a token).
        lr: the first optimizer group's learning rate in this step.
        grad_norm: norm of the whole gradient before clipping, where it was measured.
        tokens: tokens trained on.
        seconds: training time, counted across resumes.
        tokens_per_second: speed since the last such event.
        total: steps of the whole schedule; None while it is not known.
        logged: true each `log_every` steps; false for the sign of life that slow steps send.
    """

    step: int
    loss: float
    lr: float
    grad_norm: float | None
    tokens: int
    seconds: float
    tokens_per_second: float
    total: int | None
    logged: bool


@dataclass(frozen=True)
class Evaluated:
    """The validation loss was measured; the weights that were judged are in the model just now.

    Args:
        step: steps done.
        val_loss: mean validation loss (nats a token).
        best_val_loss: the lowest so far.
        best_step: the step that it was measured at.
        is_best: whether this one is it.
        tokens: tokens trained on.
        seconds: training time, counted across resumes.
    """

    step: int
    val_loss: float
    best_val_loss: float
    best_step: int
    is_best: bool
    tokens: int
    seconds: float


@dataclass(frozen=True)
class Saved:
    """A checkpoint is whole.

    Args:
        step: steps done.
        path: its folder.
    """

    step: int
    path: Path


@dataclass(frozen=True)
class Said:
    """One line for the user.

    Args:
        notice: the line.
    """

    notice: Notice


@dataclass(frozen=True)
class Finished:
    """Training is over; nothing follows but, for "not_finite", the error that explains it.

    Args:
        reason: the limit that was met.
        step: steps done.
        tokens: tokens trained on.
        seconds: training time, counted across resumes.
        val_loss: the last validation loss (nats a token), if any was measured.
        best_val_loss: the lowest one.
        best_step: the step that it was measured at.
    """

    reason: Reason
    step: int
    tokens: int
    seconds: float
    val_loss: float | None
    best_val_loss: float | None
    best_step: int | None


Event: TypeAlias = Started | Stepped | Evaluated | Saved | Said | Finished
