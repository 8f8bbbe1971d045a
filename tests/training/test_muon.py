"""Muon's steps are orthogonal, whatever the matrix's shape and scale."""

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from compilers import REGISTERS, needs_compiler

from partwise.training import compiled_muon, muon
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


@pytest.fixture(params=REGISTERS)
def library(
    request: pytest.FixtureRequest, surroundings: None, monkeypatch: pytest.MonkeyPatch
) -> Path:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    return replace(compiled_muon.SOURCE, flags=("-fopenmp", *request.param)).library()


WHOLE = [(16, 16), (16, 48), (48, 16), (64, 96), (112, 64), (64, 64), (160, 32)]


def moved(
    library: Path | None, steps: int, polar_express: bool, decay: float = 0.2
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Where matrices stand after four steps, and their momentum."""
    torch.manual_seed(3)
    parameters = [torch.nn.Parameter(torch.randn(shape)) for shape in WHOLE]
    optimizer = Muon(
        *(parameters,),
        lr=0.1,
        momentum=0.9,
        momentum_steps=2,
        weight_decay=decay,
        steps=steps,
        polar_express=polar_express,
    )
    optimizer.use_library(library)
    for step in range(4):
        for parameter in parameters:
            parameter.grad = 10.0 ** (step - 2) * torch.randn_like(parameter)
        optimizer.step()
    memory = [optimizer.state[parameter]["momentum_buffer"] for parameter in parameters]
    assert all(optimizer.state[parameter]["step"] == 4 for parameter in parameters)
    return [parameter.detach() for parameter in parameters], memory


@needs_compiler
@pytest.mark.parametrize("polar_express", [False, True])
@pytest.mark.parametrize("steps", [1, 3, 4, 5, 8])
def test_compiled_it_moves_alike(steps: int, polar_express: bool, library: Path) -> None:
    found, wanted = (moved(kind, steps, polar_express) for kind in (library, None))
    for ours, theirs in zip(found, wanted, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=2e-3)


@needs_compiler
def test_threads_change_no_bit_of_it(library: Path) -> None:
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(moved(library, 3, True)[0])
    finally:
        torch.set_num_threads(before)
    assert all(map(torch.equal, *found))


@needs_compiler
def test_what_is_not_in_whole_vectors_is_left_to_torch(library: Path) -> None:
    parameters = [torch.nn.Parameter(torch.randn(6, 16)) for _ in range(2)]
    parameters[1].data.copy_(parameters[0].data)
    gradient = torch.randn(6, 16)
    for parameter, kind in zip(parameters, (library, None), strict=True):
        optimizer = Muon([parameter], lr=0.1, momentum=0.9)
        optimizer.use_library(kind)
        parameter.grad = gradient.clone()
        optimizer.step()
    assert torch.equal(*parameters)
    assert compiled_muon.serves([torch.zeros(16, 32)])
    assert not compiled_muon.serves([torch.zeros(16, 32), torch.zeros(16, 32).double()])
    assert not compiled_muon.serves([torch.zeros(32, 16).T])


@needs_compiler
def test_a_gradient_that_is_no_number_is_not_hidden(library: Path) -> None:
    parameter = torch.nn.Parameter(torch.randn(16, 32))
    optimizer = Muon([parameter], lr=0.1, momentum=0.9)
    optimizer.use_library(library)
    parameter.grad = torch.full((16, 32), torch.nan)
    optimizer.step()
    assert parameter.isnan().all()


@needs_compiler
def test_a_copy_moves_as_the_original(library: Path) -> None:
    parameter = torch.nn.Parameter(torch.randn(16, 32))
    optimizer = Muon([parameter], lr=0.1, momentum=0.9)
    optimizer.use_library(library)
    other = copy.deepcopy(optimizer)
    for each in (optimizer, other):
        (mine,) = each.param_groups[0]["params"]
        mine.grad = torch.ones(16, 32) + torch.eye(16, 32)
        each.step()
    (copied,) = other.param_groups[0]["params"]
    torch.testing.assert_close(copied, parameter, rtol=0, atol=1e-3)


@needs_compiler
def test_matrices_that_were_moved_less_often_keep_their_own_count(library: Path) -> None:
    pair = [torch.nn.Parameter(torch.randn(16, 16)) for _ in range(2)]
    optimizer = Muon(pair, lr=0.1, momentum=0.9, momentum_steps=5)
    optimizer.use_library(library)
    for number in range(3):
        pair[0].grad = torch.randn(16, 16)
        pair[1].grad = torch.randn(16, 16) if number else None
        optimizer.step()
    assert optimizer.state[pair[0]]["step"] == 3
