"""The runs that the minutes dial's law is fitted to, and those that it is judged by.

A cell is one run. What was measured stands in a file of JSON lines; what stands there is not
measured again, so that the grid may be measured in pieces. Cells come in the order of their worth:
first the cheap runs of every text, which the law follows from, then the dearer ones, then whole
runs of some minutes, by the dial and by each size near its choice.
"""

import json
import sysconfig
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from partwise.bench.cases import load
from partwise.budget.dial import Choice, Facts, choose_size, facts_of, speeds
from partwise.budget.family import SIZES, Size, inner_parameters, member
from partwise.budget.law import Law, Point, fit, standing
from partwise.budget.recipes import Recipe
from partwise.machine import describe, git_state
from partwise.model.gpt import GPT
from partwise.storage import cache_folder, lock, write_atomic
from partwise.text.batches import Batches, windows
from partwise.text.config import DataConfig
from partwise.text.corpora import shakespeare
from partwise.text.prepare import Prepared, prepare
from partwise.training.data import Data
from partwise.training.events import Finished
from partwise.training.loop import train

TextName = Literal["100 KB", "1 MB", "30 MB"]
TEXTS: tuple[TextName, ...] = ("100 KB", "1 MB", "30 MB")
MINUTES = (1.0, 5.0, 15.0)

# Tokens of the law's runs: 2^18 to 2^23.
TOKENS = tuple(1 << power for power in range(18, 24))

# Operations up to which a law's run is made: 6 N D.
DEAREST = 6e13

# Sizes beside the dial's choice that are given the same time.
BESIDE = 1

# Validation tokens that the law's runs are judged by.
JUDGED = 1 << 16


@dataclass(frozen=True)
class Cell:
    """One run.

    Args:
        text: which text.
        size: of the model; none: whatever the dial chooses.
        tokens: to train on; none: `minutes` say how long.
        minutes: of training; none: `tokens` say how long.
    """

    text: TextName
    size: Size | None
    tokens: int | None = None
    minutes: float | None = None

    @property
    def name(self) -> str:
        """By which the results know it."""
        length = f"{self.minutes:g} min" if self.tokens is None else f"{self.tokens} tokens"
        return f"{self.text}, {self.size or 'dial'}, {length}"


def law_cells() -> list[Cell]:
    """The runs that the law is fitted to, the cheapest first."""
    priced = []
    for size in SIZES:
        parameters = inner_parameters(member(size, 96).model)
        for tokens in TOKENS:
            if 6 * parameters * tokens <= DEAREST:
                priced += [(parameters * tokens, Cell(text, size, tokens)) for text in TEXTS]
    return [cell for _, cell in sorted(priced, key=lambda pair: pair[0])]


def judged_cells() -> list[Cell]:
    """The runs that the dial is judged by: its own, and sizes for the same time."""
    cells = []
    for minutes in MINUTES:
        for text in TEXTS:
            cells.append(Cell(text, None, minutes=minutes))
            cells += [Cell(text, size, minutes=minutes) for size in SIZES]
    return cells


def text_file(name: TextName, folder: Path) -> Path:
    """The text, written into `folder` unless it is there.

    100 KB and 1 MB are the beginning of the corpus `shakespeare`; 30 MB is the source of Python's
    standard library, file after file, those in ASCII.
    """
    path = folder / f"{name.replace(' ', '-')}.txt"
    if not path.exists():
        if name == "30 MB":
            text = _python(30_000_000)
        else:
            text = shakespeare()[: 100_000 if name == "100 KB" else 1_000_000]
        write_atomic(path, text)
    return path


def _python(length: int) -> bytes:
    """The first `length` bytes of the standard library's sources."""
    parts, found = [], 0
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        if "site-packages" in path.parts:
            continue
        source = path.read_bytes()
        if source.isascii() and found < length:
            parts.append(source)
            found += len(source)
    return b"".join(parts)[:length]


