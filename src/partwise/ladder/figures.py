"""How a trained model is measured: its loss over a whole split, and the classic estimate."""

import statistics

import numpy as np
import torch

from partwise.machine import pick_device, pick_precision
from partwise.model.gpt import GPT
from partwise.run import Run
from partwise.text.batches import Batches, windows
from partwise.text.tokenfile import TokenView
from partwise.training.evaluate import evaluate
from partwise.training.objective import Objective, upload
from partwise.training.precision import Precision

# The classic estimate: this many random batches of the validation split.
ESTIMATE_BATCHES = 200

# Tokens that go through the model at once when nothing is trained.
TOKENS_AT_ONCE = 16_384


def ready(run: Run) -> tuple[GPT, Objective]:
    """A run's last weights on its device, and its loss in the precision of its training."""
    resolved = run.record.resolved
    device = pick_device("cpu" if resolved is None else resolved.device)
    dtype, _ = pick_precision("float32" if resolved is None else resolved.dtype, device)
    model = run.model("last", str(device))
    return model, Objective(model, Precision(device, dtype))


def whole_loss(
    model: GPT, view: TokenView, objective: Objective | None = None, limit: int | None = None
) -> float:
    """Mean loss over a view in consecutive windows, every token but the first predicted once.

    Args:
        model: the model.
        view: the tokens.
        objective: its loss in another precision; None: float32.
        limit: about this many tokens only, in windows spread evenly over the view.
    """
    context = model.config.context_length
    found = evaluate(
        model,
        view,
        windows=windows,
        context_length=context,
        batch_size=(objective and objective.evaluated_rows) or max(1, TOKENS_AT_ONCE // context),
        limit=limit,
        objective=objective,
    )
    assert found is not None
    return found


@torch.no_grad()
def classic_estimate(
    objective: Objective, view: TokenView, context_length: int, batch_size: int, seed: int
) -> float:
    """Mean loss of 200 random batches of `view`, in evaluation mode; shown beside the figure.

    Source: Karpathy, 2023, "Let's build GPT", its `estimate_loss`.
    """
    batches = Batches(view, context_length, batch_size, seed)
    drawn = [batches.batch(step) for step in range(ESTIMATE_BATCHES)]
    # Batches of one size: the mean of their means is that of all sequences, however they are cut.
    inputs, targets = upload(
        (np.concatenate([i for i, _ in drawn]), np.concatenate([t for _, t in drawn])),
        objective.device,
    )
    rows = objective.evaluated_rows or batch_size
    objective.model.eval()
    losses, weights = [], []
    for start in range(0, len(inputs), rows):
        part = slice(start, start + rows)
        losses.append(objective(inputs[part], targets[part]).item())
        weights.append(len(inputs[part]))
    return statistics.fmean(losses, weights)
