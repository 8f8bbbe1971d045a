"""Silencing a part equals a model whose weights or settings were changed by hand."""

import dataclasses
from collections.abc import Callable

import pytest
import torch
from configurations import CONFIGURATIONS, name
from torch import Tensor, nn

from partwise.errors import ConfigError
from partwise.ladder.knockout import knock_out, parts, silenced
from partwise.ladder.parts import label
from partwise.ladder.rungs import rung
from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT


def model_of(config: ModelConfig) -> GPT:
    torch.manual_seed(3)
    return GPT(config).eval()


def ids_of(config: ModelConfig) -> Tensor:
    generator = torch.Generator().manual_seed(4)
    return torch.randint(config.vocab_size, (2, config.context_length), generator=generator)


def zero(*weights: Tensor | None) -> None:
    with torch.no_grad():
        for weight in weights:
            if weight is not None:
                weight.zero_()


RUNG_5 = dataclasses.replace(rung(5).model, n_layers=2)


def no_attention(model: GPT) -> None:
    projection = model.blocks[1].attention.projection
    zero(projection.weight, projection.bias)


def no_head(model: GPT) -> None:
    # Heads of 8 features stand side by side before the projection: head 2 is columns 16 to 23.
    zero(model.blocks[0].attention.projection.weight[:, 16:24])


def no_feedforward(model: GPT) -> None:
    down = model.blocks[0].feedforward.down
    zero(down.weight, down.bias)


def no_norm(model: GPT) -> None:
    model.blocks[1].norm2 = nn.Identity()


def no_final_norm(model: GPT) -> None:
    model.final_norm = nn.Identity()


def no_positions(model: GPT) -> None:
    zero(model.position_embedding.weight)


def no_norms(model: GPT) -> None:
    for block in model.blocks:
        block.norm1 = block.norm2 = nn.Identity()
    model.final_norm = nn.Identity()


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("block.1.attention", no_attention),
        ("block.0.attention.head.2", no_head),
        ("block.0.feedforward", no_feedforward),
        ("block.1.norm2", no_norm),
        ("final_norm", no_final_norm),
        ("positions", no_positions),
        ("norms", no_norms),
    ],
)
def test_silenced_equals_changed_by_hand(part: str, change: Callable[[GPT], None]) -> None:
    model, by_hand, ids = model_of(RUNG_5), model_of(RUNG_5), ids_of(RUNG_5)
    change(by_hand)
    with torch.no_grad(), silenced(model, part):
        found = model(ids)
    with torch.no_grad():
        expected = by_hand(ids)
        whole = model(ids)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    assert not torch.equal(found, whole)


def test_all_heads_of_a_layer_is_every_head_but_the_bias() -> None:
    config = dataclasses.replace(RUNG_5, projection_bias=False)
    model, ids = model_of(config), ids_of(config)
    with torch.no_grad(), silenced(model, "block.0.attention"):
        together = model(ids)
    with torch.no_grad():
        zero(model.blocks[0].attention.projection.weight)
        torch.testing.assert_close(model(ids), together)


@pytest.mark.parametrize("position", ["learned", "sinusoidal", "rotary", "alibi"])
def test_positions_of_every_kind(position: str) -> None:
    config = dataclasses.replace(RUNG_5, position=position)
    model = model_of(config)
    without = model_of(dataclasses.replace(config, position="none"))
    kept = {k: v for k, v in model.state_dict().items() if not k.startswith("position_embedding")}
    without.load_state_dict(kept)
    ids = ids_of(config)
    with torch.no_grad(), silenced(model, "positions"):
        torch.testing.assert_close(model(ids), without(ids), rtol=0, atol=1e-5)


def test_a_head_without_projection() -> None:
    config = dataclasses.replace(rung(2).model, output_projection=False)
    model, ids = model_of(config), ids_of(config)
    x = torch.randn(1, 8, 32)
    with torch.no_grad(), silenced(model, "block.0.attention.head.3"):
        out = model.blocks[0].attention(x)
    assert torch.all(out[..., 24:] == 0)
    assert torch.any(out[..., :24] != 0)
    assert model(ids).isfinite().all()


@pytest.mark.parametrize("config", CONFIGURATIONS[::3], ids=name)
def test_every_part_of_any_model_can_be_silenced(config: ModelConfig) -> None:
    model, ids = model_of(config), ids_of(config)
    with torch.no_grad():
        whole = model(ids)
        seen = []
        for part, logits in knock_out(model, lambda: model(ids)):  # type: ignore[arg-type,return-value]
            assert logits.shape == whole.shape  # type: ignore[attr-defined]
            assert label(part)
            seen.append(part)
        assert seen == list(parts(model))
        # Nothing is left behind.
        assert torch.equal(model(ids), whole)


def test_weights_are_untouched_even_when_measuring_fails() -> None:
    model = model_of(RUNG_5)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(RuntimeError, match="no"), silenced(model, "attention"):
        raise RuntimeError("no")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not model.blocks[0].attention._forward_hooks


def test_parts_of_rung_5() -> None:
    found = parts(model_of(rung(5).model))
    assert found[0] == "positions"
    assert "block.2.attention.head.3" in found
    assert {"final_norm", "attention", "feedforward", "norms"} <= set(found)
    # positions, 3 x (2 norms, attention, 4 heads, feed-forward), final norm, and three sums.
    assert len(found) == 1 + 3 * 8 + 1 + 3


def test_one_head_alone_is_the_attention_itself() -> None:
    assert parts(model_of(rung(1).model)) == ("positions", "block.0.attention")


def test_unknown_part_names_the_nearest() -> None:
    with (
        pytest.raises(ConfigError, match=r"block\.0\.attention"),
        silenced(model_of(RUNG_5), "block.0.atention"),
    ):
        pass
