"""Muon's steps are orthogonal, whatever the matrix's shape and scale."""

import pytest
import torch

from partwise.training import muon
from partwise.training.muon import Muon, orthogonalise, polynomials

SHAPES = [(6, 6), (6, 18), (18, 6), (4, 5)]


def values(x: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = torch.linalg.svdvals(x)
    return found


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_singular_values_become_one(shape: tuple[int, int], scale: float) -> None:
    torch.manual_seed(1)
    x = scale * torch.randn(3, *shape)
    jordan = values(orthogonalise(x, polynomials(8, polar_express=False)))
    assert jordan.min() > 0.6 and jordan.max() < 1.3
    polar = values(orthogonalise(x, polynomials(8, polar_express=True)))
    torch.testing.assert_close(polar, torch.ones_like(polar), rtol=0, atol=1e-2)


@pytest.mark.parametrize("shape", SHAPES)
def test_singular_vectors_stay(shape: tuple[int, int]) -> None:
    torch.manual_seed(1)
    x = torch.randn(2, *shape, dtype=torch.float64)
    u, _, vh = torch.linalg.svd(x, full_matrices=False)
    found = orthogonalise(x, polynomials(8, polar_express=True))
    torch.testing.assert_close(found, u @ vh, rtol=0, atol=1e-2)


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_the_small_matrix_gives_what_the_large_one_gives(
    steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(1)
    # Singular values from 1 down to 1e-3, which the small matrix squares.
    u, v = torch.linalg.qr(torch.randn(16, 16))[0], torch.linalg.qr(torch.randn(40, 16))[0]
    x = (u * torch.logspace(0, -3, 16)) @ v.T
    by = polynomials(steps, polar_express=True)
    small = orthogonalise(x[None], by)
    monkeypatch.setattr(muon, "_BY_SMALL_MATRIX", 0)
    torch.testing.assert_close(small, orthogonalise(x[None], by), rtol=0, atol=1e-2)


def test_it_moves_as_torch_does() -> None:
    ours = [torch.nn.Parameter(torch.randn(*shape)) for shape in [(8, 8), (8, 24), (24, 8), (8, 8)]]
    theirs = [torch.nn.Parameter(p.detach().clone()) for p in ours]
    mine = Muon(ours, lr=0.1, momentum=0.9, weight_decay=0.2)
    reference: torch.optim.Optimizer = torch.optim.Muon(
        theirs, lr=0.1, momentum=0.9, weight_decay=0.2, adjust_lr_fn="original"
    )
    for _ in range(3):
        for one, other in zip(ours, theirs, strict=True):
            one.grad = torch.randn_like(one)
            other.grad = one.grad.clone()
        mine.step()
        reference.step()
    for one, other in zip(ours, theirs, strict=True):
        # torch multiplies in bfloat16.
        torch.testing.assert_close(one, other, rtol=0, atol=0.02)


def test_momentum_is_warmed_up() -> None:
    parameter = torch.nn.Parameter(torch.randn(4, 4))
    optimizer = Muon([parameter], lr=0.1, momentum=0.95, momentum_steps=2)
    kept = []
    for _ in range(4):
        parameter.grad = torch.zeros(4, 4)
        if optimizer.state[parameter]:
            optimizer.state[parameter]["momentum_buffer"].fill_(1.0)
        optimizer.step()
        kept.append(round(optimizer.state[parameter]["momentum_buffer"][0, 0].item(), 4))
    assert kept[1:] == [0.9, 0.95, 0.95]


def test_a_matrix_without_a_gradient_stays() -> None:
    still, moving = torch.nn.Parameter(torch.ones(2, 2)), torch.nn.Parameter(torch.ones(2, 2))
    moving.grad = torch.eye(2)
    optimizer = Muon([still, moving], lr=0.1, momentum=0.9)
    optimizer.step()
    assert torch.equal(still, torch.ones(2, 2))
    assert not torch.equal(moving, torch.ones(2, 2))


def test_a_gradient_of_zero_is_no_move() -> None:
    parameter = torch.nn.Parameter(torch.ones(2, 3))
    parameter.grad = torch.zeros(2, 3)
    Muon([parameter], lr=0.1, momentum=0.9).step()
    assert torch.equal(parameter, torch.ones(2, 3))
