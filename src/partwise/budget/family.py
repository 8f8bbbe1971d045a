"""The models that the minutes dial chooses from: the recipe `fast` in several sizes.

What is not chosen by the law follows from how often the text is read: a text that is read again and
again is learned by heart, unless dropout and weight decay hold against it.
"""

from dataclasses import dataclass, replace

from partwise.budget.recipes import Recipe, recipe
from partwise.model.config import ModelConfig
from partwise.model.parameters import count_parameters


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

# Readings of the text from which a run is held against learning by heart, and how.
FEW, MANY = 2.0, 8.0
SOME_DROPOUT, MUCH_DROPOUT, DECAY = 0.1, 0.2, 0.1


def member(size: Size, vocab_size: int, *, readings: float = 1.0) -> Recipe:
    """The model of that size, and how it is trained; for how long is left open.

    Args:
        size: one of `SIZES`, or another.
        vocab_size: different tokens of the text.
        readings: how often the text is read.
    """
    fast = recipe("fast")
    dropout = 0.0 if readings <= FEW else SOME_DROPOUT if readings <= MANY else MUCH_DROPOUT
    model = replace(
        fast.model,
        vocab_size=vocab_size,
        n_layers=size.layers,
        d_model=size.width,
        n_heads=size.heads,
        dropout=dropout,
        attention_dropout=0.0,
    )
    decay = DECAY if dropout else fast.train.weight_decay
    train = replace(fast.train, steps=None, weight_decay=decay, muon_weight_decay=decay)
    return Recipe(model, train)


def inner_parameters(model: ModelConfig) -> int:
    """Parameters without the tables, which are looked up and not computed with."""
    alone = replace(model, ngram=1)
    return count_parameters(alone) - model.vocab_size * model.d_model
