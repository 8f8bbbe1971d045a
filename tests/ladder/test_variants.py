"""Variants: every part and field that can be changed, and what is refused."""

import dataclasses

import pytest
import torch

from partwise.errors import ConfigError
from partwise.ladder.rungs import rung, rungs
from partwise.ladder.variants import PARTS, choose, effective, effective_training, variants
from partwise.model.gpt import GPT


def one(**asked: list[str]) -> tuple[str, dict[str, object], dict[str, object]]:
    (variant,) = variants(asked.get("without", []), asked.get("swap", []))
    return variant.label, dict(variant.model), dict(variant.train)


@pytest.mark.parametrize(
    ("part", "fields"),
    [
        ("residual", {"residual": False}),
        ("projection", {"output_projection": False}),
        ("final-norm", {"final_norm": False}),
        ("final_norm", {"final_norm": False}),
        ("mask", {"causal": False}),
        ("norm", {"norm": "none"}),
        ("layernorm", {"norm": "none"}),
        ("position", {"position": "none"}),
        ("feedforward", {"feedforward": "none"}),
        ("attention", {"attention": False}),
    ],
)
def test_without(part: str, fields: dict[str, object]) -> None:
    label, model, train = one(without=[part])
    assert label == f"without {part.replace('_', '-')}"
    assert model == fields
    assert train == {}


@pytest.mark.parametrize(
    ("word", "model", "train"),
    [
        ("norm=rmsnorm", {"norm": "rmsnorm"}, {}),
        ("norm=batchnorm", {"norm": "batchnorm"}, {}),
        ("norm_placement=post", {"norm_placement": "post"}, {}),
        ("norm-placement=post", {"norm_placement": "post"}, {}),
        ("model.position=rotary", {"position": "rotary"}, {}),
        ("feedforward=swiglu", {"feedforward": "swiglu"}, {}),
        ("n_heads=12", {"n_heads": 12}, {}),
        ("n_layers=12", {"n_layers": 12}, {}),
        ("dropout=0", {"dropout": 0.0}, {}),
        ("lr=3e-3", {}, {"lr": 3e-3}),
        ("train.optimizer=muon", {}, {"optimizer": "muon"}),
        ("grad_clip=1", {}, {"grad_clip": 1.0}),
        ("initialisation=gpt2", {"initialisation": "gpt2"}, {}),
    ],
)
def test_swap(word: str, model: dict[str, object], train: dict[str, object]) -> None:
    _, found_model, found_train = one(swap=[word])
    assert found_model == model
    assert found_train == train


def test_the_beginning_of_one_choice_is_enough() -> None:
    assert one(swap=["norm=rms"])[1] == {"norm": "rmsnorm"}
    with pytest.raises(ConfigError, match="choose"):
        variants(swap=["feedforward=re"])  # relu or relu2


def test_several_changes_make_one_variant() -> None:
    label, model, train = one(without=["residual,position"], swap=["norm=rmsnorm", "lr=0.01"])
    assert label == "without residual, without position, norm=rmsnorm, lr=0.01"
    assert model == {"residual": False, "position": "none", "norm": "rmsnorm"}
    assert train == {"lr": 0.01}


