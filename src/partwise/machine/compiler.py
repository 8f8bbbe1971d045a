"""Whether torch.compile works here, found out by really compiling something small."""

import functools
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass

from partwise.errors import StorageError
from partwise.machine.facts import cpu_model, gpu_model, version_of
from partwise.machine.measure import memory_of
from partwise.messages import Notice
from partwise.storage import read_json, write_json

_PROGRAM = """
import sys
import torch
x = torch.linspace(0, 1, 64, device=sys.argv[1]).requires_grad_()
y = torch.compile(lambda x: (x.sin() * x).sum())(x)
y.backward()
assert torch.allclose(x.grad, x.cos() * x + x.sin(), atol=1e-5)
"""
_PATIENCE = 180


@dataclass(frozen=True)
class CompileCheck:
    """The answer and its reason.

    Args:
        works: whether a small function was compiled, run and differentiated correctly.
        reason: one line for the user.
    """

    works: bool
    reason: Notice


def can_compile(device: str = "cpu") -> bool:
    """Whether torch.compile works on this machine for `device` (cpu, cuda or mps)."""
    return compile_check(device).works


@functools.cache
def compile_check(device: str = "cpu") -> CompileCheck:
    """Compile a small function in a process of its own, and say what came of it.

    That it works is remembered for this machine and version of torch; that it does not is tried
    again in the next process, since a compiler is easily installed. A compiler that hangs is given
    up after three minutes.

    Args:
        device: where the function runs: cpu, cuda or mps.
    """
    works = Notice("compiled: torch.compile works on this machine")
    path = memory_of("compile", cpu_model(), str(gpu_model()), device, str(version_of("torch")))
    with suppress(StorageError):
        if read_json(path, kind="compile", newest=1)[1] is True:
            return CompileCheck(True, works)
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, device],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=_PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return CompileCheck(
            False,
            Notice(
                "not compiled: a small function was still compiling after {seconds} s",
                seconds=_PATIENCE,
            ),
        )
    except OSError as error:
        return CompileCheck(
            False, Notice("not compiled: {reason}", reason=error.strerror or str(error))
        )
    if done.returncode != 0:
        return CompileCheck(False, Notice("not compiled: {reason}", reason=_reason(done.stderr)))
    with suppress(StorageError):
        write_json(path, True, kind="compile", version=1)
    return CompileCheck(True, works)


def _reason(errors: str) -> str:
    """The line of a traceback that says what went wrong."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    for line in reversed(lines):
        name = line.split(":")[0]
        if name.endswith(("Error", "InvalidCxxCompiler", "Exception", "BackendCompilerFailed")):
            return line[:200]
    return lines[-1][:200] if lines else "torch.compile failed"
