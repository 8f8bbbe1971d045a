"""Settings: what is written is read back, and what is wrong is named with what would do."""

import dataclasses
import tomllib
from dataclasses import dataclass
from typing import Any, Literal

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from partwise.errors import ConfigError
from partwise.messages import use_language
from partwise.model.config import ModelConfig
from partwise.sampling.config import SampleConfig
from partwise.settings import (
    MOST,
    build,
    check,
    checked,
    nearest,
    offer,
    option,
    options,
    parse,
    plain,
)
from partwise.text.config import DataConfig
from partwise.training.config import TrainConfig

INTEGERS = st.integers(-MOST, MOST)
CONFIGS = [ModelConfig, TrainConfig, DataConfig, SampleConfig]


@dataclass(frozen=True)
class Example:
    """One field of every kind."""

    count: int = option(1, "how many (things)")
    share: float = option(0.5, "how much")
    on: bool = option(True, "whether")
    word: str = option("a", "which")
    kind: Literal["none", "some"] = option("none", "what kind")
    limit: int | None = option(None, "at most; none: no limit")
    rate: float | None = option(0.1, "how fast; none: off")
    place: str | None = option(None, "where; none: here")
    size: int | Literal["auto"] = option("auto", "how large")
    words: tuple[str, ...] = option((), "all of them")

    def __post_init__(self) -> None:
        check(self)


SIMPLE = {
    "count": INTEGERS,
    "share": st.floats(allow_nan=False),
    "on": st.booleans(),
    "word": st.text(st.characters(codec="utf-8")),
    "kind": st.sampled_from(["none", "some"]),
    "limit": st.none() | INTEGERS,
    "rate": st.none() | st.floats(allow_nan=False),
    "place": st.none() | st.text(st.characters(codec="utf-8")).filter(lambda t: t != "none"),
    "size": st.just("auto") | INTEGERS,
    "words": st.lists(st.text(st.characters(codec="utf-8"))).map(tuple),
}


@given(st.fixed_dictionaries({}, optional=SIMPLE))
def test_toml_gives_back_what_was_written(values: dict[str, Any]) -> None:
    written = Example(**values)
    read = build(Example, tomllib.loads(tomli_w.dumps(plain(written))))
    assert read == written
    assert [type(v) for v in vars(read).values()] == [type(v) for v in vars(written).values()]


@pytest.mark.parametrize("config", CONFIGS)
def test_every_default_comes_back(config: type[Any]) -> None:
    assert build(config, tomllib.loads(tomli_w.dumps(plain(config())))) == config()
    assert build(config, dataclasses.asdict(config())) == config()


@pytest.mark.parametrize("config", CONFIGS)
def test_every_option_can_be_typed_and_has_a_help_line(config: type[Any]) -> None:
    for name, field in options(config).items():
        assert field.help, name
        assert field.types, name
        default = field.default
        word = "none" if default is None else str(default).lower() if default is True else default
        if not isinstance(default, tuple):
            assert parse(config, name, str(word)) == default, name


WRONG = [
    ("count", 1.0, "a whole number"),
    ("count", True, "a whole number"),
    ("count", "1", "a whole number"),
    ("count", None, "a whole number"),
    ("share", "fast", "a number"),
    ("share", False, "a number"),
    ("on", 1, "true or false"),
    ("on", "true", "true or false"),
    ("word", 1, "a text"),
    ("limit", 1.5, "a whole number or none"),
    ("limit", True, "a whole number or none"),
    ("rate", "x", "a number or none"),
    ("place", 3, "a text or none"),
    ("words", "a", "a list"),
    ("words", {"a": 1}, "a list"),
]


@pytest.mark.parametrize(("name", "value", "wanted"), WRONG)
def test_a_wrong_type_is_named_with_the_right_one(name: str, value: object, wanted: str) -> None:
    expected = f"{name}={value!r} has the wrong type; give {wanted}"
    for attempt in (lambda: Example(**{name: value}), lambda: build(Example, {name: value})):
        with pytest.raises(ConfigError) as caught:
            attempt()
        assert str(caught.value) == expected


def test_a_wrong_type_is_named_in_chinese() -> None:
    with pytest.raises(ConfigError) as caught:
        Example(limit="x")  # type: ignore[arg-type]
    with use_language("zh"):
        assert str(caught.value) == "limit='x' 的类型不对；请给出整数 或 none"


