"""The learning rate over a run: `lr(step) = peak * rate(step)`."""

import math

from partwise.training.config import TrainConfig


def rate(step: int, total: int | None, config: TrainConfig) -> float:
    """`(step + 1) / (warmup + 1)` while warming up, then from 1 down to the floor at `total`.

    With p from 0 (warm-up is over) to 1 (step = total) and floor f, the second part is

    - cosine: `f + (1 - f) (1 + cos(pi p)) / 2`,
    - linear: `f + (1 - f) (1 - p)`,
    - wsd: 1, and over the last `decay_fraction` of all steps linear down to f,
    - constant: 1,
    - inverse_sqrt: `sqrt((warmup + 1) / (step + 1))`, with neither total nor floor.

    The last is the original Transformer's: with a peak of `(d_model (warmup + 1))^-0.5` it is
    `d_model^-0.5 min(s^-0.5, s (warmup + 1)^-1.5)` in step s = 1, 2, …

    The floor belongs to step `total`, one after the last: no step is spent at a rate of zero.

    Args:
        step: steps done before this one, from 0.
        total: steps of the whole run; None while it is not known, and then the rate stays at 1.
        config: the schedule's settings.

    Returns:
        The share of the peak rate, in [0, 1].

    Source: cosine, Loshchilov and Hutter, "SGDR", 2017, section 3; warmup-stable-decay, Hu et al.,
    "MiniCPM", 2024, section 4; Hägele et al., "Scaling Laws and Compute-Optimal Training Beyond
    Fixed Training Durations", 2024, section 3; inverse_sqrt, Vaswani et al., "Attention Is All You
    Need", 2017, equation 3.
    """
    warmup = warmup_steps(total, config)
    if step < warmup:
        return (step + 1) / (warmup + 1)
    if config.schedule == "inverse_sqrt":
        return math.sqrt((warmup + 1) / (step + 1))
    if config.schedule == "constant" or total is None:
        return 1.0
    start = warmup
    if config.schedule == "wsd":
        start = max(warmup, total - round(config.decay_fraction * total))
    if step <= start:
        return 1.0
    if step >= total:
        return config.min_lr_ratio
    progress = (step - start) / (total - start)
    left = 1 - progress
    if config.schedule == "cosine":
        left = (1 + math.cos(math.pi * progress)) / 2
    return config.min_lr_ratio + (1 - config.min_lr_ratio) * left


def warmup_steps(total: int | None, config: TrainConfig) -> int:
    """`config.warmup_steps`, but at most half of the run, so that a short one trains at all."""
    return config.warmup_steps if total is None else min(config.warmup_steps, total // 2)