def take(cell: Cell, clock: Callable[[], float] = time.perf_counter) -> dict[str, Any]:
    """Make one run; its row of the results."""
    prepared = prepare(
        str(text_file(cell.text, cache_folder() / "bench")),
        DataConfig(),
        cache=cache_folder(),
        offline=True,
    )
    facts = facts_of(prepared)
    began = clock()
    chosen = _of_the_dial(cell, facts) if cell.size is None else None
    size = cell.size or (chosen.size if chosen else SIZES[0])
    row: dict[str, Any] = {"cell": cell.name, "text": cell.text, "size": str(size)}
    if chosen is not None:
        row |= {"expected": chosen.loss, "interval": chosen.interval}
    readings = 1.0
    if cell.tokens is not None:
        readings = cell.tokens / facts.train_tokens
    elif chosen is not None:
        readings = chosen.tokens / facts.train_tokens
    elif cell.minutes is not None:
        speed = dict(speeds(facts, (size,)))[size]
        readings = 60 * cell.minutes * speed / facts.train_tokens
    begin = member(size, facts.vocab_size, readings=readings)
    minutes = None if cell.minutes is None else cell.minutes - (clock() - began) / 60
    before = load()
    row |= _train(begin, prepared, cell.tokens, minutes)
    row |= {
        "minutes": cell.minutes,
        "wall_seconds": clock() - began,
        "parameters": inner_parameters(begin.model),
        "dropout": begin.model.dropout,
        "text_tokens": facts.train_tokens,
        "surprise": facts.surprise,
        "load_before": before,
        "threads": torch.get_num_threads(),
        "machine": describe()["cpu"],
        "git": git_state(),
    }
    return row


def _of_the_dial(cell: Cell, facts: Facts) -> Choice:
    assert cell.minutes is not None
    return choose_size(60 * cell.minutes, facts, speeds(facts), standing())


def _train(
    begin: Recipe, prepared: Prepared, tokens: int | None, minutes: float | None
) -> dict[str, Any]:
    a_step = begin.train.batch_size * begin.model.context_length
    config = replace(
        begin.train,
        steps=None if tokens is None else tokens // a_step,
        minutes=minutes,
        eval_every=10**9,
        eval_tokens=JUDGED,
        log_every=10**9,
    )
    torch.manual_seed(config.seed)
    model = GPT(begin.model)
    batches = Batches(
        prepared.train, begin.model.context_length, config.batch_size, config.seed, config.order
    )
    data = Data(batches, prepared.validation, windows, len(prepared.train))
    spent = time.process_time()
    for event in train(model, data, config):
        if isinstance(event, Finished):
            return {
                "steps": event.step,
                "tokens": event.tokens,
                "loss": event.val_loss,
                "training_seconds": event.seconds,
                "core_seconds": time.process_time() - spent,
            }
    raise AssertionError("a run ends with Finished")


@dataclass(frozen=True)
class Taken:
    """A cell was measured.

    Args:
        number: of the cell among those that are left, from 1.
        left: how many were.
        row: its row.
    """

    number: int
    left: int
    row: dict[str, Any]


def read(results: Path) -> list[dict[str, Any]]:
    """The rows that were measured; none where there is no such file."""
    if not results.exists():
        return []
    return [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines() if line]


def measure(
    results: Path,
    *,
    minutes: float | None = None,
    judge: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Taken]:
    """Measure what the results lack, one cell after the other, and add each as it is done.

    Args:
        results: the file.
        minutes: begin no cell after so many; none: measure all.
        judge: the runs that the dial is judged by, instead of those the law is fitted to.
        clock: seconds.

    Raises:
        RunError: another benchmark runs on this machine.
    """
    known = {row["cell"] for row in read(results)}
    cells = judged_cells() if judge else law_cells()
    left = [cell for cell in cells if cell.name not in known]
    until = None if minutes is None else clock() + 60 * minutes
    with lock(cache_folder() / "bench" / "lock"):
        for number, cell in enumerate(left, start=1):
            if until is not None and clock() >= until:
                return
            row = take(cell)
            with results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            yield Taken(number, len(left), row)


def points_of(rows: list[dict[str, Any]]) -> list[Point]:
    """The law's points among the rows."""
    return [
        Point(
            row["text"],
            row["parameters"],
            row["tokens"],
            row["text_tokens"],
            row["surprise"],
            row["loss"],
        )
        for row in rows
        if row["minutes"] is None
    ]


def fitted(results: Path) -> Law:
    """The law of the rows measured so far."""
    return fit(points_of(read(results)))
