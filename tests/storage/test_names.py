"""Names that Windows, macOS and Linux all accept."""

import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partwise.errors import ConfigError
from partwise.storage import cleaned, safe_name


@pytest.mark.parametrize(
    "name", ["novel", "novel-2026-11-29", "红楼梦", "a b", "x.y", "console", "com10", "Über", "🙂"]
)
def test_good_names_stay(name: str) -> None:
    assert safe_name(name) == name


# The reserved names are those of Microsoft's "Naming Files, Paths, and Namespaces".
BAD = ["", " ", ".", "..", "a/b", "a\\b", "C:x", "a*", "a?", 'a"', "<a>", "a|b", "a\n", "a\0b"]
BAD += ["a.", "a ", " a", ".a", "-a", "con", "CON", "Nul", "aux.txt", "prn", "com1", "LPT9.x.y"]
BAD += ["com¹", "con .txt", "conin$", "\ud800", "x" * 121, "红" * 41]


@pytest.mark.parametrize("name", BAD)
def test_bad_names_are_refused_with_one_that_would_do(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        safe_name(name)
    choice = cleaned(name)
    assert f"{choice} would do" in str(caught.value)
    assert safe_name(choice) == choice


def test_the_two_spellings_of_a_letter_are_one_name() -> None:
    assert safe_name(unicodedata.normalize("NFD", "é")) == "é"


@given(st.text(st.characters()))
def test_any_text_can_be_cleaned(text: str) -> None:
    name = cleaned(text)
    assert safe_name(name) == name
    assert cleaned(name) == name


@given(st.text(st.characters()))
def test_an_accepted_name_is_one_folder(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    try:
        name = safe_name(text)
    except ConfigError:
        return
    base = tmp_path_factory.getbasetemp()
    folder: Path = base / name
    folder.mkdir(exist_ok=True)
    assert folder.parent == base
    assert folder.is_dir()