@pytest.mark.parametrize(
    ("name", "value", "choices"),
    [
        ("kind", "Some", "none, some"),
        ("kind", None, "none, some"),
        ("kind", ["some"], "none, some"),
        ("size", "automatic", "auto or a whole number"),
        ("size", 1.5, "auto or a whole number"),
        ("size", True, "auto or a whole number"),
    ],
)
def test_a_wrong_choice_lists_the_right_ones(name: str, value: object, choices: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Example(**{name: value})  # type: ignore[arg-type]
    assert str(caught.value) == f"{name}={value!r} is not a choice; choose {choices}"


def test_whole_numbers_are_numbers() -> None:
    example = Example(share=1, rate=2)
    assert (example.share, type(example.share)) == (1.0, float)
    assert type(example.rate) is float
    assert type(checked(Example, "size", 3)) is int


def test_an_unknown_name_is_named_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"no setting 'learning_rat' in TrainConfig"):
        build(TrainConfig, {"learning_rat": 1})
    with pytest.raises(ConfigError, match=r"did you mean d_model\?"):
        build(ModelConfig, {"dmodel": 1})
    with pytest.raises(ConfigError, match=r"choose count, share, on"):
        build(Example, {"xyzzy": 1})


def test_settings_are_laid_over_others() -> None:
    base = TrainConfig(steps=5, lr=0.5)
    assert build(TrainConfig, {"steps": 7}, base) == TrainConfig(steps=7, lr=0.5)
    assert build(TrainConfig, {"steps": "none"}, base).steps is None
    with pytest.raises(ConfigError, match="too small"):
        build(TrainConfig, {"steps": 0}, base)


@pytest.mark.parametrize(
    ("name", "word", "value"),
    [
        ("count", "7", 7),
        ("count", "-1_000", -1000),
        ("share", "3", 3.0),
        ("share", "1e-4", 1e-4),
        ("on", "true", True),
        ("on", "No", False),
        ("on", "off", False),
        ("word", "a=b", "a=b"),
        ("word", "none", "none"),
        ("word", "7", "7"),
        ("kind", "none", "none"),
        ("limit", "None", None),
        ("limit", "8", 8),
        ("rate", "none", None),
        ("place", "none", None),
        ("place", "here", "here"),
        ("size", "auto", "auto"),
        ("size", "12", 12),
        ("words", "a,b", ("a", "b")),
        ("words", "", ()),
    ],
)
def test_words_of_a_command_line(name: str, word: str, value: object) -> None:
    parsed = parse(Example, name, word)
    assert parsed == value
    assert type(parsed) is type(value)


NONSENSE = [("count", "fast"), ("count", "1.5"), ("count", ""), ("count", "none"), ("on", "maybe")]
NONSENSE += [("share", "a lot"), ("kind", "all"), ("limit", "many"), ("size", "big"), ("on", "1")]


@pytest.mark.parametrize(("name", "word"), NONSENSE)
def test_words_that_mean_nothing_are_refused(name: str, word: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}="):
        parse(Example, name, word)


@given(INTEGERS, st.floats(allow_nan=False))
def test_any_number_can_be_typed(whole: int, number: float) -> None:
    assert parse(Example, "count", str(whole)) == whole
    assert parse(Example, "share", repr(number)) == number


def test_the_nearest_name() -> None:
    assert nearest("lerning_rate", ["lr", "learning_rate"]) == "learning_rate"
    assert nearest("zzz", ["a", "b"]) is None
    assert str(offer("lerning_rate", ["lr", "learning_rate"])) == "did you mean learning_rate?"
    assert str(offer("zzz", ["a", "b"])) == "choose a, b"


def test_options_tell_what_a_user_meets() -> None:
    found = options(Example)
    assert list(found) == [field.name for field in dataclasses.fields(Example)]
    assert found["size"].types == (str, int) or found["size"].types == (int, str)
    assert found["size"].choices == ("auto",)
    assert found["limit"].optional
    assert not found["kind"].optional
    assert found["kind"].choices == ("none", "some")
    assert found["count"].help == "how many (things)"


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Example().count = 2  # type: ignore[misc]


@pytest.mark.parametrize("value", [2**63, -(2**63), 2**64, 10**30, 10**5000], ids=lambda _: "")
def test_a_whole_number_that_no_file_can_hold_is_refused(value: int) -> None:
    with pytest.raises(ConfigError, match=r"seed=.* is too big; .* 9,223,372,036,854,775,807"):
        SampleConfig(seed=value)
    with pytest.raises(ConfigError, match=r"lr=.*must be a finite number above 0"):
        TrainConfig(lr=10**400)
    assert SampleConfig(seed=2**63 - 1).seed == 2**63 - 1


def test_of_many_names_the_first_few_are_offered() -> None:
    assert str(offer("zzz", [f"a{number:02}" for number in range(12)])).endswith("a11")
    offered = str(offer("zzz", [f"a{number:02}" for number in range(100)]))
    assert offered.endswith("a11, …") and offered.count(", a") == 11
