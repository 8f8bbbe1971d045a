"""A run that is killed and resumed ends in the same bits as one that is not; looking is harmless.

Run A trains straight through. Run B is killed with SIGKILL at random moments and resumed until it
is done. Weights, averages, optimizer, counters, metrics and samples must be equal, apart from
seconds and rates.
"""

import dataclasses
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from partwise.machine import can_compile
from partwise.model.config import ModelConfig
from partwise.run import Run
from partwise.text.config import DataConfig
from partwise.training.config import TrainConfig
from partwise.training.events import Finished, Started, Stepped

MODEL = ModelConfig(context_length=16, n_layers=1, d_model=32, n_heads=2, dropout=0.1)
TRAIN = TrainConfig(
    steps=300,
    batch_size=4,
    accumulation=2,
    optimizer="muon",
    ema_decay=0.9,
    warmup_steps=20,
    eval_every=40,
    checkpoint_every=25,
    log_every=7,
    sample_chars=20,
    keep_checkpoints=2,
    device="cpu",
    dtype="float32",
    compile="off",
    threads=1,
)

# Children are forked from a process that has imported everything, since importing takes far longer
# than training does here. It runs nothing itself, so that it has no threads to lose.
NURSERY = """
import json, os, signal, sys, time, traceback
import torch._dynamo
from partwise.run import Run

while line := sys.stdin.readline():
    path, events, seconds = json.loads(line)
    heard, told = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for event in Run.open(path).train(resume=True):
                os.write(told, b".")
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(told)
    while events > 0 and os.read(heard, 1):
        events -= 1
    if events == 0:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    while os.read(heard, 1000):
        pass
    os.close(heard)
    sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\\n")
    sys.stdout.flush()
"""


class Nursery:
    """Trains runs in processes that can be killed."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", NURSERY],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def train(self, run: Run, events: int = -1, seconds: float = 0.0) -> int:
        """Go on with `run` in a new process; its exit status, below 0 when it was killed.

        Args:
            run: the run.
            events: how many it tells before it is killed; -1 lets it live.
            seconds: how long it lives on after that.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(run.path), events, seconds]) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    if not hasattr(os, "fork"):
        pytest.skip("this system cannot fork")
    opened = Nursery()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    letters = random.Random(1)
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("".join(letters.choices("abcdefgh \n", k=4000)), encoding="utf-8")
    return path


def made(
    root: Path, name: str, text: Path, train: TrainConfig = TRAIN, data: DataConfig | None = None
) -> Run:
    return Run.create(root, name, str(text), MODEL, train, data or DataConfig())


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, text: Path) -> Run:
    run = made(
        tmp_path_factory.mktemp("plain"), "plain", text, dataclasses.replace(TRAIN, steps=45)
    )
    finish(run)
    return run


def finish(run: Run) -> None:
    assert isinstance(list(run.train(resume=True))[-1], Finished)


def without_clock(value: Any) -> Any:
    """The same without what a clock says."""
    if isinstance(value, dict):
        clock = ("seconds", "tokens_per_second", "checksum")
        return {name: without_clock(v) for name, v in value.items() if name not in clock}
    return value


def content(run: Run) -> dict[str, Any]:
    """All that a run has come to, by file."""
    found: dict[str, Any] = {}
    for path in sorted(run.path.rglob("*")):
        name = path.relative_to(run.path).as_posix()
        if path.is_dir() or name in ("run.toml", ".lock"):
            continue
        if name == "metrics.jsonl":
            found[name] = [without_clock(line) for line in run.metrics()]
        elif path.suffix == ".json":
            found[name] = without_clock(json.loads(path.read_text(encoding="utf-8")))
        else:
            found[name] = path.read_bytes()
    return found


def assert_equal(one: Run, other: Run) -> None:
    first, second = content(one), content(other)
    assert first.keys() == second.keys()
    for name in first:
        assert first[name] == second[name], name


