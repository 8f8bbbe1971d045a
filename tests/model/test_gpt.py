"""The whole model: its parts in their places, its size, what it refuses, and every combination."""

import dataclasses
import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from partwise.errors import ConfigError, PartwiseError
from partwise.messages import use_language
from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT
from partwise.model.trace import trace
from partwise.settings import options

CONFIG = ModelConfig(vocab_size=11, context_length=8, n_layers=2, d_model=12, n_heads=3)


def make(**changes: object) -> GPT:
    torch.manual_seed(0)
    return GPT(dataclasses.replace(CONFIG, **changes)).double().eval()


def random_ids(length: int = 8, batch: int = 2) -> Tensor:
    return torch.randint(11, (batch, length), generator=torch.Generator().manual_seed(length))


def parameters(config: ModelConfig) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in GPT(config).parameters())


# --- the ladder's sizes, counted by hand ----------------------------------------------------------

HEAD = ModelConfig(
    vocab_size=65,
    context_length=8,
    n_layers=1,
    d_model=32,
    n_heads=1,
    output_projection=False,
    qkv_bias=False,
    feedforward="none",
    norm="none",
    residual=False,
    tie_embeddings=False,
    head_bias=True,
    initialisation="torch",
)
HEADS = dataclasses.replace(HEAD, n_heads=4, output_projection=True)
FEEDFORWARD = dataclasses.replace(HEADS, feedforward="relu", feedforward_output=False)
RESIDUAL = dataclasses.replace(FEEDFORWARD, n_layers=3, residual=True, feedforward_output=True)
LAYERNORM = dataclasses.replace(RESIDUAL, norm="layernorm")
SCALED = dataclasses.replace(
    LAYERNORM, n_layers=6, n_heads=6, d_model=384, context_length=256, dropout=0.2
)

RUNGS = {
    # 65 * 32 tokens, 8 * 32 positions, queries, keys and values 3 * 32 * 32, output 32 * 65 + 65
    "head": (HEAD, 2080 + 256 + 3072 + 2145),
    # and a projection 32 * 32 + 32
    "heads": (HEADS, 2080 + 256 + 3072 + 1056 + 2145),
    # and one matrix 32 * 32 + 32
    "feedforward": (FEEDFORWARD, 2080 + 256 + 3072 + 1056 + 1056 + 2145),
    # three blocks, each with 32 * 128 + 128 up and 128 * 32 + 32 down
    "residual": (RESIDUAL, 2080 + 256 + 3 * (3072 + 1056 + 4224 + 4128) + 2145),
    # and 2 * 32 a norm: two in each block and the final one
    "layernorm": (LAYERNORM, 2080 + 256 + 3 * (3072 + 1056 + 4224 + 4128) + 7 * 64 + 2145),
    # 65 * 384, 256 * 384; a block: 3 * 384^2, 384^2 + 384, 384 * 1536 + 1536, 1536 * 384 + 384;
    # 13 norms of 768; 384 * 65 + 65
    "scaled": (
        SCALED,
        24960 + 98304 + 6 * (442368 + 147840 + 591360 + 590208) + 13 * 768 + 25025,
    ),
}


@pytest.mark.parametrize("rung", RUNGS)
def test_the_ladder_s_models_have_the_size_counted_by_hand(rung):
    config, count = RUNGS[rung]
    assert parameters(config) == count


def test_gpt2_has_its_published_size():
    # 124,439,808: the released weights of GPT-2 small, output layer tied.
    config = ModelConfig(
        vocab_size=50257, context_length=1024, n_layers=12, d_model=768, n_heads=12
    )
    assert parameters(config) == 124_439_808


# --- parts in their places --------------------------------------------------------------------


def test_an_absent_part_is_none():
    model = GPT(HEAD)
    absent = ("sinusoidal", "rotary", "alibi", "ngram_tables", "shortcut", "final_norm")
    assert all(getattr(model, name) is None for name in absent)
    block = model.blocks[0]
    assert block.norm1 is block.norm2 is block.feedforward is block.attention.projection is None
    assert set(model.state_dict()) == {
        "token_embedding.weight",
        "position_embedding.weight",
        "blocks.0.attention.qkv.weight",
        "head.weight",
        "head.bias",
    }


def test_logits_are_the_head_of_the_normed_stream():
    model, ids = make(logit_soft_cap=2.0), random_ids()
    x = model.token_embedding(ids) + model.position_embedding.weight
    assert torch.allclose(trace(model, ids)["embedding"], x)
    values = trace(model, ids)
    hidden = model.final_norm(values["block.1.output"])
    assert torch.allclose(model.hidden(ids), hidden, atol=1e-12)
    scores = hidden @ model.token_embedding.weight.T
    assert torch.allclose(model(ids), 2 * torch.tanh(scores / 2), atol=1e-12)
    assert torch.allclose(model.logits(model.hidden(ids)[:, -1]), model(ids)[:, -1], atol=1e-12)


