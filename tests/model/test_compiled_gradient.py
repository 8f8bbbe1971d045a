"""The compiled gradient is the model's own, whatever its parts."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from compilers import REGISTERS, needs_compiler
from configurations import randomise
from torch import Tensor, nn
from torch.nn import functional as F

from partwise.model import compiled_gradient
from partwise.model.compiled_gradient import SOURCE, CompiledGradient, has_halves, is_plain, serves
from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT
from partwise.model.lora import add_lora
from partwise.model.lora_config import LoraConfig
from partwise.training.objective import IGNORED

pytestmark = needs_compiler

SMALL = ModelConfig(vocab_size=21, context_length=50, n_layers=2, d_model=32, n_heads=2)

PRECISIONS = [
    torch.float32,
    pytest.param(
        torch.bfloat16,
        marks=pytest.mark.skipif(not has_halves(), reason="no VDPBF16PS on this processor"),
    ),
]


@pytest.fixture(scope="module")
def library(surroundings: None) -> Path:
    return SOURCE.library()


@pytest.fixture(scope="module", params=REGISTERS)
def any_library(request: pytest.FixtureRequest, surroundings: None) -> Path:
    library = replace(SOURCE, flags=("-fopenmp", *request.param)).library()
    if request.param:
        assert compiled_gradient.loaded(library).partwise_gradient_lanes() == 8
    return library


@pytest.fixture(autouse=True)
def avx512(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorter vectors compute the same, only more slowly."""
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")


def some(seed: int, shortest: int = 1) -> tuple[ModelConfig, int, int]:
    """A model that is served, and texts and tokens of a batch."""
    draw = random.Random(seed)
    length = draw.choice([shortest, 2, 7, 23, 24, 25, 47, 48, 49, 100])
    config = ModelConfig(
        vocab_size=draw.choice([2, 15, 16, 17, 65, 300]),
        context_length=length + draw.choice([0, 5]),
        n_layers=draw.choice([1, 2, 3]),
        d_model=draw.choice([16, 48, 64, 96]),
        n_heads=draw.choice([1, 2, 4]),
        head_dim=draw.choice([None, None, 16]),
        d_ff=draw.choice([None, 16, 80, 5, 43, 200]),
        qkv_bias=draw.random() < 0.5,
        projection_bias=draw.random() < 0.5,
        feedforward_bias=draw.random() < 0.5,
        feedforward=draw.choice(["relu", "relu2", "gelu", "gelu_tanh", "swiglu"]),
        norm=draw.choice(["layernorm", "rmsnorm"]),
        norm_bias=False,
        final_norm=draw.random() < 0.8,
        position=draw.choice(["learned", "rotary", "none"]),
        qk_norm=draw.random() < 0.5,
        tie_embeddings=draw.random() < 0.5,
        head_bias=draw.random() < 0.5,
        scale_embeddings=draw.random() < 0.3,
        ngram=min(length, draw.choice([1, 2, 4])),
        ngram_rows=draw.choice([64, 500]),
        embedding_shortcut=draw.random() < 0.5,
    )
    if config.norm == "layernorm" and draw.random() < 0.5:
        config = replace(config, norm_bias=True)
    return config, draw.choice([1, 2, 3]), length


def batch_of(config: ModelConfig, texts: int, length: int) -> tuple[Tensor, Tensor]:
    ids = torch.randint(config.vocab_size, (texts, length + 1))
    targets = ids[:, 1:].contiguous()
    if targets.numel() > 1:
        targets[-1, -1] = IGNORED
    return ids[:, :-1].contiguous(), targets


def usual(model: GPT, inputs: Tensor, targets: Tensor, half: bool = False) -> list[Tensor]:
    """The loss and the gradients, operation by operation."""
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        logits = model(inputs)
    if half:
        logits = logits.float()
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
    torch.autograd.backward(loss)
    return [loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]


def in_c(gradient: CompiledGradient, inputs: Tensor, targets: Tensor) -> list[Tensor]:
    loss = gradient.backward(inputs, targets)
    assert loss is not None
    return [loss, *(g.clone() for g in gradient.gradients)]


