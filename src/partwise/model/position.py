"""Position: attention alone sees a set of tokens; these tell it in which order they stand.

Learned positions are a plain embedding table (see `gpt.py`). The three kinds here are formulas, so
nothing of them is saved: their tables are computed in float64 and cast, again each time the model
changes its device or its number format.
"""

import math
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn

from partwise.model.config import RopeScaling


class Computed(nn.Module):
    """A module whose buffers follow from its arguments alone.

    They are neither saved nor trusted: a model that was built on the meta device, emptied by
    `to_empty` or turned from float32 to float64 has exact tables all the same.
    """

    def tables(self) -> dict[str, Tensor]:
        """Buffer name -> its exact value, float64 on the CPU."""
        raise NotImplementedError

    def fill(self, device: torch.device, dtype: torch.dtype) -> None:
        """Compute every buffer anew."""
        for name, exact in self.tables().items():
            self.register_buffer(name, exact.to(dtype).to(device), persistent=False)

    def fill_like(self, other: Tensor) -> None:
        """Compute every buffer anew, on the device and in the number format of `other`."""
        self.fill(other.device, other.dtype)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        move: Callable[..., nn.Module] = super()._apply
        move(fn, recurse)
        self.fill_like(next(self.buffers(recurse=False)))
        return self


def fill_tables(model: nn.Module, _: object) -> None:
    """Let the computed tables follow weights that were assigned from another device or format.

    A hook for `register_load_state_dict_post_hook`.
    """
    weight = next(model.parameters())
    for part in model.modules():
        if isinstance(part, Computed):
            part.fill_like(weight)


class Sinusoidal(Computed):
    """feature 2i of position p is sin(p / 10000^(2i/d)), feature 2i+1 is cos(p / 10000^(2i/d)).

    Args:
        length: number of positions.
        width: number of features d, an even number.

    Source: Vaswani et al. (2017), section 3.5.
    """

    table: Tensor

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.length = length
        self.width = width
        self.fill_like(torch.empty(0))

    def tables(self) -> dict[str, Tensor]:
        pair = torch.arange(0, self.width, 2, dtype=torch.float64, device="cpu")
        place = torch.arange(self.length, dtype=torch.float64, device="cpu")
        angles = place[:, None] * 10000.0 ** (-pair / self.width)  # (length, width / 2)
        return {"table": torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)}

    def forward(self, positions: Tensor) -> Tensor:  # (T,) -> (T, width)
        return self.table[positions]


class Rotary(Computed):
    """Features i and i + h/2 of a head are one point in a plane, turned by the angle p * f_i.

    f_i = base^(-2i/h), so that the product of a query and a key depends on how far apart they
    stand, not on where.

    Args:
        head_size: width of a head h, an even number.
        length: number of positions whose angles are kept in a table; later ones are computed.
        base: base of the frequencies.
        scaling, factor, low_frequency_factor, high_frequency_factor, original_context: see
            `rotary_frequencies`.

    Source: Su et al. (2021), section 3.2; pairs as in GPT-NeoX and LLaMA.
    """

    cos: Tensor
    sin: Tensor
    frequencies: Tensor

    def __init__(
        self,
        head_size: int,
        length: int,
        base: float = 10000.0,
        scaling: RopeScaling = "none",
        factor: float = 1.0,
        low_frequency_factor: float = 1.0,
        high_frequency_factor: float = 4.0,
        original_context: int = 8192,
    ) -> None:
        super().__init__()
        self.length = length
        self.exact = rotary_frequencies(
            head_size,
            base,
            scaling,
            factor,
            low_frequency_factor,
            high_frequency_factor,
            original_context,
        )
        self.fill_like(torch.empty(0))

    def tables(self) -> dict[str, Tensor]:
        frequencies = torch.tensor(self.exact, dtype=torch.float64, device="cpu")
        positions = torch.arange(self.length, dtype=torch.float64, device="cpu")
        cos, sin = turns(positions, frequencies)
        return {"cos": cos, "sin": sin}

    def fill(self, device: torch.device, dtype: torch.dtype) -> None:
        super().fill(device, dtype)
        # Angles of late positions lose their digits in a short format, so these stay in float64
        # wherever the device knows it. Apple's does not, and would refuse a buffer in that format.
        wide = torch.float32 if device.type == "mps" else torch.float64
        frequencies = torch.tensor(self.exact, dtype=torch.float64, device="cpu")
        self.frequencies = frequencies.to(wide).to(device)

    def forward(self, positions: Tensor, within: bool = True) -> tuple[Tensor, Tensor]:
        """The turns of `positions`, for `rotate`.

        Args:
            positions: (T,) int64.
            within: all of them are below `length`, so that the table serves.

        Returns:
            cos and signed sin, each (T, 1, head_size).
        """
        if within:
            cos, sin = self.cos[positions], self.sin[positions]
        else:
            cos, sin = turns(positions.to(self.frequencies.dtype), self.frequencies)
        return cos.to(self.cos.dtype)[:, None], sin.to(self.cos.dtype)[:, None]


