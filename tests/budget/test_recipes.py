"""Recipes are values that train: each builds, and its parts are those that it is described by."""

from dataclasses import replace

import pytest
import torch

from partwise.budget.choices import fit_training
from partwise.budget.recipes import RECIPES, recipe
from partwise.errors import ConfigError
from partwise.model.gpt import GPT
from partwise.training.objective import Objective
from partwise.training.optim import build_optimizers
from partwise.training.step import make_step


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_learns(name: str) -> None:
    begin = recipe(name)
    model = GPT(replace(begin.model, context_length=16, d_model=24, n_heads=2, dropout=0.0))
    config = replace(begin.train, batch_size=2)
    step = make_step(Objective(model), build_optimizers(model, config), config)
    ids = torch.arange(32).view(2, 16) % 7
    losses = [step(ids, ids + 1, rate=0.3).loss.item() for _ in range(8)]
    assert losses[-1] < losses[0]


def test_an_unknown_recipe_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean fast"):
        recipe("fats")


def test_a_recipe_may_say_how_often_it_is_judged() -> None:
    fast = recipe("fast").train
    fitted, _ = fit_training(fast, set(), 128, 1_003_854, 111_540)
    assert fitted.eval_every == fast.eval_every
    # Another that says nothing is judged so many times, however short it is.
    short = replace(recipe("nanogpt").train, steps=200)
    fitted, _ = fit_training(short, set(), 256, 1_003_854, 111_540)
    assert fitted.eval_every < short.eval_every
