"""Deep stacks: what the course's measured facts say, at our set-up, and the measuring itself."""

import dataclasses
import json
import math
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from partwise.errors import StorageError
from partwise.ladder.deep import (
    Depth,
    Stack,
    StackNorm,
    read_depth,
    stack_from_plain,
    to_plain,
    write_depth,
)
from partwise.ladder.depth import RACER, STACK, race, stack, stack_config, stacks, token_similarity
from partwise.ladder.depth_pictures import (
    contribution_picture,
    depth_section,
    gradient_picture,
    race_picture,
    similarity_picture,
)
from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT
from partwise.text.batches import Batches, windows
from partwise.text.config import DataConfig
from partwise.text.prepare import prepare
from partwise.training.data import Data

TINY = dataclasses.replace(STACK, n_layers=3, context_length=6, d_model=8, n_heads=2)


@pytest.fixture(scope="module")
def deep() -> dict[tuple[bool, StackNorm], Stack]:
    """The 96-block stacks from the fan-in initialisation."""
    with torch.random.fork_rng():
        return {(one.residual, one.norm): one for one in stacks(("fan_in",))}


def test_gradients_equal_autograd_s_own() -> None:
    """Measured again by taking the model apart block by block."""
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(65, (2, 7), generator=generator)
    found = stack(True, "pre", "fan_in", base=TINY, ids=ids, seed=5)
    torch.manual_seed(5)
    model = GPT(stack_config(True, "pre", "fan_in", TINY))
    x = model.token_embedding(ids[:, :-1]) + model.position_embedding(torch.arange(6))  # type: ignore[misc]
    sight = model._sight(torch.arange(6), None)
    outputs = []
    for block in model.blocks:
        x = block(x, sight)
        outputs.append(x)
    logits = model.head(model.final_norm(x))  # type: ignore[misc]
    loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    gradients = torch.autograd.grad(loss, outputs)
    assert found.loss == pytest.approx(loss.item(), rel=1e-5)
    expected = [gradient.norm().item() for gradient in gradients]
    assert found.gradient == pytest.approx(expected, rel=1e-4)
    added = [outputs[0], outputs[1] - outputs[0], outputs[2] - outputs[1]]
    share = (added[2].square().mean() / outputs[1].square().mean()).sqrt().item()
    assert found.contribution[2] == pytest.approx(share, rel=1e-4)


def test_similarity_by_hand() -> None:
    x = torch.tensor([[[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]]])
    # Cosines: 0, 1/√2, 1/√2.
    assert token_similarity(x) == pytest.approx(2 / math.sqrt(2) / 3)
    assert token_similarity(torch.ones(2, 4, 3)) == pytest.approx(1.0)
    assert token_similarity(x * 1e-30) == pytest.approx(token_similarity(x))


# The next five hold the sentences of ../shared/design/course.md, "Facts measured", whose exact
# set-up is not written down: directions and orders of magnitude, not digits.


def test_without_norm_and_residual_the_gradient_vanishes(
    deep: dict[tuple[bool, StackNorm], Stack],
) -> None:
    gradient = deep[False, "none"].gradient
    assert gradient[0] < 1e-12 < 1e-2 < gradient[95]
    assert gradient[0] < gradient[47] < gradient[95]


def test_with_pre_norm_and_no_residual_it_does_not_vanish(
    deep: dict[tuple[bool, StackNorm], Stack],
) -> None:
    gradient = deep[False, "pre"].gradient
    assert min(gradient) > 1e-6


def test_but_all_tokens_become_the_same(deep: dict[tuple[bool, StackNorm], Stack]) -> None:
    assert deep[False, "pre"].similarity[-1] == pytest.approx(1.0, abs=5e-4)


def test_with_residual_and_pre_norm_tokens_stay_apart(
    deep: dict[tuple[bool, StackNorm], Stack],
) -> None:
    assert deep[True, "pre"].similarity[-1] < 0.95
    assert min(deep[True, "pre"].gradient) > 1e-4


def test_residual_without_norm_overflows(deep: dict[tuple[bool, StackNorm], Stack]) -> None:
    assert not math.isfinite(deep[True, "none"].loss)


def test_at_std_002_post_norm_starts_as_evenly_as_pre_norm() -> None:
    """Pre against post depends on the initialisation."""
    found = stack(True, "post", "normal")
    assert max(found.gradient) / min(found.gradient) < 10


def test_measuring_leaves_torch_s_random_numbers_alone() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    stack(True, "pre", "normal", base=TINY)
    assert torch.equal(torch.get_rng_state(), before)


def test_without_norms_there_is_no_final_norm() -> None:
    config = stack_config(True, "none", "fan_in", TINY)
    assert GPT(config).final_norm is None


def test_race_trains_alike_but_for_the_norms(tmp_path: Path) -> None:
    (tmp_path / "cats.txt").write_text("the cat sat on the mat\n" * 60, encoding="utf-8")
    prepared = prepare(str(tmp_path / "cats.txt"), DataConfig(), cache=tmp_path / "cache")

    def data(context_length: int, batch_size: int, seed: int) -> Data:
        batches = Batches(prepared.train, context_length, batch_size, seed)
        return Data(batches, prepared.validation, windows, len(prepared.train))

    small: ModelConfig = dataclasses.replace(
        RACER, n_layers=2, d_model=16, n_heads=2, context_length=8, vocab_size=11
    )
    found = list(race(data, base=small, steps=10, batch_size=4))
    assert [(one.initialisation, one.norm) for one in found] == [
        ("fan_in", "pre"),
        ("fan_in", "post"),
        ("normal", "pre"),
        ("normal", "post"),
    ]
    for one in found:
        assert [step for step, _ in one.steps] == [5, 10]
        assert one.val_loss is not None
    assert len({one.steps[0][1] for one in found}) == 4
    again = list(race(data, base=small, steps=10, batch_size=4))
    assert again == found
    ET.fromstring(race_picture(found, 340))


def test_numbers_that_are_none_survive_as_null(
    deep: dict[tuple[bool, StackNorm], Stack], tmp_path: Path
) -> None:
    overflowed = deep[True, "none"]
    plain = json.loads(json.dumps(to_plain(overflowed), allow_nan=False))
    assert plain["loss"] is None
    back = stack_from_plain(plain)
    assert math.isnan(back.loss)
    assert back.contribution[0] == overflowed.contribution[0]
    depth = Depth((deep[True, "pre"],), ())
    write_depth(tmp_path / "depth.json", depth)
    assert read_depth(tmp_path / "depth.json") == depth
    assert read_depth(tmp_path / "nothing.json") is None
    (tmp_path / "depth.json").write_text("{}", encoding="utf-8")
    with pytest.raises(StorageError):
        read_depth(tmp_path / "depth.json")


def test_pictures_and_section_are_valid(deep: dict[tuple[bool, StackNorm], Stack]) -> None:
    found = list(deep.values())
    for picture in (gradient_picture, similarity_picture, contribution_picture):
        text = picture(found, 340)
        ET.fromstring(text)
        assert "nan" not in text
        assert "inf" not in text
    section = depth_section(Depth(tuple(found), ()))
    ET.fromstring(section)
    assert "overflow" in section