def test_each_makes_them_apart() -> None:
    found = variants(["residual"], ["norm=rmsnorm", "lr=0.01"], each=True)
    assert [variant.label for variant in found] == ["without residual", "norm=rmsnorm", "lr=0.01"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"without": ["resdual"]}, "residual"),
        ({"swap": ["nrom=rmsnorm"]}, "norm"),
        ({"swap": ["norm"]}, "FIELD=VALUE"),
        ({"swap": ["norm="]}, "FIELD=VALUE"),
        ({"swap": ["norm=foo"]}, "choose"),
        ({"swap": ["lr=fast"]}, "a number"),
        ({"swap": ["seed=2"]}, "--seeds"),
        ({"swap": ["steps=2"]}, "--steps"),
        ({"swap": ["vocab_size=2"]}, "text"),
        ({"swap": ["eval_tokens=100"]}, "whole validation split"),
        ({"swap": ["data.tokenizer=byte"]}, "no"),
        ({"swap": ["norm=rmsnorm", "norm=layernorm"]}, "twice"),
        ({"without": ["norm"], "swap": ["norm=rmsnorm"]}, "twice"),
    ],
)
def test_refusals(asked: dict[str, list[str]], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        variants(asked.get("without", []), asked.get("swap", []))


def chosen(numbers: list[int], without: list[str], swap: list[str]) -> list[tuple[int, str]]:
    choice = choose([rung(n) for n in numbers], variants(without, swap))
    return [(here.number, variant.label) for here, variant in choice.pairs]


def test_a_variant_is_trained_where_it_changes_something() -> None:
    assert chosen([1, 2, 3, 4, 5], ["residual"], []) == [
        (4, "without residual"),
        (5, "without residual"),
    ]
    choice = choose(rungs()[:5], variants(["residual"]))
    assert "1, 2, 3" in str(choice.notices[0])


def test_where_it_makes_no_sense_it_is_skipped_and_said() -> None:
    choice = choose(rungs()[:3], variants(["attention"]))
    # Rungs 1 and 2 have nothing but attention.
    assert [here.number for here, _ in choice.pairs] == [3]
    assert len(choice.notices) == 2


@pytest.mark.parametrize(
    ("numbers", "without", "swap", "words"),
    [
        ([1, 2, 3, 4, 5], [], ["n_heads=5"], "not divisible by n_heads=5"),
        ([5], [], ["norm=batchnorm", "batch_size=1"], "batchnorm"),
        ([5], [], ["norm=batchnorm", "accumulation=32"], "batchnorm|accumulation"),
        ([5], [], ["norm=batchnorm", "accumulation=2"], "accumulation=2 would train another"),
        ([3], ["residual"], [], "changes nothing"),
        ([4], [], ["norm_placement=post"], "changes nothing"),
        ([1], ["attention"], [], "empty"),
        ([5], [], ["d_model=33"], "not divisible"),
        *(
            ([5], [], swap, "changes nothing")
            for swap in (
                ["window=8"],
                ["rope_base=5"],
                ["rope_original_context=5"],
                ["ngram_rows=7"],
                ["init_std=0.5"],
                ["attention_dropout=0"],
                ["muon_lr=0.5"],
                ["muon_weight_decay=0.5"],
                ["min_lr_ratio=0.5"],
                ["decay_fraction=0.5"],
                ["head_lr=0.001"],
                ["embedding_lr=0.001"],
                ["log_every=7"],
                ["sample_chars=7"],
                ["tensorboard=true"],
                ["wandb=x"],
            )
        ),
    ],
)
def test_senseless_variants_are_refused(
    numbers: list[int], without: list[str], swap: list[str], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        chosen(numbers, without, swap)


@pytest.mark.parametrize(
    "swap",
    [
        ["init_std=0.5", "initialisation=normal"],
        ["muon_lr=0.5", "optimizer=muon"],
        ["decay_fraction=0.5", "schedule=wsd"],
        ["min_lr_ratio=0.5", "schedule=cosine"],
        ["rope_base=5", "position=rotary"],
        ["ngram_rows=7", "ngram=2"],
        ["rope_factor=2", "rope_scaling=linear", "position=rotary"],
        ["rope_original_context=4", "rope_scaling=llama3", "position=rotary", "rope_factor=2"],
    ],
)
def test_a_field_that_another_one_needs_makes_another_model_with_it(swap: list[str]) -> None:
    alone, (both,) = variants(swap=swap[1:]), variants(swap=swap)
    choice = choose([rung(5)], [*alone, both])
    assert [variant for _, variant in choice.pairs] == [*alone, both]


@pytest.mark.parametrize(
    ("without", "swap"),
    [
        (["norm", "layernorm"], []),
        (["residual"], ["residual=false"]),
        (["weight-decay"], ["weight_decay=0"]),
        ([], ["d_ff=64", "model.d_ff=64"]),
    ],
)
def test_of_two_variants_that_are_the_same_one_is_trained(
    without: list[str], swap: list[str]
) -> None:
    wanted = variants(without, swap, each=True)
    choice = choose(rungs()[4:], wanted)
    assert [(here.number, variant) for here, variant in choice.pairs] == [
        (5, wanted[0]),
        (6, wanted[0]),
    ]
    if len(wanted) == 2:
        (told,) = map(str, choice.notices)
        assert told.startswith(f"{wanted[1].label} is the same as {wanted[0].label} on rung 5, 6")


def test_what_differs_in_its_machine_alone_is_trained() -> None:
    """`--swap compile=off` prices the compiler in the climb itself."""
    choice = choose([rung(5)], variants(swap=["compile=off"]))
    assert len(choice.pairs) == 1


@pytest.mark.parametrize(
    ("swap", "differs"),
    [
        ("short_context=4", True),
        ("short_context=8", False),
        ("short_context=16", False),
        ("short_share=0.5", False),
        ("short_context=4,short_share=0", False),
    ],
)
def test_short_texts_first_are_trained_where_there_are_any(swap: str, differs: bool) -> None:
    here = rung(5)
    assert here.model.context_length == 8
    (variant,) = variants(swap=swap.split(","))
    model, train = variant.applied(here)
    assert (effective_training(train, model) != effective_training(here.train, model)) is differs


@pytest.mark.parametrize("part", PARTS)
def test_every_part_can_be_left_out_of_some_rung(part: str) -> None:
    choice = choose(rungs(), variants([part]))
    here, variant = choice.pairs[0]
    model, _ = variant.applied(here)
    assert effective(model) != effective(here.model) or part == "weight-decay"


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_effective_is_the_same_network(number: int) -> None:
    """Fields that `effective` changes have no effect: the weights and the logits are the same."""
    model = dataclasses.replace(rung(number).model, initialisation="torch")
    torch.manual_seed(1)
    first = GPT(model)
    torch.manual_seed(1)
    second = GPT(effective(model))
    ids = torch.randint(65, (2, 8))
    assert first.state_dict().keys() == second.state_dict().keys()
    assert torch.equal(first.eval()(ids), second.eval()(ids))