def made(config: ModelConfig, seed: int = 1) -> GPT:
    model = GPT(config)
    randomise(model, seed)
    # So that no weights of attention are all or nothing, where roundings decide.
    for block in model.blocks:
        assert isinstance(block.attention.qkv, nn.Linear)
        block.attention.qkv.weight.data *= 0.3
    return model


def apart(found: list[Tensor], wanted: list[Tensor]) -> list[float]:
    """How far each is from what it should be, as a share of its size; where that is next to nothing
    beside the others', as that of a gradient that is zero in truth, as a share of theirs."""
    largest = max(part.norm() for part in wanted)
    return [
        float((one - other).norm() / (other.norm() + 1e-3 * largest))
        for one, other in zip(found, wanted, strict=True)
    ]


@pytest.mark.parametrize("seed", range(60))
def test_it_is_what_the_model_says(seed: int, any_library: Path) -> None:
    config, texts, length = some(seed)
    assert serves(config, torch.float32)
    torch.manual_seed(seed)
    model = made(config, seed)
    inputs, targets = batch_of(config, texts, length)
    found = in_c(CompiledGradient(model, any_library, torch.float32), inputs, targets)
    exact = GPT(config).double()
    exact.load_state_dict(model.double().state_dict())
    wanted = [part.float() for part in usual(exact, inputs, targets)]
    assert max(apart(found, wanted)) < 2e-4


@pytest.mark.skipif(not has_halves(), reason="no VDPBF16PS on this processor")
@pytest.mark.parametrize("seed", range(60))
def test_in_bfloat16_it_is_as_near_as_torch_is(seed: int, library: Path) -> None:
    # A text of one token has no gradient of its queries, and rounding is all that is left of it.
    config, texts, length = some(seed, shortest=2)
    torch.manual_seed(seed)
    model = made(config, seed)
    inputs, targets = batch_of(config, texts, length)
    found = in_c(CompiledGradient(model, library, torch.bfloat16), inputs, targets)
    theirs, wanted = usual(model, inputs, targets, True), usual(model, inputs, targets)
    ours, others = apart(found, wanted), apart(theirs, wanted)
    assert sum(ours) < 2 * sum(others) + 0.02 * len(ours)
    assert ours[0] < 2 * others[0] + 0.01


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_without_a_gradient_the_loss_is_the_same(dtype: torch.dtype, library: Path) -> None:
    gradient = CompiledGradient(made(SMALL), library, dtype)
    inputs, targets = batch_of(SMALL, 3, 37)
    loss = gradient.backward(inputs, targets)
    again = gradient.loss(inputs, targets)
    assert loss is not None and again is not None
    assert torch.equal(loss, again)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_a_width_beyond_all_others(dtype: torch.dtype, library: Path) -> None:
    config = replace(SMALL, d_model=512, n_heads=2, head_dim=16, d_ff=64)
    model = made(config)
    gradient = CompiledGradient(model, library, dtype)
    inputs, targets = batch_of(config, 3, 50)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(in_c(gradient, inputs, targets))
    finally:
        torch.set_num_threads(before)
    assert all(map(torch.equal, *found))
    limit = 2e-4 if dtype == torch.float32 else 0.1
    assert max(apart(found[0], usual(model, inputs, targets))) < limit


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_threads_change_no_bit(dtype: torch.dtype, library: Path) -> None:
    config = replace(SMALL, ngram=3, ngram_rows=100, embedding_shortcut=True, qk_norm=True)
    gradient = CompiledGradient(made(config), library, dtype)
    inputs, targets = batch_of(config, 5, 50)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5, 1):
            torch.set_num_threads(threads)
            found.append(in_c(gradient, inputs, targets))
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))


