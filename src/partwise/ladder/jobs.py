"""One model to train, as data that crosses from one process to another."""

import dataclasses
import hashlib
import re
from dataclasses import dataclass
from typing import Any, Self

from partwise.ladder.rungs import Rung, published, rung
from partwise.ladder.variants import FAITHFUL, Variant
from partwise.messages import message
from partwise.model.config import ModelConfig
from partwise.settings import build, plain
from partwise.training.config import TrainConfig

LONGEST_SLUG = 60

# Above this many multiplications a step, one model keeps every core busy by itself.
WIDE = 2e9


@dataclass(frozen=True)
class Job:
    """One rung or variant with one seed.

    Args:
        rung, name: which rung.
        variant: the variant's label; None for the rung itself.
        seed: of weights, batches and dropout.
        model, train: what is trained and how; `train.seed` is `seed`.
        run: name of its run folder.
    """

    rung: int
    name: str
    variant: str | None
    seed: int
    model: ModelConfig
    train: TrainConfig
    run: str

    @property
    def label(self) -> str:
        """What a message calls it."""
        if self.variant is None:
            return message("rung {rung}, {name}", rung=self.rung, name=self.name)
        return message(
            "rung {rung}, {name}, {variant}", rung=self.rung, name=self.name, variant=self.variant
        )

    @property
    def work(self) -> float:
        """About how many multiplications a step takes, forward and backward.

        Six a parameter and token, where a block has 12 d² parameters (see `partwise size`).
        """
        width = self.model.d_model
        block = 12 * width * width + 2 * self.model.context_length * width
        parameters = self.model.n_layers * block + self.model.vocab_size * width
        return 6.0 * parameters * self.model.context_length * self.train.batch_size

    @property
    def wide(self) -> bool:
        """Whether it is trained alone, on every core, rather than one of several, on one core."""
        return self.work > WIDE

    def to_plain(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {**vars(self), "model": plain(self.model), "train": plain(self.train)}

    @classmethod
    def from_plain(cls, given: dict[str, Any]) -> Self:
        """What `to_plain` gave."""
        model = build(ModelConfig, given["model"])
        train = build(TrainConfig, given["train"])
        return cls(**{**given, "model": model, "train": train})


def job(here: Rung, variant: Variant, seed: int, **shared: Any) -> Job:
    """The job of one rung, variant and seed.

    Args:
        here, variant: what is trained.
        seed: its seed.
        **shared: TrainConfig fields that hold for the whole ladder, such as `steps`.

    Raises:
        ConfigError: together they make no sense.
    """
    model, train = variant.applied(here)
    train = dataclasses.replace(train, **shared, seed=seed)
    words = [f"rung-{here.number}"]
    if variant != FAITHFUL:
        words.append(slug(variant.label))
    words.append(f"seed-{seed}")
    return Job(
        rung=here.number,
        name=here.name,
        variant=None if variant == FAITHFUL else variant.label,
        seed=seed,
        model=model,
        train=train,
        run="-".join(words),
    )


def reference(job: Job, corpus: str) -> float | None:
    """The published value of a job that is a whole rung on the text it was published for."""
    whole = job.variant is None and job.train.steps == rung(job.rung).train.steps
    return published(job.rung, corpus) if whole else None


def slug(label: str) -> str:
    """A variant's label as part of a folder name: `without residual, lr=0.003` -> `without-…`.

    No two labels have the same: where something is lost that could tell them apart, as a sign, a
    capital letter or the end of a long one, a mark of the whole stands in its place.
    """
    words = re.sub(r"[^a-z0-9.]+", "-", label.lower()).strip("-.")
    plain = re.fullmatch(r"[a-z0-9.]([a-z0-9._=, ]|(?<=[a-z0-9])-(?=[a-z0-9]))*[a-z0-9]", label)
    if plain and len(words) <= LONGEST_SLUG:
        return words
    return words[: LONGEST_SLUG - 9] + "-" + hashlib.sha256(label.encode("utf-8")).hexdigest()[:8]
