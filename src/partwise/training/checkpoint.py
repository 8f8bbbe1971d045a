"""Checkpoints: folders that are whole or not there, and pointers to the last and the best one.

checkpoints/step-002000/model.safetensors       the weights
                        averaged.safetensors    their running mean, where one is kept
                        optimizer.safetensors   the optimizers' memory
                        state.json              counters, and the checksums of the files above
checkpoints/last.json, checkpoints/best.json    {"step", "folder"}
"""

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn

from partwise.errors import RunError, StorageError
from partwise.messages import Notice
from partwise.storage import (
    read_json,
    read_tensors,
    require_free,
    write_folder,
    write_json,
    write_tensors,
)
from partwise.storage.atomic import hidden_beside, replace
from partwise.storage.faults import writing
from partwise.training.optim import trained

Which = Literal["best", "last"]

_VERSION = 1
_STEP = re.compile(r"step-(\d{6,})")
# Names, checksums and counters; far more than they ever need.
_SMALL_FILES = 1_000_000


@dataclass(frozen=True)
class Checkpoint:
    """One moment of a run.

    Args:
        step: steps done.
        weights: the model's tensors by name.
        averaged: their running mean, complete as `weights` is; None when none is kept.
        optimizer: the optimizers' tensors.
        state: everything else, as plain data.
    """

    step: int
    weights: Mapping[str, Tensor]
    averaged: Mapping[str, Tensor] | None
    optimizer: Mapping[str, Tensor]
    state: dict[str, Any]


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """A model's trained parameters and running statistics; one that is shared appears once.

    A frozen parameter does not change and is kept where it came from.
    """
    kept: dict[str, Tensor] = {name: p.detach() for name, p in trained(model)}
    others = {name for name, _ in model.named_parameters(remove_duplicate=False)} - set(kept)
    for name, tensor in model.state_dict().items():
        if name not in kept and name not in others:
            kept[name] = tensor
    return kept


def load_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Put `weights` into `model`.

    Raises:
        RunError: a tensor is missing, superfluous, or of another shape.
    """
    own = weights_of(model)
    for name in sorted(own.keys() | weights.keys()):
        here, there = own.get(name), weights.get(name)
        if here is None or there is None or here.shape != there.shape:
            raise RunError(
                "{name} is {there} in the checkpoint and {here} in the model; use the model "
                "settings of the run",
                name=name,
                there=_shape(there),
                here=_shape(here),
            )
        here.copy_(there)


def save(folder: Path, checkpoint: Checkpoint, *, is_best: bool, keep: int) -> Path:
    """Write a checkpoint, point to it, and then delete those that are no longer needed.

    Args:
        folder: the run folder.
        checkpoint: what to write.
        is_best: whether its validation loss is the best of the run.
        keep: newest checkpoints that stay, besides the best.

    Returns:
        The checkpoint's folder.

    Raises:
        StorageError: the disk is full or may not be written to; earlier checkpoints are whole.
    """
    root = folder / "checkpoints"
    final = root / f"step-{checkpoint.step:06d}"
    files = {"model.safetensors": checkpoint.weights, "optimizer.safetensors": checkpoint.optimizer}
    if checkpoint.averaged is not None:
        files["averaged.safetensors"] = checkpoint.averaged
    size = sum(t.nbytes for tensors in files.values() for t in tensors.values())
    require_free(root, size + _SMALL_FILES)
    with write_folder(final) as inside:
        checksums = {name: write_tensors(inside / name, files[name]) for name in files}
        state = {**checkpoint.state, "step": checkpoint.step, "files": checksums}
        write_json(inside / "state.json", state, kind="checkpoint", version=_VERSION)
    _point(root, "last", final)
    if is_best:
        _point(root, "best", final)
    _prune(root, keep)
    return final


def has_checkpoints(folder: Path) -> bool:
    """Whether a run folder holds a checkpoint, be it whole or damaged."""
    return bool(_folders(folder / "checkpoints"))


def has_best(folder: Path) -> bool:
    """Whether a checkpoint of the run folder was found to be the best.

    Raises:
        StorageError: the newest checkpoint, which would tell, is damaged.
    """
    root = folder / "checkpoints"
    return (root / "best.json").exists() or _found_again(root, "best") is not None


def load_latest(folder: Path) -> tuple[Checkpoint | None, list[Notice]]:
    """The newest checkpoint that is whole; damaged ones are set aside.

    Returns:
        The checkpoint, or None when there is none, and what the user should be told.

    Raises:
        StorageError: a checkpoint cannot be read at all, or needs a newer Partwise.
    """
    notices = []
    root = folder / "checkpoints"
    for path in reversed(_folders(root)):
        try:
            found = _read(path)
        except StorageError as error:
            if not _is_damage(error):
                raise
            aside = _aside(path)
            with writing(path):
                replace(path, aside)
            notices.append(
                Notice(
                    "{path} is damaged ({reason}); it was set aside as {aside}, and the checkpoint "
                    "before it is used",
                    path=path,
                    reason=error,
                    aside=aside.name,
                )
            )
            continue
        # A process that was killed between a checkpoint and its pointers left older ones.
        _point(root, "last", path)
        best = found.state.get("progress", {}).get("best_step")
        if best is not None and (root / f"step-{best:06d}").is_dir():
            _point(root, "best", root / f"step-{best:06d}")
        return found, notices
    return None, notices


def load(folder: Path, which: Which) -> Checkpoint:
    """The checkpoint that a pointer names.

    Args:
        folder: the run folder.
        which: "best" or "last".

    Raises:
        RunError: there is no such checkpoint.
        StorageError: it is damaged.
    """
    return _read(_pointed(folder, which))


def weights_to_use(folder: Path, which: Which) -> dict[str, Tensor]:
    """The weights that speak for a checkpoint: their running mean where one is kept.

    Args:
        folder: the run folder.
        which: "best" or "last".

    Raises:
        RunError: there is no such checkpoint.
        StorageError: it is damaged.
    """
    path = _pointed(folder, which)
    files = _state(path)["files"]
    name = "averaged.safetensors" if "averaged.safetensors" in files else "model.safetensors"
    return read_tensors(path / name, files[name])


def _read(path: Path) -> Checkpoint:
    state = _state(path)
    tensors = {
        name: read_tensors(path / name, checksum) for name, checksum in state["files"].items()
    }
    return Checkpoint(
        step=state["step"],
        weights=tensors["model.safetensors"],
        averaged=tensors.get("averaged.safetensors"),
        optimizer=tensors["optimizer.safetensors"],
        state=state,
    )


def _state(path: Path) -> dict[str, Any]:
    _, state = read_json(path / "state.json", kind="checkpoint", newest=_VERSION)
    assert isinstance(state, dict)
    return state


def _is_damage(error: StorageError) -> bool:
    """Whether the checkpoint itself is bad, rather than out of reach or too new for us."""
    cause = error.__cause__
    unreachable = isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError)
    return not unreachable and "newest" not in error.values


def _folders(root: Path) -> list[Path]:
    """The checkpoints' folders, oldest first."""
    found = [path for path in root.glob("step-*") if _STEP.fullmatch(path.name) and path.is_dir()]
    return sorted(found, key=lambda path: int(path.name.removeprefix("step-")))


