"""From logits to the next token: softmax(logits / T) over the kept tokens, drawn by one uniform.

Every function works on each row by itself, in float32, and breaks ties by the lower token id, so
that a row's token depends on its own logits and its own uniform alone.
"""

import torch
from torch import Tensor

# A lower temperature is the same as taking the likeliest token, and would overflow float32; a
# higher one than the other would be infinite there.
MINIMUM_TEMPERATURE, MAXIMUM_TEMPERATURE = 1e-6, 3e38


def choose(
    logits: Tensor,
    uniforms: Tensor,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
) -> Tensor:
    """The token drawn for each row: the first whose cumulative probability reaches the uniform.

    Filters follow one another: temperature, top-k, top-p, min-p.

    Args:
        logits: (B, V) of any float type.
        uniforms: (B,) in (0, 1], one for each row.
        temperature: 0 takes the likeliest token.
        top_k: how many of the likeliest tokens may be drawn; more than V means all.
        top_p: the share of probability that the fewest likeliest tokens must hold.
        min_p: the least probability, as a share of the likeliest token's.

    Returns:
        (B,) int64 token ids; -1 in a row whose logits hold no finite maximum.

    Source: top-k: Fan et al. 2018, "Hierarchical Neural Story Generation", section 5.4; top-p:
        Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration", section 3.1; min-p:
        Nguyen et al. 2024, "Turning Up the Heat", section 3.
    """
    logits = logits.float()  # (B, V)
    if temperature < MINIMUM_TEMPERATURE:
        return likeliest(logits)
    # The maximum is taken off first, so that no temperature makes the exponential overflow.
    temperature = min(temperature, MAXIMUM_TEMPERATURE)
    scaled = (logits - logits.amax(-1, keepdim=True)) / temperature  # (B, V)
    weights = scaled.exp()  # (B, V), the likeliest token has 1
    if top_k is not None and top_k < logits.shape[-1]:
        weights = weights.where(_among_top(scaled, top_k), 0)
    if top_p is not None and top_p < 1:
        weights = weights.where(_in_nucleus(scaled, weights, top_p), 0)
    if min_p is not None and min_p > 0:
        weights = weights.where(weights >= min_p, 0)
    return _draw(weights, uniforms)


def likeliest(logits: Tensor) -> Tensor:
    """The token with the largest logit in each row; the lowest id among equals, -1 for NaN.

    Args:
        logits: (B, V).

    Returns:
        (B,) int64.
    """
    value, index = logits.max(-1)  # (B,), (B,)
    return index.where(value.isfinite(), -1)


def penalise(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Logits of tokens that occurred, divided by `penalty` when positive and times it otherwise.

    Args:
        logits: (B, V).
        seen: (B, V) bool, true for tokens in the row's prompt or text.
        penalty: above 1 makes a repetition less likely, below 1 more likely.

    Returns:
        (B, V) float32.

    Source: Keskar et al. 2019, "CTRL", section 4.1; for negative logits as in later practice, since
        dividing them would make the token likelier.
    """
    logits = logits.float()
    changed = torch.where(logits > 0, logits / penalty, logits * penalty)
    return torch.where(seen, changed, logits)


def _among_top(values: Tensor, k: int) -> Tensor:
    """Exactly `k` true entries in each row of (B, V): the largest, equal ones by the lower id."""
    threshold = values.topk(k, dim=-1).values[:, -1:]  # (B, 1), each row's own
    above = values > threshold
    level = values == threshold
    room = k - above.sum(-1, keepdim=True)  # (B, 1)
    return above | (level & (level.cumsum(-1) <= room))


def _in_nucleus(scaled: Tensor, weights: Tensor, share: float) -> Tensor:
    """The fewest likeliest entries of each row that hold `share` of its sum, as bools (B, V)."""
    # By the scores: at a high temperature all weights are 1, or nearly.
    order = scaled.sort(dim=-1, descending=True, stable=True).indices
    largest = weights.gather(-1, order)
    running = _running_sum(largest)
    before = running - largest  # what the likelier tokens hold
    kept = before < share * running[:, -1:]
    return torch.zeros_like(kept).scatter(-1, order, kept)


def _draw(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Inverse of the cumulative sum: in vocabulary order, so that no tie moves a boundary."""
    running = _running_sum(weights)
    # Removed tokens get 0 and the target is above 0, so rounding in the sum can never draw one.
    reach = running.where(weights > 0, 0)  # (B, V)
    total = reach.amax(-1, keepdim=True)  # (B, 1)
    reached = reach >= uniforms[:, None].to(reach.dtype) * total
    return reached.to(torch.uint8).argmax(-1).where(total[:, 0] > 0, -1)


def _running_sum(weights: Tensor) -> Tensor:
    # float32 would lose the tail of a large vocabulary; Apple's GPUs have nothing wider.
    wide = torch.float32 if weights.device.type == "mps" else torch.float64
    return weights.cumsum(-1, dtype=wide)
