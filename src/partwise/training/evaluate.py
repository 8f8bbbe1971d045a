"""The validation loss: mean nats a token, every token but the first predicted exactly once."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from partwise.errors import TextError
from partwise.training.config import TrainConfig
from partwise.training.data import Data, View, Windows
from partwise.training.objective import Objective, counted, upload


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
    # Read at the end: an accelerator's host need not wait for any batch.
    losses: list[Tensor] = []
    counts: list[Tensor] = []
    try:
        for batch in windows(view, context_length, batch_size, limit):
            if stop():
                return None
            inputs, targets = upload(batch, loss_of.device)
            losses.append(loss_of(inputs, targets))
            counts.append(counted(targets))
    finally:
        model.train(was_training)
    if not losses:
        raise TextError("the validation part has no token to predict; give a longer text")
    # In float64: a split may have more tokens than float32 can count.
    each = torch.stack(counts).cpu().double()
    nats: float = torch.stack(losses).cpu().double().dot(each).item()
    return nats / int(each.sum())


def time_evaluation(
    objective: Objective, data: Data, config: TrainConfig, clock: Callable[[], float]
) -> float:
    """Seconds that an evaluation takes, judged by two batches of it."""
    rows = objective.evaluated_rows or config.batch_size // config.accumulation
    context_length = data.train.context_length
    tokens = min(len(data.validation), config.eval_tokens or len(data.validation))
    sample = min(tokens, 2 * rows * context_length)
    start = clock()
    evaluate(
        objective.model,
        data.validation,
        windows=data.windows,
        context_length=context_length,
        batch_size=rows,
        limit=sample,
        objective=objective,
    )
    return (clock() - start) * tokens / sample
