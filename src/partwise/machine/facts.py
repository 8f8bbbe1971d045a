"""This machine in words and numbers, and the state of the user's repository."""

import functools
import math
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any


def describe() -> dict[str, Any]:
    """This machine as a run folder records it.

    Returns:
        cpu (model), cores, memory (bytes), os, python, torch, numpy (versions; None when not
        installed), and gpu (model, or None).
    """
    return {
        "cpu": cpu_model(),
        "cores": cores(),
        "memory": memory_bytes(),
        "os": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": version_of("torch"),
        "numpy": version_of("numpy"),
        "gpu": gpu_model(),
    }


def version_of(package: str) -> str | None:
    """The installed version of a package, without importing it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


@functools.cache
def cpu_model() -> str:
    """The processor's name as its maker gives it."""
    if sys.platform == "linux":
        name = _after_colon(_text("/proc/cpuinfo"), "model name")
    elif sys.platform == "darwin":
        name = _output(["sysctl", "-n", "machdep.cpu.brand_string"]) or ""
    else:
        name = platform.processor()
    return name or platform.processor() or platform.machine() or "unknown"


@functools.cache
def cpu_features() -> str:
    """The instructions beyond the common ones that Linux names for this processor, else nothing.

    Models do not tell them: in a virtual machine several processors have one name.
    """
    text = _text("/proc/cpuinfo") if sys.platform == "linux" else ""
    words = _after_colon(text, "flags") or _after_colon(text, "Features")
    return " ".join(sorted((words or "").split()))


def c_library() -> str:
    """Name and version of the C library, where it says so: what is linked to one needs it."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    # AttributeError: Windows has no such question; ValueError, OSError: this library no answer.
    except (AttributeError, ValueError, OSError):
        return ""


def cores() -> int:
    """The cores that this process may use: fewer than the machine's in a container."""
    if sys.platform == "linux":
        allowed = len(os.sched_getaffinity(0))
        quota, _, period = _text("/sys/fs/cgroup/cpu.max").partition(" ")
        if quota.isdigit() and period.strip().isdigit():
            return max(1, min(allowed, math.ceil(int(quota) / int(period))))
        return allowed
    return os.cpu_count() or 1


def memory_bytes() -> int | None:
    """The memory that this process may use; None where the system does not say."""
    if sys.platform == "win32":
        return _windows_memory()
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None
    limit = _text("/sys/fs/cgroup/memory.max").strip()
    return min(total, int(limit)) if limit.isdigit() else total


def gpu_model() -> str | None:
    """The first GPU's name; None without one."""
    if version_of("torch") is None:
        return None
    import torch

    if torch.cuda.is_available():
        return str(torch.cuda.get_device_name(0))
    if torch.backends.mps.is_available():
        return f"{cpu_model()} (mps)"
    return None


def git_state(folder: Path | None = None) -> dict[str, Any]:
    """The commit that `folder` (here, when None) is at, and whether files differ from it.

    Returns:
        commit (40 hex digits) and dirty; empty outside a repository, or without git.
    """
    place = ["-C", str(folder)] if folder else []
    commit = _output(["git", *place, "rev-parse", "--verify", "HEAD"])
    if commit is None:
        return {}
    changed = _output(
        ["git", "--no-optional-locks", *place, "status", "--porcelain", "--untracked-files=no"]
    )
    if changed is None:
        return {"commit": commit}
    return {"commit": commit, "dirty": changed != ""}


def _output(command: list[str]) -> str | None:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _after_colon(text: str, key: str) -> str:
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""


def _windows_memory() -> int | None:
    if sys.platform != "win32":
        return None
    import ctypes

    class Status(ctypes.Structure):
        _fields_ = (
            ("length", ctypes.c_ulong),
            ("load", ctypes.c_ulong),
            ("total", ctypes.c_ulonglong),
            ("rest", ctypes.c_ulonglong * 6),
        )

    status = Status(length=ctypes.sizeof(Status))
    if not ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
        return None
    return int(status.total)
