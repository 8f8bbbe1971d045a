"""The runs that the minutes dial's law is fitted to, and those that the dial is judged by.

These judge which size the dial takes; each row says what was expected before it ran. Once it stands
there the law is fitted to it too, as to any run of the family. How well the law foretells a text
that it does not know is asked in `tests/budget/test_law.py`, which leaves each text out.

A cell is one run. What was measured stands in a file of JSON lines; what stands there is not
measured again, so that the grid may be measured in pieces.

A minute is one of a core. Tokens are counted that the model trains on in so many seconds of the
process, measured just before, and the run reads so many: what else the machine does changes no
loss. That a run ends in time by the clock on the wall is another question, which
`tests/budget/test_dial.py` asks.
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
from partwise.budget.family import SIZES, Size, inner_parameters, member, settings_of
from partwise.budget.law import Law, Point, fit, standing
from partwise.budget.recipes import Recipe
from partwise.errors import RunError, StorageError
from partwise.machine import describe, git_state
from partwise.model.gpt import GPT
from partwise.storage import cache_folder, lock, write_atomic
from partwise.storage.faults import reading
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

# Validation tokens that the law's runs are judged by.
JUDGED = 1 << 16


@dataclass(frozen=True)
class Cell:
    """One run.

    Args:
        text: which text.
        size: of the model; none: whatever the dial chooses.
        tokens: to train on; none: `minutes` say how long.
        minutes: of one core; none: `tokens` say how long.
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
        parameters = inner_parameters(member(size, 96, 1).model)
        for tokens in TOKENS:
            if 6 * parameters * tokens <= DEAREST:
                priced += [(parameters * tokens, Cell(text, size, tokens)) for text in TEXTS]
    return [cell for _, cell in sorted(priced, key=lambda pair: pair[0])]


def judged_cell(rows: list[dict[str, Any]]) -> Cell | None:
    """The next run that the dial is judged by; None: all were made.

    First the dial's own. Then sizes for the same time, outward from its choice, until the best of
    them has a worse one on either side. Runs of an earlier form of the family do not count.
    """
    rows = [row for row in rows if of_family(row)]
    known = {row.get("cell") for row in rows}
    for minutes in MINUTES:
        for text in TEXTS:
            own = Cell(text, None, minutes=minutes)
            if own.name not in known:
                return own
            same = [row for row in rows if (row["text"], row["minutes"]) == (text, minutes)]
            best = min(same, key=lambda row: float(row["loss"]))["size"]
            at = [str(size) for size in SIZES].index(best)
            for size in SIZES[max(0, at - 1) : at + 2]:
                beside = Cell(text, size, minutes=minutes)
                if str(size) not in {row["size"] for row in same}:
                    return beside
    return None


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
    row: dict[str, Any] = {"cell": cell.name, "text": cell.text}
    if cell.tokens is not None:
        assert cell.size is not None
        size, tokens = cell.size, cell.tokens
        readings = tokens / facts.train_tokens
        begin = member(size, facts.vocab_size, facts.train_tokens, readings=readings)
    else:
        assert cell.minutes is not None
        choice = _chosen(cell, facts, 60 * cell.minutes)
        size, tokens, begin = choice.size, int(choice.tokens), choice.begin
        row |= {"expected": choice.loss, "interval": choice.interval, "enough": choice.enough}
    before = load()
    row |= {"size": str(size), **run_of(begin, prepared, tokens)}
    row |= {
        "minutes": cell.minutes,
        "wall_seconds": clock() - began,
        "parameters": inner_parameters(begin.model),
        "text_tokens": facts.train_tokens,
        "surprise": facts.surprise,
        "settings": settings_of(begin),
        "load_before": before,
        "threads": torch.get_num_threads(),
        "machine": describe()["cpu"],
        "git": git_state(),
    }
    return row


