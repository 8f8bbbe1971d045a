"""A run as a folder that other programs open, with a card that says what it learned."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import partwise
from partwise.interop.card import Card, written
from partwise.interop.elsewhere import accepted, notices_on
from partwise.interop.origin import is_legal, licence_details, licence_of
from partwise.interop.writer import Outgoing, write_model
from partwise.messages import Notice, message
from partwise.model.parameters import count_parameters
from partwise.run.folder import Run
from partwise.run.listing import find
from partwise.text.byte import ByteTokenizer
from partwise.text.char import CharTokenizer
from partwise.training.checkpoint import Which


@dataclass(frozen=True)
class Exported:
    """What was written.

    Args:
        folder: where.
        form: the model type that it is written as.
        parameters: numbers in the model.
        notices: what other programs make of it.
    """

    folder: Path
    form: str
    parameters: int
    notices: tuple[Notice, ...]


def export_run(
    run: Run | Path | str, folder: Path | str, *, which: Which = "best", licence: str | None = None
) -> Exported:
    """Write a run's model as a folder that `transformers` opens, with equal logits and tokens.

    Args:
        run: the run, its folder, or its name in `runs`.
        folder: where it appears; nothing may be there.
        which: its best weights by validation loss, or the last ones.
        licence: the licence that the card names; None: that of the imported model, or none.

    Raises:
        InteropError: the model fits no form of other programs, or the folder is there already.
        RunError: there is no checkpoint yet.
        StorageError: the folder cannot be written; nothing is left then.
    """
    folder = Path(folder).expanduser()
    if not isinstance(run, Run):
        run = Run.open(find(run))
    record, files = run.record, run.origin()
    out = Outgoing(
        name=str(run.path),
        model=record.model,
        weights={},
        tokenizer=run.tokenizer(),
        files=files,
    )
    # Refused before the weights are read, which may take a while.
    form = out.form
    notices = (
        *notices_on(form, record.model),
        accepted(out.tokenizer, imported=_as_it_came(run)),
    )
    parameters = count_parameters(record.model)
    card = Card(
        title=run.name,
        model_type=form.model_type,
        licence=licence or licence_of(files) or "unknown",
        details={} if licence else licence_details(files),
        base="" if record.ancestor is None else record.ancestor.origin,
        sizes={
            message("parameters"): f"{parameters:,}",
            message("layers"): record.model.n_layers,
            message("width"): record.model.d_model,
            message("heads"): record.model.n_heads,
            message("context (tokens)"): f"{record.model.context_length:,}",
            message("vocabulary"): f"{record.model.vocab_size:,} ({out.tokenizer.name})",
        },
        training={} if record.imported else _training(run, which),
        notices=[*notices],
        legal=[name for name in files if is_legal(name)],
        version=partwise.__version__,
    )
    write_model(
        folder,
        Outgoing(out.name, out.model, run.weights(which), out.tokenizer, files),
        written(card),
    )
    return Exported(folder, form.model_type, parameters, notices)


def _as_it_came(run: Run) -> bool:
    """Whether the tokenizer came with a model that was made elsewhere; these two are ours."""
    if isinstance(run.tokenizer(), CharTokenizer | ByteTokenizer):
        return False
    return run.record.ancestor is not None and run.record.ancestor.origin != ""


def _training(run: Run, which: Which) -> dict[str, object]:
    """What the card says of a training: the text, its size, how long, and the loss."""
    record = run.record
    rows: dict[str, object] = {
        message("text"): record.text.name,
        message("tokens to learn from"): f"{record.text.train_tokens:,}",
        message("SHA-256 of the text"): record.text.fingerprint,
    }
    judged: dict[str, Any] = next((m for m in reversed(run.metrics()) if "val_loss" in m), {})
    loss, step = judged.get("best_val_loss"), judged.get("best_step")
    if which == "last":
        loss, step = judged.get("val_loss"), judged.get("step")
    if loss is not None:
        rows[message("validation loss")] = message(
            "{loss:.4f} nats a token, at step {step:,}", loss=loss, step=step
        )
    ancestor = record.ancestor
    if ancestor is not None:
        learned = message("a model that had learned {text}", text=ancestor.text)
        rows[message("began with")] = ancestor.origin or learned
    if record.lora.on:
        rows["LoRA"] = message(
            "rank {rank}, alpha {alpha:g}, merged into the weights",
            rank=record.lora.rank,
            alpha=record.lora.alpha,
        )
    return rows
