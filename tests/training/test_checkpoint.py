"""Checkpoints: whole or not there, pointed to, pruned late, and set aside when damaged."""

import errno
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from partwise.errors import RunError, StorageError
from partwise.storage import write_json
from partwise.training import checkpoint as checkpoints
from partwise.training.checkpoint import (
    Checkpoint,
    has_best,
    load,
    load_latest,
    load_weights,
    save,
    weights_of,
    weights_to_use,
)
from training.doubles import MODEL, equal, new_model


def moment(step: int, best_step: int | None = None, averaged: bool = False) -> Checkpoint:
    weights = {"w": torch.full((3,), float(step))}
    return Checkpoint(
        step=step,
        weights=weights,
        averaged={"w": torch.full((3,), step + 0.5)} if averaged else None,
        optimizer={"AdamW/exp_avg/w": torch.full((3,), step / 7)},
        state={"progress": {"best_step": best_step}, "note": 0.1},
    )


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def test_everything_comes_back(tmp_path: Path) -> None:
    path = save(tmp_path, moment(2000, averaged=True), is_best=True, keep=1)
    assert path == tmp_path / "checkpoints" / "step-002000"
    assert sorted(file.name for file in path.iterdir()) == [
        "averaged.safetensors",
        "model.safetensors",
        "optimizer.safetensors",
        "state.json",
    ]
    found, notices = load_latest(tmp_path)
    assert notices == []
    assert found is not None
    assert found.step == 2000
    assert found.state["note"] == 0.1
    assert torch.equal(found.weights["w"], torch.full((3,), 2000.0))
    assert torch.equal(found.optimizer["AdamW/exp_avg/w"], torch.full((3,), 2000 / 7))
    assert found.averaged is not None
    assert torch.equal(found.averaged["w"], torch.full((3,), 2000.5))


def test_the_average_is_what_a_checkpoint_speaks_with(tmp_path: Path) -> None:
    save(tmp_path, moment(1), is_best=True, keep=5)
    save(tmp_path, moment(2, averaged=True), is_best=False, keep=5)
    assert torch.equal(weights_to_use(tmp_path, "best")["w"], torch.full((3,), 1.0))
    assert torch.equal(weights_to_use(tmp_path, "last")["w"], torch.full((3,), 2.5))


def test_best_and_last_are_apart(tmp_path: Path) -> None:
    save(tmp_path, moment(1, 1), is_best=True, keep=1)
    save(tmp_path, moment(2, 1), is_best=False, keep=1)
    assert load(tmp_path, "best").step == 1
    assert load(tmp_path, "last").step == 2


def test_the_newest_and_the_best_are_kept(tmp_path: Path) -> None:
    best = 0
    for step in range(1, 8):
        if step in (1, 3):
            best = step
        save(tmp_path, moment(step, best), is_best=step == best, keep=2)
    kept = [f"step-{step:06d}" for step in (3, 6, 7)]
    assert names(tmp_path) == ["best.json", "last.json", *kept]


def test_the_best_stays_whole_should_the_newest_be_damaged(tmp_path: Path) -> None:
    save(tmp_path, moment(1, 1), is_best=True, keep=2)
    save(tmp_path, moment(2, 1), is_best=False, keep=2)
    save(tmp_path, moment(3, 1), is_best=False, keep=2)
    save(tmp_path, moment(4, 4), is_best=True, keep=2)
    (tmp_path / "checkpoints" / "step-000004" / "state.json").unlink()
    found, _ = load_latest(tmp_path)
    assert found is not None
    assert found.step == 3
    assert load(tmp_path, "best").step == 1
    assert load(tmp_path, "last").step == 3


def test_nothing_is_deleted_before_the_new_one_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, moment(1), is_best=False, keep=1)

    def full(path: Path, value: object, **_: Any) -> None:
        raise StorageError("{path} cannot be written: the disk is full", path=path)

    monkeypatch.setattr(checkpoints, "write_json", full)
    with pytest.raises(StorageError):
        save(tmp_path, moment(2), is_best=True, keep=1)
    monkeypatch.undo()
    assert names(tmp_path) == ["last.json", "step-000001"]
    assert load(tmp_path, "last").step == 1


