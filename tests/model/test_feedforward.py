"""Each kind of feed-forward layer is its formula."""

import math

import numpy as np
import pytest
import torch

from partwise.model.feedforward import FeedForward

WIDTH, INNER = 5, 7


def phi(x: np.ndarray) -> np.ndarray:
    return np.vectorize(lambda y: 0.5 * (1 + math.erf(y / math.sqrt(2))))(x)


ACTIVATIONS = {
    "relu": lambda x: np.where(x > 0, x, 0),
    "gelu": lambda x: x * phi(x),
    # Hendrycks and Gimpel (2016), section 2.
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "relu2": lambda x: np.where(x > 0, x * x, 0),
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("output", [True, False])
@pytest.mark.parametrize("kind", [*ACTIVATIONS, "swiglu"])
def test_each_kind_is_its_formula(kind, output, bias):
    inner = INNER if output else WIDTH
    layer = FeedForward(WIDTH, inner, kind, bias, output).double()
    w = {name: value.numpy() for name, value in layer.state_dict().items()}
    x = 2 * torch.randn(2, 3, WIDTH, dtype=torch.float64)

    def linear(name: str, a: np.ndarray) -> np.ndarray:
        return a @ w[f"{name}.weight"].T + (w[f"{name}.bias"] if bias else 0)

    up = linear("up", x.numpy())
    if kind == "swiglu":
        gate = linear("gate", x.numpy())
        hidden = gate / (1 + np.exp(-gate)) * up
    else:
        hidden = ACTIVATIONS[kind](up)
    wanted = linear("down", hidden) if output else hidden
    assert np.allclose(layer(x).numpy(force=True), wanted, atol=1e-12)
    parts = {"up"} | ({"gate"} if kind == "swiglu" else set()) | ({"down"} if output else set())
    assert {name.split(".")[0] for name in w} == parts
    assert any(name.endswith("bias") for name in w) == bias


def test_the_two_gelus_differ_a_little():
    x = torch.linspace(-3, 3, 50, dtype=torch.float64)[:, None].expand(-1, WIDTH)
    exact, close = (FeedForward(WIDTH, WIDTH, kind) for kind in ("gelu", "gelu_tanh"))
    close.load_state_dict(exact.state_dict())
    with torch.no_grad():
        difference = (exact.double()(x) - close.double()(x)).abs().max()
    assert 1e-6 < difference < 1e-2
