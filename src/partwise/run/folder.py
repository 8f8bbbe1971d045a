"""A run: one folder that holds all of a model's life, and can be moved."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from partwise.errors import RunError
from partwise.interop.origin import files_of_origin
from partwise.machine import git_state, pick_device
from partwise.messages import Notice
from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT
from partwise.model.lora import add_lora, merge_lora
from partwise.model.lora_config import LoraConfig
from partwise.run.beginning import Beginning, fingerprint, require_known
from partwise.run.kept import TOKENIZER, kept_tokenizer, kept_weights
from partwise.run.places import (
    free_place,
    refuse_taken,
    require_memory,
    require_place,
    this_machine,
    versions,
)
from partwise.run.record import Ancestor, Record, Resolved, read_record, write_record
from partwise.run.text import absolute, prepare_again, text_record
from partwise.run.training import METRICS, SAMPLES, Sampled, sample_text, text_data, train_in
from partwise.storage import (
    cache_folder,
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
from partwise.text.tokenizers import Tokenizer
from partwise.text.turns import in_turn
from partwise.training.checkpoint import Which, load_weights, weights_of
from partwise.training.config import TrainConfig
from partwise.training.evaluate import never
from partwise.training.events import Event, Said
from partwise.training.listeners import read_metrics
from partwise.training.plan import check_ends, check_parts

INITIAL = "initial.safetensors"
ORIGIN = "origin"


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
        lora: LoraConfig | None = None,
        offline: bool = False,
        begin: "Run | Beginning | None" = None,
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
            model: the model; its vocab_size becomes the tokenizer's, or that of `begin`.
            train: the training.
            data: tokenizer and split.
            lora: train additions of low rank in place of the weights of `begin`.
            offline: never download a corpus.
            begin: start from these weights (of a run, the best), and cut the text with their
                tokenizer.
            prepared: the text, when `prepare` gave it already.
            cache: folder for prepared texts; None: `cache_folder()`.
            progress: is told how far the text is prepared (bytes done, of all).
            announce: is told before anything is downloaded.

        Raises:
            PartwiseError: a setting, the text or the name cannot be used, or the name is taken;
                nothing is written then.
        """
        root = Path(root)
        require_place(name, root)
        check_ends(train)
        check_parts(train, model)
        pick_device(train.device)
        data = dataclasses.replace(data, validation=absolute(data.validation))
        first = begin.beginning() if isinstance(begin, Run) else begin
        lora = lora or LoraConfig()
        if lora.on and first is None:
            raise RunError(
                "LoRA adds to a trained model, and rank={rank} names none; begin with one (--from)",
                rank=lora.rank,
            )
        prepared = prepared or prepare(
            text,
            data,
            cache=cache or cache_folder(),
            tokenizer=None if first is None else first.tokenizer,
            offline=offline,
            progress=progress,
            announce=announce,
        )
        known = prepared.tokenizer if first is None else first.model
        model = dataclasses.replace(model, vocab_size=known.vocab_size)
        prepared.require_tokens(model.context_length)
        require_memory(model)
        weights = None if first is None else first.weights_for(model)
        if first is not None and data.unknown == "refuse":
            require_known(prepared)
        if lora.on:
            with torch.device("meta"):
                add_lora(GPT(model), lora)
        record = Record(
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            text=text_record(text, prepared),
            model=model,
            train=train,
            data=data,
            resolved=None,
            versions=versions(),
            machine=this_machine(),
            git=git_state(),
            lora=lora,
            ancestor=None if first is None else first.ancestor,
        )
        # In turn, so that two that start at once get two names, and what a killed one left is
        # known to be nobody's.
        with in_turn(root / ".lock"):
            sweep(root)
            path = free_place(root, prepared.name) if name is None else root / safe_name(name)
            refuse_taken(path)
            with write_folder(path, over=False) as folder:
                if first is not None and weights is not None:
                    mark = write_tensors(folder / INITIAL, weights)
                    ancestor = dataclasses.replace(first.ancestor, initial=mark)
                    record = dataclasses.replace(record, ancestor=ancestor)
                    write_origin(folder, first.files)
                write_record(folder, record)
                write_atomic(folder / TOKENIZER, prepared.tokenizer.to_json().encode("utf-8"))
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
        if self.record.imported:
            raise RunError(
                "{run} was imported and has no text of its own; train it on one with: partwise "
                "train TEXT --from {run}",
                run=self.path,
            )
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
            prepared = self.prepared or self.reopen_text(
                text, offline=offline, progress=progress, announce=announce
            )
            if settings is not None and settings != self.record.train:
                check_ends(settings)
                check_parts(settings, self.record.model)
                pick_device(settings.device)
                self.record = dataclasses.replace(self.record, train=settings)
                write_record(self.path, self.record)
            if not begun:
                yield from map(Said, prepared.summary)
            model, config = self._new_model(begun), self.record.train
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

    def reopen_text(
        self,
        text: str | None = None,
        *,
        cache: Path | None = None,
        offline: bool = False,
        progress: Progress | None = None,
        announce: Callable[[Notice], None] = _unheard,
    ) -> Prepared:
        """The text that the run learns, once more: from the cache, or prepared anew.

        Args:
            text: where it is now; None: where it was.
            cache: folder for prepared texts; None: the user's.
            offline, progress, announce: see `train`.

        Raises:
            RunError: it is gone, or is no longer the one that the run learns.
        """
        return prepare_again(
            self.record,
            self.tokenizer(),
            run=self.path,
            text=text,
            cache=cache or cache_folder(),
            offline=offline,
            progress=progress,
            announce=announce,
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
        model = GPT(self.record.model)
        load_weights(model, self.weights(which))
        return model.to(pick_device(device)).eval()

    def weights(self, which: Which = "best") -> dict[str, Tensor]:
        """The weights that `model` has, by name, in the number format that they are stored in.

        What LoRA trained is in them, each addition put into its matrix.

        Args:
            which: "best" by validation loss, or "last"; the last when nothing was evaluated yet.

        Raises:
            RunError: there is no checkpoint yet.
            StorageError: it is damaged.
        """
        weights = kept_weights(self.path, which)
        if not self.record.lora.on:
            return weights
        model = self._new_model()
        load_weights(model, weights)
        merge_lora(model)
        return weights_of(model)

    def beginning(self) -> Beginning:
        """This run's best weights, its tokenizer and its settings, for another run to begin with.

        Raises:
            RunError, StorageError, TextError: it has no whole checkpoint, or no tokenizer.
        """
        weights, before = self.weights(), self.record.ancestor
        best = [line["best_step"] for line in self.metrics() if line.get("best_step") is not None]
        return Beginning(
            name=str(self.path),
            model=self.record.model,
            weights=weights,
            tokenizer=self.tokenizer(),
            train=None if self.record.imported else self.record.train,
            ancestor=Ancestor(
                kind="run",
                path=str(self.path.absolute()),
                step=best[-1] if best else 0,
                text=self.record.text.name,
                weights=fingerprint(weights),
                origin="" if before is None else before.origin,
            ),
            files=self.origin(),
        )

    def origin(self) -> dict[str, bytes]:
        """The small files of the imported model that this run goes back to, by name; else none."""
        folder = self.path / ORIGIN
        return files_of_origin(folder) if folder.is_dir() else {}

    def tokenizer(self) -> Tokenizer:
        """The tokenizer that the model was trained with.

        Raises:
            RunError: it is another one than the run was created with.
            StorageError, TextError: it is missing or damaged.
        """
        return kept_tokenizer(self.path, self.record.text)

    def metrics(self) -> list[dict[str, Any]]:
        """The events of `metrics.jsonl`, oldest first."""
        return list(read_metrics(self.path / METRICS))

    def _settle(self, chosen: Resolved) -> None:
        self.record = dataclasses.replace(self.record, resolved=chosen)
        write_record(self.path, self.record)

    def _new_model(self, begun: bool = False) -> GPT:
        """The model before its first step.

        Args:
            begun: a checkpoint's weights follow, so that those it began with may be gone.

        Raises:
            StorageError: the weights that it began with are gone, torn or others.
        """
        torch.manual_seed(self.record.train.seed)
        model = GPT(self.record.model)
        before, initial = self.record.ancestor, self.path / INITIAL
        spared = begun and not self.record.lora.on and not initial.exists()
        if before is not None and not spared:
            load_weights(model, read_tensors(initial, before.initial or None))
        if self.record.lora.on:
            add_lora(model, self.record.lora)
        return model


def write_origin(folder: Path, files: Mapping[str, bytes]) -> None:
    """Keep the small files of an imported model in a run folder."""
    if files:
        (folder / ORIGIN).mkdir()
    for name, data in files.items():
        write_atomic(folder / ORIGIN / name, data)
