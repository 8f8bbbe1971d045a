"""Runs side by side: what is in a folder of runs, and in what two of them differ."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from partwise.errors import PartwiseError, RunError
from partwise.interop.reader import is_folder
from partwise.messages import Notice
from partwise.model.parameters import count_parameters
from partwise.run.folder import Run
from partwise.run.record import FILE, TRANSLATION, damaged, kind_of, read_tables
from partwise.run.training import METRICS
from partwise.settings import offer, plain
from partwise.training.listeners import read_metrics


@dataclass(frozen=True)
class RunSummary:
    """One line of `partwise runs`.

    Args:
        name: the folder's name.
        path: the folder.
        created: date and time (ISO 8601, UTC), or empty when it cannot be told.
        text: short name of the text.
        parameters: numbers in the model.
        step: steps done, as far as metrics tell.
        status: "new", "imported", "unfinished", or why it ended (see `training.events.Reason`);
            "damaged".
        val_loss: the last validation loss (nats a token), if any.
        best_val_loss: the lowest one.
        best_step: the step that it was measured at.
        seconds: training time.
        problem: what is wrong with the folder, or None.
        kind: "run" for a model that writes, "translation" for one that translates.
    """

    name: str
    path: Path
    created: str = ""
    text: str = ""
    parameters: int = 0
    step: int = 0
    status: str = "damaged"
    val_loss: float | None = None
    best_val_loss: float | None = None
    best_step: int | None = None
    seconds: float = 0.0
    problem: Notice | None = None
    kind: str = "run"


@dataclass(frozen=True)
class Difference:
    """A setting or result in which runs differ.

    Args:
        name: such as "model.d_model" or "best_val_loss".
        values: one for each run, in their order.
    """

    name: str
    values: tuple[Any, ...]


def summarise(path: Path) -> RunSummary:
    """What a run folder says of itself; of a damaged one, what is wrong with it."""
    try:
        if kind_of(path) == TRANSLATION:
            known = _translator(path)
        else:
            run = Run.open(path)
            known = RunSummary(
                name=run.name,
                path=path,
                created=run.record.created,
                text=run.record.text.name,
                parameters=count_parameters(run.record.model),
                status="imported" if run.record.imported else "new",
            )
        metrics = list(read_metrics(path / METRICS))
    except PartwiseError as error:
        problem = Notice(error.template, **error.values)
        return RunSummary(path.absolute().name, path, problem=problem)
    last = metrics[-1] if metrics else {}
    judged: dict[str, Any] = next((m for m in reversed(metrics) if "val_loss" in m), {})
    status = "unfinished" if metrics else known.status
    if last.get("event") == "finished":
        status = str(last.get("reason"))
    return replace(
        known,
        step=last.get("step", 0),
        status=status,
        val_loss=judged.get("val_loss"),
        best_val_loss=judged.get("best_val_loss"),
        best_step=judged.get("best_step"),
        seconds=last.get("seconds", 0.0),
    )


def _translator(path: Path) -> RunSummary:
    tables = read_tables(path, TRANSLATION)
    with damaged(path):
        return RunSummary(
            name=path.absolute().name,
            path=path,
            created=str(tables["created"]),
            text=str(tables["text"]["name"]),
            parameters=int(tables["text"]["parameters"]),
            status="new",
            kind="translation",
        )


def list_runs(root: Path | str) -> list[RunSummary]:
    """The runs in a folder, the newest last; folders that are no whole run come first.

    Args:
        root: the folder of runs; one that does not exist holds none.
    """
    root = Path(root)
    if not root.is_dir():
        return []
    folders = [p for p in root.iterdir() if p.is_dir() and not p.name.startswith(".")]
    found = [summarise(path) for path in folders]
    return sorted(found, key=lambda summary: (summary.created, summary.name))


def compare(paths: list[Path]) -> list[Difference]:
    """Settings and results in which runs differ; of no runs there are none.

    Raises:
        RunError: one of the folders is not a whole run.
    """
    runs = [Run.open(path) for path in paths]
    columns = []
    for run in runs:
        column: dict[str, Any] = {"text.name": run.record.text.name}
        column["text.fingerprint"] = run.record.text.fingerprint[:12]
        for part in ("model", "train", "data", "lora"):
            settings = plain(getattr(run.record, part))
            column.update({f"{part}.{name}": value for name, value in settings.items()})
        summary = summarise(run.path)
        for name in ("parameters", "step", "seconds", "val_loss", "best_val_loss", "best_step"):
            column[name] = getattr(summary, name)
        columns.append(column)
    names = columns[0] if columns else ()
    rows = [Difference(name, tuple(column[name] for column in columns)) for name in names]
    return [row for row in rows if any(value != row.values[0] for value in row.values)]


def find(name: Path | str, root: Path | str = "runs") -> Path:
    """The folder of the run that a user names by its path, or by its name in `root`.

    Raises:
        RunError: there is none; the line names the nearest.
    """
    path, root = Path(name), Path(root)
    # A folder that only has the same name as a run, such as the model it was imported from, is not
    # what is meant.
    for place in (path, root / name):
        if (place / FILE).is_file():
            return place
    if is_folder(path):
        raise RunError(
            "{path} is a Hugging Face folder, not a run; make one of it with: partwise import "
            "{path}",
            path=path,
        )
    for place in (path, root / name):
        if place.is_dir():
            return place
    known = [summary.name for summary in list_runs(root)]
    if not known:
        raise RunError(
            "there is no run {name}, and {root} has none; train one first", name=name, root=root
        )
    raise RunError(
        "there is no run {name}; {offer}",
        name=name,
        offer=offer(path.name, known),
    )
