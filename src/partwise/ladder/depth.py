"""Why residuals and norms: what a deep stack does to gradients and tokens before any training.

A stack of N blocks reads a text once and is asked for the gradient of its loss. By layer we note
how large the gradient of the block's output is, how alike the tokens have become, and how much each
block adds beside the stream that it adds to. `race` then trains a deep pre-norm and a deep
post-norm stack for a moment.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from partwise.ladder.deep import (
    RACE_INITIALISATIONS,
    RACE_NORMS,
    STACK_NORMS,
    Racer,
    Stack,
    StackNorm,
)
from partwise.model.config import Initialisation, ModelConfig
from partwise.model.gpt import GPT
from partwise.training.config import TrainConfig
from partwise.training.data import Data
from partwise.training.evaluate import never
from partwise.training.events import Finished, Stepped
from partwise.training.loop import train

# 96 blocks as in GPT-3, narrow enough that every combination takes a second on one core.
STACK = ModelConfig(
    context_length=32,
    n_layers=96,
    d_model=32,
    n_heads=4,
    feedforward="relu",
    tie_embeddings=False,
    initialisation="fan_in",
)


# Texts that a stack reads.
TEXTS = 4

# Half as deep, for the race: 48 blocks that are trained for 120 steps.
RACER = dataclasses.replace(STACK, n_layers=48)


def stack_config(
    residual: bool, norm: StackNorm, initialisation: Initialisation, base: ModelConfig = STACK
) -> ModelConfig:
    """`base` with the three switches set; without norms the final norm goes too."""
    return dataclasses.replace(
        base,
        residual=residual,
        norm="none" if norm == "none" else "layernorm",
        norm_placement="pre" if norm == "none" else norm,
        initialisation=initialisation,
    )


def stack(
    residual: bool,
    norm: StackNorm,
    initialisation: Initialisation,
    *,
    base: ModelConfig = STACK,
    ids: Tensor | None = None,
    seed: int = 1,
) -> Stack:
    """Build one stack, read a text forward and backward, and measure every layer.

    Args:
        residual, norm, initialisation: the three switches.
        base: depth, width and all else.
        ids: texts with one token more than they are read with (B, T + 1); random ones when None.
        seed: of the weights, and of the random text.
    """
    config = stack_config(residual, norm, initialisation, base)
    if ids is None:
        ids = _random_ids(config, seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = GPT(config)
    seen: dict[str, Tensor] = {}

    def observe(name: str, value: Tensor) -> None:
        if name == "embedding" or name.endswith(".output"):
            if value.requires_grad:
                value.retain_grad()
            seen[name] = value

    logits = model(ids[:, :-1], observe=observe)  # (B, T, vocab_size)
    loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()  # type: ignore[no-untyped-call]
    gradient, similarity, contribution = [], [], []
    before = seen["embedding"].detach()
    for layer in range(config.n_layers):
        output = seen[f"block.{layer}.output"]
        found = output.grad
        gradient.append(math.nan if found is None else found.double().norm().item())
        after = output.detach()
        similarity.append(token_similarity(after))
        added = after - before if residual else after
        contribution.append(_size(added) / max(_size(before), 1e-300))
        before = after
    return Stack(
        residual,
        norm,
        initialisation,
        loss.item(),
        tuple(gradient),
        tuple(similarity),
        tuple(contribution),
    )


def stacks(
    initialisations: tuple[Initialisation, ...] = RACE_INITIALISATIONS,
    *,
    base: ModelConfig = STACK,
    ids: Tensor | None = None,
    seed: int = 1,
) -> Iterator[Stack]:
    """Residual on and off × no norm, pre-norm, post-norm × each initialisation."""
    for initialisation in initialisations:
        for residual in (True, False):
            for norm in STACK_NORMS:
                yield stack(residual, norm, initialisation, base=base, ids=ids, seed=seed)


def token_similarity(x: Tensor) -> float:
    """Mean cosine between two different tokens of the same text.

    Args:
        x: (B, T, d_model), T of 2 or more.
    """
    # However small the stream has become, its direction counts; a stream of zeros has none.
    rows = F.normalize(x.double(), dim=-1, eps=1e-300)
    length = x.shape[1]
    # The sum over all pairs is the square of the summed rows; each row with itself gives its 1.
    pairs = rows.sum(dim=1).square().sum(dim=-1) - rows.square().sum(dim=(1, 2))  # (B,)
    return (pairs / (length * (length - 1))).mean().item()


class RaceData(Protocol):
    """Gives the data for a race: called with context length, batch size and seed."""

    def __call__(self, context_length: int, batch_size: int, seed: int) -> Data: ...


def race(
    data: RaceData,
    *,
    initialisations: tuple[Initialisation, ...] = RACE_INITIALISATIONS,
    base: ModelConfig = RACER,
    steps: int = 120,
    batch_size: int = 16,
    seed: int = 1,
) -> Iterator[Racer]:
    """Train a pre-norm and a post-norm stack from each initialisation, alike in all else.

    Args:
        data: gives training batches and the validation tokens.
        initialisations: how the weights start.
        base, steps, batch_size, seed: see `racer`.
    """
    for initialisation in initialisations:
        for norm in RACE_NORMS:
            yield racer(
                norm,
                initialisation,
                data,
                base=base,
                steps=steps,
                batch_size=batch_size,
                seed=seed,
            )


def racer(
    norm: StackNorm,
    initialisation: Initialisation,
    data: RaceData,
    *,
    base: ModelConfig = RACER,
    steps: int = 120,
    batch_size: int = 16,
    lr: float = 1e-3,
    seed: int = 1,
    stop: Callable[[], bool] = never,
) -> Racer:
    """Train one deep stack for a moment; arguments as `racing`.

    Args:
        norm, initialisation, data: who runs, and on what.
        base, steps, batch_size, lr, seed: the training.
        stop: asked at every step; True ends it early.
    """
    points: list[tuple[int, float]] = []
    val_loss = None
    for event in racing(
        norm,
        initialisation,
        data,
        base=base,
        steps=steps,
        batch_size=batch_size,
        lr=lr,
        seed=seed,
        stop=stop,
    ):
        if isinstance(event, Finished):
            val_loss = event.val_loss
        else:
            points.append((event.step, event.loss))
    return Racer(norm, initialisation, tuple(points), val_loss)


def racing(
    norm: StackNorm,
    initialisation: Initialisation,
    data: RaceData,
    *,
    base: ModelConfig = RACER,
    steps: int = 120,
    batch_size: int = 16,
    lr: float = 1e-3,
    seed: int = 1,
    stop: Callable[[], bool] = never,
) -> Iterator[Stepped | Finished]:
    """Train one deep stack for a moment: every fifth step, and the end.

    Constant rate, no warm-up and no clipping: what helps post-norm to train is left out on purpose.

    Args:
        norm: where LayerNorm stands.
        initialisation: how the weights start.
        data: gives training batches and the validation tokens.
        base: depth, width and all else.
        steps, batch_size, lr, seed: the training.
        stop: asked at every step; True ends it early.
    """
    config = TrainConfig(
        steps=steps,
        batch_size=batch_size,
        lr=lr,
        beta2=0.999,
        weight_decay=0.01,
        decay_all=True,
        grad_clip=None,
        schedule="constant",
        warmup_steps=0,
        seed=seed,
        dtype="float32",
        device="cpu",
        compile="off",
        # Matrices of 32 columns are too small to be shared out.
        threads=1,
        eval_every=steps,
        eval_tokens=8192,
        sample_chars=0,
        log_every=5,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = GPT(stack_config(True, norm, initialisation, base))
    for event in train(model, data(base.context_length, batch_size, seed), config, stop=stop):
        if isinstance(event, Finished) or (isinstance(event, Stepped) and event.logged):
            yield event


def _random_ids(config: ModelConfig, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(config.vocab_size, (TEXTS, config.context_length + 1), generator=generator)


def _size(x: Tensor) -> float:
    return x.double().square().mean().sqrt().item()
