"""Time `partwise train tinyshakespeare --recipe fast` as a newcomer meets it: cold, on all cores.

    python benchmarks/recipe_wall.py --seeds 5
    python benchmarks/recipe_wall.py --recipe nanogpt-cpu --minutes 1.7

Each seed is a process of its own with an empty cache, so that preparing the text and measuring the
machine count too. Prints and appends to a file of JSON lines: wall seconds from the command's start
to its end, seconds of training, the validation loss, and the machine's load before it began.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from partwise.machine import describe


def once(args: argparse.Namespace, seed: int) -> dict[str, Any]:
    """One training, from an empty cache."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "partwise", "train", args.text, "--recipe", args.recipe]
        command += ["--train.seed", str(seed), "--json", "--runs-dir", str(Path(folder) / "runs")]
        if args.minutes is not None:
            command += ["--minutes", str(args.minutes)]
        environment = {**os.environ, "PARTWISE_CACHE": str(Path(folder) / "cache")}
        start = time.perf_counter()
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, encoding="utf-8", check=True
        )
        wall = time.perf_counter() - start
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    losses = [event["val_loss"] for event in events if "val_loss" in event]
    ends = [event for event in events if event.get("event") == "finished"]
    return {
        "recipe": args.recipe,
        "text": args.text,
        "seed": seed,
        "wall_seconds": round(wall, 1),
        "training_seconds": round(ends[-1]["seconds"], 1) if ends else None,
        "val_loss": round(losses[-1], 4),
        "load_before": load,
    }


def main() -> None:
    """Time the seeds one after the other."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--recipe", default="fast")
    parser.add_argument("--text", default="tinyshakespeare")
    parser.add_argument("--minutes", type=float, help="in place of the recipe's steps")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=1, help="the first of the seeds")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/recipe_wall.jsonl"))
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    machine = describe()
    found = []
    for seed in range(args.first, args.first + args.seeds):
        result = once(args, seed)
        found.append(result)
        print(json.dumps(result), flush=True)
        with args.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**result, "machine": machine}) + "\n")
    for what in ("val_loss", "wall_seconds"):
        values = [result[what] for result in found]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        print(f"{what}: {statistics.mean(values):.4f}, deviation {spread:.4f}")


if __name__ == "__main__":
    main()
