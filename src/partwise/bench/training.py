"""Training speed: the product's own loop on ready-made tokens, evaluation and saving left out."""

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from partwise.bench.cases import Case
from partwise.budget.recipes import recipe
from partwise.budget.speed import RandomText
from partwise.messages import Notice
from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT
from partwise.training.config import Precision, TrainConfig
from partwise.training.data import Batch, Data
from partwise.training.events import Stepped
from partwise.training.loop import train

# The first steps warm caches and allocators up and are not counted.
WARM_UP = 5


def training_cases(seconds: float) -> list[Case]:
    """Tokens a second of the `small` recipe, in each precision and by a loop written out.

    Args:
        seconds: length of one measurement.
    """
    small = recipe("small")
    # Equal work: the loop written out knows AdamW alone.
    model, settings = small.model, replace(small.train, optimizer="adamw")

    def speed(dtype: Precision) -> float:
        return tokens_per_second(model, replace(settings, dtype=dtype), seconds)

    def recipe_speed() -> float:
        return tokens_per_second(model, small.train, seconds)

    return [
        Case(
            "training",
            Notice("small with AdamW, a plain loop of torch, float32"),
            "tokens/s",
            lambda: plain_loop(model, settings, seconds),
            baseline=True,
        ),
        Case("training", Notice("small with AdamW, float32"), "tokens/s", lambda: speed("float32")),
        Case(
            "training", Notice("small with AdamW, bfloat16"), "tokens/s", lambda: speed("bfloat16")
        ),
        Case(
            "training", Notice("small as its recipe trains it, with Muon"), "tokens/s", recipe_speed
        ),
    ]


def tokens_per_second(model: ModelConfig, settings: TrainConfig, seconds: float) -> float:
    """Speed of the product's training loop, from the end of its warm-up on.

    Args:
        model: the model; its weights start at random.
        settings: the training; its limits, evaluations and log lines do not count here.
        seconds: time to measure for.
    """
    torch.manual_seed(settings.seed)
    text = RandomText(model, settings.batch_size)
    data = Data(text, np.zeros(2, np.int64), no_windows, train_tokens=1 << 30)
    config = replace(
        settings,
        steps=1 << 30,
        schedule="constant",
        compile="off",
        log_every=1,
        eval_every=1 << 30,
        checkpoint_every=1 << 30,
    )
    first: Stepped | None = None
    events = train(GPT(model), data, config)
    for event in events:
        if not isinstance(event, Stepped) or event.step < WARM_UP:
            continue
        if first is None:
            first = event
        elif event.seconds - first.seconds >= seconds:
            events.close()
            return (event.tokens - first.tokens) / (event.seconds - first.seconds)
    raise AssertionError("the loop has no end of its own here")


def plain_loop(model: ModelConfig, settings: TrainConfig, seconds: float) -> float:
    """Speed of the loop that a lecture would write: forward, backward, clip, AdamW."""
    torch.manual_seed(settings.seed)
    gpt = GPT(model)
    optimizer = torch.optim.AdamW(gpt.parameters(), lr=settings.lr)
    text = RandomText(model, settings.batch_size)
    began, step = 0.0, 0
    while True:
        if step == WARM_UP:
            began = time.perf_counter()
        inputs, targets = (torch.from_numpy(part) for part in text.batch(step))
        logits = gpt(inputs)  # (B, T, vocab_size)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(gpt.parameters(), 1.0)
        optimizer.step()
        step += 1
        spent = time.perf_counter() - began
        if step > WARM_UP and spent >= seconds:
            tokens = (step - WARM_UP) * text.batch_size * text.context_length
            return tokens / spent


def no_windows(
    view: object, context_length: int, batch_size: int, limit: int | None = None
) -> Iterator[Batch]:
    """The smallest evaluation there is: two tokens, one prediction."""
    yield np.zeros((1, 1), np.int64), np.zeros((1, 1), np.int64)
