"""Sampling settings: what is refused, and in which words."""

import math
from typing import Any

import pytest

from partwise.errors import ConfigError
from partwise.sampling.config import DEFAULT_CHARS, SampleConfig
from partwise.settings import build, options


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"temperature": -0.1}, "temperature=-0.1"),
        ({"temperature": math.inf}, "temperature=inf"),
        ({"temperature": math.nan}, "temperature=nan"),
        ({"top_k": 0}, "top_k=0"),
        ({"top_p": 0.0}, "top_p=0.0"),
        ({"top_p": 1.5}, "top_p=1.5"),
        ({"min_p": -0.5}, "min_p=-0.5"),
        ({"min_p": 1.01}, "min_p=1.01"),
        ({"repetition_penalty": 0.0}, "repetition_penalty=0.0"),
        ({"repetition_penalty": math.nan}, "repetition_penalty=nan"),
        ({"count": 0}, "count=0"),
        ({"chars": -1}, "chars=-1"),
        ({"tokens": -1}, "tokens=-1"),
        ({"seed": -1}, "seed=-1"),
        ({"stop": ("END", "")}, "stop=''"),
        ({"stop": (7,)}, "stop=7"),
        ({"stop": "END"}, "stop='END'"),
        ({"unknown": "drop"}, "unknown='drop'"),
        ({"dtype": "float8"}, "dtype='float8'"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError) as refused:
        SampleConfig(**wrong)
    assert named in str(refused.value)
    assert "\n" not in str(refused.value)


def test_nothing_said_means_500_characters() -> None:
    assert SampleConfig().char_limit == DEFAULT_CHARS == 500
    assert SampleConfig(tokens=1000).char_limit is None
    assert SampleConfig(chars=7, tokens=9).char_limit == 7
    assert SampleConfig(chars=0).char_limit == 0


def test_temperature_0_is_greedy() -> None:
    assert SampleConfig(temperature=0).takes_likeliest
    assert SampleConfig(greedy=True, temperature=2.0).takes_likeliest
    assert not SampleConfig(temperature=1e-9).takes_likeliest


def test_plain_data_builds_it() -> None:
    built = build(SampleConfig, {"stop": ["a", "b"], "temperature": 1, "top_k": None})
    assert built == SampleConfig(stop=("a", "b"), temperature=1.0)


def test_every_setting_has_a_help_line() -> None:
    assert all(option.help for option in options(SampleConfig).values())
