"""Try a recipe, or a change to one, on text that it does not see.

    python benchmarks/recipe.py hold fast --set model.d_model=192 --seconds 90
    python benchmarks/recipe.py report fast --seeds 5
    python benchmarks/recipe.py table

`hold` trains on the training part without some stretches scattered over all of it (5 % of it) and
judges by those: this is what settings are chosen by. `report` trains on the whole training part and
gives the loss of the whole validation part, which nothing is chosen by. Both append to a file of
JSON lines, and leave out what that file holds already.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from partwise.budget.recipes import Recipe, recipe
from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT
from partwise.model.parameters import count_parameters
from partwise.settings import build, parse, plain
from partwise.storage import cache_folder
from partwise.text.batches import Batches, ahead, windows
from partwise.text.config import DataConfig
from partwise.text.prepare import prepare
from partwise.training.config import TrainConfig
from partwise.training.data import Batch, Data
from partwise.training.events import Evaluated, Finished
from partwise.training.loop import train

Ids = npt.NDArray[np.int64]

# The stretches held back are so much of the training part, and as many as `--stretches` says.
SHARE = 0.05
STRETCHES = 50


class Held:
    """Tokens in memory, as `Batches` reads them.

    Args:
        tokens: all of them.
    """

    def __init__(self, tokens: Ids) -> None:
        self.tokens = tokens

    def __len__(self) -> int:
        return len(self.tokens)

    def rows(self, starts: Ids, length: int) -> Ids:
        """`length` tokens from each of `starts` on."""
        found: Ids = self.tokens[starts[:, None] + np.arange(length)]
        return found

    def __getitem__(self, place: slice) -> Ids:
        """Some of them."""
        return self.tokens[place]


def hold_back(tokens: Ids, count: int) -> tuple[Held, list[Held]]:
    """What is trained on, and `count` stretches that are not."""
    length = 1 + 256 * round(SHARE * len(tokens) / count / 256)
    first = np.linspace(0, len(tokens) - length, count + 2).astype(int)[1:-1]
    kept = np.ones(len(tokens), bool)
    for start in first:
        kept[start : start + length] = False
    return Held(tokens[kept]), [Held(tokens[start : start + length]) for start in first]


def stretches(
    views: list[Any], context_length: int, batch_size: int, limit: int | None = None
) -> Iterator[Batch]:
    """As `windows`, of each stretch on its own."""
    for view in views:
        yield from windows(view, context_length, batch_size, limit)


def pace(begin: Recipe, model: GPT, batches: Batches, seconds: float) -> int:
    """Steps that take so many seconds of this process, judged by some that are thrown away."""
    tried = replace(begin.train, steps=8, eval_every=10**9)
    marks: list[float] = []

    def never() -> bool:
        marks.append(time.process_time())
        return False

    state = {name: value.clone() for name, value in model.state_dict().items()}
    first = Held(batches.batch(0)[0][0])
    data = Data(batches, first, windows, len(first))
    for _ in train(model, data, tried, stop=never):
        pass
    model.load_state_dict(state)
    each = sorted(later - before for before, later in pairwise(marks[2:9]))
    return max(1, round(seconds / each[len(each) // 2]))


def run(begin: Recipe, args: argparse.Namespace, seed: int, held: bool) -> dict[str, Any]:
    """Train once; what came of it."""
    prepared = prepare(args.text, DataConfig(), cache=cache_folder(), offline=True)
    config = replace(begin.model, vocab_size=prepared.tokenizer.vocab_size)
    settings = replace(
        begin.train,
        seed=seed,
        compile=args.compile,
        dtype=args.dtype,
        eval_every=10**9,
        log_every=10**9,
    )
    view: Any = prepared.train
    validation: Any = prepared.validation
    cut: Any = windows
    if held:
        view, validation = hold_back(np.asarray(prepared.train[:]).astype(np.int64), args.stretches)
        cut = stretches
    if args.characters:
        view = Held(np.asarray(view[: args.characters]).astype(np.int64))
    batches = Batches(view, config.context_length, settings.batch_size, seed, settings.order)
    data = Data(batches, validation, cut, len(view), lambda b, start: ahead(b, start, 0))
    torch.manual_seed(seed)
    model = GPT(config)
    if args.implementation:
        model.use_attention(args.implementation)
    if args.seconds is not None:
        settings = replace(
            settings, steps=pace(Recipe(config, settings), model, batches, args.seconds)
        )
    if args.every:
        settings = replace(settings, eval_every=args.every)
    torch.manual_seed(seed)
    curve: list[tuple[int, float]] = []
    cpu, wall = time.process_time(), time.perf_counter()
    for event in train(model, data, settings):
        if isinstance(event, Evaluated):
            curve.append((event.step, round(event.val_loss, 4)))
        if isinstance(event, Finished):
            steps = event.step
    tokens = steps * settings.batch_size * config.context_length
    return {
        "loss": curve[-1][1],
        "curve": curve,
        "steps": steps,
        "tokens": tokens,
        "parameters": count_parameters(config),
        "cpu_seconds": round(time.process_time() - cpu, 1),
        "wall_seconds": round(time.perf_counter() - wall, 1),
    }


def changed(begin: Recipe, changes: list[str]) -> Recipe:
    """The recipe with `model.x=1` and `train.y=2` laid over it."""
    kinds: dict[str, tuple[type[Any], dict[str, Any]]] = {
        "model": (ModelConfig, {}),
        "train": (TrainConfig, {}),
    }
    for change in changes:
        name, word = change.split("=", 1)
        section, field = name.split(".", 1)
        config, values = kinds[section]
        values[field] = parse(config, field, word)
    return Recipe(
        build(ModelConfig, kinds["model"][1], begin.model),
        build(TrainConfig, kinds["train"][1], begin.train),
    )


def main() -> None:
    """Read the command line and do what it says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=["hold", "report", "table"])
    parser.add_argument("recipe", nargs="?", default="fast")
    parser.add_argument("--set", nargs="*", default=[], metavar="model.x=1")
    parser.add_argument("--text", default="tinyshakespeare")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument(
        "--seconds", type=float, help="steps that take so long here, in place of the recipe's"
    )
    parser.add_argument(
        "--every", type=int, help="steps between evaluations; else at the end alone"
    )
    parser.add_argument(
        "--stretches",
        type=int,
        default=STRETCHES,
        help="stretches held back; fewer are longer, and less like what is learned from",
    )
    parser.add_argument(
        "--characters", type=int, help="of what is learned from, the first so many; else all"
    )
    parser.add_argument("--compile", default="off")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--implementation", default="")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/recipe.jsonl"))
    args = parser.parse_args()
    known = []
    if args.out.exists():
        known = [json.loads(line) for line in args.out.read_text("utf-8").splitlines()]
    if args.what == "table":
        for result in known:
            print(
                result["what"],
                result["recipe"],
                " ".join(result["set"]),
                result["seed"],
                result["seconds"],
                "|",
                result["loss"],
                result["steps"],
                result["tokens"],
                result["cpu_seconds"],
            )
        return
    for seed in range(1, args.seeds + 1):
        begin = changed(recipe(args.recipe), args.set)
        # The settings in full: a recipe that was changed since is another one.
        key = {
            "what": args.what,
            "recipe": args.recipe,
            "set": sorted(args.set),
            "text": Path(args.text).name,
            "seconds": args.seconds,
            "stretches": args.stretches if args.what == "hold" else None,
            "characters": args.characters,
            "seed": seed,
            "model": plain(begin.model),
            "train": plain(begin.train),
        }
        if any(all(result.get(name) == value for name, value in key.items()) for result in known):
            continue
        found = run(begin, args, seed, held=args.what == "hold")
        result = {**key, **found, "threads": torch.get_num_threads(), "torch": torch.__version__}
        args.out.parent.mkdir(parents=True, exist_ok=True)
        with args.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")
        print(json.dumps(result))


if __name__ == "__main__":
    main()
