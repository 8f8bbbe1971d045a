"""The flags that every command has."""

from dataclasses import dataclass

from partwise.cli import flags
from partwise.cli.parser import Parser, Said
from partwise.messages import LANGUAGES, Language, message
from partwise.settings import option


@dataclass(frozen=True)
class Everywhere:
    """What any command can be told."""

    lang: Language | None = option(
        None, "language of the messages; else PARTWISE_LANG, else the system's"
    )
    debug: bool = option(False, "show the whole traceback of a mistake or fault")


def declare(parser: Parser) -> None:
    """Add them, and `--help`."""
    heading = message("everywhere")
    flags.add(parser, "", Everywhere, heading)
    parser.flag("help", ["-h", "--help"], message("show this and stop"), group=heading)


def check(said: Said) -> None:
    """Refuse a value that none of them has.

    Raises:
        UsageError: such as `--lang fr`.
    """
    flags.given(said, "", Everywhere)


def language_in(words: list[str]) -> Language | None:
    """The language asked for, looked up before anything else is said."""
    for place, word in enumerate(words):
        if word == "--":
            break
        value = word.removeprefix("--lang=")
        if word == "--lang":
            value = words[place + 1] if place + 1 < len(words) else ""
        if word.startswith("--lang"):
            for language in LANGUAGES:
                if value == language:
                    return language
    return None
