"""A run: one folder that holds all of a model's life, and can be moved."""

import dataclasses
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch

import partwise
from partwise.errors import RunError
from partwise.machine import describe, git_state, pick_device
from partwise.machine.facts import version_of
from partwise.messages import Notice
from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT
from partwise.run.record import Record, Resolved, read_record, write_record
from partwise.run.text import absolute, prepare_again, text_record
from partwise.run.training import METRICS, SAMPLES, Sampled, sample_text, text_data, train_in
from partwise.storage import (
    cache_folder,
    cleaned,
    lock,
    read_tensors,
    safe_name,
    sweep,
    write_atomic,
    write_folder,
    write_tensors,
)
from partwise.text.config import DataConfig
from partwise.text.prepare import Prepared, Progress, prepare
from partwise.text.tokenizers import Tokenizer, load_tokenizer
from partwise.text.turns import in_turn
from partwise.training.checkpoint import Which, load_weights, weights_of, weights_to_use
from partwise.training.config import TrainConfig
from partwise.training.evaluate import never
from partwise.training.events import Event, Said
from partwise.training.listeners import read_metrics
from partwise.training.plan import check_ends

INITIAL = "initial.safetensors"
TOKENIZER = "tokenizer.json"


def _unheard(notice: Notice) -> None:
    """Nobody listens."""


