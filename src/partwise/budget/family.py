"""The models that the minutes dial chooses from: one architecture in several sizes.

Each is trained as the runs were that the law is fitted to, and nothing here follows from a recipe
that may change: who changes this family makes new runs (`partwise bench dial`), of which each says
its settings; a run with other settings is none of the law's.

What the law does not choose follows from how often the text is read: what is read again and again
is learned by heart, unless something holds against it. The rules stand on runs of
`benchmarks/dial_rules.py`, which docs/experiments.md tells of.
"""

from dataclasses import dataclass, replace
from typing import Any

from partwise.budget.recipes import Recipe
from partwise.model.config import ModelConfig
from partwise.model.parameters import count_parameters
from partwise.settings import plain
from partwise.training.config import MACHINE_FIELDS, RECORD_FIELDS, TrainConfig


@dataclass(frozen=True)
class Size:
    """A member of the family.

    Args:
        layers: blocks.
        width: of the residual stream (features).
        heads: of attention.
    """

    layers: int
    width: int
    heads: int

    def __str__(self) -> str:
        return f"{self.layers}x{self.width}"


SIZES = (
    Size(2, 48, 1),
    Size(3, 64, 1),
    Size(4, 96, 2),
    Size(4, 128, 2),
    Size(4, 192, 2),
    Size(4, 256, 2),
    Size(6, 320, 4),
    Size(6, 448, 4),
    Size(8, 640, 8),
    Size(12, 768, 8),
)

# Tokens of a text below which what it says of long stretches is true of it alone.
SHORT = 300_000

# Tables of n-grams make the first readings of a text worth much, and soon have it by heart: after
# so many readings of a text, short or long, a run ends that has time for many more. One that is
# told to read on does so with shorter tables.
ENOUGH_OF_SHORT, ENOUGH_OF_LONG = 11.0, 4.0
TOO_MANY = 1.25

# Dropout where a text is read often; more of it, and some on the embeddings, from so many readings
# of a short one.
DROPOUT, MORE_DROPOUT, OF_EMBEDDINGS = 0.2, 0.3, 0.2
MORE_FROM = 6.0

# Fields of the training that change no weight: how long it is, where it runs, what is told of it.
BESIDE_THE_POINT = frozenset(
    {
        "steps",
        "epochs",
        "tokens",
        "minutes",
        "target_loss",
        "patience",
        "seed",
        "eval_every",
        "eval_tokens",
        *MACHINE_FIELDS,
        *RECORD_FIELDS,
    }
)


def enough(text_tokens: int) -> float:
    """Readings after which a text of so many tokens gives no more."""
    return ENOUGH_OF_SHORT if text_tokens < SHORT else ENOUGH_OF_LONG


def member(size: Size, vocab_size: int, text_tokens: int, *, readings: float = 1.0) -> Recipe:
    """The model of that size, and how it is trained; for how long is left open.

    Args:
        size: one of `SIZES`, or another.
        vocab_size: different tokens of the text.
        text_tokens: tokens of its training part.
        readings: how often that is read.
    """
    short = text_tokens < SHORT
    by_heart = readings > TOO_MANY * enough(text_tokens)
    longest = 2 if short or by_heart else 4
    dropout = DROPOUT if short or by_heart else 0.0
    much = short and readings > MORE_FROM
    model = ModelConfig(
        vocab_size=vocab_size,
        context_length=512,
        n_layers=size.layers,
        d_model=size.width,
        n_heads=size.heads,
        qkv_bias=False,
        projection_bias=False,
        qk_norm=True,
        feedforward="relu2",
        feedforward_bias=False,
        norm="layernorm",
        norm_bias=False,
        position="rotary",
        rope_base=1000.0,
        dropout=MORE_DROPOUT if much else dropout,
        embedding_dropout=OF_EMBEDDINGS if much else 0.0,
        attention_dropout=0.0,
        tie_embeddings=False,
        ngram=longest,
        ngram_rows=16384,
        embedding_shortcut=True,
        initialisation="zero_projection",
    )
    train = TrainConfig(
        batch_size=2,
        order="epochs",
        short_context=128,
        short_share=0.8,
        optimizer="muon",
        muon_lr=0.013,
        muon_momentum_steps=100,
        muon_polynomial="polar_express",
        muon_steps=3,
        lr=3e-3,
        embedding_lr=2e-2,
        beta1=0.8,
        beta2=0.95,
        weight_decay=0.1,
        muon_weight_decay=0.1,
        grad_clip=None,
        schedule="linear",
        warmup_steps=20,
        min_lr_ratio=0.0,
        eval_every=1375,
    )
    return Recipe(model, train)


def inner_parameters(model: ModelConfig) -> int:
    """Parameters without the tables, which are looked up and not computed with."""
    alone = replace(model, ngram=1)
    return count_parameters(alone) - model.vocab_size * model.d_model


def settings_of(recipe: Recipe) -> dict[str, Any]:
    """What a run's loss follows from, but for the text and the length, as a file holds it."""
    train = plain(recipe.train)
    return {
        "model": plain(recipe.model),
        "train": {name: value for name, value in train.items() if name not in BESIDE_THE_POINT},
    }
