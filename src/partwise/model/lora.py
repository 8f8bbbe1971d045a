"""LoRA: a trained matrix stays as it is, and a small addition beside it is trained."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from partwise.errors import ConfigError
from partwise.model.block import Block
from partwise.model.dropout import dropout
from partwise.model.gpt import GPT
from partwise.model.lora_config import TARGETS, LoraConfig


class LoraLinear(nn.Linear):
    """y = x W^T + b + (alpha / rank) (x A^T) B^T, where W and b are frozen.

    A starts at random and B at zero, so that training begins with the model as it was. For a matrix
    of d inputs and e outputs there are rank (d + e) numbers to train instead of d e.

    Args:
        base: the matrix; its weight and bias are taken over, under their names, and frozen.
        rank: rank of the addition.
        alpha: weight of the addition, which counts alpha / rank times.
        dropout: share of the addition's input that is dropped in training.

    Source: Hu et al. (2021), section 4.1.
    """

    def __init__(self, base: nn.Linear, rank: int, alpha: float, dropout: float = 0.0) -> None:
        nn.Module.__init__(self)
        self.in_features = base.in_features
        self.out_features = base.out_features
        base.requires_grad_(False)
        self.weight, self.bias = base.weight, base.bias
        self.scale = alpha / rank
        self.dropout = dropout
        device, dtype = base.weight.device, base.weight.dtype
        self.lora_a = nn.Parameter(torch.empty(rank, base.in_features, device=device, dtype=dtype))
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, rank, device=device, dtype=dtype))
        nn.init.normal_(self.lora_a, std=1 / math.sqrt(base.in_features))

    def forward(self, x: Tensor) -> Tensor:  # (..., d) -> (..., e)
        y = F.linear(x, self.weight, self.bias)
        kept = dropout(x, self.dropout, self.training)
        return y + self.scale * F.linear(F.linear(kept, self.lora_a), self.lora_b)

    def merged(self) -> nn.Linear:
        """One plain matrix that does the same: W + (alpha / rank) B A."""
        plain = nn.Linear(
            self.in_features,
            self.out_features,
            bias=self.bias is not None,
            device=self.weight.device,
            dtype=self.weight.dtype,
        )
        with torch.no_grad():
            # Added up in float64, so that the sum is rounded once.
            addition = self.scale * self.lora_b.double() @ self.lora_a.double()
            plain.weight.copy_(self.weight.double() + addition)
            if self.bias is not None:
                plain.bias.copy_(self.bias)
        return plain


def add_lora(model: GPT, config: LoraConfig) -> None:
    """Freeze `model`, and give the matrices that `config` names an addition to train.

    Args:
        model: a trained model; its own parameters keep their names and their bits.
        config: with a rank.

    Raises:
        ConfigError: there is no rank or one beyond a matrix's own, no such matrix in the model, or
            a part that changes as it trains although it is frozen.
    """
    if config.rank is None:
        raise ConfigError("rank=none trains no addition; give a rank, e.g. 8")
    if model.config.norm == "batchnorm":
        raise ConfigError(
            "norm=batchnorm keeps running statistics, which training changes, while LoRA leaves "
            "the model as it is; train all weights with rank=none"
        )
    there = {name: _matrices(model, name) for name in TARGETS}
    for name in config.targets or ():
        if not there[name]:
            raise ConfigError(
                "targets={name}: the model has no such matrix; {known} would do",
                name=name,
                known=", ".join(known for known in TARGETS if there[known]),
            )
    for name in config.targets or TARGETS:
        for _, base in there[name]:
            most = min(base.in_features, base.out_features)
            if config.rank > most:
                raise ConfigError(
                    "rank={rank} is more than a matrix of {inputs} inputs and {outputs} outputs "
                    "({name}) can have; give {most} or less",
                    rank=config.rank,
                    inputs=base.in_features,
                    outputs=base.out_features,
                    name=name,
                    most=most,
                )
    model.requires_grad_(False)
    for name in config.targets or TARGETS:
        for part, base in there[name]:
            addition = LoraLinear(base, config.rank, config.alpha, config.dropout)
            setattr(part, name, addition.train(base.training))


def merge_lora(model: GPT) -> None:
    """Put every addition into its matrix, and let all parameters be trained again."""
    for name in TARGETS:
        for part, matrix in _matrices(model, name):
            if isinstance(matrix, LoraLinear):
                setattr(part, name, matrix.merged().train(matrix.training))
    model.requires_grad_(True)


def _matrices(model: GPT, name: str) -> list[tuple[nn.Module, nn.Linear]]:
    """Every block's matrix of that name, with the part that holds it."""
    found: list[tuple[nn.Module, nn.Linear]] = []
    for block in model.blocks:
        assert isinstance(block, Block)
        for part in (block.attention, block.feedforward):
            matrix = getattr(part, name, None)
            if part is not None and isinstance(matrix, nn.Linear):
                found.append((part, matrix))
    return found