@dataclass
class Run:
    """One run folder.

    Args:
        path: the folder.
        record: what its `run.toml` says.
        prepared: the text, when it is ready already; else it is prepared when it is needed.
    """

    path: Path
    record: Record
    prepared: Prepared | None = dataclasses.field(default=None, repr=False, compare=False)

    @classmethod
    def create(
        cls,
        root: Path | str,
        name: str | None,
        text: str,
        model: ModelConfig,
        train: TrainConfig,
        data: DataConfig,
        *,
        offline: bool = False,
        begin: "Run | None" = None,
        prepared: Prepared | None = None,
        cache: Path | None = None,
        progress: Progress | None = None,
        announce: Callable[[Notice], None] = _unheard,
    ) -> "Run":
        """Make a run folder, once everything in it is known to fit together.

        Args:
            root: the folder of runs.
            name: the run's name; None makes one from the text's and the date.
            text: the text to learn (see `open_source`).
            model: the model; its vocab_size becomes the tokenizer's.
            train: the training.
            data: tokenizer and split.
            offline: never download a corpus.
            begin: start from the best weights of this run, and cut the text with its tokenizer.
            prepared: the text, when `prepare` gave it already.
            cache: folder for prepared texts; None: `cache_folder()`.
            progress: is told how far the text is prepared (bytes done, of all).
            announce: is told before anything is downloaded.

        Raises:
            PartwiseError: a setting, the text or the name cannot be used, or the name is taken;
                nothing is written then.
        """
        root = Path(root)
        if name is not None:
            name = safe_name(name)
            _refuse_taken(root / name)
        check_ends(train)
        pick_device(train.device)
        data = dataclasses.replace(data, validation=absolute(data.validation))
        tokenizer = None if begin is None else begin.tokenizer()
        prepared = prepared or prepare(
            text,
            data,
            cache=cache or cache_folder(),
            tokenizer=tokenizer,
            offline=offline,
            progress=progress,
            announce=announce,
        )
        model = dataclasses.replace(model, vocab_size=prepared.tokenizer.vocab_size)
        prepared.require_tokens(model.context_length)
        weights = None
        if begin is not None:
            started = GPT(model)
            load_weights(started, weights_of(begin.model()))
            weights = weights_of(started)
        record = Record(
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            text=text_record(text, prepared),
            model=model,
            train=train,
            data=data,
            resolved=None,
            versions=_versions(),
            machine=_machine(),
            git=git_state(),
        )
        # In turn, so that two that start at once get two names, and what a killed one left is
        # known to be nobody's.
        with in_turn(root / ".lock"):
            sweep(root)
            path = _free_place(root, prepared.name) if name is None else root / name
            _refuse_taken(path)
            with write_folder(path, over=False) as folder:
                write_record(folder, record)
                write_atomic(folder / TOKENIZER, prepared.tokenizer.to_json().encode("utf-8"))
                if weights is not None:
                    write_tensors(folder / INITIAL, weights)
                (folder / "checkpoints").mkdir()
                (folder / SAMPLES).mkdir()
        return cls(path, record, prepared)

    @classmethod
    def open(cls, path: Path | str) -> "Run":
        """The run in a folder.

        Raises:
            RunError: it is not a run, is damaged, or is of a newer format.
        """
        return cls(Path(path), read_record(Path(path)))

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.absolute().name

    def train(
        self,
        resume: bool = False,
        stop: Callable[[], bool] = never,
        *,
        settings: TrainConfig | None = None,
        text: str | None = None,
        offline: bool = False,
        progress: Progress | None = None,
        announce: Callable[[Notice], None] = _unheard,
    ) -> Iterator[Event | Sampled]:
        """Train, and write metrics, samples and checkpoints into the folder.

        Args:
            resume: go on from the last checkpoint, if there is one; the bits at the end are those
                of a run that was never interrupted (on the CPU, with the same version of torch).
            stop: asked before every step; True saves and ends.
            settings: train with these from now on, such as more steps; None: as recorded.
            text: where the text is now, when it is no longer where it was.
            offline: never download a corpus.
            progress: is told how far the text is prepared (bytes done, of all).
            announce: is told before anything is downloaded.

        Yields:
            What happens, the samples among it; the last is a Finished.

        Raises:
            RunError: another process trains here, the run has begun already (without `resume`), or
                the text is not the one that it learns.
            PartwiseError: see `training.loop.train`.
        """
        with lock(self.path / ".lock"):
            for folder in (self.path, self.path / SAMPLES):
                sweep(folder)
            begun = any((self.path / "checkpoints").glob("step-*"))
            if begun and not resume:
                raise RunError(
                    "{run} has checkpoints already; go on with: partwise resume {run}, or train "
                    "under another name",
                    run=self.path,
                )
            prepared = self.prepared or prepare_again(
                self.record,
                self.tokenizer(),
                run=self.path,
                text=text,
                cache=cache_folder(),
                offline=offline,
                progress=progress,
                announce=announce,
            )
            if settings is not None and settings != self.record.train:
                check_ends(settings)
                pick_device(settings.device)
                self.record = dataclasses.replace(self.record, train=settings)
                write_record(self.path, self.record)
            if not begun:
                yield from map(Said, prepared.summary)
            model, config = self._new_model(), self.record.train
            yield from train_in(
                self.path,
                self.record,
                model,
                text_data(self.record, prepared),
                resume=resume,
                stop=stop,
                settle=self._settle,
                sample=partial(sample_text, self.path, model, prepared.tokenizer, config)
                if config.sample_chars
                else None,
            )

    def model(self, which: Which = "best", device: str = "cpu") -> GPT:
        """The trained model, ready to write: its averaged weights where a mean was kept.

        Args:
            which: "best" by validation loss, or "last"; the last when nothing was evaluated yet.
            device: where to put it (see `pick_device`).

        Raises:
            RunError: there is no checkpoint yet.
            StorageError: it is damaged.
        """
        if which == "best" and not (self.path / "checkpoints" / "best.json").exists():
            which = "last"
        weights = weights_to_use(self.path, which)
        model = GPT(self.record.model)
        load_weights(model, weights)
        return model.to(pick_device(device)).eval()

    def tokenizer(self) -> Tokenizer:
        """The tokenizer that the model was trained with.

        Raises:
            RunError: it is another one than the run was created with.
            StorageError, TextError: it is missing or damaged.
        """
        path = self.path / TOKENIZER
        tokenizer = load_tokenizer(path)
        if tokenizer.fingerprint != self.record.text.tokenizer_fingerprint:
            raise RunError(
                "{path} is the tokenizer {found} ({found_mark}) and the run was trained with "
                "{wanted} ({wanted_mark}); bring it back from a copy",
                path=path,
                found=tokenizer.name,
                found_mark=tokenizer.fingerprint[:8],
                wanted=self.record.text.tokenizer,
                wanted_mark=self.record.text.tokenizer_fingerprint[:8],
            )
        return tokenizer

    def metrics(self) -> list[dict[str, Any]]:
        """The events of `metrics.jsonl`, oldest first."""
        return list(read_metrics(self.path / METRICS))

    def _settle(self, chosen: Resolved) -> None:
        self.record = dataclasses.replace(self.record, resolved=chosen)
        write_record(self.path, self.record)

    def _new_model(self) -> GPT:
        """The model before its first step."""
        torch.manual_seed(self.record.train.seed)
        model = GPT(self.record.model)
        initial = self.path / INITIAL
        if initial.exists():
            load_weights(model, read_tensors(initial))
        return model


def _refuse_taken(path: Path) -> None:
    if path.exists():
        raise RunError(
            "{path} exists already; go on with: partwise resume {path}, or give another --name",
            path=path,
        )


def _free_place(root: Path, text_name: str) -> Path:
    """The first of novel-2026-11-29, novel-2026-11-29-2, … that is not taken."""
    base = cleaned(f"{text_name[:40]}-{date.today().isoformat()}")
    number, path = 1, root / base
    while path.exists():
        number += 1
        path = root / f"{base}-{number}"
    return path


def _versions() -> dict[str, Any]:
    packages = ("torch", "numpy", "safetensors", "tokenizers")
    versions = {package: str(version_of(package)) for package in packages}
    return {"partwise": partwise.__version__, "python": platform.python_version(), **versions}


def _machine() -> dict[str, Any]:
    """The machine without what stands among the versions."""
    known = {name: value for name, value in describe().items() if value is not None}
    return {name: value for name, value in known.items() if name not in _versions()}
