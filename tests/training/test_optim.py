"""Which parameter is trained by what, how its rate and decay follow, and what is remembered."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from partwise.errors import RunError
from partwise.model.gpt import GPT
from partwise.storage import read_tensors, write_tensors
from partwise.training.muon import Muon
from partwise.training.optim import build_optimizers, kinds, pack, set_rate, trained, unpack
from training.doubles import CONFIG, MODEL, equal, new_model

RICH = replace(
    MODEL, tie_embeddings=False, head_bias=True, ngram=2, embedding_shortcut=True, qk_norm=True
)


def grouped(model: GPT, optimizer: torch.optim.Optimizer) -> dict[str, dict[str, float]]:
    """The settings of the group that each parameter is in."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {
        names[id(parameter)]: group
        for group in optimizer.param_groups
        for parameter in group["params"]
    }


def backward(model: GPT) -> None:
    model.eval()(torch.arange(8)[None]).square().sum().backward()


def test_each_parameter_is_what_it_is() -> None:
    found = kinds(new_model(RICH))
    assert found["token_embedding.weight"] == "embedding"
    assert found["position_embedding.weight"] == "embedding"
    assert found["ngram_tables.0.weight"] == "embedding"
    assert found["head.weight"] == found["head.bias"] == "head"
    # Two dimensions, but a scale for each layer and no matrix.
    assert found["shortcut"] == "vector"
    matrices = {name for name, kind in found.items() if kind == "matrix"}
    parts = ("attention.qkv", "attention.projection", "feedforward.up", "feedforward.down")
    assert matrices == {f"blocks.{i}.{part}.weight" for i in (0, 1) for part in parts}
    vectors = {name for name, kind in found.items() if kind == "vector"}
    assert {"blocks.0.norm1.weight", "blocks.1.attention.qkv.bias"} <= vectors


def test_a_tied_output_layer_is_the_embedding() -> None:
    found = kinds(new_model(replace(MODEL, tie_embeddings=True, head_bias=True)))
    assert "head.weight" not in found
    assert found["token_embedding.weight"] == "embedding"
    assert found["head.bias"] == "head"


def test_muon_takes_the_hidden_matrices_and_adamw_everything_else() -> None:
    model = new_model(RICH)
    config = replace(CONFIG, optimizer="muon", muon_lr=0.03, embedding_lr=0.01, head_lr=0.003)
    muon, adamw = build_optimizers(model, config)
    assert isinstance(muon, Muon)
    assert isinstance(adamw, torch.optim.AdamW)
    matrices = {name for name, kind in kinds(model).items() if kind == "matrix"}
    assert set(grouped(model, muon)) == matrices
    rest = grouped(model, adamw)
    assert set(rest) == {name for name, _ in trained(model)} - matrices
    assert rest["token_embedding.weight"]["lr"] == 0.01
    assert rest["ngram_tables.0.weight"]["lr"] == 0.01
    assert rest["head.weight"]["lr"] == rest["head.bias"]["lr"] == 0.003
    assert rest["shortcut"]["lr"] == config.lr


def test_muon_has_its_settings() -> None:
    config = replace(
        CONFIG,
        optimizer="muon",
        muon_momentum=0.9,
        muon_momentum_steps=7,
        muon_weight_decay=0.02,
        muon_steps=3,
        muon_polynomial="polar_express",
    )
    group = build_optimizers(new_model(), config)[0].param_groups[0]
    assert group["weight_decay"] == 0.02
    assert (group["momentum"], group["momentum_steps"]) == (0.9, 7)
    assert (group["steps"], group["polar_express"]) == (3, True)


def test_only_matrices_and_tables_decay() -> None:
    model = new_model(RICH)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1.0)
            parameter.grad = torch.zeros_like(parameter)
    for optimizer in build_optimizers(model, replace(CONFIG, lr=0.1, weight_decay=0.5)):
        optimizer.step()
    decayed = {name for name, p in model.named_parameters() if torch.all(p == 1 - 0.1 * 0.5)}
    kept = {name for name, p in model.named_parameters() if torch.all(p == 1.0)}
    kind_of = kinds(model)
    assert decayed == {n for n in kind_of if kind_of[n] != "vector" and n != "head.bias"}
    assert kept == kind_of.keys() - decayed