def test_the_embedding_is_a_sum():
    model = make(scale_embeddings=True, position="sinusoidal", ngram=3)
    for table in model.ngram_tables:
        nn.init.normal_(table.weight)
    ids = random_ids()
    wanted = model.token_embedding(ids) * math.sqrt(12) + model.sinusoidal.table
    two = ids[:, :-1] * 11 + ids[:, 1:]
    three = (ids[:, :-2] * 11 + ids[:, 1:-1]) * 11 + ids[:, 2:]
    wanted[:, 1:] += model.ngram_tables[0].weight[two]
    wanted[:, 2:] += model.ngram_tables[1].weight[three]
    assert torch.allclose(trace(model, ids)["embedding"], wanted, atol=1e-12)


def test_embedding_dropout_falls_on_the_sum():
    model = make(embedding_dropout=0.25, ngram=2, n_layers=1).train()
    whole = trace(model, random_ids())["embedding"]
    seen: dict[str, Tensor] = {}
    model(random_ids(), observe=seen.__setitem__)
    dropped = seen["embedding"] == 0
    assert 0.05 < dropped.double().mean() < 0.5
    assert torch.allclose(seen["embedding"][~dropped], whole[~dropped] / 0.75)


def test_the_shortcut_starts_closed_and_brings_the_embeddings_back():
    model, ids = make(embedding_shortcut=True), random_ids()
    state = {key: value for key, value in model.state_dict().items() if key != "shortcut"}
    without = make()
    without.load_state_dict(state)
    assert model.shortcut.tolist() == [[1, 0], [1, 0]]
    assert torch.equal(model(ids), without(ids))
    model.shortcut.data = torch.tensor([[0.5, 2.0], [0.0, 3.0]], dtype=torch.float64)
    values = trace(model, ids)
    # The second block starts from three times the embeddings, and from nothing of the first.
    x = 3 * values["embedding"]
    x = x + values["block.1.attention"] + values["block.1.feedforward"]
    assert torch.allclose(values["block.1.output"], x, atol=1e-12)
    first = 2.5 * values["embedding"] + values["block.0.attention"]
    assert torch.allclose(values["block.0.residual1"], first, atol=1e-12)


def test_attention_is_computed_as_asked():
    plain = GPT(CONFIG, implementation="plain")
    assert all(block.attention.implementation == "plain" for block in plain.blocks)
    plain.use_attention("sdpa")
    assert all(block.attention.implementation == "sdpa" for block in plain.blocks)


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        (torch.zeros(3, dtype=torch.int64), r"shape \(texts, tokens\), not \(3,\)"),
        (torch.zeros(1, 2, 3, dtype=torch.int64), r"not \(1, 2, 3\)"),
        (torch.zeros(1, 3), "must be int64, not float32"),
        (torch.zeros(1, 3, dtype=torch.int32), r"not int32; convert them with ids.long\(\)"),
        (torch.zeros(1, 9, dtype=torch.int64), "9 tokens are more than context_length=8"),
        (torch.tensor([[1, 11, 2]]), "token 11 is outside the vocabulary of 11 tokens"),
        (torch.tensor([[1, -3, 2]]), "token -3 is outside the vocabulary of 11 tokens"),
    ],
)
@pytest.mark.parametrize("ngram", [1, 2])
def test_a_wrong_text_is_refused_in_one_line(ids, said, ngram):
    with use_language("en"), pytest.raises(PartwiseError, match=said) as caught:
        make(ngram=ngram)(ids)
    assert "\n" not in str(caught.value)
    with use_language("zh"):
        assert str(caught.value) != caught.value.template
        assert any("\u4e00" <= letter <= "\u9fff" for letter in str(caught.value))


def test_a_window_with_endless_positions_reads_past_the_context():
    for position in ("rotary", "alibi", "none"):
        model = make(position=position, window=3)
        assert model(random_ids(30)).shape == (2, 30, 11)
    for position in ("learned", "sinusoidal"):
        with pytest.raises(PartwiseError):
            make(position=position, window=3)(random_ids(30))


# --- every combination --------------------------------------------------------------------------

SMALL = {
    "vocab_size": st.integers(1, 12),
    "context_length": st.integers(1, 9),
    "n_layers": st.integers(1, 3),
    "d_model": st.sampled_from([1, 6, 8, 12, 15]),
    "n_heads": st.integers(1, 6),
    "n_kv_heads": st.none() | st.integers(1, 6),
    "head_dim": st.none() | st.integers(1, 6),
    "window": st.none() | st.integers(1, 12),
    "d_ff": st.none() | st.integers(1, 16),
    "norm_eps": st.sampled_from([1e-6, 1e-3]),
    "rope_base": st.sampled_from([10.0, 10000.0]),
    "rope_factor": st.sampled_from([1.0, 8.0]),
    "rope_low_frequency_factor": st.sampled_from([0.5, 1.0]),
    "rope_high_frequency_factor": st.sampled_from([1.0, 4.0]),
    "rope_original_context": st.sampled_from([8, 8192]),
    "dropout": st.sampled_from([0.0, 0.3]),
    "attention_dropout": st.none() | st.sampled_from([0.0, 0.3]),
    "embedding_dropout": st.sampled_from([0.0, 0.3]),
    "logit_soft_cap": st.none() | st.sampled_from([1.0, 30.0]),
    "ngram": st.integers(1, 4),
    "ngram_rows": st.none() | st.sampled_from([1, 20, 500]),
    "init_std": st.sampled_from([0.02, 0.5]),
}


