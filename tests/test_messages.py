"""Every message exists in English and Chinese, with the same values in it, and both can be shown.

The source is read, not run: the first literal argument of each `…Error(`, `message(` and `Notice(`,
and the help line of each `option(`, must stand in `messages/zh/*.toml`.
"""

import ast
import inspect
import re
import string
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import partwise
from partwise import errors
from partwise.errors import ConfigError, PartwiseError
from partwise.messages import Notice, catalogue, language, message, use_language

SOURCE = Path(partwise.__file__).parent
FILES = sorted(path for path in SOURCE.rglob("*.py") if "node_modules" not in path.parts)
CATALOGUES = sorted((SOURCE / "messages" / "zh").glob("*.toml"))
ERRORS = {
    name
    for name, thing in vars(errors).items()
    if inspect.isclass(thing) and issubclass(thing, PartwiseError)
}


@dataclass(frozen=True)
class Said:
    """One message in the source."""

    template: str
    place: str
    values: frozenset[str] | None

    def __str__(self) -> str:
        return f"{self.place}: {self.template!r}"


def said_in(source: str, name: str) -> Iterator[Said]:
    """The messages of one file; `values` is None where they are not written out."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        called = function.id if isinstance(function, ast.Name) else None
        if isinstance(function, ast.Attribute):
            called = function.attr
        template: ast.expr | None = None
        values: frozenset[str] | None = None
        if called in ERRORS | {"message", "Notice"} and node.args:
            template = node.args[0]
            named = [keyword.arg for keyword in node.keywords]
            values = None if None in named else frozenset(filter(None, named))
        elif called == "option":
            helps = [keyword.value for keyword in node.keywords if keyword.arg == "help"]
            template = helps[0] if helps else node.args[1] if len(node.args) > 1 else None
            values = frozenset()
        branches = (
            [template.body, template.orelse] if isinstance(template, ast.IfExp) else [template]
        )
        for branch in branches:
            if isinstance(branch, ast.Constant) and isinstance(branch.value, str):
                yield Said(branch.value, f"{name}:{node.lineno}", values)


@pytest.fixture(scope="module")
def said() -> list[Said]:
    found: list[Said] = []
    for path in FILES:
        relative = path.relative_to(SOURCE).as_posix()
        found.extend(said_in(path.read_text(encoding="utf-8"), relative))
    return found


def places(template: str) -> set[tuple[str, str | None, str | None]]:
    """Where values stand in a template, each with its conversion and format."""
    parts = string.Formatter().parse(template)
    return {(name, conversion, form) for _, name, form, conversion in parts if name is not None}


def names(template: str) -> set[str]:
    return {re.split(r"[.\[]", name)[0] for name, _, _ in places(template)}


def report(title: str, lines: list[str]) -> str:
    return "\n  ".join([f"{title} ({len(lines)}):", *lines])


def test_the_reader_of_the_source_finds_every_kind() -> None:
    source = """
raise TextError("a {x}", x=1)
raise errors.RunError(
    "b "
    "c"
)
y = message("d") + str(Notice("e" if z else "f {y!r}", y=2))
class C:
    size: int = option(3, "g")
    name: str = option(default="", help="h")
