"""Attention compiled from C beside the same operation by operation: alone, and in a whole step.

    python benchmarks/attention.py
    python benchmarks/attention.py --threads 1

In turns; medians in milliseconds. The step is that of a recipe: forward, backward and optimizers on
random tokens.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from partwise.budget.recipes import recipe
from partwise.machine.allocator import keep_freed
from partwise.model import lean
from partwise.model.compiled_attention import SOURCE, causal_attention
from partwise.model.gpt import GPT
from partwise.model.position import Rotary
from partwise.training.optim import build_optimizers

# Texts, tokens, heads, features of a head, dropout, and whether queries and keys are normed and
# turned: attention of `fast`, of `small`, and of a quarter of the batch of `nanogpt`.
SHAPES = (
    (8, 128, 2, 48, 0.0, True),
    (16, 128, 4, 32, 0.0, False),
    (16, 256, 6, 64, 0.0, False),
    (16, 256, 6, 64, 0.2, False),
)

RECIPES = ("fast", "small", "long")


def main() -> None:
    """Measure and print."""
    asked = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    asked.add_argument("--threads", type=int, default=torch.get_num_threads())
    asked.add_argument("--rounds", type=int, default=20)
    said = asked.parse_args()
    torch.set_num_threads(said.threads)
    keep_freed(True)
    library = SOURCE.library()
    ways = {"operations": lean.causal_attention, "C": partial(causal_attention, library=library)}
    for shape in SHAPES:
        found = in_turns({way: alone(call, *shape) for way, call in ways.items()}, said.rounds)
        print("texts, tokens, heads, size, dropout:", *shape[:-1], *found)
    for name in RECIPES:
        found = in_turns(
            {"operations": step(name, None), "C": step(name, library)}, max(3, said.rounds // 2)
        )
        print(f"a step of {name}:", *found)


def in_turns(calls: dict[str, Callable[[], None]], rounds: int) -> list[str]:
    """The median of each, after one round that does not count, and how they compare."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 1):
        for name, call in calls.items():
            begun = time.perf_counter()
            call()
            if number:
                seconds[name].append(time.perf_counter() - begun)
    medians = {name: statistics.median(taken) for name, taken in seconds.items()}
    first, last = list(medians.values())
    return [
        "|",
        *(f"{name} {1e3 * median:.2f} ms |" for name, median in medians.items()),
        f"{first / last:.2f}x",
    ]


def alone(
    call: Callable[..., Tensor],
    texts: int,
    tokens: int,
    heads: int,
    size: int,
    dropout: float,
    whole: bool,
) -> Callable[[], None]:
    """Attention forward and backward, on memory that other work has used meanwhile."""
    qkv = torch.randn(texts, tokens, 3 * heads * size, requires_grad=True)
    slope = torch.randn(texts, tokens, heads * size)
    scales = [torch.ones(size, requires_grad=True) for _ in range(2 * whole)]
    rotation = Rotary(size, tokens)(torch.arange(tokens)) if whole else None
    other = torch.zeros(2**22)

    def once() -> None:
        other.add_(1)
        y = call(qkv, heads, rotation, (*scales, 1e-5) if whole else None, dropout)
        torch.autograd.grad(y, [qkv, *scales], slope)

    return once


def step(name: str, library: Path | None) -> Callable[[], None]:
    """A step of a recipe."""
    begin = recipe(name)
    torch.manual_seed(1)
    model = GPT(replace(begin.model, vocab_size=65)).train()
    model.use_lean(True, library)
    optimizers = build_optimizers(model, begin.train)
    ids = torch.randint(65, (begin.train.batch_size, begin.model.context_length + 1))

    def once() -> None:
        model.zero_grad()
        logits = model(ids[:, :-1])
        torch.autograd.backward(F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()))
        for optimizer in optimizers:
            optimizer.step()

    return once


if __name__ == "__main__":
    main()
