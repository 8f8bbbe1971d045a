"""What is measured from outside, on processes of their own: start-up time and peak memory."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from partwise.bench.cases import Case
from partwise.bench.text import write_words
from partwise.messages import Notice

# Run before the command's own words, so that the child itself says what it held at its peak. Linux
# counts what its parent held before the child began, except in the field read here.
_PEAK = (
    "import runpy, sys\n"
    "sys.argv = ['partwise', *sys.argv[1:]]\n"
    "try:\n"
    "    runpy.run_module('partwise', run_name='__main__')\n"
    "except SystemExit as end:\n"
    "    assert not end.code, end.code\n"
    "if sys.platform == 'linux':\n"
    "    with open('/proc/self/status', encoding='ascii') as status:\n"
    "        lines = dict(line.split(':', 1) for line in status)\n"
    "    peak = int(lines['VmHWM'].split()[0]) * 1024\n"
    "else:\n"
    "    import resource\n"
    "    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
    "sys.stderr.write(f'\\n{peak}')\n"
)


def startup_cases() -> list[Case]:
    """Seconds from the command to its end, beside Python alone and torch alone."""
    python = [sys.executable, "-c"]
    partwise = [sys.executable, "-m", "partwise"]
    return [
        Case("start-up", Notice("python, doing nothing"), "s", lambda: _seconds([*python, "pass"])),
        Case("start-up", Notice("partwise --help"), "s", lambda: _seconds([*partwise, "--help"])),
        Case(
            "start-up",
            Notice("partwise train --help"),
            "s",
            lambda: _seconds([*partwise, "train", "--help"]),
        ),
        Case(
            "start-up",
            Notice("import torch"),
            "s",
            lambda: _seconds([*python, "import torch"]),
        ),
    ]


@contextmanager
def memory_cases(megabytes: int) -> Iterator[list[Case]]:
    """Peak memory of whole commands (MB); no cases on Windows, which does not tell it this way.

    Args:
        megabytes: size of the text that is prepared (MB).
    """
    if sys.platform == "win32":
        yield []
        return
    with TemporaryDirectory(prefix="partwise-bench-") as made:
        folder = Path(made)
        text = folder / "text.txt"
        write_words(text, megabytes)
        runs = folder / "runs"

        def prepared() -> float:
            return _peak(["data", str(text)], folder)

        def trained() -> float:
            words = ["train", str(text), "--steps", "20", "--runs-dir", str(runs), "--quiet"]
            return _peak(words, folder)

        yield [
            Case("peak memory", Notice("partwise --help"), "MB", lambda: _peak(["--help"], folder)),
            Case("peak memory", Notice("preparing the text"), "MB", prepared),
            Case("peak memory", Notice("training small on it"), "MB", trained),
        ]


def _seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def _peak(words: list[str], folder: Path) -> float:
    """Peak resident memory of `partwise WORDS` with an empty cache (MB)."""
    with TemporaryDirectory(dir=folder) as cache:
        done = subprocess.run(
            [sys.executable, "-c", _PEAK, *words],
            check=True,
            capture_output=True,
            text=True,
            encoding="utf-8",
            env=_surroundings(PARTWISE_CACHE=cache),
        )
    return int(done.stderr.split()[-1]) / 1e6


def _surroundings(**changed: str) -> dict[str, str]:
    import os

    return {**os.environ, **changed}
