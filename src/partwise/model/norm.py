"""Normalisation: each token's features are brought to a common scale before they are used."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from partwise.errors import PartwiseError
from partwise.model import lean
from partwise.model.config import Norm


class LayerNorm(nn.Module):
    """(x - mean) / sqrt(variance + eps) * weight + bias, over the features of one token.

    The variance is the biased one (divided by the number of features).

    Args:
        width: number of features.
        eps: added to the variance.
        bias: whether there is a learned shift.

    Source: Ba, Kiros and Hinton (2016), section 3.
    """

    def __init__(self, width: int, eps: float = 1e-5, bias: bool = True) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x: Tensor) -> Tensor:  # (..., width) -> (..., width)
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight, over the features of one token: no mean is taken away.

    Args:
        width: number of features.
        eps: added to the mean square.

    With `lean` set, the gradient is computed as written out in `lean.py`.

    Source: Zhang and Sennrich (2019), equation 4.
    """

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.lean = False
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:  # (..., width) -> (..., width)
        if self.lean:
            return lean.rms_norm(x, self.weight, self.eps)
        # Under autocast x may be shorter than the weight, and torch is fast only when both agree.
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), self.eps)


class BatchNorm(nn.Module):
    """(x - mean) / sqrt(variance + eps) * weight + bias, over all tokens of the batch, per feature.

    In training the mean and the biased variance are the batch's own, and running values follow
    them (a tenth of the way each step; the running variance is the unbiased one). In evaluation the
    running values stand in their place. It is here for comparison: it mixes the tokens of a batch,
    so in training a token's output depends on tokens that come after it.

    Args:
        width: number of features.
        eps: added to the variance.
        bias: whether there is a learned shift.

    Source: Ioffe and Szegedy (2015), algorithms 1 and 2.
    """

    momentum = 0.1
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, width: int, eps: float = 1e-5, bias: bool = True) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise `x`.

        Args:
            x: (..., width); every dimension but the last is averaged over.

        Raises:
            PartwiseError: a training batch of a single token, whose variance is not defined.
        """
        rows = x.reshape(-1, x.shape[-1])  # (B * T, width)
        if self.training and rows.shape[0] < 2:
            raise PartwiseError(
                "BatchNorm needs 2 tokens or more in a training batch and this one has {tokens}; "
                "raise batch_size or the sequence length, or choose another norm",
                tokens=rows.shape[0],
            )
        normed = F.batch_norm(
            rows,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training,
            self.momentum,
            self.eps,
        )
        return normed.view(x.shape)


def make_norm(kind: Norm, width: int, eps: float = 1e-5, bias: bool = True) -> nn.Module | None:
    """The norm called `kind`, or None for "none".

    Args:
        kind: "layernorm", "rmsnorm", "batchnorm" or "none".
        width: number of features.
        eps: added to the variance.
        bias: whether LayerNorm and BatchNorm have a learned shift; RMSNorm has none.
    """
    if kind == "layernorm":
        return LayerNorm(width, eps, bias)
    if kind == "rmsnorm":
        return RMSNorm(width, eps)
    if kind == "batchnorm":
        return BatchNorm(width, eps, bias)
    return None
