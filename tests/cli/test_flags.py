"""Flags are the settings: every field has one, and what is typed is what the dataclass holds."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partwise.cli import flags
from partwise.cli.parser import Parser, Said
from partwise.errors import ConfigError, PartwiseError, UsageError
from partwise.model.config import ModelConfig
from partwise.settings import option, options
from partwise.text.config import DataConfig
from partwise.training.config import TrainConfig


@dataclass(frozen=True)
class Sample:
    """One field of each kind."""

    count: int = option(3, "how many")
    rate: float = option(0.5, "how fast")
    limit: int | None = option(None, "at most; none: no limit")
    kind: Literal["a", "b"] = option("a", "which")
    stop: tuple[str, ...] = option((), "where to end")
    loud: bool = option(False, "say more")
    cache: bool = option(True, "keep what was computed")
    text: str = option("", "any words")


def said(prefix: str, words: list[str], config: type[Any] = Sample) -> Said:
    parser = Parser("partwise try")
    flags.add(parser, prefix, config, "settings", short={"rate": "--speed"})
    return parser.understand(words)


def read(prefix: str, words: list[str], config: type[Any] = Sample) -> dict[str, Any]:
    return flags.overrides(said(prefix, words, config), prefix, config)


def test_only_what_was_said_is_an_override() -> None:
    assert read("part", []) == {}
    assert read("part", ["--part.count", "4", "--speed=2"]) == {"count": 4, "rate": 2.0}


def test_last_word_wins_and_a_list_grows() -> None:
    assert read("", ["--count", "4", "--count=5"]) == {"count": 5}
    assert read("", ["--stop", "a,b", "--stop="]) == {"stop": ("a,b", "")}


def test_switches_stand_alone_without_a_prefix_only() -> None:
    assert read("", ["--loud", "--no-cache"]) == {"loud": True, "cache": False}
    assert read("part", ["--part.loud", "true", "--part.cache", "off"]) == {
        "loud": True,
        "cache": False,
    }


def test_none_is_a_word_where_none_is_a_value() -> None:
    assert read("part", ["--part.limit", "none"]) == {"limit": None}
    with pytest.raises(UsageError, match=r"--part\.count='none'"):
        read("part", ["--part.count", "none"])


@given(st.text())
def test_any_text_passes_unharmed(text: str) -> None:
    assert read("", [f"--text={text}"]) == {"text": text}
    if not text.startswith("-"):
        assert read("", ["--text", text]) == {"text": text}


@given(st.text(), st.sampled_from([name for name in options(Sample) if name != "stop"]))
def test_a_word_is_held_or_refused_by_the_flag_as_typed(word: str, name: str) -> None:
    if name in ("loud", "cache"):
        return
    try:
        value = read("part", [f"--part.{name}={word}"])[name]
    except UsageError as mistake:
        assert f"--part.{name}={word!r}" in str(mistake)
    else:
        flags.layered(Sample, Sample(), {name: value})


def test_every_field_has_a_flag_of_its_name() -> None:
    for prefix, config in (("model", ModelConfig), ("train", TrainConfig), ("data", DataConfig)):
        parser = Parser("partwise try")
        flags.add(parser, prefix, config, "settings")
        names = {name for flag in parser.flags for name in flag.names}
        assert names == {f"--{prefix}.{name.replace('_', '-')}" for name in options(config)}


def test_help_has_the_default_and_the_choices() -> None:
    parser = Parser("partwise try")
    flags.add(parser, "part", Sample, "settings", base=Sample(count=7))
    help = {flag.names[-1]: flag.help for flag in parser.flags}
    assert help["--part.count"] == "how many (default 7)"
    assert help["--part.kind"] == "which; one of a, b (default a)"
    assert help["--part.limit"] == "at most; none: no limit"
    assert help["--part.cache"] == "keep what was computed (default true)"


def test_layers_lie_over_each_other() -> None:
    file = {"count": 4, "rate": 1}
    assert flags.layered(Sample, Sample(text="x"), file, {"count": 5}) == Sample(
        count=5, rate=1.0, text="x"
    )


def test_a_pair_that_fits_only_together_is_set_together() -> None:
    # 5 heads fit a width of 320, not the base's 384
    changed = flags.layered(ModelConfig, ModelConfig(), {"n_heads": 5}, {"d_model": 320})
    assert (changed.n_heads, changed.d_model) == (5, 320)


def test_config_file(tmp_path: Path) -> None:
    file = tmp_path / "设置.toml"
    file.write_text(
        '[model]\nd_model = 96\nhead_dim = "none"\nnorm = "none"\n[made]\nby = "us"\n',
        encoding="utf-8",
    )
    read = flags.read_config(str(file), {"model": ModelConfig, "train": TrainConfig}, ["made"])
    assert read == {"model": {"d_model": 96, "head_dim": None, "norm": "none"}, "train": {}}


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("[modl]\n", r"'modl'.*\[model\]"),
        ("d_model = 3\n", "'d_model'"),
        ("[model]\nd_modl = 3\n", r"\[model\] has no setting 'd_modl'; did you mean d_model"),
        ("[model\n", "is not a TOML file"),
        ("model = 3\n", "'model'"),
        ("model = " + "[" * 100_000, "is not a TOML file"),
    ],
)
def test_config_file_with_a_mistake(text: str, wrong: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=wrong) as caught:
        flags.read_config(str(file), {"model": ModelConfig})
    assert "\n" not in str(caught.value)


def test_config_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        flags.read_config(str(tmp_path / "none.toml"), {"model": ModelConfig})
    with pytest.raises(UsageError, match="cannot be read"):
        flags.read_config(str(tmp_path), {"model": ModelConfig})
    if Path("/dev/zero").exists():
        with pytest.raises(UsageError, match="more than 256 MB"):
            flags.read_config("/dev/zero", {"model": ModelConfig})
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not a TOML file"):
        flags.read_config(str(binary), {"model": ModelConfig})


def test_places_and_flags_may_stand_in_any_order() -> None:
    parser = Parser("partwise try")
    flags.add(parser, "", Sample, "settings")
    parser.place("NAME", "names", many=True)
    for words in (["a", "--count", "4", "b"], ["--count=4", "a", "b"], ["a", "b", "--count=4"]):
        understood = parser.understand(words)
        assert understood.places == ["a", "b"]
        assert understood.words["count"][0][1] == "4"


def test_two_dashes_end_the_flags() -> None:
    parser = Parser("partwise try")
    parser.place("NAME", "a name")
    assert parser.understand(["--", "--odd"]).places == ["--odd"]
    assert parser.understand(["-"]).places == ["-"]
    with pytest.raises(UsageError, match="no flag -odd"):
        parser.understand(["-odd"])


@given(st.lists(st.text(max_size=8), max_size=5))
def test_only_our_own_errors_come_out(words: list[str]) -> None:
    parser = Parser("partwise try")
    flags.add(parser, "", Sample, "settings")
    parser.place("NAME", "a name", many=True)
    try:
        flags.given(parser.understand(words), "", Sample)
    except PartwiseError as mistake:
        assert str(mistake)