@pytest.mark.parametrize("failing", ["model", "optimizer", "averaged"])
def test_a_disk_that_fills_up_leaves_the_one_before_whole(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import safetensors.torch

    save(tmp_path, moment(1, averaged=True), is_best=True, keep=1)
    original = safetensors.torch.save_file
    calls = iter(["model", "optimizer", "averaged"])

    def save_file(tensors: Any, path: Path, **more: Any) -> None:
        original(tensors, path, **more)
        if next(calls) == failing:
            # The file is there by half when the system refuses the rest.
            Path(path).write_bytes(Path(path).read_bytes()[:20])
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(safetensors.torch, "save_file", save_file)
    with pytest.raises(StorageError, match="the disk is full"):
        save(tmp_path, moment(2, averaged=True), is_best=True, keep=1)
    monkeypatch.undo()
    assert names(tmp_path) == ["best.json", "last.json", "step-000001"]
    found, notices = load_latest(tmp_path)
    assert found is not None
    assert (found.step, notices) == (1, [])


def test_room_is_asked_for_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def require_free(path: Path, bytes_needed: int) -> None:
        asked.append(bytes_needed)
        raise StorageError("{path} needs more", path=path)

    monkeypatch.setattr(checkpoints, "require_free", require_free)
    big = replace(moment(1, averaged=True), weights={"w": torch.zeros(1_000_000)})
    with pytest.raises(StorageError):
        save(tmp_path, big, is_best=True, keep=1)
    # A million float32 numbers, and little else.
    assert 4_000_000 < asked[0] < 6_000_000
    assert not (tmp_path / "checkpoints").exists()


def tear(path: Path, how: str) -> None:
    """Damage a checkpoint."""
    state, weights = path / "state.json", path / "model.safetensors"
    if how == "weights cut":
        weights.write_bytes(weights.read_bytes()[:-5])
    elif how == "bit flipped":
        data = bytearray(weights.read_bytes())
        data[-1] ^= 1
        weights.write_bytes(bytes(data))
    elif how == "weights gone":
        weights.unlink()
    elif how == "state cut":
        state.write_bytes(state.read_bytes()[:40])
    elif how == "state edited":
        state.write_text(state.read_text("utf-8").replace("0.1", "0.2"), "utf-8")
    elif how == "empty":
        for file in path.iterdir():
            file.unlink()
    elif how == "not a checkpoint":
        write_json(state, {}, kind="pointer", version=1)


@pytest.mark.parametrize(
    "how",
    [
        "weights cut",
        "bit flipped",
        "weights gone",
        "state cut",
        "state edited",
        "empty",
        "not a checkpoint",
    ],
)
def test_a_damaged_one_is_set_aside_and_the_one_before_used(how: str, tmp_path: Path) -> None:
    save(tmp_path, moment(1), is_best=False, keep=3)
    tear(save(tmp_path, moment(2), is_best=False, keep=3), how)
    found, notices = load_latest(tmp_path)
    assert found is not None
    assert found.step == 1
    assert len(notices) == 1
    assert "step-000002.damaged" in str(notices[0])
    assert names(tmp_path) == ["last.json", "step-000001", "step-000002.damaged"]
    assert load(tmp_path, "last").step == 1
    # The run comes to that step again, and may even be damaged there again.
    tear(save(tmp_path, moment(2), is_best=False, keep=3), how)
    assert load_latest(tmp_path)[0] is not None
    assert "step-000002.damaged-2" in names(tmp_path)


def test_one_that_is_held_open_is_pruned_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows does not let a folder be renamed while somebody reads a file in it."""
    save(tmp_path, moment(1), is_best=False, keep=1)
    original = checkpoints.replace

    def held(source: Path, target: Path) -> None:
        if source.name == "step-000001":
            raise PermissionError(errno.EACCES, "in use")
        original(source, target)

    monkeypatch.setattr(checkpoints, "replace", held)
    save(tmp_path, moment(2), is_best=False, keep=1)
    assert names(tmp_path) == ["last.json", "step-000001", "step-000002"]
    monkeypatch.undo()
    save(tmp_path, moment(3), is_best=False, keep=1)
    assert names(tmp_path) == ["last.json", "step-000003"]


def test_one_that_cannot_be_set_aside_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path, moment(1), is_best=False, keep=1)
    (path / "state.json").write_text("{", encoding="utf-8")

    def refused(source: Path, target: Path) -> None:
        raise PermissionError(errno.EACCES, "not permitted")

    monkeypatch.setattr(checkpoints, "replace", refused)
    with pytest.raises(StorageError, match="step-000001 cannot be written"):
        load_latest(tmp_path)


def test_when_all_are_damaged_there_is_none(tmp_path: Path) -> None:
    for step in (1, 2):
        tear(save(tmp_path, moment(step), is_best=False, keep=3), "empty")
    found, notices = load_latest(tmp_path)
    assert found is None
    assert len(notices) == 2


def test_one_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = save(tmp_path, moment(1), is_best=False, keep=3)
    write_json(path / "state.json", {"step": 1}, kind="checkpoint", version=99)
    with pytest.raises(StorageError, match="upgrade"):
        load_latest(tmp_path)
    assert path.is_dir()


def test_one_that_cannot_be_reached_is_not_taken_for_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path, moment(1), is_best=False, keep=3)

    def refuse(*_: Any, **__: Any) -> Any:
        try:
            raise PermissionError(errno.EACCES, "Permission denied")
        except PermissionError as error:
            raise StorageError("{path} cannot be read", path=path) from error

    monkeypatch.setattr(checkpoints, "read_json", refuse)
    with pytest.raises(StorageError, match="cannot be read"):
        load_latest(tmp_path)
    assert path.is_dir()


def test_a_pointer_leads_nowhere_but_into_the_run(tmp_path: Path) -> None:
    save(tmp_path / "run", moment(1), is_best=False, keep=3)
    save(tmp_path / "other", moment(7), is_best=False, keep=3)
    pointer = tmp_path / "run" / "checkpoints" / "last.json"
    outside = {"step": 1, "folder": "../../other/checkpoints/step-000007"}
    write_json(pointer, outside, kind="pointer", version=1)
    assert load(tmp_path / "run", "last").step == 1


def test_a_folder_without_checkpoints_says_so(tmp_path: Path) -> None:
    assert load_latest(tmp_path) == (None, [])
    with pytest.raises(RunError, match="no best checkpoint"):
        load(tmp_path, "best")


def test_the_files_can_be_read_by_eye(tmp_path: Path) -> None:
    path = save(tmp_path, moment(12), is_best=True, keep=1)
    state = json.loads((path / "state.json").read_text("utf-8"))
    assert state["kind"] == "checkpoint"
    assert state["value"]["step"] == 12
    last = json.loads((tmp_path / "checkpoints" / "last.json").read_text("utf-8"))
    assert last["value"] == {"step": 12, "folder": "step-000012"}


@pytest.mark.parametrize("tied", [True, False])
def test_a_models_weights_are_its_parameters_and_statistics_once(tied: bool) -> None:
    config = replace(MODEL, tie_embeddings=tied, norm="batchnorm")
    model, other = new_model(config, 1), new_model(config, 2)
    with torch.no_grad():
        model.blocks[0].norm1.running_mean.fill_(3.0)
    weights = weights_of(model)
    assert ("head.weight" in weights) is not tied
    assert any(name.endswith("running_mean") for name in weights)
    load_weights(other, {name: tensor.clone() for name, tensor in weights.items()})
    assert equal(model, other)


def test_a_parameter_that_is_shared_is_saved_once() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    model[1].weight = model[0].weight
    assert list(weights_of(model)) == ["0.weight", "0.bias", "1.bias"]


def test_weights_of_another_model_are_refused_by_name_and_shape() -> None:
    wide = weights_of(new_model(replace(MODEL, vocab_size=17)))
    with pytest.raises(RunError, match=r"token_embedding\.weight is 17×8 .* and 16×8"):
        load_weights(new_model(), wide)
    with pytest.raises(RunError, match=r"blocks\.1"):
        load_weights(new_model(replace(MODEL, n_layers=1)), weights_of(new_model()))


def test_a_pointer_that_is_gone_is_found_again(tmp_path: Path) -> None:
    assert not has_best(tmp_path)
    save(tmp_path, moment(1, best_step=1), is_best=True, keep=2)
    save(tmp_path, moment(2, best_step=1), is_best=False, keep=2)
    for which in ("best", "last"):
        (tmp_path / "checkpoints" / f"{which}.json").unlink()
    assert has_best(tmp_path)
    assert load(tmp_path, "best").step == 1
    assert load(tmp_path, "last").step == 2


def test_what_was_never_judged_has_no_best(tmp_path: Path) -> None:
    save(tmp_path, moment(1), is_best=False, keep=2)
    assert not has_best(tmp_path)
    with pytest.raises(RunError, match="no best checkpoint yet"):
        load(tmp_path, "best")