def test_decay_all_decays_all() -> None:
    config = replace(CONFIG, decay_all=True, weight_decay=0.01)
    (optimizer,) = build_optimizers(new_model(RICH), config)
    # One group also means one kernel a step, which is what small models need.
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.01]


def test_the_schedule_multiplies_each_group_by_its_own_peak() -> None:
    config = replace(CONFIG, optimizer="muon", muon_lr=0.03, lr=0.001, embedding_lr=0.01)
    optimizers = build_optimizers(new_model(), config)
    set_rate(optimizers, 0.5)
    set_rate(optimizers, 0.25)
    rates = {group["lr"] for optimizer in optimizers for group in optimizer.param_groups}
    assert rates == {0.03 / 4, 0.001 / 4, 0.01 / 4}


def test_frozen_parameters_stay_out() -> None:
    model = new_model()
    model.token_embedding.weight.requires_grad_(False)
    (optimizer,) = build_optimizers(model, CONFIG)
    assert "token_embedding.weight" not in grouped(model, optimizer)


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_memory_comes_back_from_a_file_bit_for_bit(kind: str, tmp_path: Path) -> None:
    config = replace(CONFIG, optimizer=kind)
    first, second = new_model(), new_model()
    before = build_optimizers(first, config)
    for _ in range(3):
        backward(first)
        for optimizer in before:
            optimizer.step()
    tensors, plain = pack(first, before)
    write_tensors(tmp_path / "memory.safetensors", tensors)
    second.load_state_dict(first.state_dict())
    after = build_optimizers(second, config)
    unpack(second, after, read_tensors(tmp_path / "memory.safetensors"), plain)
    for model, optimizers in ((first, before), (second, after)):
        model.zero_grad()
        backward(model)
        for optimizer in optimizers:
            optimizer.step()
    again, _ = pack(second, after)
    now, _ = pack(first, before)
    assert now.keys() == again.keys()
    assert all(torch.equal(now[key], again[key]) for key in now)
    assert equal(first, second)


def test_memory_of_another_model_is_refused() -> None:
    model, wider = new_model(), new_model(replace(MODEL, d_model=16))
    optimizers = build_optimizers(model, CONFIG)
    backward(model)
    optimizers[0].step()
    tensors, plain = pack(model, optimizers)
    with pytest.raises(RunError, match="in this shape"):
        unpack(wider, build_optimizers(wider, CONFIG), tensors, plain)


def test_memory_of_another_optimizer_is_refused() -> None:
    model = new_model()
    with pytest.raises(RunError, match="remembers nothing of token_embedding"):
        unpack(model, build_optimizers(model, CONFIG), {}, {})
    optimizers = build_optimizers(model, CONFIG)
    backward(model)
    optimizers[0].step()
    tensors, plain = pack(model, optimizers)
    with pytest.raises(RunError, match="AdamW remembers of blocks"):
        unpack(model, build_optimizers(model, replace(CONFIG, optimizer="muon")), tensors, plain)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_the_compiler_is_not_loaded(optimizer: str) -> None:
    """It takes as long as training a small model."""
    program = f"""
import sys
import torch
from partwise.training.config import TrainConfig
from partwise.training.optim import build_optimizers, set_rate
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8))
optimizers = build_optimizers(model, TrainConfig(optimizer="{optimizer}"))
before = [p.detach().clone() for p in model.parameters()]
for _ in range(2):
    model(torch.rand(2, 8)).square().sum().backward()
    set_rate(optimizers, 0.5)
    for optimizer in optimizers:
        optimizer.step()
assert not any(map(torch.equal, before, model.parameters()))
assert all(p.requires_grad and torch.is_grad_enabled() for p in model.parameters())
sys.exit("torch._dynamo" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
