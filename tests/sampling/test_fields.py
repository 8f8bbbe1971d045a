"""Every field of `SampleConfig` changes what is sampled: none is taken and then ignored."""

from typing import Any

import pytest
import torch
from configurations import randomise

from partwise.errors import PartwiseError
from partwise.model.cache import KVCache
from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT
from partwise.sampling.config import SampleConfig
from partwise.sampling.generate import complete
from partwise.settings import build, options
from partwise.text.char import CharTokenizer

LETTERS = CharTokenizer("\nabcdefghij")

# The field: what stands beside it, and two values that must differ.
CASES: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "temperature": ({}, 0.8, 3.0),
    "greedy": ({}, False, True),
    "top_k": ({"temperature": 3.0}, None, 2),
    "top_p": ({"temperature": 3.0}, None, 0.3),
    "min_p": ({"temperature": 3.0}, None, 0.9),
    "repetition_penalty": ({}, 1.0, 10.0),
    "stop": ({}, (), ("a", "b", "c")),
    "seed": ({"temperature": 3.0}, 1, 2),
    "chars": ({}, 10, 20),
    "tokens": ({"chars": None}, 10, 20),
    "count": ({}, 1, 3),
    "unknown": ({}, "refuse", "skip"),
    "cache": ({}, True, False),
    "dtype": ({}, "auto", "bfloat16"),
}


def model() -> GPT:
    made = GPT(
        ModelConfig(
            vocab_size=11,
            context_length=16,
            n_layers=1,
            d_model=16,
            n_heads=2,
            tie_embeddings=False,
        )
    )
    randomise(made)
    return made


def effects(settings: dict[str, Any], prompt: str) -> list[Any]:
    """What is said, and what the model read: how much, in which format, with or without a cache."""
    reads: list[Any] = []

    class Watched(GPT):
        def hidden(
            self, ids: torch.Tensor, cache: KVCache | None = None, observe: Any = None
        ) -> Any:
            reads.append((tuple(ids.shape), cache is not None, self.token_embedding.weight.dtype))
            return super().hidden(ids, cache, observe)

    watched = model()
    watched.__class__ = Watched
    config = build(SampleConfig, {"chars": 40, **settings})
    try:
        return [complete(watched, LETTERS, prompt, config), reads]
    except PartwiseError as error:
        return [str(error)]


def test_there_is_a_case_for_each_field() -> None:
    assert set(CASES) == set(options(SampleConfig))


@pytest.mark.parametrize("field", CASES)
def test_each_field_of_a_sample_has_an_effect(field: str) -> None:
    beside, one, other = CASES[field]
    prompt = "cab!" if field == "unknown" else "cab"
    first = effects({**beside, field: one}, prompt)
    assert first != effects({**beside, field: other}, prompt)
    assert first == effects({**beside, field: one}, prompt), "else it would pass in any case"
