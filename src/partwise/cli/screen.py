"""Where words go: results to standard output, remarks and mistakes to standard error.

A terminal gets colour and a width; a pipe gets plain UTF-8 lines that are never broken.
"""

import io
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

# Wide enough that no table in a pipe is ever cut.
PIPE_WIDTH = 10_000


def prepare_streams() -> None:
    """Write UTF-8 whatever the locale says; what a terminal cannot show becomes an escape.

    A stream that was closed before we began (`partwise … >&-`) reads or writes nothing; its number
    is taken, so that no file that is opened later receives what was meant for it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nothing = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(nothing, mode, encoding="utf-8"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            if is_terminal(stream):
                stream.reconfigure(errors="backslashreplace")
            else:
                stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def is_terminal(stream: TextIO) -> bool:
    """Whether a person reads this stream on a terminal that can move its cursor."""
    try:
        return stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:  # closed
        return False


def console(stream: TextIO | None = None, width: int | None = None) -> "Console":
    """A rich console that takes text as it is: no markup, no emoji codes, no guessed colours."""
    from rich.console import Console

    class Screen(Console):
        def on_broken_pipe(self) -> None:
            """Rich would end the process with status 1; a reader that has enough is no fault."""
            raise BrokenPipeError

    out = sys.stdout if stream is None else stream
    terminal = is_terminal(out)
    return Screen(
        file=out,
        force_terminal=terminal,
        width=width if terminal or width else PIPE_WIDTH,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=None if terminal else False,
    )


def say(line: object = "", *, end: str = "\n") -> None:
    """One line of the result, to standard output."""
    sys.stdout.write(f"{line}{end}")
    sys.stdout.flush()


def remark(line: object) -> None:
    """One line beside the result, to standard error, so that a pipe carries the result alone."""
    sys.stdout.flush()
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def visible(text: str) -> str:
    """`text` in one line: what moves the cursor or breaks the line becomes an escape."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def harmless(text: str) -> str:
    """`text` for a terminal: line breaks and tabs stay, other control characters are shown."""
    return "".join(char if char.isprintable() or char in "\n\t" else visible(char) for char in text)


def table(
    headings: Sequence[str], rows: Iterable[Sequence[object]], *, right: Iterable[int] = ()
) -> None:
    """A table on standard output, its columns as wide as what stands in them.

    Args:
        headings: one for each column; none for a table without a heading line.
        rows: the cells.
        right: the columns that hold numbers.
    """
    from rich.table import Table
    from rich.text import Text

    grid = Table(
        box=None,
        padding=(0, 2, 0, 0),
        show_header=bool(headings),
        header_style="bold",
        pad_edge=False,
    )
    kept = [[visible(str(cell)) for cell in row] for row in rows]
    numbers = set(right)
    for place in range(len(headings) or (len(kept[0]) if kept else 0)):
        grid.add_column(
            Text(headings[place]) if headings else "",
            justify="right" if place in numbers else "left",
            overflow="fold",
        )
    for row in kept:
        grid.add_row(*map(Text, row))
    show(grid)


def show(drawing: Any) -> None:
    """Anything that rich draws, on standard output, without spaces at the ends of lines."""
    screen = console()
    with screen.capture() as captured:
        screen.print(drawing)
    for line in captured.get().splitlines():
        say(line.rstrip())


@contextmanager
def progress(label: str, *, quiet: bool = False) -> "Iterator[Any]":
    """A bar on standard error for long work; yields `report(done, total)`.

    Nothing is drawn where standard error is not a terminal.
    """
    if quiet or not is_terminal(sys.stderr):
        yield lambda done, total: None
        return
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=console(sys.stderr),
        transient=True,
    )
    with bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total or None)
