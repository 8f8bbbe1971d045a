"""What runs in a kernel's own process: IPython, held to a memory limit and to so much output.

Errors name the line of the cell that they come from, output ends where a page could hold no more,
and nothing is read from or written to the learner's own IPython settings.
"""

import importlib
import sys
import threading
import traceback
from contextlib import suppress
from typing import Any

from ipykernel.iostream import OutStream
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp
from ipykernel.zmqshell import ZMQInteractiveShell
from traitlets.config import Config

from partwise.messages import Notice, use_words
from partwise.studio.memory import limit_memory
from partwise.studio.wording import PAGES

# Characters that a cell may print to each stream, and pictures and tables that it may show.
PRINTED = 1 << 19
SHOWN = 60
SHOWN_SIZE = 24 << 20

# Frames of a traceback, and characters of what an exception says.
FRAMES = 40
SAID = 4000


class Stream(OutStream):
    """Standard output, up to a limit a cell; what is printed after it is dropped and said so."""

    _left = PRINTED

    def renew(self) -> None:
        """A cell begins."""
        self._left = PRINTED

    def write(self, string: str) -> int:
        if not isinstance(string, str) or len(string) <= self._left:
            super().write(string)
            self._left -= len(string)
            return len(string)
        if self._left >= 0:
            words = Notice("output is cut here, after {count:,} characters", count=PRINTED)
            shown = f"{string[: self._left]}\n… {words}\n"
            self._left = -1
            super().write(shown)
        return len(string)


class Shell(ZMQInteractiveShell):
    """IPython's shell, whose errors know the line of the cell."""

    _shown = 0
    _shown_size = 0
    _full = False
    _cell_file = ""
    _first = 0

    def begin(self, info: Any) -> None:
        """A cell begins."""
        self._cell_file = self.compile.get_code_name(info.raw_cell, info.raw_cell, 0)
        # IPython compiles a cell without the empty lines that it begins with.
        lines = info.raw_cell.split("\n")
        self._first = next((n for n, line in enumerate(lines) if line.strip()), 0)
        self._shown = self._shown_size = 0
        self._full = False
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, Stream):
                stream.renew()

    def bound(self, sent: dict[str, Any]) -> dict[str, Any] | None:
        """What is shown, up to a limit a cell."""
        data = sent.get("content", {}).get("data", {})
        self._shown += 1
        self._shown_size += sum(len(value) for value in data.values() if isinstance(value, str))
        if self._full:
            return None
        if self._shown <= SHOWN and self._shown_size <= SHOWN_SIZE:
            return sent
        self._full = True
        words = str(Notice("no more is shown of this cell"))
        return {**sent, "content": {"data": {"text/plain": words}, "metadata": {}}}

    def _showtraceback(self, etype: type[BaseException], evalue: Any, stb: list[str]) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        hook: Any = self.displayhook
        lines = [str(line) for line in stb]
        place = None
        if isinstance(evalue, BaseException):
            lines, place = told(evalue, self._cell_file, self._first)
        said = evalue.msg if isinstance(evalue, SyntaxError) else evalue
        content = {
            "ename": etype.__name__,
            "evalue": str(said)[:SAID],
            "traceback": lines,
            "line": place,
        }
        topic = hook.topic.replace(b"execute_result", b"error") if hook.topic else None
        hook.session.send(hook.pub_socket, "error", content, hook.parent_header, ident=topic)
        self._last_traceback = lines


def told(error: BaseException, cell: str, first: int = 0) -> tuple[list[str], int | None]:
    """The lines of a traceback as a learner reads them, and the line of the cell (from 1).

    Args:
        error: what was raised.
        cell: the file name that the cell was compiled under.
        first: empty lines that it begins with.
    """
    seen = traceback.TracebackException.from_exception(error, compact=True)
    place = None
    if isinstance(error, SyntaxError) and error.filename == cell:
        place = (error.lineno or 1) + first
    one: traceback.TracebackException | None = seen
    while one is not None:
        frames = list(one.stack)
        entry = next((n for n, frame in enumerate(frames) if _is_cell(frame.filename)), 0)
        if one is seen and place is None:
            here = [frame.lineno for frame in frames if frame.filename == cell]
            place = here[-1] + first if here and here[-1] else None
        kept = []
        for frame in frames[entry:]:
            if frame.filename == cell and frame.lineno:
                frame.lineno += first
            if _is_cell(frame.filename):
                frame.filename = "cell" if frame.filename == cell else "earlier cell"
            kept.append(frame)
        if len(kept) > FRAMES:
            kept = kept[: FRAMES // 2] + kept[-FRAMES // 2 :]
        one.stack = traceback.StackSummary.from_list(kept)
        if one.exc_type is not None and issubclass(one.exc_type, SyntaxError):
            if one.filename == cell:
                one.filename, one.lineno = "cell", str(int(one.lineno or 1) + first)
            one.stack = traceback.StackSummary.from_list([])
        one = one.__cause__ or one.__context__
    text = "".join(seen.format())
    if len(text) > 4 * SAID:
        text = text[: 2 * SAID] + "\n…\n" + text[-2 * SAID :]
    return text.rstrip("\n").split("\n"), place


def _is_cell(filename: str) -> bool:
    return "ipykernel_" in filename


class Kernel(IPythonKernel):
    """IPython's kernel with our shell."""

    shell_class = Shell

    def __init__(self, **kwargs: Any) -> None:
        IPythonKernel.__init__(self, **kwargs)  # type: ignore[no-untyped-call]
        shell: Any = self.shell
        shell.events.register("pre_run_cell", shell.begin)
        shell.display_pub.register_hook(shell.bound)


def configuration() -> Config:
    """How IPython is set up."""
    config = Config()
    # The live namespace answers in a tenth of a second where jedi's first answer takes four.
    config.Completer.use_jedi = False
    config.IPCompleter.use_jedi = False
    config.IPCompleter.disable_matchers = [
        "IPCompleter.magic_matcher",
        "IPCompleter.magic_config_matcher",
        "IPCompleter.magic_color_matcher",
        "IPCompleter.file_matcher",
        "IPCompleter.custom_completer_matcher",
    ]
    config.HistoryManager.enabled = False
    # No result is kept alive by `Out`.
    config.InteractiveShell.cache_size = 0
    config.InteractiveShell.colors = "nocolor"
    # `told` writes tracebacks; IPython's own take seconds where a function calls itself for ever.
    config.InteractiveShell.xmode = "Minimal"
    config.InteractiveShell.banner1 = ""
    config.IPKernelApp.outstream_class = f"{__name__}.Stream"
    # Nothing is echoed to the process's own streams.
    config.IPKernelApp.quiet = True
    return config


def warm() -> None:
    """Load what most lessons need while the learner reads."""
    # A cell that needs it says what is wrong.
    with suppress(Exception):
        importlib.import_module("torch")


def main(words: list[str]) -> None:
    """Serve until told to stop.

    Args:
        words: `-f CONNECTION`, and `--memory BYTES` where there is a limit.
    """
    if "--memory" in words:
        place = words.index("--memory")
        limit_memory(int(words[place + 1]))
        words = words[:place] + words[place + 2 :]
    # There before the first completion after `np.` is asked for.
    importlib.import_module("numpy")
    # Cells run in contexts that are copies of this one.
    with use_words(PAGES):
        app: Any = IPKernelApp.instance(config=configuration(), kernel_class=Kernel)
        app.initialize(words)
        OutStream.flush_interval = 0.1
        threading.Thread(target=warm, daemon=True).start()
        app.start()
