"""Every field of `ModelConfig` changes the model: none is taken and then ignored."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from configurations import LEVELS, NEEDS, Row, is_valid

from partwise.errors import PartwiseError
from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT
from partwise.settings import options


def effects(config: ModelConfig) -> list[Any]:
    """All that a model is and does: its weights, what it says, what it says in training."""
    torch.manual_seed(1)
    model = GPT(config)
    ids = torch.arange(6)[None] % config.vocab_size
    found: list[Any] = [(name, tensor.shape) for name, tensor in model.state_dict().items()]
    # Small random weights everywhere, so that nothing that starts at zero hides a part.
    found += [tensor.flatten().tolist() for tensor in model.state_dict().values()]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape))
    for training in (False, True):
        model.train(training)
        torch.manual_seed(2)
        found.append(model(ids).flatten().tolist())
    return found


def longest(config: ModelConfig) -> int:
    """The longest text that a model reads."""
    model = GPT(config).eval()
    for length in range(1, 14):
        try:
            model(torch.zeros(1, length, dtype=torch.int64))
        except PartwiseError:
            return length - 1
    return 14


@pytest.mark.parametrize("field", options(ModelConfig))
def test_each_field_of_a_model_has_an_effect(field: str) -> None:
    row: Row = {name: values[0] for name, values in LEVELS.items()}
    for needed, values in NEEDS.get(field, {}).items():
        row[needed] = next(value for value in LEVELS[needed] if value in values)
    one, other = LEVELS[field][:2]
    assert is_valid(row | {field: one})
    assert is_valid(row | {field: other})
    config = ModelConfig(**(row | {field: one}))
    changed = replace(config, **{field: other})
    if field == "context_length":
        assert longest(config) == one != longest(changed)
    else:
        assert effects(config) != effects(changed)
