"""What a ladder can be told."""

import pytest

from partwise.errors import ConfigError
from partwise.ladder.config import LadderConfig


def test_rungs_are_1_to_5_when_nothing_is_said() -> None:
    assert LadderConfig().rungs == (1, 2, 3, 4, 5)


@pytest.mark.parametrize(
    ("given", "rungs"),
    [
        ({"to": 6}, (1, 2, 3, 4, 5, 6)),
        ({"to": 1}, (1,)),
        ({"only": "5,4"}, (4, 5)),
        ({"only": "residual, 2"}, (2, 4)),
        ({"only": "6"}, (6,)),
        ({"only": "2,2"}, (2,)),
    ],
)
def test_choice_of_rungs(given: dict[str, object], rungs: tuple[int, ...]) -> None:
    assert LadderConfig(**given).rungs == rungs  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"to": 7}, "1 to 6"),
        ({"to": 0}, "1 to 6"),
        ({"only": "7"}, "1 to 6"),
        ({"only": "-1"}, "1 to 6"),
        ({"only": "residul"}, "residual"),
        ({"only": ","}, "only is empty"),
        ({"to": 3, "only": "2"}, "both"),
        ({"seeds": 0}, "1 or more"),
        ({"seeds": 12345}, "a count of seeds"),
        ({"steps": 0}, "1 or more"),
        ({"workers": -1}, "negative"),
    ],
)
def test_refusals(given: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        LadderConfig(**given)  # type: ignore[arg-type]
