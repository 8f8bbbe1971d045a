"""The three norms on one matrix: which numbers each takes its mean over, and what moves when."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from partwise.model.config import Norm
from partwise.model.norm import make_norm
from partwise.studio.lab.limits import LARGEST_SEED, within

# What a page can show as a table that is still read.
MOST_ROWS = 24
MOST_COLUMNS = 16

KINDS: tuple[Norm, ...] = ("layernorm", "rmsnorm", "batchnorm")


@dataclass(frozen=True)
class Normed:
    """What one norm made of the matrix.

    Args:
        norm: which one.
        values: its output, a row a token.
        row_means, row_sizes: of the output, mean and root mean square of each row.
        column_means, column_sizes: the same of each column.
        first_moved: how far the first token's output is from what it is alone with the tokens of
            its own text, the largest difference of a feature; 0 where a token is its own business.
    """

    norm: Norm
    values: Tensor
    row_means: Tensor
    row_sizes: Tensor
    column_means: Tensor
    column_sizes: Tensor
    first_moved: float

    def to_plain(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {
            name: value.tolist() if isinstance(value, Tensor) else value
            for name, value in vars(self).items()
        }


def tokens(texts: int, length: int, width: int, spread: float, seed: int) -> Tensor:
    """Made-up tokens, texts x length of them: features differ in mean and size, as real ones do.

    Args:
        texts: texts in the batch.
        length: tokens a text.
        width: features a token.
        spread: how much the features' means differ (standard deviations of a feature).
        seed: of the numbers; the first tokens do not depend on how many follow.

    Returns:
        (texts * length, width), text after text.

    Raises:
        UsageError: more rows or columns than a table can show, or fewer than a norm needs.
    """
    within("texts", texts, 1, MOST_ROWS)
    within("length", length, 1, MOST_ROWS)
    within("texts x length", texts * length, 2, MOST_ROWS)
    within("width", width, 2, MOST_COLUMNS)
    within("seed", seed, 0, LARGEST_SEED)
    generator = torch.Generator().manual_seed(seed)
    means = spread * torch.randn(width, generator=generator)  # (width)
    rows = torch.randn(MOST_ROWS, MOST_COLUMNS, generator=generator)[:, :width]
    sizes = 0.5 + 1.5 * torch.rand(MOST_ROWS, 1, generator=generator)
    return (means + sizes * rows)[: texts * length]


def normalise(x: Tensor, alone: int) -> tuple[Normed, ...]:
    """The three norms of `x`, in training mode, with their scale and shift as they start.

    Args:
        x: tokens (N, width).
        alone: how many of the first rows are the first token's own text.
    """
    return tuple(_normed(kind, x, alone) for kind in KINDS)


def _normed(kind: Norm, x: Tensor, alone: int) -> Normed:
    norm = make_norm(kind, x.shape[1])
    assert norm is not None
    norm.train()
    with torch.no_grad():
        y: Tensor = norm(x)
        # Alone, BatchNorm has its own text to average over, and needs two tokens for that.
        moved = (norm(x[: max(2, alone)])[0] - y[0]).abs().max().item()
    return Normed(
        kind,
        y,
        row_means=y.mean(1),
        row_sizes=y.square().mean(1).sqrt(),
        column_means=y.mean(0),
        column_sizes=y.square().mean(0).sqrt(),
        first_moved=moved,
    )
