"""The validation loss: mean nats a token, every token but the first predicted exactly once."""

from collections.abc import Callable

import torch
from torch import nn

from partwise.errors import TextError
from partwise.training.data import View, Windows
from partwise.training.objective import Objective, upload


def never() -> bool:
    """The stop request that is never made."""
    return False


@torch.no_grad()
def evaluate(
    model: nn.Module,
    view: View,
    *,
    windows: Windows,
    context_length: int,
    batch_size: int,
    limit: int | None = None,
    objective: Objective | None = None,
    stop: Callable[[], bool] = never,
) -> float | None:
    """Sum of the windows' losses over the number of predicted tokens, in evaluation mode.

    Touches no random state, and leaves the model in the mode it was in.

    Args:
        model: the model.
        view: the validation tokens.
        windows: how they are cut into batches.
        context_length: tokens a window.
        batch_size: windows a batch.
        limit: evaluate on a fixed sample of about this many tokens; None: on all.
        objective: the loss of `model`, compiled or in another precision; None: eager float32.
        stop: asked before every batch; True gives the evaluation up.

    Returns:
        Mean loss (nats a token), or None when it was given up.

    Raises:
        TextError: there is no token to predict.
    """
    loss_of = objective or Objective(model)
    was_training = model.training
    model.eval()
    # Float64 because a split may have a thousand times as many batches as float32 has digits, and
    # on the device so that an accelerator's host never waits for a batch.
    nats: torch.Tensor | None = None
    tokens = 0
    try:
        for batch in windows(view, context_length, batch_size, limit):
            if stop():
                return None
            inputs, targets = upload(batch, loss_of.device)
            total = loss_of(inputs, targets).double() * targets.numel()
            nats = total if nats is None else nats + total
            tokens += targets.numel()
    finally:
        model.train(was_training)
    if nats is None:
        raise TextError("the validation part has no token to predict; give a longer text")
    return nats.item() / tokens
