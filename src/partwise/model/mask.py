"""Masks: which tokens a token may look at, and how much the distance costs."""

import math

import torch
from torch import Tensor

from partwise.model.cache import Step
from partwise.model.position import Alibi


def attention_mask(
    positions: Tensor,
    step: Step | None = None,
    *,
    causal: bool = True,
    window: int | None = None,
    alibi: Alibi | None = None,
) -> tuple[Tensor | None, bool]:
    """Token i sees token j if i - window < j <= i; with ALiBi, at a price of slope * (i - j).

    Without a window it sees j <= i; a model that is not causal sees all, at slope * |i - j|.

    Args:
        positions: of the tokens that look (T,).
        step: the cache's; without one they look at themselves.
        causal: only what came before is seen.
        window: how far back is seen (tokens); none: all the way.
        alibi: the slopes.

    Returns:
        The mask (1, heads or 1, T, S) for `attend`, true where a key is seen or a number to add to
        the score; and whether `attend` is to be causal. No mask is made where that says it all, for
        the fused kernels are fastest without.
    """
    length = positions.shape[0]
    if alibi is None and step is None and (not causal or window is None or length <= window):
        return None, causal
    if alibi is None and step is not None and step.start is not None:
        all_in_window = window is None or step.start + length <= window
        if all_in_window and step.start == 0:
            return None, True
        # A ring forgets what leaves the window, so that all it holds is seen.
        if length == 1 and (all_in_window or step.cache.ring):
            return None, False
    keys = positions if step is None else step.seen
    distance = positions[:, None] - keys  # (T, S)
    if not causal and alibi is not None:
        return alibi(distance)[None], False
    visible = (distance >= 0) & (keys >= 0)
    if window is not None:
        visible = visible & (distance < window)
    if alibi is None:
        return visible[None, None], False
    bias: Tensor = alibi(distance)  # (heads, T, S)
    return torch.where(visible, bias, -math.inf)[None], False
