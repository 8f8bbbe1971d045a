"""Figures that the lessons state in their prose, measured or computed again.

Where a lesson's own cell prints a figure there is nothing to hold here; these are the others.
"""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from partwise.ladder import depth
from partwise.ladder.rungs import published
from partwise.model.config import Initialisation
from partwise.model.parameters import (
    approximation,
    attention_matrices,
    count_parameters,
    feedforward_matrices,
    parameters_by_part,
)
from partwise.model.presets import preset
from partwise.text.batches import Batches, windows
from partwise.text.config import DataConfig
from partwise.text.corpora import shakespeare
from partwise.text.prepare import prepare
from partwise.training.data import Data


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def stack(residual: bool, norm: depth.StackNorm, start: Initialisation = "fan_in") -> depth.Stack:
    return depth.stack(residual, norm, start)


# --- 06.5 and 06.7: 96 layers before training -----------------------------------------------------


def test_without_residual_and_norm_the_gradient_vanishes() -> None:
    found = stack(False, "none")
    assert found.gradient[0] < 1e-15 and found.gradient[47] < 1e-6 < 1e-3 < found.gradient[95]


def test_with_a_norm_it_does_not_but_tokens_become_the_same() -> None:
    found = stack(False, "pre")
    assert max(found.gradient) / min(found.gradient) < 30 and found.gradient[0] > 1e-3
    assert found.similarity[-1] > 0.999


def test_a_residual_alone_overflows() -> None:
    assert math.isnan(stack(True, "none").loss)


def test_residual_and_pre_norm_keep_gradients_and_tokens() -> None:
    found = stack(True, "pre")
    assert min(found.gradient) > 1e-3 and max(found.gradient) < 1
    assert 0.8 < found.similarity[-1] < 0.95


def test_post_norm_depends_on_the_initialisation() -> None:
    assert stack(True, "post").similarity[-1] > 0.999
    level = stack(True, "post", "normal")
    assert abs(level.similarity[-1]) < 0.05
    assert max(level.gradient) / min(level.gradient) < 1.2


def test_what_blocks_add_at_first_depends_on_the_initialisation() -> None:
    first = {s: stack(True, "pre", s).contribution for s in ("fan_in", "normal", "gpt2")}
    assert 0.5 < first["fan_in"][0] < 0.75 and 0.5 < first["normal"][0] < 0.75
    assert first["fan_in"][95] < 0.15 and first["normal"][95] < 0.15
    assert all(0.02 < share < 0.08 for share in first["gpt2"])
    assert max(stack(True, "pre", "zero_projection").contribution) == 0


# --- 06.4 and 06.9: parameters --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "per_cent"),
    [
        ("gpt3-175b", -0.4),
        ("llama-65b", -1.3),
        ("ladder-6", -1.6),
        ("gpt2-xl", -5.3),
        ("llama2-70b", -6.6),
        ("gpt2", -31.7),
    ],
)
def test_how_far_12nd2_is_off(name: str, per_cent: float) -> None:
    config = preset(name)
    assert 100 * (approximation(config) / count_parameters(config) - 1) == pytest.approx(
        per_cent, abs=0.05
    )


@pytest.mark.parametrize(
    ("name", "of_block", "of_all"),
    [
        ("gpt2", 66.7, 45.5),
        ("gpt3-175b", 66.7, 66.4),
        ("llama-65b", 66.8, 66.3),
        ("llama2-70b", 82.4, 81.7),
    ],
)
def test_the_feed_forward_share(name: str, of_block: float, of_all: float) -> None:
    config = preset(name)
    ours, theirs = feedforward_matrices(config), attention_matrices(config)
    assert 100 * ours / (ours + theirs) == pytest.approx(of_block, abs=0.05)
    parts = parameters_by_part(config)
    assert 100 * parts["feedforward"] / sum(parts.values()) == pytest.approx(of_all, abs=0.05)
    if name == "gpt2":
        assert 0.3 < parts["embedding"] / sum(parts.values()) < 1 / 3


def test_depths_and_head_sizes() -> None:
    assert [preset(n).n_layers for n in ("gpt2", "gpt3-175b", "llama-65b")] == [12, 96, 80]
    assert [preset(n).head_size for n in ("gpt2", "gpt3-175b")] == [64, 128]


def test_which_norm_the_families_have() -> None:
    assert (preset("palm-540b").norm, preset("palm-540b").norm_bias) == ("layernorm", False)
    assert preset("palm-540b").parallel
    assert preset("llama-7b").norm == "rmsnorm"


# --- 05: where the ladder starts ------------------------------------------------------------------


def test_the_first_rung_s_published_value_and_the_table_of_pairs() -> None:
    assert published(1, "tinyshakespeare") == 2.40
    text = np.frombuffer(shakespeare(), np.uint8)
    cut = len(text) * 9 // 10
    pairs = np.full((256, 256), 0.1)
    known = np.unique(text)
    np.add.at(pairs, (text[: cut - 1], text[1:cut]), 1)
    chances = pairs / pairs[:, known].sum(axis=1, keepdims=True)
    loss = -np.log(chances[text[cut:-1], text[cut + 1 :]]).mean()
    assert loss == pytest.approx(2.49, abs=0.01)


# --- 06.7: the race -------------------------------------------------------------------------------


@pytest.mark.long
def test_the_race(tmp_path: Path) -> None:
    """48 layers, 120 steps: post-norm falls behind from fan_in, and from 0.02 it does not."""
    found = {
        (start, norm): race(norm, start, tmp_path)
        for start in depth.RACE_INITIALISATIONS
        for norm in depth.RACE_NORMS
    }
    told = {
        ("fan_in", "pre"): 2.81,
        ("fan_in", "post"): 3.34,
        ("normal", "pre"): 2.84,
        ("normal", "post"): 2.80,
    }
    assert found == pytest.approx(told, abs=0.06)


def race(norm: depth.StackNorm, start: Initialisation, cache: Path) -> float:
    prepared = prepare("shakespeare", DataConfig(), cache=cache)

    def data(context_length: int, batch_size: int, seed: int) -> Data:
        batches = Batches(prepared.train, context_length, batch_size, seed)
        return Data(batches, prepared.validation, windows, len(prepared.train))

    base = dataclasses.replace(depth.RACER, vocab_size=prepared.tokenizer.vocab_size)
    loss = depth.racer(norm, start, data, base=base).val_loss
    assert loss is not None
    return loss
