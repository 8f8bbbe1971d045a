"""What is compiled from C for training, beside the same operation by operation.

    python benchmarks/parts.py
    python benchmarks/parts.py --threads 1 --recipe fast

Attention alone, then a recipe's loss with its gradient on random tokens: operation by operation,
with attention in C, and all of it in C; then a step of its Muon. In turns; medians in milliseconds,
and how much faster the last is than the first.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from partwise.budget.recipes import RECIPES, recipe
from partwise.machine.allocator import keep_freed
from partwise.model import compiled_attention, compiled_gradient, lean
from partwise.model.compiled_gradient import CompiledGradient
from partwise.model.gpt import GPT
from partwise.model.position import Rotary
from partwise.training import compiled_muon
from partwise.training.muon import Muon
from partwise.training.objective import Objective
from partwise.training.optim import build_optimizers
from partwise.training.precision import Precision

# Texts, tokens, heads, features of a head, dropout, and whether queries and keys are normed and
# turned: attention of `fast`, of `small`, and of a quarter of the batch of `nanogpt`.
SHAPES = (
    (8, 128, 2, 48, 0.0, True),
    (16, 128, 4, 32, 0.0, False),
    (16, 256, 6, 64, 0.0, False),
    (16, 256, 6, 64, 0.2, False),
)


def main() -> None:
    """Measure and print."""
    asked = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    asked.add_argument("--threads", type=int, default=torch.get_num_threads())
    asked.add_argument("--rounds", type=int, default=20)
    asked.add_argument("--recipe", nargs="*", choices=RECIPES, default=["fast", "small", "long"])
    said = asked.parse_args()
    torch.set_num_threads(said.threads)
    keep_freed(True)
    library = compiled_attention.SOURCE.library()
    ways = {
        "operations": lean.causal_attention,
        "C": partial(compiled_attention.causal_attention, library=library),
    }
    for shape in SHAPES:
        found = in_turns({way: alone(call, *shape) for way, call in ways.items()}, said.rounds)
        print("attention: texts, tokens, heads, size, dropout:", *shape[:-1], *found)
    rounds = max(3, said.rounds // 2)
    for name in said.recipe:
        for dtype in (torch.float32, torch.bfloat16):
            if compiled_gradient.serves(recipe(name).model, dtype):
                print(f"{name}, {str(dtype)[6:]}:", *in_turns(gradients(name, dtype), rounds))
        if recipe(name).train.optimizer == "muon":
            print(f"{name}, Muon:", *in_turns(muons(name), rounds))


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
    first, *_, last = medians.values()
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


def model_of(name: str) -> GPT:
    """A recipe's model, always the same."""
    torch.manual_seed(1)
    return GPT(replace(recipe(name).model, vocab_size=65)).train()


def gradients(name: str, dtype: torch.dtype) -> dict[str, Callable[[], None]]:
    """A recipe's loss and gradient, of the texts that most of its steps read."""
    train, context = recipe(name).train, recipe(name).model.context_length
    length = train.short_context or context
    ids = torch.randint(65, (train.batch_size * context // length, length + 1))
    batch = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()

    def backward(way: str) -> Callable[[], None]:
        model = model_of(name)
        objective = Objective(model, Precision(torch.device("cpu"), dtype))
        model.use_lean(True, compiled_attention.SOURCE.library() if way == "attention" else None)
        if way == "all":
            library = compiled_gradient.SOURCE.library()
            objective.use_gradient(CompiledGradient(model, library, dtype))

        def once() -> None:
            model.zero_grad()
            objective.backward(*batch)

        return once

    ways = {"operations": "none", "attention in C": "attention", "all in C": "all"}
    return {said: backward(way) for said, way in ways.items()}


def muons(name: str) -> dict[str, Callable[[], None]]:
    """A step of a recipe's Muon."""

    def step(compiled: bool) -> Callable[[], None]:
        model = model_of(name)
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)
        muon = build_optimizers(model, recipe(name).train)[0]
        assert isinstance(muon, Muon)
        muon.use_library(compiled_muon.SOURCE.library() if compiled else None)

        def once() -> None:
            muon.step()

        return once

    return {"operations": step(False), "in C": step(True)}


if __name__ == "__main__":
    main()
