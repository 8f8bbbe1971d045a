"""What happens while a ladder is climbed, as data; whoever listens draws it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from partwise.ladder.table import Failure, LadderTable, Row, Silenced
from partwise.messages import Notice


@dataclass(frozen=True)
class Planned:
    """The models that this climb holds, in the order of the table.

    Args:
        corpus: the text's name.
        runs: (rung, variant or None, seed) of each.
        finished: how many of them were trained before.
        workers: processes that train at once.
        published: whether published values apply to them.
    """

    corpus: str
    runs: tuple[tuple[int, str | None, int], ...]
    finished: int
    workers: int
    published: bool


@dataclass(frozen=True)
class Moved:
    """One model's training has come this far.

    Args:
        rung, variant, seed: which model.
        step: steps done.
        steps: of how many.
        train_loss: mean loss of the last batches, if any yet (nats a token).
        val_loss: the last validation loss, if any yet.
        seconds: training time so far.
    """

    rung: int
    variant: str | None
    seed: int
    step: int
    steps: int
    train_loss: float | None
    val_loss: float | None
    seconds: float


@dataclass(frozen=True)
class Measured:
    """One model is trained and measured.

    Args:
        row: its figures.
        before: whether it had been finished before this climb.
        table: all rows so far.
    """

    row: Row
    before: bool
    table: LadderTable


@dataclass(frozen=True)
class Failed:
    """One model could not be trained.

    Args:
        failure: which one and why.
        fatal: whether that ends the climb, as a full disk does; else the others go on.
    """

    failure: Failure
    fatal: bool


@dataclass(frozen=True)
class PartSilenced:
    """One part of a trained model was silenced and the loss measured."""

    silenced: Silenced


@dataclass(frozen=True)
class Said:
    """One line for the user."""

    notice: Notice


@dataclass(frozen=True)
class Climbed:
    """The climb is over.

    Args:
        table: every row.
        reason: `finished`, `interrupted`, or `failed` when some model could not be trained.
        report: the report's path.
    """

    table: LadderTable
    reason: Literal["finished", "interrupted", "failed"]
    report: Path


Event: TypeAlias = Planned | Moved | Measured | Failed | PartSilenced | Said | Climbed
