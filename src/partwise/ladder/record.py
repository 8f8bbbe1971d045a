"""What a finished run of the ladder leaves in its run folder: figures, curves and a sample."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from partwise.errors import StorageError
from partwise.ladder.table import Row
from partwise.storage import read_json, write_json

FILE = "ladder.json"
KIND = "ladder-run"
VERSION = 1

Points = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Record:
    """One finished run.

    Args:
        row: its figures.
        validation: (step, mean loss over the whole validation split), one an evaluation.
        training: (step, mean loss of the batches since the last point), in training mode.
        sample: text from the last weights, starting from a newline.
    """

    row: Row
    validation: Points
    training: Points
    sample: str


def write_record(run: Path, record: Record) -> None:
    """Mark the run folder `run` as finished, with its figures."""
    write_json(run / FILE, dataclasses.asdict(record), kind=KIND, version=VERSION)


def read_record(run: Path) -> Record | None:
    """What `write_record` left in `run`; None where the run is missing or not finished.

    Raises:
        StorageError: the file is damaged or newer than this Partwise.
    """
    path = run / FILE
    if not path.is_file():
        return None
    _, value = read_json(path, kind=KIND, newest=VERSION)
    try:
        return Record(
            row=Row(**value["row"]),
            validation=_points(value["validation"]),
            training=_points(value["training"]),
            sample=str(value["sample"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(
            "{path} is torn or not a ladder; run the ladder again to write it anew", path=path
        ) from error


def _points(value: Any) -> Points:
    return tuple((int(step), float(loss)) for step, loss in value)