def any_field() -> dict[str, st.SearchStrategy[object]]:
    """A strategy for every field of ModelConfig, so that a new field is drawn too."""
    fields = {}
    for name, option in options(ModelConfig).items():
        if name in SMALL:
            fields[name] = SMALL[name]
        elif option.choices:
            fields[name] = st.sampled_from(option.choices)
        else:
            assert option.types == (bool,), f"say how to draw {name}"
            fields[name] = st.booleans()
    return fields


@settings(max_examples=150, suppress_health_check=[HealthCheck.filter_too_much])
@given(st.fixed_dictionaries({}, optional=any_field()))
def test_every_combination_is_refused_by_the_config_or_works(fields):
    start = {"vocab_size": 7, "context_length": 5, "n_layers": 1, "d_model": 12, "n_heads": 3}
    try:
        config = ModelConfig(**(start | fields))
    except ConfigError as error:
        assert "\n" not in str(error)
        return
    model = GPT(config).double()
    ids = torch.randint(config.vocab_size, (2, config.context_length))
    logits = model(ids)
    assert logits.shape == (2, config.context_length, config.vocab_size)
    logits.square().mean().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    model.eval()
    with torch.no_grad():
        whole = model(ids)
    assert whole.isfinite().all()
    close = {"rtol": 1e-9, "atol": 1e-9 * float(whole.abs().max())}
    assert torch.allclose(trace(model, ids)["logits"], whole, **close)
    if config.causal:
        cache = model.new_cache(2)
        with torch.no_grad():
            parts = [model(ids[:, t : t + 1], cache) for t in range(ids.shape[1])]
        assert torch.allclose(torch.cat(parts, dim=1), whole, **close)
    with torch.device("meta"):
        empty = GPT(config)
    empty.load_state_dict(model.state_dict(), assign=True)
    with torch.no_grad():
        assert torch.equal(empty.eval()(ids), whole)


# --- devices, formats, compilers -----------------------------------------------------------------


@pytest.mark.parametrize("position", ["learned", "sinusoidal", "rotary", "alibi"])
def test_a_model_built_on_the_meta_device_becomes_whole(position):
    model = GPT(dataclasses.replace(CONFIG, position=position)).eval()
    state, ids = model.state_dict(), random_ids()
    with torch.device("meta"):
        empty, other, short = (GPT(model.config).eval() for _ in range(3))
    assert all(p.device.type == "meta" for p in (*empty.parameters(), *empty.buffers()))
    empty.to_empty(device="cpu").load_state_dict(state)
    other.load_state_dict(state, assign=True)
    assert torch.equal(empty(ids), model(ids)) and torch.equal(other(ids), model(ids))
    short.load_state_dict({key: value.bfloat16() for key, value in state.items()}, assign=True)
    assert torch.equal(short(ids), model.bfloat16()(ids))


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm", "batchnorm"])
@pytest.mark.parametrize("position", ["learned", "rotary", "alibi"])
def test_short_formats_stay_close(norm, position):
    changes = {"norm": norm, "position": position, "qk_norm": True, "initialisation": "fan_in"}
    model, ids = make(**changes), random_ids()
    whole = model(ids)
    model = model.float()
    assert torch.allclose(model(ids).double(), whole, atol=1e-5)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = model(ids)
    assert mixed.dtype == torch.bfloat16
    short = model.bfloat16()(ids)
    assert short.dtype == torch.bfloat16
    for logits in (mixed, short):
        assert (logits.double() - whole).abs().max() < 0.05 * whole.abs().max()


@pytest.mark.long
def test_compiled_is_eager_in_training_and_in_decoding():
    config = dataclasses.replace(
        CONFIG, position="rotary", window=5, ngram=2, n_kv_heads=1, embedding_shortcut=True
    )
    torch.manual_seed(0)
    model, ids = GPT(config).double(), random_ids()
    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True)
    logits = compiled(ids)
    assert torch.allclose(logits, model(ids), atol=1e-12)
    logits.square().mean().backward()
    found = {name: p.grad for name, p in model.named_parameters()}
    model.zero_grad()
    model(ids).square().mean().backward()
    assert all(torch.allclose(found[n], p.grad, atol=1e-12) for n, p in model.named_parameters())
    cache = model.new_cache(2)
    with torch.no_grad():
        parts = [compiled(ids[:, t : t + 1], cache) for t in range(8)]
    assert torch.allclose(torch.cat(parts, dim=1), logits, atol=1e-12)
