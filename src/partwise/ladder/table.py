"""The ladder's figures as data: one row a rung, variant and seed, and what follows from the rows.

`ladder.json` is this table; docs/ladder.md describes its schema.
"""

import dataclasses
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from partwise.errors import StorageError
from partwise.ladder.statistics import Difference, Spread, paired, spread
from partwise.storage import write_atomic

SCHEMA = 1


@dataclass(frozen=True)
class Row:
    """One trained model.

    Args:
        rung, name: which rung.
        variant: what was changed, as it was asked for; None for the rung itself.
        seed: the seed of weights, batches and dropout.
        steps: steps trained.
        seconds: training time, evaluations included.
        tokens_per_second: tokens trained on a second.
        parameters: numbers that were trained.
        train_loss: mean loss over an equally long, evenly spread sample of the training text, in
            evaluation mode with the last weights (nats a token).
        val_loss: mean loss over the whole validation split, last weights.
        best_val_loss: the lowest of the evaluations, each over the whole split.
        estimate: the classic estimate, 200 random validation batches, last weights.
        published: the published value where it applies; a reference, never a result.
        run: name of the run folder in `runs/`.
    """

    rung: int
    name: str
    variant: str | None
    seed: int
    steps: int
    seconds: float
    tokens_per_second: float
    parameters: int
    train_loss: float
    val_loss: float
    best_val_loss: float
    estimate: float
    published: float | None
    run: str

    @property
    def key(self) -> tuple[int, str | None]:
        """The group of seeds that this row belongs to."""
        return self.rung, self.variant


@dataclass(frozen=True)
class Group:
    """One rung, or one variant of it, over its seeds.

    Args:
        rung, name, variant, parameters, published: as in its rows.
        rows: its rows by seed.
    """

    rung: int
    name: str
    variant: str | None
    parameters: int
    published: float | None
    rows: tuple[Row, ...]

    @property
    def key(self) -> tuple[int, str | None]:
        """Rung and variant."""
        return self.rung, self.variant

    @property
    def val_loss(self) -> Spread:
        """The last weights' loss over the seeds."""
        return spread([row.val_loss for row in self.rows])

    @property
    def best_val_loss(self) -> Spread:
        """The best evaluation's loss over the seeds."""
        return spread([row.best_val_loss for row in self.rows])

    @property
    def train_loss(self) -> Spread:
        """The training text's loss over the seeds."""
        return spread([row.train_loss for row in self.rows])

    @property
    def estimate(self) -> Spread:
        """The classic estimate over the seeds."""
        return spread([row.estimate for row in self.rows])

    @property
    def seconds(self) -> float:
        """Mean training time of one seed (seconds)."""
        return math.fsum(row.seconds for row in self.rows) / len(self.rows)

    @property
    def by_seed(self) -> dict[int, float]:
        """Seed -> val_loss."""
        return {row.seed: row.val_loss for row in self.rows}


@dataclass(frozen=True)
class Silenced:
    """A trained rung measured with one part silenced.

    Args:
        rung, seed: which model.
        part: which part, e.g. `block 1, head 2`.
        val_loss: mean loss over the whole validation split without it (nats a token).
        difference: `val_loss` less that of the whole model.
    """

    rung: int
    seed: int
    part: str
    val_loss: float
    difference: float


@dataclass(frozen=True)
class Failure:
    """A model that could not be trained, such as a variant whose loss became infinite.

    Args:
        rung, name, variant, seed: which one.
        reason: why, in one line.
    """

    rung: int
    name: str
    variant: str | None
    seed: int
    reason: str


