"""What the depth experiments found, as data; see `depth.py` for how it is measured."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from partwise.errors import StorageError
from partwise.model.config import Initialisation
from partwise.storage import read_json, write_json

StackNorm = Literal["none", "pre", "post"]

STACK_NORMS: tuple[StackNorm, ...] = ("none", "pre", "post")

# Those that a race is run between, and the initialisations that it is run from.
RACE_NORMS: tuple[StackNorm, ...] = ("pre", "post")
RACE_INITIALISATIONS: tuple[Initialisation, ...] = ("fan_in", "normal")

KIND = "ladder-depth"
VERSION = 1


@dataclass(frozen=True)
class Stack:
    """One deep stack at initialisation; each tuple has one value a block, the first block first.

    Args:
        residual: x + sublayer(x), or sublayer(x) alone.
        norm: where LayerNorm stands.
        initialisation: how the weights started.
        loss: its loss on the text (nats a token); not finite when the stack overflows.
        gradient: norm of the loss's gradient with respect to the block's output, all tokens.
        similarity: mean cosine between the block's outputs for two different tokens of a text.
        contribution: size of what the block adds to the stream over the size of the stream that
            enters it (root mean square); without residual, of its output instead.
    """

    residual: bool
    norm: StackNorm
    initialisation: Initialisation
    loss: float
    gradient: tuple[float, ...]
    similarity: tuple[float, ...]
    contribution: tuple[float, ...]


@dataclass(frozen=True)
class Racer:
    """One short training.

    Args:
        norm: `pre` or `post`.
        initialisation: how the weights started.
        steps: (step, training loss) as logged (nats a token).
        val_loss: at the end, on what the data calls validation; None where it was not measured.
    """

    norm: StackNorm
    initialisation: Initialisation
    steps: tuple[tuple[int, float], ...]
    val_loss: float | None


@dataclass(frozen=True)
class Depth:
    """All of it.

    Args:
        stacks: deep stacks before any training.
        racers: short trainings of deep stacks.
    """

    stacks: tuple[Stack, ...]
    racers: tuple[Racer, ...]


def write_depth(path: Path, depth: Depth) -> None:
    """Write it as JSON; numbers that are not finite become null."""
    write_json(path, _finite(dataclasses.asdict(depth)), kind=KIND, version=VERSION)


def read_depth(path: Path) -> Depth | None:
    """What `write_depth` wrote; None where there is nothing.

    Raises:
        StorageError: the file is damaged or newer than this Partwise.
    """
    if not path.is_file():
        return None
    _, value = read_json(path, kind=KIND, newest=VERSION)
    try:
        return Depth(
            tuple(stack_from_plain(one) for one in value["stacks"]),
            tuple(racer_from_plain(one) for one in value["racers"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(
            "{path} is torn or not a ladder; run the ladder again to write it anew", path=path
        ) from error


def stack_from_plain(plain: dict[str, Any]) -> Stack:
    """A Stack as JSON holds it; null becomes NaN."""
    curves = {
        name: tuple(_number(value) for value in plain[name])
        for name in ("gradient", "similarity", "contribution")
    }
    return Stack(**{**plain, **curves, "loss": _number(plain["loss"])})


def racer_from_plain(plain: dict[str, Any]) -> Racer:
    """A Racer as JSON holds it."""
    steps = tuple((int(step), _number(loss)) for step, loss in plain["steps"])
    return Racer(**{**plain, "steps": steps})


def to_plain(found: Stack | Racer) -> dict[str, Any]:
    """As JSON holds it; numbers that are not finite become null."""
    plain: dict[str, Any] = _finite(dataclasses.asdict(found))
    return plain


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    # Infinities and NaN alone are not equal to themselves less themselves.
    return None if isinstance(value, float) and value - value != 0 else value


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)