def test_every_parameter_is_given_its_gradient_and_no_old_one_stays(library: Path) -> None:
    model = made(SMALL)
    gradient = CompiledGradient(model, library, torch.float32)
    inputs, targets = batch_of(SMALL, 2, 20)
    in_c(gradient, inputs, targets)
    first = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, torch.nan)
    in_c(gradient, inputs, targets)
    for parameter, wanted in zip(model.parameters(), first, strict=True):
        assert parameter.grad is not None and torch.equal(parameter.grad, wanted)


def test_weights_may_be_put_elsewhere(library: Path) -> None:
    model = made(SMALL)
    gradient = CompiledGradient(model, library, torch.float32)
    inputs, targets = batch_of(SMALL, 2, 20)
    wanted = in_c(gradient, inputs, targets)
    old = [p.data for p in model.parameters()]
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()
    for data in old:
        data.fill_(torch.nan)
    assert all(map(torch.equal, in_c(gradient, inputs, targets), wanted))


def test_shapes_take_turns(library: Path) -> None:
    model = made(SMALL)
    gradient = CompiledGradient(model, library, torch.float32)
    batches = [batch_of(SMALL, texts, length) for texts, length in ((2, 20), (5, 8), (1, 50))]
    alone = [in_c(CompiledGradient(model, library, torch.float32), *batch) for batch in batches]
    for _ in range(2):
        for batch, wanted in zip(batches, alone, strict=True):
            assert all(map(torch.equal, in_c(gradient, *batch), wanted))


DROPS = [
    {"dropout": 0.3, "attention_dropout": 0.0},
    {"attention_dropout": 0.4},
    {"embedding_dropout": 0.5},
    {"dropout": 0.2, "embedding_dropout": 0.1, "embedding_shortcut": True},
    {"dropout": 0.1, "feedforward": "swiglu"},
]


@pytest.mark.parametrize("changes", DROPS, ids=str)
def test_what_is_dropped_is_so_in_both_directions(
    changes: dict[str, Any], any_library: Path
) -> None:
    """The loss changes along a direction as its gradient says, if the same is dropped."""
    config = replace(SMALL, **changes)
    model = made(config).train()
    gradient = CompiledGradient(model, any_library, torch.float32)
    inputs, targets = batch_of(config, 3, 41)
    torch.manual_seed(5)
    _, *slopes = in_c(gradient, inputs, targets)
    along = sum(float(slope.square().sum()) for slope in slopes)
    step = 2e-2 / along**0.5
    losses = []
    for way in (1, -2):
        for parameter, slope in zip(model.parameters(), slopes, strict=True):
            parameter.data += way * step / along**0.5 * slope
        torch.manual_seed(5)
        loss = gradient.loss(inputs, targets)
        assert loss is not None
        losses.append(loss.item())
    assert (losses[0] - losses[1]) / (2 * step) == pytest.approx(along**0.5, rel=0.05)


