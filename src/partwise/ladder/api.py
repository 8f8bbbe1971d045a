"""`partwise.ladder(…)`: the whole ladder from Python, its table as data."""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import UnionType

from partwise.errors import RunError
from partwise.ladder.climb import climb, never
from partwise.ladder.config import Device, LadderConfig, LadderPrecision
from partwise.ladder.events import Climbed, Event, Failed
from partwise.ladder.rungs import written
from partwise.ladder.table import LadderTable
from partwise.messages import Notice
from partwise.settings import wrong_type


def ladder(
    to: int | None = None,
    *,
    only: int | str | Iterable[int | str] | None = None,
    seeds: int = 1,
    without: str | Iterable[str] = (),
    swap: Mapping[str, object] | Iterable[str] = (),
    each: bool = False,
    steps: int | None = None,
    knock_out: bool = False,
    depth: bool = False,
    again: bool = False,
    name: str | None = None,
    text: Path | str | None = None,
    root: Path | str = "ladders",
    offline: bool = False,
    workers: int | None = None,
    device: Device = "auto",
    dtype: LadderPrecision = "auto",
    stop: Callable[[], bool] = never,
    listen: Callable[[Event], None] | None = None,
) -> LadderTable:
    """Train the rungs that are missing, and return every figure of the ladder.

    `partwise.ladder(only=4, without="residual", seeds=3)` prices the residual connection of rung 4.

    Args:
        to: climb from rung 1 to this one; None: to 5.
        only: these rungs alone, by number or name.
        seeds: how many seeds each rung is trained with, from 1 on.
        without: parts to train without.
        swap: fields to exchange, `{"norm": "rmsnorm"}` or `["norm=rmsnorm"]`.
        each: one variant for each change instead of one that has them all.
        steps: train every rung for this many steps; None: 5,000.
        knock_out: measure trained rungs with each part silenced.
        depth: measure deep stacks before training for the report (see `depth.stacks`).
        again: train finished rungs again.
        name: name of the folder; None: the text's name.
        text: the text; None: tiny Shakespeare, or Shakespeare where it cannot be had.
        root: the folder of ladders.
        offline: never download a corpus.
        workers: processes at once; None: one a core; 0: none but this one.
        device, dtype: of rung 6.
        stop: asked a few times a second; True saves what is at hand and returns what is finished.
        listen: is given every event as it happens.

    Raises:
        PartwiseError: something asked for makes no sense, or cannot be had.
        RunError: training cannot go on, as on a full disk. A variant whose loss is no longer a
            number does not end the climb; the table names it in `failures`.
    """
    for said, value, right, wanted in (
        ("text", text, isinstance(text, str | os.PathLike | None), Notice("a text")),
        ("root", root, isinstance(root, str | os.PathLike), Notice("a text")),
        ("stop", stop, callable(stop), Notice("a function")),
        ("listen", listen, listen is None or callable(listen), Notice("a function")),
        ("offline", offline, isinstance(offline, bool), Notice("true or false")),
    ):
        if not right:
            raise wrong_type(said, value, wanted)
    if isinstance(swap, Mapping):
        swap = tuple(f"{field}={written(value)}" for field, value in swap.items())
    config = LadderConfig(
        to=to,
        only=None if only is None else ",".join(_several("only", only, str | int)),
        seeds=seeds,
        without=_several("without", without, str),
        swap=_several("swap", swap, str),
        each=each,
        steps=steps,
        knock_out=knock_out,
        depth=depth,
        again=again,
        name=name,
        workers=workers,
        device=device,
        dtype=dtype,
    )
    table: LadderTable | None = None
    spec = None if text is None else str(text)
    for event in climb(config, root=root, text=spec, offline=offline, stop=stop):
        if listen is not None:
            listen(event)
        if isinstance(event, Failed) and event.fatal:
            raise RunError(
                "rung {rung}, seed {seed} could not be trained: {reason}",
                rung=event.failure.rung,
                seed=event.failure.seed,
                reason=event.failure.reason,
            )
        if isinstance(event, Climbed):
            table = event.table
    assert table is not None
    return table


def _several(name: str, given: object, kind: type | UnionType) -> tuple[str, ...]:
    """What was given, alone or as a list, as words."""
    if isinstance(given, kind):
        return (str(given),)
    if not isinstance(given, Iterable):
        raise wrong_type(name, given, Notice("a list"))
    words = tuple(given)
    for word in words:
        if not isinstance(word, kind):
            raise wrong_type(name, word, Notice("a text"))
    return tuple(map(str, words))
