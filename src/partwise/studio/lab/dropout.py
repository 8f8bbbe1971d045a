"""Dropout seen: edges of attention that fall out, and the mean of many thinned networks."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from partwise.errors import UsageError
from partwise.model.gpt import GPT
from partwise.studio.lab.limits import LARGEST_SEED, within
from partwise.studio.traces import rebuilt

MOST_NETWORKS = 64


def edges(weights: Tensor, rate: float, seed: int) -> Tensor:
    """The attention weights of one head as training sees them: some dropped, the rest scaled up.

    Each kept weight is divided by 1 - rate, so that the sum is the same on average. A row is then
    no distribution any more: its sum is noise around 1.

    Args:
        weights: (T, T), rows that sum to 1.
        rate: share that is dropped.
        seed: of the draw.

    Raises:
        UsageError: a seed out of range.

    Source: Srivastava et al. (2014), section 4; on attention weights, Vaswani et al. (2017).
    """
    within("seed", seed, 0, LARGEST_SEED)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return F.dropout(weights, rate)


@dataclass(frozen=True)
class Thinned:
    """What so many thinned networks reach.

    Args:
        networks: how many were drawn so far.
        loss: of the last one alone (nats a token).
        mean_loss: of the mean of the probabilities of all so far.
        mean_of_losses: the losses of all so far, averaged: what one of them has to expect.
    """

    networks: int
    loss: float
    mean_loss: float
    mean_of_losses: float


def whole(model: GPT, ids: Tensor) -> float:
    """The loss with dropout off: the one network whose activations are the means.

    Args:
        model: is left as it was.
        ids: texts with one token more than they are read with (B, T + 1).
    """
    with torch.no_grad():
        logits = _with_dropout(model, 0.0)(ids[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).item()


def thinned(model: GPT, ids: Tensor, rate: float, networks: int, seed: int) -> Iterator[Thinned]:
    """Draw thinned networks one after the other and average what they say.

    Args:
        model: any GPT; is left as it was.
        ids: texts with one token more than they are read with (B, T + 1).
        rate: share that is dropped, of sublayer outputs and of attention weights.
        networks: how many.
        seed: of the first draw.

    Raises:
        UsageError: a rate or a number that makes no sense.
    """
    if not 0 < rate < 1:
        raise UsageError("dropout={rate} drops nothing or everything; give 0.05 to 0.9", rate=rate)
    within("networks", networks, 1, MOST_NETWORKS)
    within("seed", seed, 0, LARGEST_SEED)
    own = _with_dropout(model, rate).train()
    targets = ids[:, 1:].flatten()
    total = torch.zeros(())
    losses: list[float] = []
    for number in range(networks):
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(seed + number)
            says = own(ids[:, :-1]).flatten(0, 1).double().log_softmax(-1)  # (B * T, vocab_size)
        losses.append(F.nll_loss(says, targets).item())
        total = total + says.exp()
        mean = F.nll_loss((total / (number + 1)).log(), targets).item()
        yield Thinned(number + 1, losses[-1], mean, sum(losses) / len(losses))


def _with_dropout(model: GPT, rate: float) -> GPT:
    """The same weights in a model with that dropout; BatchNorm would learn from what it reads."""
    if model.config.norm == "batchnorm":
        raise UsageError(
            "this model has BatchNorm, which changes with what it reads in training; choose another"
        )
    config = dataclasses.replace(
        model.config, dropout=rate, attention_dropout=None, embedding_dropout=0.0
    )
    return rebuilt(model, config)