def _chosen(cell: Cell, facts: Facts, seconds: float) -> Choice:
    """What the dial chooses, or its promise for the size that is given.

    What measuring all sizes took comes off the dial's time, as it does in a run; a size that is
    given has all of it.
    """
    clock = time.process_time
    began = clock()
    if cell.size is not None:
        return choose_size(seconds, facts, speeds(facts, (cell.size,), clock=clock), standing())
    tried: list[tuple[Size, float]] = []

    def measured() -> Iterator[tuple[Size, float]]:
        for found in speeds(facts, clock=clock):
            tried.append(found)
            yield found

    choose_size(seconds, facts, measured(), standing())
    return choose_size(seconds - (clock() - began), facts, tried, standing())


def run_of(begin: Recipe, prepared: Prepared, tokens: int) -> dict[str, Any]:
    """Train on so many tokens, the last step among them; what came of it."""
    a_step = begin.train.batch_size * begin.model.context_length
    config = replace(
        begin.train,
        steps=max(1, tokens // a_step),
        compile="off",
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


def read(results: Path) -> list[dict[str, Any]]:
    """The rows that were measured; none where there is no such file."""
    if not results.exists():
        return []
    with reading(results):
        lines = results.read_text(encoding="utf-8", errors="replace").splitlines()
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError("no table")
        except ValueError as error:
            raise StorageError(
                "{path} is no list of the dial's runs: line {number} is none; mend or delete it",
                path=results,
                number=number,
            ) from error
        rows.append(row)
    return rows


def measure(
    results: Path,
    *,
    minutes: float | None = None,
    judge: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[dict[str, Any]]:
    """Measure what the results lack, one cell after the other, and add each as it is done.

    Args:
        results: the file.
        minutes: begin no cell after so many; none: measure all.
        judge: the runs that the dial is judged by, instead of those the law is fitted to.
        clock: seconds.

    Raises:
        RunError: another benchmark runs on this machine.
    """
    until = None if minutes is None else clock() + 60 * minutes
    with lock(cache_folder() / "bench" / "lock"):
        while until is None or clock() < until:
            rows = read(results)
            known = {row.get("cell") for row in rows if of_family(row)}
            left = (cell for cell in law_cells() if cell.name not in known)
            cell = judged_cell(rows) if judge else next(left, None)
            if cell is None:
                return
            row = take(cell)
            with results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            yield row


def points_of(rows: list[dict[str, Any]]) -> list[Point]:
    """The law's points: runs of the family as it is now, those that judged the dial among them.

    Rows without settings are runs of an earlier form that are kept for how sizes compare.
    """
    return [
        Point(
            row["text"],
            row["parameters"],
            row["tokens"],
            row["text_tokens"],
            row["surprise"],
            row["loss"],
            "settings" not in row,
        )
        for row in rows
        if "settings" not in row or of_family(row)
    ]


def of_family(row: dict[str, Any]) -> bool:
    """Whether a run had the settings that the dial would give it today.

    It read whole steps, up to one fewer than it was made for.
    """
    size = next((size for size in SIZES if str(size) == row["size"]), None)
    if size is None or "settings" not in row:
        return False
    model, train = row["settings"]["model"], row["settings"]["train"]
    a_step = train["batch_size"] * model["context_length"]
    return any(
        row["settings"]
        == settings_of(
            member(
                size,
                model["vocab_size"],
                row["text_tokens"],
                readings=tokens / row["text_tokens"],
            )
        )
        for tokens in (row["tokens"], row["tokens"] + a_step - 1)
    )


def all_rows(results: Path) -> list[dict[str, Any]]:
    """The rows of the file and of those beside it whose names begin with its name."""
    files = sorted(results.parent.glob(f"{results.stem}*.jsonl"))
    return [row for file in files for row in read(file)]


def fitted(results: Path) -> Law:
    """The law of the rows measured so far.

    Raises:
        RunError: they are too few, or no law of the dial's form fits them.
    """
    points = points_of(all_rows(results))
    today = [point for point in points if not point.earlier]
    if len({point.parameters for point in today}) < 2 or len({point.tokens for point in today}) < 3:
        raise RunError(
            "{path} holds {count} of the dial's runs and its law takes two sizes and three lengths "
            "at least; make them with: partwise bench dial",
            path=results,
            count=len(today),
        )
    try:
        return fit(points)
    except ValueError as error:
        raise RunError("no law of the dial's form fits the runs of {path}", path=results) from error
