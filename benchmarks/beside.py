"""Tokens a second of `partwise train` alone and beside other work, by how long threads wait awake.

    python benchmarks/beside.py

For each way of waiting, in turn: a run in two threads alone, two such runs at once (their mean) and
one beside a busy loop, all of them on the same two cores. `partwise` waits by itself as in the row
of 1,000 looks (`src/partwise/cli/waiting.py`); 300,000 is what GNU's OpenMP does unless told. About
nine minutes.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory

from partwise.storage import cache_folder, lock
from partwise.training.listeners import read_metrics

RUNS = {
    "2 layers of 96": [
        *("--model.n-layers", "2", "--model.d-model", "96", "--model.n-heads", "3"),
        *("--model.context-length", "64", "--train.steps", "100000"),
    ],
    "fast": ["--recipe", "fast", "--train.steps", "100000"],
}
LOOKS = ("300000", "10000", "1000", "0")
ROUNDS, SECONDS = 3, 5.0


@contextmanager
def process(words: list[str], looks: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that runs for as long as the context."""
    surroundings = {**os.environ, "GOMP_SPINCOUNT": looks}
    with subprocess.Popen(words, env=surroundings, stdout=subprocess.DEVNULL) as running:
        try:
            yield running
        finally:
            running.kill()


def later(
    metrics: Path, running: "subprocess.Popen[bytes]", after: tuple[int, float] = (-1, 0)
) -> tuple[int, float]:
    """Tokens and seconds of the last event, once they are more than `after` has."""
    while True:
        counted = [event for event in read_metrics(metrics) if "tokens" in event]
        if counted and counted[-1]["tokens"] > after[0]:
            return counted[-1]["tokens"], counted[-1]["seconds"]
        if running.poll() is not None:
            sys.exit(f"{' '.join(map(str, running.args))}: ended with status {running.returncode}")
        time.sleep(0.2)


def speed(text: str, run: list[str], looks: str, copies: int, busy: bool) -> float:
    """Mean tokens a second of so many copies at once, beside a busy loop or not."""
    with TemporaryDirectory() as folder, ExitStack() as stack:
        if busy:
            stack.enter_context(process([sys.executable, "-c", "while True: pass"], looks))
        train = [sys.executable, "-m", "partwise", "train", text, *run, "--train.threads", "2"]
        runs = []
        for number in range(copies):
            name = f"run{number}"
            words = [*train, "--runs-dir", folder, "--name", name, "--quiet"]
            running = stack.enter_context(process(words, looks))
            runs.append((Path(folder, name, "metrics.jsonl"), running))
        begun = [later(*run) for run in runs]
        time.sleep(SECONDS)
        ended = [later(*run, after) for run, after in zip(runs, begun, strict=True)]
        return mean((b[0] - a[0]) / (b[1] - a[1]) for a, b in zip(begun, ended, strict=True))


def main() -> None:
    """Take all figures in turn and print their medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", default="shakespeare")
    text = parser.parse_args().text
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    places = {"alone": (1, False), "two at once": (2, False), "beside a loop": (1, True)}
    taken: dict[tuple[str, str, str], list[float]] = {}
    with lock(cache_folder() / "bench" / "lock"):
        for _ in range(ROUNDS):
            for name, run in RUNS.items():
                for looks in LOOKS:
                    for place, (copies, busy) in places.items():
                        found = speed(text, run, looks, copies, busy)
                        taken.setdefault((name, looks, place), []).append(found)
    print("| run | looks | " + " | ".join(places) + " |\n|---|---|" + "---|" * len(places))
    for name in RUNS:
        for looks in LOOKS:
            figures = (f"{median(taken[name, looks, place]):,.0f}" for place in places)
            print(f"| {name} | {int(looks):,} | {' | '.join(figures)} |")


if __name__ == "__main__":
    main()
