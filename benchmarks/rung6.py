"""Rung 6 as the product trains it, step by step beside a plain loop of the same model.

    python benchmarks/rung6.py --steps 500                # a step of each in turn, on all cores
    python benchmarks/rung6.py --steps 20 --dropout 0     # the same numbers, to rounding
    python benchmarks/rung6.py --threads 1 --keep FOLDER --lane ours    # or each on its own core:
    python benchmarks/rung6.py --threads 1 --keep FOLDER --lane plain   # start both, then
    python benchmarks/rung6.py --report

Both start from the same weights and read the same batches; the plain loop is that of the tests,
tests/ladder/plain.py, which shares no line with the product. With dropout each draws its own
masks, so the two losses then differ as those of two seeds do; without it they are equal to
rounding. Each step's losses and seconds are appended to a file of JSON lines, and after the last
step the loss of the whole validation split; the report reads that file. With `--keep` a run that
was stopped goes on from its last 20 steps, the product by its own checkpoints.
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
from torch.nn import functional as F

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

# Steps between two states that `--keep` keeps.
KEPT_EVERY = 20


def main() -> None:
    """Train both, a step of each in turn, or one of them; or report what the file has."""
    asked = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    asked.add_argument("--steps", type=int, default=500)
    asked.add_argument("--dropout", type=float, default=0.2)
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--text", default="tinyshakespeare")
    asked.add_argument("--threads", type=int, default=torch.get_num_threads())
    asked.add_argument("--lane", choices=("ours", "plain"))
    asked.add_argument("--out", type=Path, default=Path("rung6.jsonl"))
    asked.add_argument("--keep", type=Path, help="folder of states to go on from")
    asked.add_argument("--report", action="store_true")
    said = asked.parse_args()
    if not said.report:
        run(said)
    if said.report or said.lane is None:
        report(said.out)


def run(said: argparse.Namespace) -> None:
    """Train the lanes asked for, writing a line a step."""
    torch.set_num_threads(said.threads)
    if said.keep:
        said.keep.mkdir(parents=True, exist_ok=True)
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
        checkpoint_every=KEPT_EVERY,
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

    def ours() -> Iterator[tuple[int, float]]:
        data = Data(batches, prepared.validation, windows, len(prepared.train))
        for event in train(model, data, training, folder=said.keep, resume=said.keep is not None):
            if isinstance(event, Stepped) and event.logged:
                yield event.step, event.loss

    def theirs() -> Iterator[tuple[int, float]]:
        optimizer = torch.optim.AdamW(plain.parameters(), lr=training.lr)
        kept, first = said.keep and said.keep / "plain.pt", 0
        if kept and kept.exists():
            state = torch.load(kept, weights_only=True)
            plain.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            torch.set_rng_state(state["random"])
            first = state["step"]
        losses = loop(plain, batch, said.steps, training.lr, optimizer, first)
        for step, loss in enumerate(losses, first + 1):
            if kept and step % KEPT_EVERY == 0:
                state = {"model": plain.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(state | {"random": torch.get_rng_state(), "step": step}, f"{kept}.new")
                Path(f"{kept}.new").replace(kept)
            yield step, loss

    @torch.no_grad()
    def validation(module: torch.nn.Module) -> float:
        module.eval()
        total, count = 0.0, 0
        for inputs, targets in windows(prepared.validation, config.context_length, 32):
            logits = module(torch.from_numpy(inputs))
            wanted = torch.from_numpy(targets).flatten()
            total += F.cross_entropy(logits.flatten(0, 1), wanted, reduction="sum").item()
            count += wanted.numel()
        return total / count

    modules: dict[str, torch.nn.Module] = {"ours": model, "plain": plain}
    lanes = {"ours": ours(), "plain": theirs()}
    names = [said.lane] if said.lane else list(lanes)
    settings = {"dropout": said.dropout, "seed": said.seed, "threads": said.threads}
    with said.out.open("a", encoding="utf-8") as out:
        for name in names:
            line = {"lane": name, "steps": said.steps, **settings, "machine": describe()}
            print(json.dumps(line, ensure_ascii=False), file=out, flush=True)
        going = list(names)
        while going:
            for name in going.copy():
                start = time.perf_counter()
                step, loss = next(lanes[name], (0, 0.0))
                seconds = round(time.perf_counter() - start, 3)
                if not step:
                    going.remove(name)
                    continue
                line = {"lane": name, "step": step, "loss": loss, "seconds": seconds}
                print(json.dumps(line), file=out, flush=True)
        for name in names:
            line = {"lane": name, "step": said.steps, "validation": validation(modules[name])}
            print(json.dumps(line), file=out, flush=True)


def report(file: Path) -> None:
    """Both curves by fifties, the largest difference of a step, and the validation losses."""
    losses: dict[str, dict[int, float]] = {"ours": {}, "plain": {}}
    seconds: dict[str, list[float]] = {"ours": [], "plain": []}
    validation: dict[str, float] = {}
    for text in file.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        if "loss" in line:  # a step done again after a stop stands twice, with one loss
            losses[line["lane"]][line["step"]] = line["loss"]
            seconds[line["lane"]].append(line["seconds"])
        elif "validation" in line:
            validation[line["lane"]] = line["validation"]
    done = min(map(len, losses.values()))
    if not done:
        sys.exit(f"{file} holds no step of both lanes; run them first")
    width = max(1, done // 10)
    for first in range(1, done - width + 2, width):
        part = {
            name: statistics.fmean(curve[step] for step in range(first, first + width))
            for name, curve in losses.items()
        }
        gap = part["ours"] - part["plain"]
        print(
            f"{first:4}-{first + width - 1:<4}", *(f"{k} {v:.4f}" for k, v in part.items()), end=" "
        )
        print(f"difference {gap:+.4f}")
    largest = max(abs(losses["ours"][step] - losses["plain"][step]) for step in range(1, done + 1))
    print("largest difference of one step", f"{largest:.2g}")
    print("median seconds a step", {name: statistics.median(v) for name, v in seconds.items()})
    print("validation loss, whole split", validation)


if __name__ == "__main__":
    main()
