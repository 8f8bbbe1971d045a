"""Speed is measured, remembered for this machine alone, and measured anew when that fails."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from partwise import machine
from partwise.machine import measure


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PARTWISE_CACHE", str(tmp_path))
    monkeypatch.setattr(measure, "_SECONDS", 0.01)
    monkeypatch.setattr(measure, "_ROWS", 256)
    return tmp_path


def test_the_shortest_run_counts_and_the_first_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    # In turn: the first of each, then three of each.
    runs = iter([1.0, 0.5, 5.0, 7.0, 2.0, 9.0, 3.0, 8.0])

    def work() -> None:
        now[0] += next(runs)

    monkeypatch.setattr(measure.time, "perf_counter", lambda: now[0])
    assert measure._shortest(work, work) == [2.0, 7.0]
    assert list(runs) == []


def test_speeds_are_possible_ones() -> None:
    found = machine.measured()
    assert 1e8 < found.float32_flops < 1e14
    assert 1e7 < found.bfloat16_flops < 1e15
    assert 1e8 < found.memory_bandwidth < 1e13
    assert found.threads == torch.get_num_threads()
    assert found.bfloat16_ratio == found.bfloat16_flops / found.float32_flops


def test_it_is_measured_once(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = machine.measured()
    (path,) = (own_cache / "machine").iterdir()
    with monkeypatch.context() as patched:
        patched.setattr(measure, "_product", lambda dtype: 1 / 0)
        assert machine.measured() == first
        with pytest.raises(ZeroDivisionError):
            machine.measured(fresh=True)
        patched.setattr(measure, "version_of", lambda package: "another")
        with pytest.raises(ZeroDivisionError):
            machine.measured()
    monkeypatch.setattr(measure, "_shortest", lambda *works: [1e-9] * len(works))
    flops = 2 * measure._ROWS * measure._INNER * measure._COLUMNS / 1e-9
    for damage in (b"", path.read_bytes().replace(b'"threads"', b'"fingers"')):
        path.write_bytes(damage)
        assert machine.measured().float32_flops == flops
    whole = json.loads(path.read_text(encoding="utf-8"))
    assert whole["value"] == dataclasses.asdict(machine.measured())


def test_a_cache_that_cannot_be_written_is_no_fault(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own_cache / "file").write_bytes(b"")
    monkeypatch.setenv("PARTWISE_CACHE", str(own_cache / "file"))
    assert machine.measured().float32_flops > 0


def test_measuring_leaves_the_randomness_alone() -> None:
    torch.manual_seed(3)
    state = torch.get_rng_state()
    machine.measured(fresh=True)
    assert torch.equal(state, torch.get_rng_state())


def test_a_layer_is_measured_once_for_its_size(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = measure.autocast_ratio(16, 8)
    assert 0 < first < 1000
    with monkeypatch.context() as patched:
        patched.setattr(measure, "_layer", lambda rows, width, dtype: 1 / 0)
        assert measure.autocast_ratio(16, 8) == first
        with pytest.raises(ZeroDivisionError):
            measure.autocast_ratio(16, 16)
    for path in (own_cache / "machine").iterdir():
        path.write_bytes(b"")
    monkeypatch.setattr(measure, "_shortest", lambda *works: [3.0, 2.0])
    assert measure.autocast_ratio(16, 8) == 1.5
