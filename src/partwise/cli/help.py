"""What `--help` shows. The table of commands is plain, so that it answers at once."""

import shutil
import sys
from collections.abc import Iterable

from partwise import __version__
from partwise.cli.commands import COMMANDS
from partwise.cli.parser import Flag, Parser
from partwise.cli.screen import console, is_terminal, say
from partwise.messages import message

WIDEST = 100
NARROW = 64


def show_commands(flags: Iterable[Flag]) -> None:
    """`partwise --help`: the commands, one line each, and the flags that stand before one."""
    say(message("Build a GPT part by part, see what each part buys, train it on your own text."))
    say()
    say(message("usage: {line}", line="partwise COMMAND …"))
    say()
    width = max(map(len, COMMANDS))
    for name, command in COMMANDS.items():
        say(f"  {name:<{width}}  {command.summary}")
    say()
    rows = [(_spelled(flag), flag.help) for flag in flags]
    width = max(len(spelled) for spelled, _ in rows)
    for spelled, help in rows:
        say(f"  {spelled:<{width}}  {help}")
    say()
    say(
        message(
            "`partwise COMMAND --help` explains a command; this is version {version}",
            version=__version__,
        )
    )


def show_command(parser: Parser) -> None:
    """`partwise COMMAND --help`: what stands where, then every flag under its heading."""
    from rich.text import Text

    columns = shutil.get_terminal_size().columns if is_terminal(sys.stdout) else WIDEST
    width = max(24, min(WIDEST, columns))
    screen = console(width=width)
    places = [f"{place.name} …" if place.many else place.name for place in parser.places]
    if parser.forms:
        places = [parser.forms[0][0] if len(parser.forms) == 1 else "…"]
    usage = " ".join([parser.prog, *places, "[--…]"])
    screen.print(Text(message("usage: {line}", line=usage)))
    if parser.summary:
        screen.print(Text(str(parser.summary)))

    rows = parser.forms or [(place.name, place.help) for place in parser.places]
    groups: dict[str, list[tuple[str, str]]] = {message("words"): rows} if rows else {}
    for flag in parser.flags:
        groups.setdefault(flag.group, []).append((_spelled(flag), flag.help))
    indent = 8 if width < NARROW else 36
    for heading, lines in groups.items():
        screen.print()
        screen.print(Text(heading, style="bold"))
        for left, right in lines:
            # rich measures in columns, of which a Chinese character takes two.
            wrapped = [line.plain.rstrip() for line in Text(right).wrap(screen, width - indent)]
            if len(left) + 4 > indent:
                screen.print(Text("  " + left, overflow="fold"))
            else:
                wrapped[:1] = [f"  {left:<{indent - 2}}{wrapped[0] if wrapped else ''}"]
            for number, line in enumerate(wrapped):
                joined = number == 0 and len(left) + 4 <= indent
                screen.print(Text(line if joined else " " * indent + line))


def _spelled(flag: Flag) -> str:
    return ", ".join(flag.names) + (f" {flag.value}" if flag.value else "")
