"""The table of commands: a command is a module of this folder and one entry here."""

import importlib
from dataclasses import dataclass
from typing import Protocol, cast

from partwise.cli.parser import Parser, Said
from partwise.messages import Notice


class CommandModule(Protocol):
    """What a command's module offers."""

    def declare(self, parser: Parser) -> None:
        """Give the parser the command's flags and places."""

    def run(self, said: Said) -> int:
        """Do what was said; return the exit status."""


@dataclass(frozen=True)
class Command:
    """One command.

    Args:
        module: where it lives; imported when it is asked for.
        summary: what it does, in one line.
    """

    module: str
    summary: Notice

    def load(self) -> CommandModule:
        """The module, imported now."""
        return cast(CommandModule, importlib.import_module(self.module))


COMMANDS = {
    "train": Command("partwise.cli.train", Notice("train a GPT on a text of your own")),
    "resume": Command("partwise.cli.resume", Notice("go on with a run exactly where it stopped")),
    "sample": Command("partwise.cli.sample", Notice("let a trained model write")),
    "translate": Command(
        "partwise.cli.translate", Notice("train the original Transformer on pairs of texts")
    ),
    "ladder": Command(
        "partwise.cli.ladder", Notice("what each part of a Transformer buys, measured")
    ),
    "studio": Command(
        "partwise.cli.studio", Notice("the course, the explorer and your runs, in the browser")
    ),
    "size": Command(
        "partwise.cli.size",
        Notice("parameters, FLOPs, memory and time of a model before training"),
    ),
    "runs": Command("partwise.cli.runs", Notice("list, look at and compare runs")),
    "import": Command(
        "partwise.cli.import_model", Notice("make a run of a model that was made elsewhere")
    ),
    "export": Command("partwise.cli.export", Notice("write a model for other programs to open")),
    "data": Command("partwise.cli.data", Notice("look at a text and prepare it")),
    "doctor": Command("partwise.cli.doctor", Notice("check what this machine can do")),
    "bench": Command("partwise.cli.bench", Notice("measure this machine with this version")),
    "completion": Command(
        "partwise.cli.completion", Notice("print the completion script of a shell")
    ),
}
