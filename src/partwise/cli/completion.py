"""`partwise completion SHELL`: the script that makes a shell complete commands, flags, choices."""

import argparse
import re
from typing import Any

import shtab

from partwise.cli import common
from partwise.cli.commands import COMMANDS
from partwise.cli.parser import Parser, Said
from partwise.cli.screen import say
from partwise.errors import UsageError
from partwise.messages import message
from partwise.settings import offer


def declare(parser: Parser) -> None:
    """One word: the shell."""
    parser.place(
        "SHELL",
        message("the shell: {shells}", shells=", ".join(shtab.SUPPORTED_SHELLS)),
        choices=shtab.SUPPORTED_SHELLS,
    )


def run(said: Said) -> int:
    """Print the script.

    Raises:
        UsageError: no shell is named, or one that has no script.
    """
    shells = shtab.SUPPORTED_SHELLS
    if not said.places:
        raise UsageError("name the shell: {shells}", shells=", ".join(shells))
    shell = said.places[0]
    if shell not in shells:
        raise UsageError(
            "there is no completion for {shell!r}; {offer}",
            shell=shell,
            offer=offer(shell, shells),
        )
    say(shtab.complete(whole_command(), shell))
    return 0


def whole_command() -> argparse.ArgumentParser:
    """One parser of all commands with their places and choices, as shtab reads it."""
    whole = Parser("partwise")
    common.declare(whole)
    _describe(whole)
    commands = whole.add_subparsers()
    for name, command in COMMANDS.items():
        parser = commands.add_parser(name, help=str(command.summary))
        command.load().declare(parser)
        common.declare(parser)
        _describe(parser)
    return whole


def _describe(parser: Parser) -> None:
    """Write into argparse's actions what shells complete: choices, help lines and places."""
    for flag, action in zip(parser.flags, parser.actions, strict=True):
        action.help = _plain(flag.help)
        action.choices = flag.choices or None
    for place in parser.places:
        action = parser.add_argument(
            place.name.lower(),
            nargs="*" if place.many else "?",
            choices=place.choices or None,
            help=_plain(place.help),
        )
        if not place.choices:
            _complete_paths(action, shtab.DIRECTORY if place.folder else shtab.FILE)


def _complete_paths(action: Any, how: object) -> None:
    action.complete = how


def _plain(help: str) -> str:
    # shells read brackets, quotes and percent signs of a help line as their own
    return re.sub(r"[\[\]\"'`%$\\]", "", help)
