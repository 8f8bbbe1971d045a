"""The rungs as data: each differs from the one below in the named fields alone."""

import dataclasses

import pytest

from partwise.ladder.rungs import (
    changes,
    definition,
    published,
    rung,
    rungs,
)
from partwise.training.config import MACHINE_FIELDS, RECORD_FIELDS, TrainConfig

# ../shared/design/ladder.md's table, written out: rung -> field -> (before, after).
EXPECTED = {
    2: {"n_heads": (1, 4), "output_projection": (False, True)},
    3: {"feedforward": ("none", "relu")},
    4: {"n_layers": (1, 3), "residual": (False, True), "feedforward_output": (False, True)},
    5: {"norm": ("none", "layernorm")},
    6: {
        "n_layers": (3, 6),
        "n_heads": (4, 6),
        "d_model": (32, 384),
        "context_length": (8, 256),
        "dropout": (0.0, 0.2),
        "batch_size": (32, 64),
        "lr": (1e-3, 3e-4),
    },
}


@pytest.mark.parametrize("number", EXPECTED)
def test_a_rung_adds_the_named_fields_alone(number: int) -> None:
    found = changes(rung(number - 1), rung(number))
    assert {change.field: (change.before, change.after) for change in found} == EXPECTED[number]


def test_the_lowest_rung_is_one_head_of_size_32() -> None:
    model = rung(1).model
    assert (model.n_layers, model.n_heads, model.head_size, model.d_model) == (1, 1, 32, 32)
    assert not model.residual
    assert model.norm == "none"
    assert not model.output_projection
    assert model.position == "learned"
    assert not model.tie_embeddings
    assert model.head_bias
    assert not model.qkv_bias
    assert model.initialisation == "torch"
    assert rung(2).model.head_size == 8


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6])
def test_training_is_the_ladder_s_own(number: int) -> None:
    train = rung(number).train
    assert train.optimizer == "adamw"
    assert (train.beta1, train.beta2, train.eps, train.weight_decay) == (0.9, 0.999, 1e-8, 0.01)
    assert train.decay_all
    assert train.grad_clip is None
    assert (train.schedule, train.warmup_steps) == ("constant", 0)
    assert (train.steps, train.eval_every, train.eval_tokens) == (5000, 500, None)
    assert train.label_smoothing == 0
    assert train.ema_decay is None
    assert (train.epochs, train.tokens, train.minutes, train.patience) == (None,) * 4
    assert train.target_loss is None
    assert train.order == "random"


def test_no_default_of_the_product_leaks_in() -> None:
    """Whatever TrainConfig's defaults become, a rung's training stays: it names every field.

    The fields of other optimizers and schedules, which a rung does not use, aside.
    """
    import ast
    import inspect

    from partwise.ladder import rungs as module

    tree = ast.parse(inspect.getsource(module))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    small = next(
        call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "TrainConfig"
    )
    named = {keyword.arg for keyword in small.keywords}
    unused = {
        "epochs",
        "tokens",
        "minutes",
        "target_loss",
        "patience",
        "seed",
        "muon_lr",
        "muon_momentum",
        "muon_weight_decay",
        "muon_steps",
        "muon_polynomial",
        "muon_momentum_steps",
        "embedding_lr",
        "head_lr",
        "min_lr_ratio",
        "decay_fraction",
        "short_share",
    }
    fields = {field.name for field in dataclasses.fields(TrainConfig)}
    assert fields - named - unused <= {*MACHINE_FIELDS, *RECORD_FIELDS}


def test_published_values_belong_to_tiny_shakespeare() -> None:
    # ../shared/design/ladder.md, table of the rungs.
    assert [published(n, "tinyshakespeare") for n in range(1, 7)] == [
        2.40,
        2.28,
        2.24,
        2.08,
        2.06,
        1.48,
    ]
    assert published(1, "shakespeare") is None


def test_definition_lists_what_a_rung_stands_on() -> None:
    found = dict(definition(rung(1)))
    assert found["model.d_model"] == 32
    assert found["train.lr"] == 1e-3
    assert not any("rope" in name or "muon" in name for name in found)
    assert "train.device" not in found


def test_every_rung_says_what_it_adds() -> None:
    assert len({str(one.adds) for one in rungs()}) == 6
