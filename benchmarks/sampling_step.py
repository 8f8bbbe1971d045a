"""What a token costs in the compiled step of sampling alone, by what its matrices are held in.

    python benchmarks/sampling_step.py

Rung 6's shape with random weights, on as many threads as torch has; milliseconds a token, medians
of calls of 32 tokens in turn, from several lengths of what is in the cache.
"""

import time
from dataclasses import replace
from statistics import median

import torch

from partwise.model.gpt import GPT
from partwise.model.presets import preset
from partwise.sampling.config import SampleConfig
from partwise.sampling.native import STEP, Held, NativeStep, Pace, Way, kept_in
from partwise.storage import cache_folder, lock

HELD: tuple[Held, ...] = ("float32", "bfloat16", "int8")
LENGTHS, CALLS, TOKENS = (0, 112, 223), 40, 32


def main() -> None:
    """Take all figures in turn and print them."""
    torch.manual_seed(1)
    model = GPT(replace(preset("ladder-6"), vocab_size=65)).eval()
    steps = {}
    for held in HELD:
        cache = model.new_cache(1, dtype=kept_in(held))
        step = NativeStep(STEP.library(), model, cache, SampleConfig(), 65, None, held=held)
        step.pace = Pace([Way(torch.get_num_threads(), guessing=False)])
        steps[held] = (step, cache)
    taken: dict[tuple[Held, int], list[float]] = {}
    new = torch.tensor([[1]])
    with lock(cache_folder() / "bench" / "lock"):
        for _ in range(CALLS):
            for held, (step, cache) in steps.items():
                for length in LENGTHS:
                    cache.position.fill_(length)
                    began = time.perf_counter()
                    step(new, torch.rand(TOKENS, 1))
                    seconds = (time.perf_counter() - began) / TOKENS
                    taken.setdefault((held, length), []).append(seconds)
    for held in HELD:
        figures = (
            f"{1e3 * median(taken[held, length]):.3f} ms from {length}" for length in LENGTHS
        )
        print(f"{held}: {', '.join(figures)}")


if __name__ == "__main__":
    main()
