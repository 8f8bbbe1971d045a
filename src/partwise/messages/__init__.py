"""What a user is told, in English and Chinese.

A message is written in English at the place that says it; its Chinese twin stands in
`messages/zh/*.toml` under the English text. A test reads the source and holds the two complete.
"""

import contextvars
import dataclasses
import functools
import locale
import os
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from typing import Literal, cast

Language = Literal["en", "zh"]

LANGUAGES: tuple[Language, ...] = ("en", "zh")

_chosen: contextvars.ContextVar[Language | None] = contextvars.ContextVar("language", default=None)
_words: contextvars.ContextVar[Mapping[str, str] | None] = contextvars.ContextVar(
    "words", default=None
)


def language() -> Language:
    """The reader's language: what `use_language` chose, else `PARTWISE_LANG`, else the system's."""
    chosen = _chosen.get()
    if chosen is not None:
        return chosen
    named = os.environ.get("PARTWISE_LANG", "").lower()
    if named[:2] in LANGUAGES:
        return cast(Language, named[:2])
    system = ""
    for variable in ("LC_ALL", "LC_MESSAGES", "LANG"):
        system = os.environ.get(variable, "")
        if system:
            break
    system = system or locale.getlocale()[0] or ""
    return "zh" if system.lower().startswith(("zh", "chinese")) else "en"


@contextmanager
def use_language(chosen: Language | None) -> Iterator[None]:
    """Speak `chosen` inside the `with`; None leaves the choice to the surroundings."""
    token = _chosen.set(chosen)
    try:
        yield
    finally:
        _chosen.reset(token)


@contextmanager
def use_words(words: Mapping[str, str]) -> Iterator[None]:
    """Say some templates otherwise inside the `with`, to readers who have no command line.

    Args:
        words: template -> the one that is shown in its place, with the same names in braces.
    """
    token = _words.set(words)
    try:
        yield
    finally:
        _words.reset(token)


def words() -> dict[str, str]:
    """What `use_words` has laid over the templates here, to be handed to another process."""
    return dict(_words.get() or {})


def message(template: str, /, **values: object) -> str:
    """`template` in the reader's language, with `{name}` replaced by the values.

    Args:
        template: the English text; it is the key of its Chinese twin.
        **values: what the names in braces stand for.

    Returns:
        The text to show. A template without a twin is shown in English.
    """
    template = (_words.get() or {}).get(template, template)
    translated = catalogue().get(template, template) if language() == "zh" else template
    return translated.format(**values)


@dataclasses.dataclass(frozen=True)
class Notice:
    """One line for the user that is not an error; `str` renders it in the reader's language.

    Args:
        template: the line in English, with `{name}` where a value belongs.
        **values: what those names stand for.
    """

    template: str
    values: Mapping[str, object]

    def __init__(self, template: str, /, **values: object) -> None:
        object.__setattr__(self, "template", template)
        object.__setattr__(self, "values", values)

    def __str__(self) -> str:
        return message(self.template, **self.values)

    def __hash__(self) -> int:
        return hash((self.template, *sorted(self.values)))


@functools.cache
def catalogue() -> dict[str, str]:
    """English text -> Chinese text, from every file of `messages/zh`."""
    pairs: dict[str, str] = {}
    for file in sorted(resources.files(__name__).joinpath("zh").iterdir(), key=lambda f: f.name):
        if file.name.endswith(".toml"):
            pairs.update(tomllib.loads(file.read_text(encoding="utf-8")))
    return pairs
