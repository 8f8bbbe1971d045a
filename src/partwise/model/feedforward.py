"""The feed-forward layer: each token, on its own, thinks about what attention brought it."""

from torch import Tensor, nn
from torch.nn import functional as F

from partwise.model import lean
from partwise.model.config import FeedForwardKind


class FeedForward(nn.Module):
    """down(act(up(x))); SwiGLU is down(silu(gate(x)) * up(x)).

    act is ReLU, GELU (x Phi(x), or its tanh approximation) or ReLU² (max(x, 0)^2).

    Args:
        d_model: features in and out.
        inner_width: features between.
        kind: "relu", "gelu", "gelu_tanh", "relu2" or "swiglu".
        bias: whether the matrices have biases.
        output: whether there is a second matrix, `down`; without it inner_width is d_model.

    With `lean` set, ReLU² is computed as in `lean.py`.

    Source: Vaswani et al. (2017), section 3.3; Hendrycks and Gimpel (2016) (GELU); So et al.
    (2021), section 4 (ReLU²); Shazeer (2020), equation 6 (SwiGLU).
    """

    def __init__(
        self,
        d_model: int,
        inner_width: int,
        kind: FeedForwardKind = "gelu",
        bias: bool = True,
        output: bool = True,
    ) -> None:
        super().__init__()
        self.kind = kind
        self.lean = False
        self.up = nn.Linear(d_model, inner_width, bias=bias)
        self.gate = nn.Linear(d_model, inner_width, bias=bias) if kind == "swiglu" else None
        self.down = nn.Linear(inner_width, d_model, bias=bias) if output else None

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, d_model) -> (B, T, d_model)."""
        h = self.hidden(x)
        if self.down is not None:
            h = self.down(h)
        return h

    def hidden(self, x: Tensor) -> Tensor:
        """What the activation gives: (B, T, d_model) -> (B, T, inner_width)."""
        h: Tensor = self.up(x)
        if self.gate is not None:
            h = F.silu(self.gate(x)) * h
        elif self.kind == "relu":
            h = F.relu(h)
        elif self.kind == "relu2":
            h = lean.squared_relu(h) if self.lean else F.relu(h).square()
        else:
            h = F.gelu(h, approximate="tanh" if self.kind == "gelu_tanh" else "none")
        return h