@pytest.mark.parametrize("changes", DROPS, ids=str)
@pytest.mark.parametrize("dtype", PRECISIONS)
def test_what_is_dropped_follows_from_the_seed_alone(
    changes: dict[str, Any], dtype: torch.dtype, library: Path
) -> None:
    config = replace(SMALL, **changes)
    model = made(config).train()
    gradient = CompiledGradient(model, library, dtype)
    inputs, targets = batch_of(config, 3, 41)
    before, found = torch.get_num_threads(), []
    try:
        for seed, threads in ((1, 1), (1, 3), (2, 1)):
            torch.set_num_threads(threads)
            torch.manual_seed(seed)
            found.append(in_c(gradient, inputs, targets))
    finally:
        torch.set_num_threads(before)
    assert all(map(torch.equal, found[0], found[1]))
    assert not torch.equal(found[0][0], found[2][0])
    model.eval()
    state = torch.get_rng_state()
    judged = gradient.loss(inputs, targets)
    quiet = CompiledGradient(model.eval(), library, dtype).loss(inputs, targets)
    assert judged is not None and quiet is not None and torch.equal(judged, quiet)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"embedding_dropout": 0.3}, "position_embedding.weight"),
        ({"dropout": 0.3, "attention_dropout": 0.0}, "blocks.0.attention.projection.bias"),
        ({"dropout": 0.3, "attention_dropout": 0.0}, "blocks.0.feedforward.down.bias"),
    ],
)
def test_as_many_are_dropped_as_were_asked(
    changes: dict[str, Any], part: str, any_library: Path
) -> None:
    """Where there is one token, a number that was dropped has no gradient."""
    config = replace(SMALL, n_layers=1, d_model=1024, d_ff=16, n_heads=2, **changes)
    model = made(config).train()
    gradient = CompiledGradient(model, any_library, torch.float32)
    inputs, targets = batch_of(config, 1, 1)
    shares = []
    for seed in range(4):
        torch.manual_seed(seed)
        assert gradient.backward(inputs, targets) is not None
        slope = model.get_parameter(part).grad
        assert slope is not None
        first = slope if slope.ndim == 1 else slope[0]
        shares.append((first == 0).float().mean().item())
    assert sum(shares) / len(shares) == pytest.approx(0.3, abs=0.03)


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("part", ["token_embedding", "blocks.1.feedforward.up", "head"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_none_are_not_hidden(
    part: str, value: float, dtype: torch.dtype, library: Path
) -> None:
    model = made(SMALL)
    weight = model.get_submodule(part).weight
    assert isinstance(weight, Tensor)
    inputs, targets = batch_of(SMALL, 2, 30)
    weight.data[int(inputs[0, 0]), 1] = value
    loss = CompiledGradient(model, library, dtype).backward(inputs, targets)
    assert loss is not None and not loss.isfinite()


@pytest.mark.parametrize("wrong", [21, 1 << 40, -1])
def test_ids_outside_the_vocabulary_are_left_to_the_model(wrong: int, library: Path) -> None:
    gradient = CompiledGradient(made(SMALL), library, torch.float32)
    inputs, targets = batch_of(SMALL, 2, 20)
    inputs[1, 3] = wrong
    assert gradient.backward(inputs, targets) is None
    assert gradient.loss(inputs, targets) is None
    inputs[1, 3], targets[1, 3] = 0, abs(wrong) + 21
    assert gradient.loss(inputs, targets) is None


def test_targets_that_do_not_count(library: Path) -> None:
    model = made(SMALL)
    gradient = CompiledGradient(model, library, torch.float32)
    inputs, targets = batch_of(SMALL, 2, 20)
    targets[0] = IGNORED
    found = in_c(gradient, inputs, targets)
    assert max(apart(found, usual(model, inputs, targets))) < 1e-4
    targets[1] = IGNORED
    loss = gradient.loss(inputs, targets)
    assert loss is not None and loss.isnan()


@pytest.mark.parametrize(
    "changes",
    [
        {"norm": "batchnorm"},
        {"norm_placement": "post"},
        {"residual": False},
        {"parallel": True},
        {"feedforward": "none"},
        {"position": "alibi"},
        {"position": "sinusoidal"},
        {"window": 4},
        {"n_kv_heads": 1},
        {"causal": False},
        {"attention": False},
        {"output_projection": False},
        {"logit_soft_cap": 10.0},
        {"d_model": 40},
        {"head_dim": 12},
        {"vocab_size": 5000},
    ],
    ids=str,
)
def test_the_models_that_it_leaves_to_torch(changes: dict[str, Any]) -> None:
    assert serves(SMALL, torch.float32)
    assert not serves(replace(SMALL, **changes), torch.float32)


def test_the_processors_that_it_leaves_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_gradient, "cpu_features", lambda: "avx512f avx512_bf16")
    assert serves(SMALL, torch.bfloat16)
    wide = replace(SMALL, d_model=256)
    assert serves(wide, torch.bfloat16)
    monkeypatch.setattr(compiled_gradient, "cpu_features", lambda: "amx_bf16 avx512_bf16")
    assert serves(SMALL, torch.bfloat16) and serves(wide, torch.float32)
    assert not serves(wide, torch.bfloat16)
    monkeypatch.setattr(compiled_gradient, "cpu_features", lambda: "avx512f")
    assert not serves(SMALL, torch.bfloat16)
    assert not serves(SMALL, torch.float16)
    monkeypatch.setattr(compiled_gradient, "cpu_features", lambda: "avx512f avx512_bf16")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    assert serves(SMALL, torch.float32) and not serves(SMALL, torch.bfloat16)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    assert not serves(SMALL, torch.float32)


class Louder(nn.Linear):
    """A part of somebody's own."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def louder(model: GPT) -> None:
    model.head = Louder(32, 21, bias=False)


def frozen(model: GPT) -> None:
    model.token_embedding.weight.requires_grad_(False)


def double(model: GPT) -> None:
    model.double()


def turned(model: GPT) -> None:
    weight = model.token_embedding.weight
    weight.data = weight.data.T.contiguous().T


def adapted(model: GPT) -> None:
    add_lora(model, LoraConfig(rank=2))


def sharing(model: GPT) -> None:
    assert isinstance(model.head, nn.Linear)
    model.head.weight = model.token_embedding.weight


def repeated(model: GPT) -> None:
    model.blocks[1] = model.blocks[0]


def larger(model: GPT) -> None:
    model.extra = nn.Parameter(torch.zeros(3))


def wider(model: GPT) -> None:
    """As many numbers, in other places."""
    for number, inner in ((0, 64), (1, 192)):
        model.blocks[number].feedforward.up = nn.Linear(32, inner)
        model.blocks[number].feedforward.down = nn.Linear(inner, 32)


def calmer(model: GPT) -> None:
    model.blocks[0].dropout = 0.5


def rougher(model: GPT) -> None:
    model.blocks[1].norm2.eps = 1.0


def readable(model: GPT) -> None:
    model.use_attention("plain")


@pytest.mark.parametrize(
    "change",
    [
        *(louder, frozen, double, turned, adapted, sharing, repeated, larger, wider, calmer),
        *(rougher, readable),
    ],
)
def test_a_model_that_was_changed_is_left_to_torch(change: Callable[[GPT], None]) -> None:
    model = GPT(replace(SMALL, tie_embeddings=False))
    assert is_plain(model)
    change(model)
    assert not is_plain(model)


def test_a_model_that_is_changed_later_is_left_to_torch(library: Path) -> None:
    model = made(SMALL)
    gradient = CompiledGradient(model, library, torch.float32)
    inputs, targets = batch_of(SMALL, 2, 20)
    assert gradient.backward(inputs, targets) is not None
    model.double()
    assert gradient.backward(inputs, targets) is None
    model.float()
    assert gradient.backward(inputs, targets) is not None


def test_batches_that_it_cannot_read_are_left_to_the_model(library: Path) -> None:
    gradient = CompiledGradient(made(SMALL), library, torch.float32)
    inputs, targets = batch_of(SMALL, 2, 50)
    assert gradient.loss(inputs, targets) is not None
    longer, after = batch_of(SMALL, 1, 51)
    assert gradient.loss(longer, after) is None
    assert gradient.loss(inputs.int(), targets) is None
    assert gradient.loss(inputs, targets[:, 1:]) is None
    assert gradient.loss(inputs[0], targets[0]) is None


def test_attention_and_what_is_added_drop_unlike_numbers(library: Path) -> None:
    """Key 0 of a text's only query, and the first feature of what is added: dropped at odds."""
    config = replace(SMALL, n_layers=1, d_model=16, n_heads=1, dropout=0.5, attention_dropout=0.5)
    model = made(config).train()
    gradient = CompiledGradient(model, library, torch.float32)
    inputs, targets = batch_of(config, 1, 1)
    seen = set()
    for seed in range(40):
        torch.manual_seed(seed)
        gradient.backward(inputs, targets)
        attended = bool(model.blocks[0].attention.projection.weight.grad.abs().sum() > 0)
        added = bool(model.blocks[0].attention.projection.bias.grad[0] != 0)
        seen.add((attended, added))
    assert len(seen) == 4
