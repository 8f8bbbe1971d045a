"""The tiny model that lessons take apart where no other is chosen: trained here in seconds, kept.

It is an ordinary run folder in the cache, so everything that reads runs reads it. It learns
Shakespeare where the package with the plays is installed, else the prose of the lessons themselves,
so it can be had offline on any machine.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cache
from pathlib import Path

from partwise.course.catalogue import lesson_files
from partwise.course.cells import Markdown, Quiz
from partwise.course.format import read_lesson
from partwise.errors import StorageError, TextError
from partwise.model.config import ModelConfig
from partwise.storage import cache_folder, read_json, write_atomic
from partwise.text.config import DataConfig
from partwise.text.corpora import shakespeare
from partwise.training.config import TrainConfig

# The block of the original papers: LayerNorm before each sublayer, learned positions, ReLU. Width,
# context, head size and the 64 characters of the plays are all different, so that a shape says what
# it is.
TINY = ModelConfig(
    context_length=48,
    n_layers=4,
    d_model=80,
    n_heads=4,
    feedforward="relu",
    tie_embeddings=False,
)

TRAINING = TrainConfig(
    steps=300,
    batch_size=20,
    optimizer="muon",
    lr=4e-3,
    schedule="linear",
    warmup_steps=10,
    min_lr_ratio=0.05,
    eval_every=300,
    eval_tokens=16_384,
    sample_chars=0,
    log_every=20,
    keep_checkpoints=1,
    dtype="float32",
    compile="off",
    device="cpu",
    # One thread adds up in one order, so the model is the same whatever the number of cores.
    threads=1,
)


def tiny_folder() -> Path:
    """The tiny model's run folder, whether it is there yet or not."""
    recipe = json.dumps([asdict(TINY), asdict(TRAINING), _spec()[0]], sort_keys=True)
    mark = hashlib.sha256(recipe.encode("utf-8")).hexdigest()[:8]
    return _home() / f"tiny-{mark}"


def tiny_ready() -> bool:
    """Whether the tiny model is trained."""
    return _step(tiny_folder()) == TRAINING.steps


def make_tiny() -> Path:
    """The tiny model's run folder, trained now if it was not yet.

    Raises:
        PartwiseError: the cache cannot be written.
    """
    for _ in train_tiny():
        pass
    return tiny_folder()


def train_tiny(stop: Callable[[], bool] = lambda: False) -> Iterator[object]:
    """Train the tiny model, or go on with it; at once when it is there.

    Args:
        stop: asked before every step; True saves and ends.

    Yields:
        The events of the training.

    Raises:
        PartwiseError: the cache cannot be written.
    """
    if tiny_ready():
        return
    from partwise.run import Run
    from partwise.text.turns import in_turn

    folder = tiny_folder()
    # In turn: whoever comes second finds it trained.
    with in_turn(_home() / ".tiny.lock"):
        if tiny_ready():
            return
        if (folder / "run.toml").is_file():
            run = Run.open(folder)
        else:
            kind, spec = _spec()
            if kind == "prose":
                write_atomic(Path(spec), prose().encode("utf-8"))
            run = Run.create(_home(), folder.name, spec, TINY, TRAINING, DataConfig(), offline=True)
        yield from run.train(resume=True, stop=stop, offline=True)


def checkpoint_folder(run: Path) -> Path:
    """The folder of a run's best checkpoint, found without loading torch.

    Raises:
        StorageError: there is none.
    """
    _, pointer = read_json(run / "checkpoints" / "best.json", kind="pointer", newest=1)
    return run / "checkpoints" / str(pointer["folder"])


def prose() -> str:
    """What the lessons say in English: their text, their questions and what is said to answers."""
    parts: list[str] = []
    for path in lesson_files():
        for cell in read_lesson(path).cells:
            if isinstance(cell, Markdown):
                parts.append(cell.text.en)
            elif isinstance(cell, Quiz):
                words = [cell.question, cell.right, cell.wrong]
                for choice in cell.choices:
                    words += [choice.text, choice.feedback]
                parts.append("\n".join(one.en for one in words if one is not None))
    # Once and no more: what is kept to judge by must not stand among what is learned from.
    return "\n\n".join(parts).encode("ascii", "ignore").decode("ascii")


def _home() -> Path:
    return cache_folder() / "course"


def _step(run: Path) -> int | None:
    try:
        _, pointer = read_json(run / "checkpoints" / "last.json", kind="pointer", newest=1)
    except StorageError:
        return None
    return int(pointer["step"])


@cache
def _spec() -> tuple[str, str]:
    """What it learns: a kind that does not change with the place, and the text's name or file."""
    try:
        shakespeare()
    except TextError:
        return "prose", str(_home() / "prose.txt")
    return "shakespeare", "shakespeare"
