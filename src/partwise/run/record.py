"""`run.toml`: what a run is made of, for programs and for eyes.

[train] may be edited before a run is resumed: a later `steps` trains longer, another `eval_every`
looks more often. Every value is held to its type when it is read. [text], [model] and [data] say
what the weights belong to; a checksum covers them, and a change there is refused.
"""

import dataclasses
import hashlib
import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import tomli_w

from partwise.errors import ConfigError, RunError
from partwise.model.config import ModelConfig
from partwise.settings import build, plain
from partwise.storage import write_atomic
from partwise.storage.faults import reading
from partwise.text.config import DataConfig
from partwise.training.config import TrainConfig

T = TypeVar("T")

FILE = "run.toml"
FORMAT = 1

# From each older format to the next: takes and gives the whole table.
MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}

_HEADING = """\
# A Partwise run: its settings as they were used. [train] may be edited before the run is resumed;
# the checksum covers [text], [model] and [data].

"""


@dataclass(frozen=True)
class TextRecord:
    """The text that a run learns.

    Args:
        asked: as the user named it.
        spec: opens the same text from any folder; only training needs it.
        name: short name.
        fingerprint: SHA-256 of the text.
        validation_fingerprint: that of the text validated on; the same unless it is another one.
        tokenizer: name of the tokenizer.
        tokenizer_fingerprint: its fingerprint.
        train_tokens: tokens to learn from.
        validation_tokens: tokens to judge by.
    """

    asked: str
    spec: str
    name: str
    fingerprint: str
    validation_fingerprint: str
    tokenizer: str
    tokenizer_fingerprint: str
    train_tokens: int
    validation_tokens: int


@dataclass(frozen=True)
class Resolved:
    """What was chosen where the settings say "auto"; a resumed run keeps to it.

    Args:
        device: where it is trained.
        dtype: what matrix products are computed in.
        compiled: whether the step is compiled.
        threads: CPU threads.
    """

    device: str
    dtype: str
    compiled: bool
    threads: int


@dataclass(frozen=True)
class Record:
    """All of `run.toml`.

    Args:
        created: date and time (ISO 8601, UTC).
        text: the text and the tokenizer.
        model, train, data: the settings.
        resolved: what was chosen; None before the first step.
        versions: of Partwise and what it stands on.
        machine: where the run was created.
        git: commit of the folder in which it was created, if it was a repository.
    """

    created: str
    text: TextRecord
    model: ModelConfig
    train: TrainConfig
    data: DataConfig
    resolved: Resolved | None
    versions: Mapping[str, Any]
    machine: Mapping[str, Any]
    git: Mapping[str, Any]


def write_record(folder: Path, record: Record) -> None:
    """Write `run.toml` into `folder`.

    Raises:
        StorageError: the disk is full, or the folder may not be written to.
    """
    tables: dict[str, Any] = {
        "kind": "partwise.run",
        "format": FORMAT,
        "created": record.created,
        "text": dataclasses.asdict(record.text),
        "model": plain(record.model),
        "train": plain(record.train),
        "data": plain(record.data),
    }
    if record.resolved is not None:
        tables["resolved"] = dataclasses.asdict(record.resolved)
    for name in ("versions", "machine", "git"):
        tables[name] = dict(getattr(record, name))
    # A file name that is not UTF-8 cannot stand in TOML: its foreign bytes become question marks.
    body = tomli_w.dumps(tables).encode("utf-8", "replace").decode("utf-8")
    checksum = f'checksum = "{_checksum(tomllib.loads(body))}"\n'
    write_atomic(folder / FILE, (_HEADING + checksum + body).encode("utf-8"))


def read_record(folder: Path) -> Record:
    """What `run.toml` in `folder` says, brought to the newest format.

    Raises:
        RunError: there is none, it is damaged, or a newer Partwise wrote it.
    """
    path = folder / FILE
    if not path.is_file():
        raise RunError("{folder} is not a run: it has no {file}", folder=folder, file=FILE)
    with reading(path):
        data = path.read_bytes()
    try:
        tables = tomllib.loads(data.decode("utf-8"))
    except ValueError as error:
        raise RunError(
            "{path} is not TOML ({reason}); mend it, or bring it back from a copy",
            path=path,
            reason=error,
        ) from error
    if tables.get("kind") != "partwise.run":
        raise RunError(
            '{path} does not describe a run: kind = "partwise.run" is missing', path=path
        )
    tables = _newest(path, tables)
    try:
        resolved = tables.get("resolved")
        return Record(
            created=str(tables["created"]),
            text=_filled(TextRecord, tables["text"]),
            model=build(ModelConfig, tables["model"]),
            train=build(TrainConfig, tables["train"]),
            data=build(DataConfig, tables["data"]),
            resolved=None if resolved is None else _filled(Resolved, resolved),
            versions=dict(tables["versions"]),
            machine=dict(tables["machine"]),
            git=dict(tables["git"]),
        )
    except ConfigError as error:
        raise RunError("{path}: {reason}", path=path, reason=error) from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunError(
            "{path} is damaged ({reason}); mend it, or bring it back from a copy",
            path=path,
            reason=f"{error} is missing" if isinstance(error, KeyError) else error,
        ) from error


def _newest(path: Path, tables: dict[str, Any]) -> dict[str, Any]:
    version = tables.get("format")
    if type(version) is not int or version < 1:
        raise RunError(
            "{path} names format {version!r}, which is not a number from 1",
            path=path,
            version=version,
        )
    if version > FORMAT:
        raise RunError(
            "{path} has run format {version} and this Partwise reads up to {newest}; upgrade "
            "Partwise",
            path=path,
            version=version,
            newest=FORMAT,
        )
    if tables.get("checksum") != _checksum(tables):
        raise RunError(
            "{path} does not match its checksum: [text], [model] or [data] was changed after the "
            "run was created; undo that, or start a new run",
            path=path,
        )
    while version < FORMAT:
        tables = MIGRATIONS[version](tables)
        version += 1
    return tables


def _checksum(tables: Mapping[str, Any]) -> str:
    """The SHA-256 of what the weights belong to, whatever its layout."""
    covered = [tables.get(name) for name in ("text", "model", "data")]
    data = json.dumps(covered, sort_keys=True, default=str).encode("ascii")
    return hashlib.sha256(data).hexdigest()


def _filled(kind: type[T], values: Mapping[str, Any]) -> T:
    """A record of plain fields, each of its own type."""
    fields = {field.name: field.type for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name, wanted in fields.items():
        if type(values[name]) is not wanted:
            raise TypeError(f"{name} = {values[name]!r}")
    return kind(**{name: values[name] for name in fields})
