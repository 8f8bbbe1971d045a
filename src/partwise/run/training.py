"""Training inside a run folder: what is settled once, what is written down, what is sampled."""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import torch
from torch import nn

from partwise.errors import ConfigError
from partwise.machine import cores, pick_device, pick_precision
from partwise.messages import Notice
from partwise.model.gpt import GPT
from partwise.run.record import Record, Resolved
from partwise.sampling.config import SampleConfig
from partwise.sampling.generate import complete
from partwise.settings import build
from partwise.storage import write_atomic
from partwise.storage.faults import writing
from partwise.text.batches import Batches, ahead, windows
from partwise.text.prepare import Prepared
from partwise.text.tokenizers import Tokenizer
from partwise.training.config import TrainConfig
from partwise.training.data import Data
from partwise.training.events import Evaluated, Event, Said, Started
from partwise.training.listeners import JsonLines, Listener, TensorBoard, WandB
from partwise.training.loop import train

METRICS = "metrics.jsonl"
SAMPLES = "samples"


@dataclass(frozen=True)
class Sampled:
    """A text was sampled along the way.

    Args:
        step: steps done.
        text: what the model wrote.
        path: the file that holds it.
    """

    step: int
    text: str
    path: Path


class Settled(Protocol):
    """What the record of a run says of its training."""

    @property
    def train(self) -> TrainConfig:
        """As it was asked for."""

    @property
    def resolved(self) -> Resolved | None:
        """What was chosen where that says "auto"; None before the first step."""


def train_in(
    folder: Path,
    record: Settled,
    model: nn.Module,
    data: Data,
    *,
    resume: bool,
    stop: Callable[[], bool],
    settle: Callable[[Resolved], None],
    sample: Callable[[int], Sampled] | None,
) -> Iterator[Event | Sampled]:
    """Train `model`, and write metrics, samples and checkpoints into `folder`.

    Args:
        folder: the run folder, whose lock the caller holds.
        record: what it says.
        model: before its first step.
        data: what it learns, and what it is judged by.
        resume: go on from the last checkpoint, if there is one.
        stop: asked before every step; True saves and ends.
        settle: is given what was chosen, if the record does not say it yet.
        sample: lets the model write at a step that was evaluated; None: it does not.

    Yields:
        What happens, the samples among it; the last is a Finished.
    """
    config, notices, said = _settled(record)
    yield from map(Said, notices)
    listeners = _listeners(folder, config)
    events = train(model, data, config, folder=folder, resume=resume, stop=stop)
    try:
        # Closed with us, so that whoever stops listening also ends the training.
        with closing(events):
            for event in events:
                if event == said:
                    continue
                if isinstance(event, Started):
                    _forget_samples(folder, event.step)
                    chosen = _chosen(event)
                    if chosen != record.resolved:
                        settle(chosen)
                for listener in listeners:
                    listener(event)
                yield event
                if isinstance(event, Evaluated) and sample is not None:
                    yield sample(event.step)
    finally:
        for listener in listeners:
            listener.close()


def _settled(record: Settled) -> tuple[TrainConfig, list[Notice], Said | None]:
    """The training, with the choices of its beginning wherever the settings leave them open.

    Returns:
        The settings, what to tell the user, and what the training would say of its own that is not
        true of a choice that was made earlier.
    """
    asked, before = record.train, record.resolved
    if before is None:
        threads = asked.threads or min(torch.get_num_threads(), cores())
        return dataclasses.replace(asked, threads=threads), [], None
    notices = []
    device = before.device if asked.device == "auto" else asked.device
    try:
        pick_device(device)
    except ConfigError:
        gone, device = device, str(pick_device("auto"))
        notices.append(
            Notice(
                "this run was trained on {before}, which is not here; it goes on on {device}, and "
                "will end in other bits than it would have there",
                before=gone,
                device=device,
            )
        )
    open_choices = {
        "device": device,
        "dtype": before.dtype if asked.dtype == "auto" else asked.dtype,
        "compile": ("on" if before.compiled else "off")
        if asked.compile == "auto"
        else asked.compile,
        "threads": asked.threads or before.threads,
    }
    config = build(TrainConfig, open_choices, asked)
    if asked.dtype != "auto":
        return config, notices, None
    return config, notices, Said(pick_precision(config.dtype, pick_device(device))[1])


def _chosen(event: Started) -> Resolved:
    return Resolved(
        device=event.device,
        dtype=event.dtype,
        compiled=event.compiled,
        threads=event.threads,
    )


def _forget_samples(folder: Path, step: int) -> None:
    """Take away the samples of steps that are trained again."""
    for sample in (folder / SAMPLES).glob("step-*.txt"):
        number = sample.stem.removeprefix("step-")
        if number.isdecimal() and int(number) > step:
            with writing(sample):
                sample.unlink()


def text_data(record: Record, prepared: Prepared) -> Data:
    """The text of a run in batches."""
    context = record.model.context_length
    return Data(
        train=Batches(
            prepared.train,
            context,
            record.train.batch_size,
            record.train.seed,
            record.train.order,
        ),
        validation=prepared.validation,
        windows=windows,
        train_tokens=len(prepared.train),
        ahead=partial(ahead, workers=record.data.workers),
    )


def _listeners(folder: Path, config: TrainConfig) -> list[Listener]:
    listeners: list[Listener] = [JsonLines(folder / METRICS)]
    if config.tensorboard:
        listeners.append(TensorBoard(folder / "tensorboard"))
    if config.wandb is not None:
        listeners.append(WandB(config.wandb, folder.absolute().name, dataclasses.asdict(config)))
    return listeners


def sample_text(
    folder: Path, model: GPT, tokenizer: Tokenizer, config: TrainConfig, step: int
) -> Sampled:
    """Let the model write, always with the same luck, so that samples can be compared."""
    drawn = SampleConfig(chars=config.sample_chars, seed=config.seed)
    (text,) = complete(model, tokenizer, "", drawn)
    return keep_sample(folder, step, text)


def keep_sample(folder: Path, step: int, text: str) -> Sampled:
    """Write down what the model wrote."""
    path = folder / SAMPLES / f"step-{step:06d}.txt"
    write_atomic(path, text.encode("utf-8", "replace"))
    return Sampled(step, text, path)
