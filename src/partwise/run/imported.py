"""Models that were made elsewhere, as run folders: sampled, sized and trained on like any other."""

from datetime import UTC, datetime
from pathlib import Path

from partwise.interop.reader import Imported, is_folder, read_folder
from partwise.machine import git_state
from partwise.run.beginning import Beginning, beginning_of
from partwise.run.folder import Run, write_origin
from partwise.run.kept import TOKENIZER
from partwise.run.listing import find
from partwise.run.places import (
    free_place,
    refuse_taken,
    require_place,
    this_machine,
    versions,
)
from partwise.run.record import FILE, Record, TextRecord, write_record
from partwise.run.training import SAMPLES
from partwise.storage import safe_name, sweep, write_atomic, write_folder
from partwise.text.config import DataConfig
from partwise.text.turns import in_turn
from partwise.training.checkpoint import Checkpoint, save
from partwise.training.config import TrainConfig


def import_folder(
    folder: Path | str,
    name: str | None = None,
    *,
    root: Path | str = "runs",
    tokenizer: Path | str | None = None,
) -> Run:
    """The model in a Hugging Face folder, as a run.

    Args:
        folder: holds `config.json`, the weights as safetensors, and `tokenizer.json`.
        name: the run's name; None makes one from the folder's and the date.
        root: the folder of runs.
        tokenizer: another `tokenizer.json`, for a folder without one.

    Raises:
        PartwiseError: the folder holds what has no counterpart here, or the name cannot be used;
            nothing is written then.
    """
    require_place(name, root)
    return keep(read_folder(folder, tokenizer), name, root=root)


def keep(imported: Imported, name: str | None = None, *, root: Path | str = "runs") -> Run:
    """Write an imported model as a run; see `import_folder`."""
    root = Path(root)
    beginning = beginning_of(imported)
    tokenizer = imported.tokenizer
    record = Record(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        text=TextRecord(
            asked="",
            spec="",
            name="",
            fingerprint="",
            validation_fingerprint="",
            tokenizer=tokenizer.name,
            tokenizer_fingerprint=tokenizer.fingerprint,
            train_tokens=0,
            validation_tokens=0,
        ),
        model=imported.model,
        train=TrainConfig(),
        data=DataConfig(),
        resolved=None,
        versions=versions(),
        machine=this_machine(),
        git=git_state(),
        ancestor=beginning.ancestor,
    )
    with in_turn(root / ".lock"):
        sweep(root)
        base = imported.folder.absolute().name
        path = free_place(root, base) if name is None else root / safe_name(name)
        refuse_taken(path)
        with write_folder(path, over=False) as inside:
            write_record(inside, record)
            write_atomic(inside / TOKENIZER, tokenizer.to_json().encode("utf-8"))
            (inside / SAMPLES).mkdir()
            write_origin(inside, imported.files)
            checkpoint = Checkpoint(
                step=0, weights=imported.weights, averaged=None, optimizer={}, state={}
            )
            save(inside, checkpoint, is_best=True, keep=1)
    return Run(path, record)


def begin_with(name: Path | str, root: Path | str = "runs") -> Beginning:
    """What a training begins with: a run by its path or its name in `root`, or a model's folder.

    Args:
        name: a run, or a Hugging Face folder.
        root: the folder of runs.

    Raises:
        RunError: there is no such run, or it has no checkpoint.
        InteropError: the folder holds what has no counterpart here.
    """
    path = Path(name).expanduser()
    if is_folder(path) and not (path / FILE).is_file():
        return beginning_of(read_folder(path))
    return Run.open(find(path, root)).beginning()
