"""A run that is killed and resumed ends in the same bits as one that is not; looking is harmless.

Run A trains straight through. Run B is killed with SIGKILL at random moments and resumed until it
is done. Weights, averages, optimizer, counters, metrics and samples must be equal, apart from
seconds and rates.
"""

import dataclasses
import json
import random
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

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

CHILD = """
import sys
from partwise.run import Run
from partwise.training.events import Started
for event in Run.open(sys.argv[1]).train(resume=True):
    if isinstance(event, Started):
        sys.stdout.write(f"{event.step}\\n")
        sys.stdout.flush()
"""


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


def killed_until_done(run: Run, kills: int, longest: float) -> int:
    """Train `run` in processes that are killed, the last one excepted; how many kills struck."""
    moments = random.Random(kills)
    struck = 0
    while True:
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(run.path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        if struck < kills:
            child.stdout.readline()
            time.sleep(moments.uniform(0, longest))
            child.kill()
        _, errors = child.communicate()
        if child.returncode == 0:
            return struck
        assert struck < kills, errors
        assert "Error" not in errors, errors
        struck += 1


def straight_and_killed(root: Path, text: Path, train: TrainConfig, kills: int) -> int:
    straight = made(root, "straight", text, train)
    began = time.perf_counter()
    finish(straight)
    took = time.perf_counter() - began
    killed = made(root, "killed", text, train)
    # Short enough that no process gets far, long enough that most reach another checkpoint.
    struck = killed_until_done(killed, kills, longest=took / min(kills, 6))
    assert_equal(straight, killed)
    return struck


def test_killed_runs_end_in_the_same_bits(tmp_path: Path, text: Path) -> None:
    short = dataclasses.replace(TRAIN, steps=120)
    assert straight_and_killed(tmp_path, text, short, kills=2) >= 1


@pytest.mark.long
def test_a_hundred_kills(tmp_path: Path, text: Path) -> None:
    # Later kills strike runs that are done; each round makes a new one.
    struck = 0
    for number in range(25):
        struck += straight_and_killed(tmp_path / str(number), text, TRAIN, kills=4 + number % 5)
        if struck >= 100:
            break
    assert struck >= 100


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
