"""What a user of `partwise translate` left open: the model, its training, and how long it takes."""

import math
from collections.abc import Set
from dataclasses import dataclass, replace

from partwise.messages import Notice
from partwise.model.seq2seq_config import Seq2SeqConfig
from partwise.model.seq2seq_presets import seq2seq_preset
from partwise.text.tasks import TASKS
from partwise.training.config import TrainConfig
from partwise.translation.shape import Shape, parameters

LENGTHS = {"epochs", "tokens", "minutes"}

# Evaluations in a training, if its length is known.
EVALUATIONS = 12


@dataclass(frozen=True)
class Beginning:
    """A model and its training, before anything that the user said.

    Args:
        name: the preset's name.
        model: the model.
        train: its training.
    """

    name: str
    model: Seq2SeqConfig
    train: TrainConfig


def usual(pairs: str, preset: str | None = None) -> Beginning:
    """What suits the pairs that a user named.

    Label smoothing and Adam's constants are the paper's. Muon and a cosine are not, and learned
    faster here; `--train.optimizer adamw --train.schedule inverse_sqrt` is the paper's.

    Args:
        pairs: what `open_pairs` takes.
        preset: a model's name; None: one that two CPU cores train in minutes.

    Raises:
        ConfigError: there is no such preset.

    Source: Vaswani et al. (2017), sections 5.3 and 5.4.
    """
    task = pairs in TASKS
    name = preset or ("task" if task else "pair")
    train = TrainConfig(
        steps=2000,
        batch_size=64,
        optimizer="muon",
        lr=3e-3,
        beta2=0.98,
        eps=1e-9,
        weight_decay=0.0,
        warmup_steps=100,
        label_smoothing=0.1,
        schedule="cosine",
        min_lr_ratio=0.02,
        eval_every=250,
        # Batches of pairs have many shapes, and each would be compiled anew.
        compile="off",
    )
    if task:
        # A task has one right answer, and a model that is sure of it.
        train = replace(train, steps=1500, label_smoothing=0.0)
    return Beginning(name, seq2seq_preset(name), train)


def fitted(
    train: TrainConfig, said: Set[str], name: str, model: Shape
) -> tuple[TrainConfig, list[Notice]]:
    """The training with a length, evaluations that suit it, and what to tell the user.

    Args:
        train: the training, with everything said laid over it.
        said: its fields that the user named.
        name: the preset's name.
        model: the model, with its vocabulary.
    """
    notices = [
        Notice(
            "model {name}: {parameters:,} parameters (--preset, --model.*)",
            name=name,
            parameters=parameters(model),
        )
    ]
    if "steps" not in said and said & LENGTHS:
        train = replace(train, steps=None)
    steps = train.steps
    if steps is not None:
        if "warmup_steps" not in said:
            train = replace(train, warmup_steps=min(train.warmup_steps, steps // 10))
        if "eval_every" not in said:
            often = max(1, min(train.eval_every, math.ceil(steps / EVALUATIONS)))
            train = replace(train, eval_every=often)
        if not said & {"steps", "target_loss", "patience", *LENGTHS}:
            notices.append(
                Notice(
                    "{steps:,} steps, since nothing says how long (--steps, --minutes)",
                    steps=steps,
                )
            )
    return train, notices