raise PartwiseError(template, **values)
ValueError("not ours")
other("not ours")
"""
    found = {(each.template, each.values) for each in said_in(source, "x")}
    assert found == {
        ("a {x}", frozenset({"x"})),
        ("b c", frozenset()),
        ("d", frozenset()),
        ("e", frozenset({"y"})),
        ("f {y!r}", frozenset({"y"})),
        ("g", frozenset()),
        ("h", frozenset()),
    }


def test_every_message_has_a_chinese_twin(said: list[Said]) -> None:
    missing = sorted({str(each) for each in said if each.template not in catalogue()})
    assert not missing, report("without a twin in messages/zh", missing)


def test_no_twin_is_stale(said: list[Said]) -> None:
    stale = sorted(set(catalogue()) - {each.template for each in said})
    assert not stale, report("in messages/zh and nowhere in the source", list(map(repr, stale)))


def test_twins_have_the_same_values() -> None:
    different = [repr(en) for en, zh in catalogue().items() if places(en) != places(zh)]
    assert not different, report("with other placeholders in Chinese", different)


def test_every_value_is_given(said: list[Said]) -> None:
    # An option's help line is shown as it stands, and has no values.
    wrong = [
        f"{each}: given {sorted(each.values)}"
        for each in said
        if each.values is not None and not names(each.template) <= each.values
    ]
    assert not wrong, report("with a placeholder that is not given", wrong)


def test_a_message_is_one_line_without_a_full_stop(said: list[Said]) -> None:
    # A heading, an epilogue or a script may be a paragraph; an error may not.
    wrong = [str(each) for each in said if each.template != each.template.strip("\n")]
    assert not wrong, report("that begin or end with a line break", wrong)


def test_chinese_is_chinese() -> None:
    same = [
        repr(en)
        for en, zh in catalogue().items()
        if en == zh and re.search(r"[a-z]{3,} [a-z]{2,} [a-z]{2,}", en)
    ]
    assert not same, report("that are the same in Chinese", same)


def test_no_two_files_disagree() -> None:
    first: dict[str, tuple[str, str]] = {}
    clashes = []
    for path in CATALOGUES:
        for template, twin in tomllib.loads(path.read_text(encoding="utf-8")).items():
            file, other = first.setdefault(template, (path.name, twin))
            if other != twin:
                clashes.append(f"{template!r}: {file} and {path.name}")
    assert not clashes, report("translated in two ways", clashes)


class Anything:
    """A value that every format takes."""

    def __format__(self, form: str) -> str:
        return "7"

    def __str__(self) -> str:
        return "7"

    __repr__ = __str__


@pytest.mark.parametrize("chosen", ["en", "zh"])
def test_every_message_can_be_shown(said: list[Said], chosen: str) -> None:
    with use_language(chosen):  # type: ignore[arg-type]
        for each in said:
            shown = message(each.template, **{name: Anything() for name in names(each.template)})
            assert shown
            assert "{" not in shown.replace("{{", "") or "{{" in each.template, each


# --- Language and rendering -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("surroundings", "expected"),
    [
        ({"PARTWISE_LANG": "zh"}, "zh"),
        ({"PARTWISE_LANG": "ZH_CN.UTF-8", "LC_ALL": "en_US.UTF-8"}, "zh"),
        ({"PARTWISE_LANG": "en", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"PARTWISE_LANG": "fr", "LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LC_ALL": "zh_TW.UTF-8", "LANG": "en_US.UTF-8"}, "zh"),
        ({"LC_ALL": "C", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"LC_MESSAGES": "zh_CN"}, "zh"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
    ],
)
def test_the_readers_language(
    monkeypatch: pytest.MonkeyPatch, surroundings: dict[str, str], expected: str
) -> None:
    for name in ("PARTWISE_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in surroundings.items():
        monkeypatch.setenv(name, value)
    assert language() == expected
    with use_language("zh"):
        assert language() == "zh"
        with use_language("en"):
            assert language() == "en"
        with use_language(None):
            assert language() == expected
    assert language() == expected


TEMPLATE = "there is no file {path}"


def test_an_error_is_said_in_the_language_in_which_it_is_read() -> None:
    error = ConfigError(TEMPLATE, path="a{b}")
    assert isinstance(error, ValueError)
    assert error.exit_status == 2
    with use_language("en"):
        assert str(error) == "there is no file a{b}"
    with use_language("zh"):
        assert str(error) == "没有文件 a{b}"


def test_a_notice_within_a_message_follows_its_language() -> None:
    error = ConfigError("{path}: {reason}", path="x", reason=Notice(TEMPLATE, path="y"))
    with use_language("zh"):
        assert str(error) == "x：没有文件 y"


def test_notices_are_values() -> None:
    one = Notice(TEMPLATE, path=[1])
    assert one == Notice(TEMPLATE, path=[1])
    assert hash(one) == hash(Notice(TEMPLATE, path=[1]))
    assert one != Notice(TEMPLATE, path=[2])
    assert one != Notice("none")
    assert (one.template, one.values) == (TEMPLATE, {"path": [1]})
    with pytest.raises(AttributeError):
        one.template = "x"  # type: ignore[misc]


def test_a_message_without_a_twin_is_shown_in_english() -> None:
    with use_language("zh"):
        assert message("nobody wrote this {n}", n=1) == "nobody wrote this 1"
