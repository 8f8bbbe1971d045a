"""Rung 6 as the product trains it, step by step beside a plain loop of the same model.

    python benchmarks/rung6.py --steps 500
    python benchmarks/rung6.py --steps 20 --dropout 0     # the same numbers, to rounding

Both start from the same weights and read the same batches; the plain loop is that of the tests,
tests/ladder/plain.py, which shares no line with the product. With dropout each draws its own masks,
so the two losses then differ as those of two seeds do; without it they are equal to rounding.
Each step's losses and seconds are appended to a file of JSON lines; at the end stand means and the
largest difference.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

sys.path.append(str(Path(__file__).parent.parent / "tests"))

from ladder.plain import Plain, loop

from partwise.ladder.rungs import rung
from partwise.machine import describe
from partwise.model.gpt import GPT
from partwise.storage import cache_folder
from partwise.text.batches import Batches, windows
from partwise.text.config import DataConfig
from partwise.text.prepare import prepare
from partwise.training.data import Data
from partwise.training.events import Stepped
from partwise.training.loop import train


def main() -> None:
    """Train both, a step of each in turn."""
    asked = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    asked.add_argument("--steps", type=int, default=500)
    asked.add_argument("--dropout", type=float, default=0.2)
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--text", default="tinyshakespeare")
    asked.add_argument("--threads", type=int, default=torch.get_num_threads())
    asked.add_argument("--out", type=Path, default=Path("rung6.jsonl"))
    said = asked.parse_args()
    torch.set_num_threads(said.threads)

    prepared = prepare(said.text, DataConfig(), cache=cache_folder())
    here = rung(6)
    config = replace(here.model, vocab_size=prepared.tokenizer.vocab_size, dropout=said.dropout)
    training = replace(
        here.train,
        steps=said.steps,
        seed=said.seed,
        dtype="float32",
        device="cpu",
        compile="off",
        threads=said.threads,
        eval_every=said.steps,
        eval_tokens=8192,
        log_every=1,
    )
    torch.manual_seed(said.seed)
    model = GPT(config)
    plain = Plain(
        6,
        config.vocab_size,
        config.context_length,
        config.d_model,
        config.n_heads,
        config.n_layers,
        said.dropout,
    )
    plain.take({name: value.clone() for name, value in model.state_dict().items()})
    batches = Batches(prepared.train, config.context_length, training.batch_size, said.seed)

    def batch(step: int) -> tuple[Tensor, Tensor]:
        inputs, targets = batches.batch(step)
        return torch.from_numpy(inputs), torch.from_numpy(targets)

    def ours() -> Iterator[float]:
        data = Data(batches, prepared.validation, windows, len(prepared.train))
        for event in train(model, data, training):
            if isinstance(event, Stepped) and event.logged:
                yield event.loss

    product, other = ours(), loop(plain, batch, said.steps, training.lr)
    seconds: dict[str, list[float]] = {"ours": [], "plain": []}
    losses: dict[str, list[float]] = {"ours": [], "plain": []}
    with said.out.open("a", encoding="utf-8") as out:
        for step in range(1, said.steps + 1):
            for name, lane in (("ours", product), ("plain", other)):
                start = time.perf_counter()
                losses[name].append(next(lane))
                seconds[name].append(time.perf_counter() - start)
            line = {"step": step, **{name: losses[name][-1] for name in losses}}
            line |= {f"{name}_seconds": round(seconds[name][-1], 3) for name in seconds}
            print(json.dumps(line), file=out, flush=True)
    differences = [a - b for a, b in zip(losses["ours"], losses["plain"], strict=True)]
    tail = max(1, said.steps // 5)
    print(
        json.dumps(
            {
                "steps": said.steps,
                "dropout": said.dropout,
                "last_fifth": {k: statistics.fmean(v[-tail:]) for k, v in losses.items()},
                "largest_difference": max(map(abs, differences)),
                "median_seconds": {k: statistics.median(v) for k, v in seconds.items()},
                "machine": describe(),
            },
            ensure_ascii=False,
        )
    )


if __name__ == "__main__":
    main()
