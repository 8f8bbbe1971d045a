"""What a ladder measures without training a rung: times, silenced parts, deep stacks, the race."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from partwise.ladder import depth
from partwise.ladder.deep import to_plain
from partwise.ladder.figures import ready, whole_loss
from partwise.ladder.jobs import Job
from partwise.ladder.knockout import knock_out
from partwise.ladder.place import Place
from partwise.model.gpt import GPT
from partwise.run import Run
from partwise.storage import cache_folder
from partwise.text.batches import Batches, windows
from partwise.text.config import DataConfig
from partwise.text.prepare import Prepared, prepare
from partwise.training.data import Data
from partwise.training.events import Evaluated, Stepped
from partwise.training.loop import train

Stop = Callable[[], bool]
Message = dict[str, Any]

# Steps that an estimate of the time takes; the first ones, slower than all others, do not count.
TIMED_STEPS, UNCOUNTED_STEPS, TIMED_TOKENS = 5, 2, 8192


def time_steps(job: Job, place: Place, stop: Stop) -> Iterator[Message]:
    """A few steps and a piece of an evaluation, for an estimate of the whole."""
    prepared = _prepared(place)
    model_config = dataclasses.replace(job.model, vocab_size=prepared.tokenizer.vocab_size)
    config = dataclasses.replace(
        job.train,
        steps=TIMED_STEPS,
        eval_every=TIMED_STEPS,
        eval_tokens=TIMED_TOKENS,
        log_every=1,
        sample_chars=0,
        tensorboard=False,
        wandb=None,
    )
    context = model_config.context_length
    batches = Batches(prepared.train, context, config.batch_size, config.seed)
    data = Data(batches, prepared.validation, windows, len(prepared.train))
    ends: list[float] = []
    evaluation = 0.0
    for event in train(GPT(model_config), data, config, stop=stop):
        if isinstance(event, Stepped) and event.logged:
            ends.append(event.seconds)
        elif isinstance(event, Evaluated):
            evaluation = event.seconds - ends[-1]
    if len(ends) <= UNCOUNTED_STEPS:
        yield {"kind": "interrupted"}
        return
    step = (ends[-1] - ends[UNCOUNTED_STEPS - 1]) / (len(ends) - UNCOUNTED_STEPS)
    whole = evaluation * max(1.0, len(prepared.validation) / TIMED_TOKENS)
    yield {"kind": "timed", "step": step, "evaluation": whole}
    yield {"kind": "done"}


def silence(job: Job, place: Place, stop: Stop) -> Iterator[Message]:
    """A trained run with each part silenced in turn."""
    if job.train.threads is not None:
        torch.set_num_threads(job.train.threads)
    prepared = _prepared(place)
    run = Run.open(Path(place.folder) / "runs" / job.run)
    model, objective = ready(run)

    def loss() -> float:
        return whole_loss(model, prepared.validation, objective)

    whole = loss()
    for part, found in knock_out(model, loss):
        yield {"kind": "silenced", "part": part, "val_loss": found, "difference": found - whole}
        if stop():
            yield {"kind": "interrupted"}
            return
    yield {"kind": "done"}


def measure_stacks(place: Place, stop: Stop) -> Iterator[Message]:
    """Deep stacks at initialisation, reading texts of the corpus."""
    torch.set_num_threads(1)
    prepared = _prepared(place)
    base = dataclasses.replace(depth.STACK, vocab_size=prepared.tokenizer.vocab_size)
    inputs, targets = Batches(prepared.train, base.context_length, depth.TEXTS, 1).batch(0)
    ids = torch.from_numpy(np.concatenate([inputs, targets[:, -1:]], axis=1))
    for found in depth.stacks(base=base, ids=ids):
        yield {"kind": "stack", "stack": to_plain(found)}
        if stop():
            yield {"kind": "interrupted"}
            return
    yield {"kind": "done"}


def race_one(task: Message, place: Place, stop: Stop) -> Iterator[Message]:
    """One short training of a deep stack.

    Args:
        task: its `norm` and `initialisation`.
    """
    prepared = _prepared(place)

    def data(context_length: int, batch_size: int, seed: int) -> Data:
        batches = Batches(prepared.train, context_length, batch_size, seed)
        return Data(batches, prepared.validation, windows, len(prepared.train))

    base = dataclasses.replace(depth.RACER, vocab_size=prepared.tokenizer.vocab_size)
    raced = depth.racer(task["norm"], task["initialisation"], data, base=base, stop=stop)
    if stop():
        yield {"kind": "interrupted"}
        return
    yield {"kind": "racer", "racer": to_plain(raced)}
    yield {"kind": "done"}


def _prepared(place: Place) -> Prepared:
    return prepare(place.text, DataConfig(), cache=cache_folder(), offline=place.offline)
