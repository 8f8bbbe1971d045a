"""The running mean of the weights, against its formula."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.training.average import Average
from training.doubles import new_model


@settings(max_examples=25, deadline=None)
@given(decay=st.floats(0, 0.999), steps=st.integers(1, 30), seed=st.integers(0, 1000))
def test_the_mean_follows_its_formula(decay: float, steps: int, seed: int) -> None:
    model = torch.nn.Linear(2, 1, bias=False)
    generator = torch.Generator().manual_seed(seed)
    average = Average(model, decay)
    expected = model.weight.detach().double().clone()
    for step in range(1, steps + 1):
        with torch.no_grad():
            model.weight.copy_(torch.randn(1, 2, generator=generator))
        average.update(step)
        d = min(decay, (1 + step) / (10 + step))
        expected = d * expected + (1 - d) * model.weight.detach().double()
    assert torch.allclose(average.tensors()["weight"].double(), expected, atol=1e-6)


def test_the_mean_stands_in_for_the_weights_and_gives_them_back() -> None:
    model = new_model()
    average = Average(model, 0.9)
    weights = {name: p.clone() for name, p in model.named_parameters()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    moved = {name: p.clone() for name, p in model.named_parameters()}
    with pytest.raises(KeyError), average.in_place():
        assert all(torch.equal(p, weights[name]) for name, p in model.named_parameters())
        raise KeyError
    assert all(torch.equal(p, moved[name]) for name, p in model.named_parameters())
    average.settle()
    assert all(torch.equal(p, weights[name]) for name, p in model.named_parameters())
