"""Small things to train, and what stands in for the clock."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT
from partwise.text.batches import Batches, windows
from partwise.training.config import TrainConfig
from partwise.training.data import Batch, Data, one_by_one
from partwise.training.events import Event
from partwise.training.loop import train

CONTEXT = 8
ROWS = 4

MODEL = ModelConfig(
    vocab_size=16,
    context_length=CONTEXT,
    n_layers=2,
    d_model=8,
    n_heads=2,
    dropout=0.2,
    initialisation="torch",
)
CONFIG = TrainConfig(
    steps=12,
    batch_size=ROWS,
    warmup_steps=3,
    eval_every=4,
    log_every=3,
    dtype="float32",
    compile="off",
)


class View:
    """Tokens in memory."""

    unit = "characters"

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids = np.asarray(ids, dtype=np.uint8)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, part: slice) -> Any:
        return self.ids[part]

    def rows(self, starts: Any, length: int) -> Any:
        return self.ids[starts[:, None] + np.arange(length)]


class Clock:
    """Time that passes only when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def tokens(count: int, seed: int = 0) -> View:
    """A text in which each token narrows the next one down to three."""
    random = np.random.default_rng(seed)
    ids = [0]
    for jump in random.integers(0, 3, count - 1):
        ids.append((3 * ids[-1] + int(jump)) % MODEL.vocab_size)
    return View(ids)


def data(
    config: TrainConfig = CONFIG,
    *,
    clock: Clock | None = None,
    step_seconds: float = 0.0,
    batch_seconds: float = 0.0,
    validation: View | None = None,
) -> Data:
    """A text to train on; drawing a training or a validation batch lets time pass."""
    text = tokens(400)

    def ahead(batches: Any, start: int) -> Iterator[Batch]:
        for batch in one_by_one(batches, start):
            if clock is not None:
                clock.now += step_seconds
            yield batch

    def timed_windows(*args: Any, **kwargs: Any) -> Iterator[Batch]:
        for batch in windows(*args, **kwargs):
            if clock is not None:
                clock.now += batch_seconds
            yield batch

    return Data(
        train=Batches(text, CONTEXT, config.batch_size, config.seed),
        validation=validation or tokens(75, seed=1),
        windows=timed_windows,
        train_tokens=len(text),
        ahead=ahead,
    )


def new_model(model: ModelConfig = MODEL, seed: int = 1) -> GPT:
    """A model whose weights follow from the seed."""
    torch.manual_seed(seed)
    return GPT(model)


def run(
    config: TrainConfig = CONFIG,
    *,
    model: GPT | None = None,
    folder: Path | None = None,
    resume: bool = False,
    stop: Callable[[], bool] = lambda: False,
    **changes: Any,
) -> tuple[GPT, list[Event]]:
    """Train to the end, with `changes` to the settings."""
    config = replace(config, **changes)
    model = model or new_model()
    events = list(train(model, data(config), config, folder=folder, resume=resume, stop=stop))
    return model, events


def equal(first: torch.nn.Module, second: torch.nn.Module) -> bool:
    """Whether two models hold the same bits."""
    mine, other = first.state_dict(), second.state_dict()
    return mine.keys() == other.keys() and all(torch.equal(mine[k], other[k]) for k in mine)


def of(kind: type[Any], events: list[Event]) -> list[Any]:
    """The events of one kind."""
    return [event for event in events if isinstance(event, kind)]