def _aside(path: Path) -> Path:
    aside = path.with_name(path.name + ".damaged")
    number = 2
    while aside.exists():
        aside = path.with_name(f"{path.name}.damaged-{number}")
        number += 1
    return aside


def _point(root: Path, which: Which, path: Path) -> None:
    step = int(path.name.removeprefix("step-"))
    value = {"step": step, "folder": path.name}
    write_json(root / f"{which}.json", value, kind="pointer", version=_VERSION)


def _pointed(folder: Path, which: Which) -> Path:
    root = folder / "checkpoints"
    pointer = root / f"{which}.json"
    if not pointer.exists():
        found = _found_again(root, which)
        if found is not None:
            return found
        raise RunError(
            "{folder} has no {which} checkpoint yet; train it first", folder=folder, which=which
        )
    _, value = read_json(pointer, kind="pointer", newest=_VERSION)
    # Only the number is believed: a name could lead out of the run folder.
    return root / f"step-{int(value['step']):06d}"


def _found_again(root: Path, which: Which) -> Path | None:
    """What a pointer that is gone must have named, as the newest checkpoint has it."""
    newest = _folders(root)[-1:]
    if not newest or which == "last":
        return newest[0] if newest else None
    best = _state(newest[0]).get("progress", {}).get("best_step")
    return None if best is None else root / f"step-{best:06d}"


def _prune(root: Path, keep: int) -> None:
    """Delete all but the newest `keep` and what those hold to be the best of the run.

    Each kept one's own best stays, so that the run loses nothing should the newest be damaged.
    """
    folders = _folders(root)
    kept = {path.name for path in folders[-keep:]}
    for path in folders[-keep:]:
        try:
            best = _state(path).get("progress", {}).get("best_step")
        except StorageError:
            continue
        if best is not None:
            kept.add(f"step-{best:06d}")
    for path in folders:
        if path.name not in kept:
            # Renamed first: a process killed here leaves no half-deleted checkpoint to be found.
            hidden = hidden_beside(path)
            try:
                replace(path, hidden)
            except OSError:
                # On Windows whoever samples from it holds it; it goes with the next checkpoint.
                continue
            shutil.rmtree(hidden, ignore_errors=True)


def _shape(tensor: Tensor | None) -> str:
    return "×".join(map(str, tensor.shape)) or "1" if tensor is not None else "-"
