"""Which of their tensors become which of ours, as data that is read in both directions.

A rule says that one tensor of ours is one of theirs, or several of theirs on top of each other
(queries, keys and values), possibly turned on its side (GPT-2 keeps its matrices that way).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Rule:
    """One tensor of ours.

    Args:
        ours: its name.
        theirs: the names of those that it is made of, from the top row down.
        rows: how many rows each of them has; empty where there is only one.
        turned: theirs are (in, out) where ours is (out, in).
    """

    ours: str
    theirs: tuple[str, ...]
    rows: tuple[int, ...] = ()
    turned: bool = False

    def shapes(self, ours: Shape) -> dict[str, Shape]:
        """The shape of each of theirs, from the shape of ours."""
        rows = self.rows or (ours[0],)
        whole = {name: (count, *ours[1:]) for name, count in zip(self.theirs, rows, strict=True)}
        return {name: shape[::-1] if self.turned else shape for name, shape in whole.items()}

    def take(self, read: Callable[[str], Tensor]) -> Tensor:
        """Our tensor, from theirs."""
        parts = [read(name) for name in self.theirs]
        whole = torch.cat(parts) if len(parts) > 1 else parts[0]
        return whole.T.contiguous() if self.turned else whole

    def give(self, ours: Tensor) -> dict[str, Tensor]:
        """Theirs, from our tensor."""
        parts = ours.split_with_sizes(self.rows) if self.rows else [ours]
        # Each has memory of its own, which the file format asks for.
        return {
            name: (part.T if self.turned else part).clone(memory_format=torch.contiguous_format)
            for name, part in zip(self.theirs, parts, strict=True)
        }


def linear(ours: str, theirs: str, bias: bool, *, turned: bool = False) -> list[Rule]:
    """The rules of a matrix, or of a norm's scale, and of its bias if it has one."""
    rules = [Rule(f"{ours}.weight", (f"{theirs}.weight",), turned=turned)]
    return rules + [Rule(f"{ours}.bias", (f"{theirs}.bias",))] * bias


def shapes_of(config: ModelConfig) -> dict[str, Shape]:
    """Name -> shape of every tensor that a model of this config saves; none of them is made."""
    if config.position != "learned":
        # No tensor is as long as the context then, and the tables that are would be computed.
        config = replace(config, context_length=min(config.context_length, max(config.ngram, 8)))
    with torch.device("meta"):
        model = GPT(config)
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


def give_all(rules: Iterable[Rule], weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """All of theirs, from all of ours."""
    given: dict[str, Tensor] = {}
    for rule in rules:
        given.update(rule.give(weights[rule.ours]))
    return given
