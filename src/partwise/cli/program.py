"""From a command line to an exit status: 0 done, 1 our fault, 2 the user's mistake, 130 and 143.

`docs/exit-statuses.md` says what each means.
"""

import contextlib
import errno
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from partwise import __version__
from partwise.cli import common
from partwise.cli.commands import COMMANDS
from partwise.cli.interrupts import INTERRUPTED, TERMINATED, Stopped, terminate_as_stopped
from partwise.cli.parser import Parser
from partwise.cli.screen import is_terminal, prepare_streams, remark, say, visible
from partwise.cli.waiting import wait_briefly
from partwise.errors import PartwiseError, UsageError, is_out_of_memory
from partwise.messages import message, use_language
from partwise.settings import offer

DONE, FAULT, MISTAKE = 0, 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line.

    Args:
        argv: the words after `partwise`; those of this process when None.

    Returns:
        The exit status.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    prepare_streams()
    wait_briefly()
    with use_language(common.language_in(words)):
        debug = "--debug" in words
        try:
            with terminate_as_stopped():
                status = dispatch(words)
            sys.stdout.flush()
            return status
        except PartwiseError as mistake:
            return _tell(mistake, str(mistake), mistake.exit_status, debug)
        except KeyboardInterrupt:
            if is_terminal(sys.stdout):
                say()  # the terminal's own ^C, or half a line of a sample, stands there
            return _tell(None, message("interrupted"), INTERRUPTED, debug)
        except Stopped:
            return _tell(None, message("stopped"), TERMINATED, debug)
        except BrokenPipeError:
            # The reader, `head` for one, has all that it wants.
            _discard_output()
            return DONE
        except Exception as problem:
            line, status = _explained(problem)
            return _tell(problem, line, status, debug)


def dispatch(words: list[str]) -> int:
    """Find the command, let it read its words, run it.

    Raises:
        UsageError: there is no such command, or its words cannot be understood.
    """
    top = Parser("partwise")
    common.declare(top)
    top.flag("version", ["--version"], message("show the version and stop"), group="")
    first = top.first_place(words)
    said = top.understand(words[:first])
    common.check(said)
    if said.has("version"):
        say(f"partwise {__version__}")
        return DONE
    if said.has("help") or first == len(words):
        from partwise.cli.help import show_commands

        show_commands(top.flags)
        # Without a command nothing was asked for; the table is the answer all the same.
        return DONE
    name = words[first]
    if name not in COMMANDS:
        raise UsageError(
            "there is no command {name!r}; {offer}",
            name=name,
            offer=offer(name, COMMANDS),
        )
    command = COMMANDS[name]
    _require_folder()
    module = command.load()
    parser = Parser(f"partwise {name}", command.summary)
    module.declare(parser)
    common.declare(parser)
    said = parser.understand(words[first + 1 :])
    common.check(said)
    if said.has("help"):
        from partwise.cli.help import show_command

        show_command(parser)
        return DONE
    return module.run(said)


def _require_folder() -> None:
    """Check that the current folder stands; torch ends the process where it does not."""
    try:
        Path.cwd()
    except FileNotFoundError as error:
        raise UsageError(
            "the current folder was deleted; change into one that exists (cd)"
        ) from error


def _explained(problem: Exception) -> tuple[str, int]:
    """One line and the exit status for what is not one of our own errors."""
    if isinstance(problem, OSError):
        reason = problem.strerror or str(problem) or type(problem).__name__
        if problem.filename is not None:
            return message("{path}: {reason}", path=problem.filename, reason=reason), MISTAKE
        # Files name themselves (`partwise.storage.faults`), so only the standard streams are left.
        if problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
            _discard_output()
            return message("standard output: {reason}", reason=reason), MISTAKE
    if is_out_of_memory(problem):
        line = message(
            "the memory of this machine is not enough; a smaller --batch-size, "
            "--model.context-length or model would do"
        )
        return line, MISTAKE
    line = message(
        "internal fault, which is ours to mend: {kind}: {text}; please report it with what the "
        "same command prints with --debug, and with what `partwise doctor` prints",
        kind=type(problem).__name__,
        text=problem,
    )
    return line, FAULT


def _tell(problem: BaseException | None, line: str, status: int, debug: bool) -> int:
    """Say one line on standard error; before it, for those who asked, the traceback."""
    try:
        if debug and problem is not None:
            traceback.print_exception(problem, file=sys.stderr)
        remark(f"partwise: {visible(line)}")
    except OSError:
        # There is nowhere left to say it; the status still does.
        _discard_output()
    return status


def _discard_output() -> None:
    """Point the standard streams at nothing, so that Python's last flush finds no broken pipe."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with contextlib.suppress(OSError, ValueError):
                os.dup2(nothing, stream.fileno())
    os.close(nothing)