def straight_and_killed(
    nursery: Nursery, root: Path, text: Path, train: TrainConfig, kills: int
) -> int:
    """Hold a killed run against one that was not; how many kills struck."""
    straight = made(root, "straight", text, train)
    assert nursery.train(straight) == 0
    killed = made(root, "killed", text, train)
    moments = random.Random(kills)
    struck = 0
    for _ in range(kills):
        # A whole run tells about 80 events; most processes reach another checkpoint.
        events = moments.randrange(80 // kills * 2)
        struck += nursery.train(killed, events, moments.expovariate(1 / 0.01)) != 0
    assert nursery.train(killed) == 0
    assert_equal(straight, killed)
    return struck


def test_killed_runs_end_in_the_same_bits(nursery: Nursery, tmp_path: Path, text: Path) -> None:
    assert straight_and_killed(nursery, tmp_path, text, TRAIN, kills=5) >= 2


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_hundred_kills(nursery: Nursery, tmp_path: Path, text: Path) -> None:
    struck = 0
    for number in range(100):
        train = dataclasses.replace(TRAIN, seed=number, optimizer=("muon", "adamw")[number % 2])
        root = tmp_path / str(number)
        struck += straight_and_killed(nursery, root, text, train, kills=2 + number % 7)
        if struck >= 100:
            return
    pytest.fail(f"only {struck} kills struck")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_killed_runs_of_one_function_a_step_end_in_the_same_bits(
    nursery: Nursery, tmp_path: Path, text: Path
) -> None:
    if not can_compile():
        pytest.skip("no compiler here")
    train = dataclasses.replace(TRAIN, optimizer="adamw", accumulation=1, compile="on")
    assert straight_and_killed(nursery, tmp_path, text, train, kills=8) >= 4
    run = Run.open(tmp_path / "straight")
    assert run.record.resolved is not None and run.record.resolved.compiled


def test_interrupted_runs_end_in_the_same_bits(tmp_path: Path, text: Path) -> None:
    short = dataclasses.replace(TRAIN, steps=80)
    straight = made(tmp_path, "straight", text, short)
    finish(straight)
    stopped = made(tmp_path, "stopped", text, short)
    for stop in (0, 1, 2, 24, 25, 39, 40, 41, 79):
        done = [0]
        for event in stopped.train(resume=True, stop=partial(reached, done, stop)):
            if isinstance(event, Started | Stepped):
                done[0] = event.step
        stopped = Run.open(stopped.path)
    finish(stopped)
    first, second = content(straight), content(stopped)
    # Interrupting saves, so that other checkpoints may stand beside the last and the best.
    names = [name for name in first if not name.startswith("checkpoints/step-")]
    names += [name for name in first if name.startswith("checkpoints/step-000080")]
    for name in names:
        assert first[name] == second[name], name


def reached(done: list[int], step: int) -> bool:
    return done[0] >= step


@pytest.mark.parametrize(
    ("train", "data"),
    [
        ({"eval_every": 7}, {}),
        ({"eval_every": 300, "checkpoint_every": 300}, {}),
        ({"eval_tokens": 50}, {}),
        ({"sample_chars": 0}, {}),
        ({"sample_chars": 60, "eval_every": 11}, {}),
        ({"log_every": 1}, {}),
        ({"checkpoint_every": 3, "keep_checkpoints": 1}, {}),
        ({}, {"workers": 3}),
    ],
)
def test_looking_changes_nothing(
    tmp_path: Path, text: Path, plain: Run, train: dict[str, Any], data: dict[str, Any]
) -> None:
    settings = dataclasses.replace(plain.record.train, **train)
    looked = made(tmp_path, "looked", text, settings, DataConfig(**data))
    finish(looked)
    for file in ("model", "averaged", "optimizer"):
        name = f"checkpoints/step-000045/{file}.safetensors"
        assert (plain.path / name).read_bytes() == (looked.path / name).read_bytes()


def test_what_decides_the_bits_does_change_them(tmp_path: Path, text: Path) -> None:
    """The tests above could not fail if every run ended alike."""
    ends = set()
    short = dataclasses.replace(TRAIN, steps=20)
    for number, change in enumerate(({}, {"seed": 2}, {"lr": 2e-3}, {"steps": 21})):
        run = made(tmp_path, str(number), text, dataclasses.replace(short, **change))
        finish(run)
        (last,) = (run.path / "checkpoints").glob("step-00002*")
        ends.add((last / "model.safetensors").read_bytes())
    assert len(ends) == 4
