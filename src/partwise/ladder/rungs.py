"""The six rungs as data: a ModelConfig, a TrainConfig, and what is new against the rung below.

Each rung adds one part to the model below it and keeps everything else, the training included, so
the validation loss says what that part bought. Every field that decides how weights move is named
here; none is left to the product's own training defaults.

Source: the published values are those of Karpathy, 2023, "Let's build GPT: from scratch, in code,
spelled out", said as each part is added; tiny Shakespeare, character level, 90/10 split.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

from partwise.ladder.config import RUNG_NAMES
from partwise.messages import Notice
from partwise.model.config import ModelConfig
from partwise.model.presets import preset
from partwise.training.config import MACHINE_FIELDS, RECORD_FIELDS, TrainConfig

PUBLISHED_CORPUS = "tinyshakespeare"
PUBLISHED_SOURCE = 'Karpathy, 2023, "Let\'s build GPT: from scratch, in code, spelled out"'

SMALL = TrainConfig(
    steps=5000,
    batch_size=32,
    accumulation=1,
    order="random",
    short_context=None,
    optimizer="adamw",
    lr=1e-3,
    beta1=0.9,
    beta2=0.999,
    eps=1e-8,
    weight_decay=0.01,
    decay_all=True,
    grad_clip=None,
    schedule="constant",
    warmup_steps=0,
    label_smoothing=0.0,
    ema_decay=None,
    eval_every=500,
    eval_tokens=None,
    dtype="float32",
    compile="on",
    device="cpu",
    threads=1,
    sample_chars=0,
    log_every=50,
    keep_checkpoints=1,
)

# Rung 6 differs from rung 5 in its rate and batch; where it is computed is the machine's matter.
SCALED = dataclasses.replace(
    SMALL,
    batch_size=64,
    lr=3e-4,
    dtype="auto",
    compile="auto",
    device="auto",
    threads=None,
    log_every=10,
)


@dataclass(frozen=True)
class Change:
    """One field that differs from the rung below.

    Args:
        config: `model` or `train`.
        field: the field's name.
        before, after: its values below and here.
    """

    config: str
    field: str
    before: Any
    after: Any

    def __str__(self) -> str:
        """`model.residual: false -> true`."""
        return f"{self.config}.{self.field}: {written(self.before)} -> {written(self.after)}"


@dataclass(frozen=True)
class Rung:
    """One rung.

    Args:
        number: 1 is the lowest.
        name: its word on the command line.
        adds: what it adds to the rung below, in a sentence.
        model: the model.
        train: its training; the seed is the first of the paired seeds.
        published: the published validation loss on tiny Shakespeare (nats a character), a reference
            line and never a result.
    """

    number: int
    name: str
    adds: Notice
    model: ModelConfig
    train: TrainConfig
    published: float


_ADDS = (
    Notice("token and learned position embeddings, one self-attention head of size 32, output"),
    Notice("four heads of size 8 in parallel, joined, then the output projection"),
    Notice("a feed-forward layer, 32 to 32 with ReLU: computation after communication"),
    Notice("three blocks, x + sublayer(x), and a feed-forward layer four times as wide inside"),
    Notice("LayerNorm before each sublayer and before the output layer"),
    Notice("six layers and heads, width 384, context 256, batch 64, dropout 0.2"),
)

_PUBLISHED = (2.40, 2.28, 2.24, 2.08, 2.06, 1.48)


def rung(number: int) -> Rung:
    """Rung `number`, from 1."""
    return Rung(
        number=number,
        name=RUNG_NAMES[number - 1],
        adds=_ADDS[number - 1],
        model=preset(f"ladder-{number}"),
        train=SMALL if number < len(RUNG_NAMES) else SCALED,
        published=_PUBLISHED[number - 1],
    )


def rungs() -> tuple[Rung, ...]:
    """All rungs, lowest first."""
    return tuple(rung(number + 1) for number in range(len(RUNG_NAMES)))


def published(number: int, corpus: str) -> float | None:
    """The published value of a rung, or None for a text that it was not published for."""
    return _PUBLISHED[number - 1] if corpus == PUBLISHED_CORPUS else None


def changes(below: Rung | None, here: Rung) -> tuple[Change, ...]:
    """The fields in which a rung differs from the one below; machine fields are left out.

    The lowest rung is compared with nothing, and everything that it has is listed against the
    dataclass's defaults by `definition` instead.
    """
    if below is None:
        return ()
    return difference(below.model, here.model, below.train, here.train)


def difference(
    model_before: ModelConfig,
    model_after: ModelConfig,
    train_before: TrainConfig,
    train_after: TrainConfig,
) -> tuple[Change, ...]:
    """The fields that two pairs of settings differ in, model first; machine fields are left out."""
    found = []
    pairs = (("model", model_before, model_after), ("train", train_before, train_after))
    for name, before, after in pairs:
        for field in dataclasses.fields(before):
            old, new = getattr(before, field.name), getattr(after, field.name)
            if old != new and field.name not in MACHINE_FIELDS + RECORD_FIELDS:
                found.append(Change(name, field.name, old, new))
    return tuple(found)


def definition(here: Rung) -> tuple[tuple[str, Any], ...]:
    """Every field that a rung's definition stands on, as (`model.d_model`, 32).

    The lowest rung is shown so. Fields that are off, or that belong to a part it lacks, are left
    out.
    """
    model, train = here.model, here.train
    unused = ["seed", *MACHINE_FIELDS, *RECORD_FIELDS]
    off = {
        "rope_": model.position != "rotary",
        "norm_": model.norm == "none",
        "final_norm": model.norm == "none",
        "feedforward_": model.feedforward == "none",
        "projection_bias": not model.output_projection,
        "init_std": model.initialisation not in ("normal", "gpt2"),
        "muon_": train.optimizer != "muon",
        "min_lr_ratio": train.schedule == "constant",
        "decay_fraction": train.schedule != "wsd",
    }
    beginnings = tuple(beginning for beginning, applies in off.items() if applies)
    return tuple(
        (f"{name}.{field.name}", getattr(config, field.name))
        for name, config in (("model", model), ("train", train))
        for field in dataclasses.fields(config)
        if field.name not in unused
        and not field.name.startswith(beginnings)
        and getattr(config, field.name) is not None
    )


def written(value: object) -> str:
    """A setting's value as a command line and TOML write it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    return str(value)
