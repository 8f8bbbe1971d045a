"""`run.toml`: what a run is made of, for programs and for eyes.

[train] may be edited before a run is resumed: a later `steps` trains longer, another `eval_every`
looks more often. Every value is held to its type when it is read. [text], [model], [data] and
[lora] say what the weights belong to; a checksum covers them, and a change there is refused.
"""

import dataclasses
import hashlib
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import tomli_w

from partwise.errors import ConfigError, PartwiseError, RunError
from partwise.model.config import ModelConfig
from partwise.model.lora_config import LoraConfig
from partwise.settings import build, plain
from partwise.storage import read_small, write_atomic
from partwise.text.config import DataConfig
from partwise.training.config import TrainConfig

T = TypeVar("T")

FILE = "run.toml"

# The kinds of run that a `run.toml` can describe.
KIND = "partwise.run"
TRANSLATION = "partwise.translation"

FORMAT = 1

# From each older format to the next: takes and gives the whole table.
MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}

_HEADING = """\
# A Partwise run: its settings as they were used. [train] may be edited before the run is resumed;
# the checksum covers [text], [model], [data] and [lora].

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
class Ancestor:
    """The model whose weights a run began with, or, of an imported model, where it came from.

    Args:
        kind: "run", or "folder" for one that was made elsewhere.
        path: where it was.
        step: the steps that it had been trained.
        text: short name of the text that it had learned, or empty.
        weights: fingerprint of its weights.
        origin: name of the imported model that it all goes back to, or empty.
        initial: SHA-256 of `initial.safetensors`; empty where there is none, and in runs that were
            made before it was written down.
    """

    kind: str
    path: str
    step: int
    text: str
    weights: str
    origin: str
    initial: str = ""


@dataclass(frozen=True)
class Record:
    """All of `run.toml`.

    Args:
        created: date and time (ISO 8601, UTC).
        text: the text and the tokenizer; an imported model has a tokenizer alone.
        model, train, data: the settings.
        resolved: what was chosen; None before the first step.
        versions: of Partwise and what it stands on.
        machine: where the run was created.
        git: commit of the folder in which it was created, if it was a repository.
        lora: what is trained in place of the weights, if anything.
        ancestor: whose weights it began with; None: random ones.
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
    lora: LoraConfig = field(default_factory=LoraConfig)
    ancestor: Ancestor | None = None

    @property
    def imported(self) -> bool:
        """Whether this is a model that was made elsewhere and has learned no text here."""
        return self.text.spec == ""


def write_record(folder: Path, record: Record) -> None:
    """Write `run.toml` into `folder`.

    Raises:
        StorageError: the disk is full, or the folder may not be written to.
    """
    own: dict[str, Any] = {}
    if record.lora.on:
        own["lora"] = plain(record.lora)
    if record.ancestor is not None:
        own["ancestor"] = dataclasses.asdict(record.ancestor)
    write_tables(folder, KIND, record, own)


def write_tables(folder: Path, kind: str, record: Any, own: Mapping[str, Any]) -> None:
    """Write the record of any kind of run as `run.toml` into `folder`.

    Args:
        folder: the run folder.
        kind: what it is a run of.
        record: has the fields that `common` gives, `text`, and the settings `model` and `data`.
        own: the tables that only this kind has.

    Raises:
        StorageError: the disk is full, or the folder may not be written to.
    """
    tables: dict[str, Any] = {
        "kind": kind,
        "format": FORMAT,
        "created": record.created,
        "text": dataclasses.asdict(record.text),
        "model": plain(record.model),
        "train": plain(record.train),
        "data": plain(record.data),
        **own,
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
    tables = read_tables(folder, KIND)
    with damaged(folder):
        ancestor = tables.get("ancestor")
        return Record(
            text=filled(TextRecord, tables["text"]),
            model=build(ModelConfig, tables["model"]),
            data=build(DataConfig, tables["data"]),
            lora=build(LoraConfig, tables.get("lora", {})),
            ancestor=None if ancestor is None else filled(Ancestor, ancestor),
            **common(tables),
        )


def kind_of(folder: Path) -> str | None:
    """The kind of run in a folder, such as `partwise.translation`; None if there is none."""
    try:
        return str(_read(folder).get("kind"))
    except PartwiseError:
        return None


def read_tables(folder: Path, kind: str) -> dict[str, Any]:
    """The tables of `run.toml` in `folder`, brought to the newest format.

    Raises:
        RunError: there is none, it is of another kind or damaged, or a newer Partwise wrote it.
    """
    path = folder / FILE
    tables = _read(folder)
    found = tables.get("kind")
    if found == TRANSLATION and kind == KIND:
        raise RunError(
            "{folder} is a translator; use it with: partwise translate {folder}", folder=folder
        )
    if found == KIND and kind == TRANSLATION:
        raise RunError(
            "{folder} is a run that writes text, no translator; use it with: partwise sample "
            "{folder}",
            folder=folder,
        )
    if found != kind:
        raise RunError(
            '{path} does not describe a run: kind = "partwise.run" is missing', path=path
        )
    return _newest(path, tables)


def common(tables: Mapping[str, Any]) -> dict[str, Any]:
    """What the records of all kinds have in common, by field."""
    resolved = tables.get("resolved")
    return {
        "created": str(tables["created"]),
        "train": build(TrainConfig, tables["train"]),
        "resolved": None if resolved is None else filled(Resolved, resolved),
        "versions": dict(tables["versions"]),
        "machine": dict(tables["machine"]),
        "git": dict(tables["git"]),
    }


@contextmanager
def damaged(folder: Path) -> Iterator[None]:
    """Whatever is missing or of a wrong type inside the `with` means that `run.toml` is damaged."""
    path = folder / FILE
    try:
        yield
    except ConfigError as error:
        raise RunError("{path}: {reason}", path=path, reason=error) from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunError(
            "{path} is damaged ({reason}); mend it, or bring it back from a copy",
            path=path,
            reason=f"{error} is missing" if isinstance(error, KeyError) else error,
        ) from error


def _read(folder: Path) -> dict[str, Any]:
    path = folder / FILE
    if not path.is_file():
        raise RunError("{folder} is not a run: it has no {file}", folder=folder, file=FILE)
    data = read_small(path)
    try:
        return tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise RunError(
            "{path} is not TOML ({reason}); mend it, or bring it back from a copy",
            path=path,
            reason=error,
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
            "{path} does not match its checksum: [text], [model], [data] or [lora] was changed "
            "after the run was created; undo that, or start a new run",
            path=path,
        )
    while version < FORMAT:
        tables = MIGRATIONS[version](tables)
        version += 1
    return tables


def _checksum(tables: Mapping[str, Any]) -> str:
    """The SHA-256 of what the weights belong to, whatever its layout."""
    covered = [tables.get(name) for name in ("text", "model", "data")]
    covered += [tables["lora"]] if "lora" in tables else []
    data = json.dumps(covered, sort_keys=True, default=str).encode("ascii")
    return hashlib.sha256(data).hexdigest()


def filled(kind: type[T], values: Mapping[str, Any]) -> T:
    """A record of plain fields, each of its own type; one with a default may be missing."""
    found = {}
    for each in dataclasses.fields(kind):  # type: ignore[arg-type]
        if each.name not in values and each.default is not dataclasses.MISSING:
            continue
        value = values[each.name]
        if type(value) is not each.type:
            raise TypeError(f"{each.name} = {value!r}")
        found[each.name] = value
    return kind(**found)