@dataclass(frozen=True)
class LadderTable:
    """Everything that a climb has measured.

    Args:
        corpus: the text's name.
        folder: where it is kept.
        machine: what it ran on.
        versions: of Partwise and what it stands on.
        rows: one for each trained model.
        silenced: knock-outs, if they were measured.
        failures: models of the last climb that could not be trained.
    """

    corpus: str
    folder: Path
    machine: dict[str, Any]
    versions: dict[str, str]
    rows: tuple[Row, ...]
    silenced: tuple[Silenced, ...] = field(default=())
    failures: tuple[Failure, ...] = field(default=())

    @property
    def groups(self) -> tuple[Group, ...]:
        """Rows gathered over their seeds: each rung, then its variants, lowest rung first."""
        gathered: dict[tuple[int, str | None], list[Row]] = {}
        for row in sorted(self.rows, key=_order):
            gathered.setdefault(row.key, []).append(row)
        return tuple(
            Group(
                rows[0].rung,
                rows[0].name,
                rows[0].variant,
                rows[0].parameters,
                rows[0].published,
                tuple(rows),
            )
            for rows in gathered.values()
        )

    @property
    def rungs(self) -> tuple[Group, ...]:
        """The rungs themselves, lowest first."""
        return tuple(group for group in self.groups if group.variant is None)

    def variants_of(self, rung: int) -> tuple[Group, ...]:
        """The variants of one rung."""
        return tuple(
            group for group in self.groups if group.rung == rung and group.variant is not None
        )

    def below(self, group: Group) -> Group | None:
        """What a group is compared with: a variant with its rung, a rung with the one below."""
        wanted = group.rung if group.variant is not None else group.rung - 1
        return next((other for other in self.rungs if other.rung == wanted), None)

    def step(self, group: Group) -> Difference | None:
        """The paired difference to `below`; None where no seed of that was trained too.

        So it is for a while when several models are trained at once: seed 2 of one rung and seed 1
        of the next may be the first to be finished.
        """
        below = self.below(group)
        if below is None:
            return None
        difference = paired(below.by_seed, group.by_seed)
        return difference if difference.seeds else None

    def to_dict(self) -> dict[str, Any]:
        """`ladder.json`'s content."""
        rungs = []
        for group in self.groups:
            error = group.val_loss.standard_error
            rungs += [{**dataclasses.asdict(row), "standard_error": error} for row in group.rows]
        steps = []
        for group in self.groups:
            difference = self.step(group)
            if difference is not None:
                steps.append(
                    {
                        "rung": group.rung,
                        "variant": group.variant,
                        "against": group.rung if group.variant is not None else group.rung - 1,
                        **dataclasses.asdict(difference),
                        "verdict": difference.verdict,
                    }
                )
        return {
            "corpus": self.corpus,
            "machine": self.machine,
            "versions": self.versions,
            "rungs": rungs,
            "differences": steps,
            "knock_outs": [dataclasses.asdict(one) for one in self.silenced],
            "failures": [dataclasses.asdict(one) for one in self.failures],
            "schema": SCHEMA,
        }


def write_table(path: Path, table: LadderTable) -> None:
    """Write `ladder.json`, whole or not at all."""
    text = json.dumps(table.to_dict(), ensure_ascii=False, indent=2, allow_nan=False)
    write_atomic(path, (text + "\n").encode("utf-8"))


def read_table(path: Path) -> LadderTable:
    """The table that `write_table` wrote.

    Raises:
        StorageError: the file is missing, torn, or of a newer schema.
    """
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
        schema = whole["schema"]
        if type(schema) is int and schema > SCHEMA:
            raise StorageError(
                "{path} has schema {schema} and this Partwise reads up to {newest}; upgrade "
                "Partwise",
                path=path,
                schema=schema,
                newest=SCHEMA,
            )
        return LadderTable(
            corpus=whole["corpus"],
            folder=path.parent,
            machine=whole["machine"],
            versions=whole["versions"],
            rows=tuple(Row(**_known(Row, entry)) for entry in whole["rungs"]),
            silenced=tuple(Silenced(**_known(Silenced, one)) for one in whole["knock_outs"]),
            failures=tuple(Failure(**_known(Failure, one)) for one in whole["failures"]),
        )
    except FileNotFoundError:
        raise StorageError("there is no file {path}", path=path) from None
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise StorageError(
            "{path} is torn or not a ladder; run the ladder again to write it anew", path=path
        ) from error


def _known(kind: type[Any], entry: dict[str, Any]) -> dict[str, Any]:
    return {one.name: entry[one.name] for one in dataclasses.fields(kind)}


def _order(row: Row) -> tuple[int, bool, str, int]:
    return row.rung, row.variant is not None, row.variant or "", row.seed
