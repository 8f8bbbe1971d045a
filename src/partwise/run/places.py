"""Where a run may stand, and what is written down of the circumstances in which it was made."""

import platform
from datetime import date
from pathlib import Path
from typing import Any

import partwise
from partwise.errors import RunError
from partwise.machine import describe, memory_bytes
from partwise.machine.facts import version_of
from partwise.model.config import ModelConfig
from partwise.model.parameters import count_parameters
from partwise.storage import cleaned, safe_name


def refuse_taken(path: Path) -> None:
    """Check that no run stands at `path`.

    Raises:
        RunError: one does, or anything else.
    """
    if path.exists():
        raise RunError(
            "{path} exists already; go on with: partwise resume {path}, or give another --name",
            path=path,
        )


def require_place(name: str | None, root: Path | str) -> None:
    """Check that a run of that name can be made, before what it is made of has taken its time.

    Raises:
        ConfigError: it is no name.
        RunError: it is taken.
    """
    if name is not None:
        refuse_taken(Path(root) / safe_name(name))


def require_memory(model: ModelConfig) -> None:
    """Check that the weights alone fit into this machine's memory, before any is made.

    Raises:
        RunError: they do not; the line names both sizes.
    """
    weights, memory = 4 * count_parameters(model), memory_bytes()
    if memory is not None and weights > memory:
        raise RunError(
            "a model of {parameters} parameters is {needed} GB of weights alone and this machine "
            "has {memory} GB of memory; choose a smaller d_model={d_model} or n_layers={n_layers}",
            parameters=f"{weights // 4:,}",
            needed=f"{weights / 1e9:,.1f}",
            memory=f"{memory / 1e9:,.1f}",
            d_model=model.d_model,
            n_layers=model.n_layers,
        )


def free_place(root: Path, name: str) -> Path:
    """The first of novel-2026-11-29, novel-2026-11-29-2, … in `root` that is not taken."""
    base = cleaned(f"{name[:40]}-{date.today().isoformat()}")
    number, path = 1, root / base
    while path.exists():
        number += 1
        path = root / f"{base}-{number}"
    return path


def versions() -> dict[str, Any]:
    """The versions of Partwise and of what its numbers come from."""
    packages = ("torch", "numpy", "safetensors", "tokenizers")
    found = {package: str(version_of(package)) for package in packages}
    return {"partwise": partwise.__version__, "python": platform.python_version(), **found}


def this_machine() -> dict[str, Any]:
    """The machine without what stands among the versions."""
    known = {name: value for name, value in describe().items() if value is not None}
    return {name: value for name, value in known.items() if name not in versions()}
