"""What the `run.toml` of a translator says: as a run's, with pairs in place of a text."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from partwise.model.config import ModelConfig
from partwise.model.seq2seq_config import Seq2SeqConfig
from partwise.run.record import (
    TRANSLATION,
    Resolved,
    common,
    damaged,
    filled,
    read_tables,
    write_tables,
)
from partwise.settings import build
from partwise.text.pair_config import PairConfig
from partwise.training.config import TrainConfig


@dataclass(frozen=True)
class PairsRecord:
    """The pairs that a translator learns.

    Args:
        asked: as the user named them.
        spec: opens the same pairs from any folder; only training needs it.
        name: short name.
        fingerprint: SHA-256 of all pairs.
        tokenizer: name of the tokenizer.
        tokenizer_fingerprint: its fingerprint.
        train_pairs: pairs to learn from.
        validation_pairs: pairs to choose the best weights by.
        test_pairs: pairs to score by; they stand in the run folder.
        parameters: numbers in the model.
        test_mark: SHA-256 of the file that holds those to score by; empty in runs that were made
            before it was written down.
    """

    asked: str
    spec: str
    name: str
    fingerprint: str
    tokenizer: str
    tokenizer_fingerprint: str
    train_pairs: int
    validation_pairs: int
    test_pairs: int
    parameters: int
    test_mark: str = ""


@dataclass(frozen=True)
class TranslationRecord:
    """All of a translator's `run.toml`.

    Args:
        created: date and time (ISO 8601, UTC).
        text: the pairs and the tokenizer.
        model: an encoder-decoder, or a decoder alone.
        train, data: the settings.
        resolved: what was chosen; None before the first step.
        versions: of Partwise and what it stands on.
        machine: where the run was created.
        git: commit of the folder in which it was created, if it was a repository.
    """

    created: str
    text: PairsRecord
    model: Seq2SeqConfig | ModelConfig
    train: TrainConfig
    data: PairConfig
    resolved: Resolved | None
    versions: Mapping[str, Any]
    machine: Mapping[str, Any]
    git: Mapping[str, Any]


def write_translation(folder: Path, record: TranslationRecord) -> None:
    """Write `run.toml` into `folder`.

    Raises:
        StorageError: the disk is full, or the folder may not be written to.
    """
    write_tables(folder, TRANSLATION, record, {})


def read_translation(folder: Path) -> TranslationRecord:
    """What `run.toml` in `folder` says.

    Raises:
        RunError: there is none, it is not a translator's, is damaged, or is of a newer format.
    """
    tables = read_tables(folder, TRANSLATION)
    with damaged(folder):
        two = "n_encoder_layers" in tables["model"]
        return TranslationRecord(
            text=filled(PairsRecord, tables["text"]),
            model=build(Seq2SeqConfig, tables["model"])
            if two
            else build(ModelConfig, tables["model"]),
            data=build(PairConfig, tables["data"]),
            **common(tables),
        )