def turns(positions: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """cos(p f) twice over, and sin(p f) with the sign that `rotate` needs.

    Args:
        positions: (T,).
        frequencies: (h / 2,).

    Returns:
        Two tensors of (T, h).
    """
    angles = positions[:, None] * frequencies
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """(x1 cos - x2 sin, x2 cos + x1 sin), with x1 and x2 the halves of each head.

    Args:
        x: (..., T, heads, h).
        cos: (T, 1, h), each half the same.
        sin: (T, 1, h), the first half negative.

    Returns:
        As `x`, in its format.
    """
    # Rolling by half a head swaps x1 and x2: three operations where the formula has seven.
    return (x * cos + x.roll(x.shape[-1] // 2, -1) * sin).to(x.dtype)


def rotary_frequencies(
    head_size: int,
    base: float = 10000.0,
    scaling: RopeScaling = "none",
    factor: float = 1.0,
    low_frequency_factor: float = 1.0,
    high_frequency_factor: float = 4.0,
    original_context: int = 8192,
) -> list[float]:
    """f_i = base^(-2i/h), in radians a token, then stretched for a longer context.

    "linear" divides every f_i by `factor`. "llama3" leaves those that turn more than
    `high_frequency_factor` times within `original_context`, divides by `factor` those that turn
    less than `low_frequency_factor` times, and goes smoothly from one to the other between.

    Args:
        head_size: h, an even number.
        base: what is raised to the power.
        scaling: "none", "linear" or "llama3".
        factor: how many times longer the context becomes.
        low_frequency_factor: turns in the original context.
        high_frequency_factor: turns in the original context.
        original_context: tokens.

    Returns:
        h/2 frequencies.

    Source: Su et al. (2021), section 3.2.2; Chen et al. (2023), section 2.3 (linear); Llama 3.1's
    reference code (2024), `apply_scaling` (llama3).
    """
    frequencies = [base ** (-2 * i / head_size) for i in range(head_size // 2)]
    if scaling == "linear":
        return [f / factor for f in frequencies]
    if scaling == "llama3":
        span = high_frequency_factor - low_frequency_factor
        stretched = []
        for f in frequencies:
            times = original_context * f / (2 * math.pi)
            kept = min(1.0, max(0.0, (times - low_frequency_factor) / span))
            stretched.append((1 - kept) * f / factor + kept * f)
        return stretched
    return frequencies


class Alibi(Computed):
    """-slope_h * |i - j| is added to the score of query i and key j in head h.

    Args:
        n_heads: number of query heads.

    Source: Press, Smith and Lewis (2022), section 3.
    """

    slopes: Tensor

    def __init__(self, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.fill_like(torch.empty(0))

    def tables(self) -> dict[str, Tensor]:
        slopes = alibi_slopes(self.n_heads)
        return {"slopes": torch.tensor(slopes, dtype=torch.float64, device="cpu")}

    def forward(self, distance: Tensor) -> Tensor:  # (T, S) int64 -> (n_heads, T, S)
        return -self.slopes[:, None, None] * distance.abs()


def alibi_slopes(n_heads: int) -> list[float]:
    """2^(-8/n), 2^(-16/n), …, 2^-8 for n heads when n is a power of two.

    For another n: the slopes of the next smaller power of two, then every second one, from the
    first, of the power above it.

    Source: Press, Smith and Lewis (2022), section 3 and their published code.
    """
    power = 2 ** (n_heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * (i + 1) / power) for i in range(power)]
    between = [2.0 ** (-8 * (i + 1) / (2 * power)) for i in range(0, 2 * power, 2)]
    return slopes + between[: n_heads - power]
