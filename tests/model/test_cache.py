"""A cache holds its memory from the start, fills up where it must and goes round where it may."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from partwise.errors import PartwiseError, SamplingError
from partwise.model.cache import KVCache
from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT

CONFIG = ModelConfig(
    vocab_size=11,
    context_length=10,
    n_layers=2,
    d_model=12,
    n_heads=6,
    n_kv_heads=2,
    ngram=3,
    initialisation="torch",
)
RING = dataclasses.replace(CONFIG, position="rotary", window=4)


def make(config: ModelConfig) -> GPT:
    torch.manual_seed(0)
    model = GPT(config).double().eval()
    for table in model.ngram_tables or ():
        torch.nn.init.normal_(table.weight)
    return model


def random_ids(length: int, batch: int = 2) -> Tensor:
    return torch.randint(11, (batch, length), generator=torch.Generator().manual_seed(length))


def read(model: GPT, ids: Tensor, pieces: list[int], cache: KVCache | None = None) -> Tensor:
    """The logits, read in pieces of these lengths and then one token at a time."""
    cache = cache or model.new_cache(len(ids))
    pieces = [*pieces, *[1] * (ids.shape[1] - sum(pieces))]
    with torch.no_grad():
        return torch.cat([model(piece, cache) for piece in ids.split(pieces, dim=1)], dim=1)


POSITIONS = ("learned", "sinusoidal", "rotary", "alibi", "none")


@settings(max_examples=60)
@given(
    position=st.sampled_from(POSITIONS),
    window=st.none() | st.integers(1, 12),
    pieces=st.lists(st.integers(1, 9), max_size=5),
)
def test_any_pieces_give_the_logits_of_the_whole(position, window, pieces):
    config = dataclasses.replace(CONFIG, position=position, window=window)
    model = make(config)
    length = 23 if config.past_context else 10
    while sum(pieces) > length:
        pieces.pop()
    ids = random_ids(length)
    with torch.no_grad():
        whole = model(ids)
    assert torch.allclose(read(model, ids, pieces), whole, atol=1e-10)


@pytest.mark.parametrize("position", ["rotary", "alibi", "none"])
def test_a_ring_goes_on_far_past_the_context(position):
    model = make(dataclasses.replace(RING, position=position))
    ids, cache = random_ids(300), model.new_cache(2)
    logits = read(model, ids, [37], cache)
    # With 2 layers a token reaches back 2 * (4 - 1) tokens: the rest of the text is forgotten, but
    # for the positions, of which rotary and ALiBi see differences alone, and the n-grams of 3.
    with torch.no_grad():
        ending = model(ids[:, -9:])
    assert torch.allclose(logits[:, -1], ending[:, -1], atol=1e-9)
    assert cache.length == 300
    assert cache.keys[0].shape == (2, 2, 4, 2)


def test_decoding_takes_no_new_memory():
    for config in (CONFIG, RING):
        model = make(config)
        cache = model.new_cache(2)
        memory = [*cache.keys, *cache.values, cache.position, cache.recent]
        before = [tensor.data_ptr() for tensor in memory]
        read(model, random_ids(10), [3], cache)
        after = [*cache.keys, *cache.values, cache.position, cache.recent]
        assert [tensor.data_ptr() for tensor in after] == before
        assert all(a is b for a, b in zip(after, memory, strict=True))


def test_a_compiled_decoding_step_is_one_graph_for_every_length():
    for config in (CONFIG, RING):
        model, ids = make(config), random_ids(10)
        with torch.no_grad():
            whole = model(ids)
            graphs: list[object] = []

            def keep(graph: torch.fx.GraphModule, _: object, graphs=graphs) -> object:
                graphs.append(graph)
                return graph.forward

            torch.compiler.reset()
            step = torch.compile(model, backend=keep, fullgraph=True)
            cache = model.new_cache(2)
            logits = [model(ids[:, :2], cache)]
            logits += [step(ids[:, t : t + 1], cache) for t in range(2, 10)]
        assert torch.allclose(torch.cat(logits, dim=1), whole, atol=1e-10)
        assert len(graphs) == 1
        assert cache.length == 10


def test_a_full_cache_says_so_and_stays_as_it_was():
    model, ids = make(CONFIG), random_ids(11)
    cache = model.new_cache(2, capacity=6)
    read(model, ids[:, :5], [5], cache)
    with pytest.raises(SamplingError, match=r"7 tokens do not fit a cache of 6; .* last 6"):
        model(ids[:, 5:7], cache)
    assert cache.length == 5
    with torch.no_grad():
        whole = model(ids[:, :6])
        assert torch.allclose(model(ids[:, 5:6], cache)[:, 0], whole[:, 5], atol=1e-10)
    with pytest.raises(SamplingError):
        model(ids[:, 6:7], cache)


def test_a_wrong_token_leaves_the_cache_as_it_was():
    for config in (CONFIG, RING):
        model, ids = make(config), random_ids(10)
        cache = model.new_cache(2)
        with torch.no_grad():
            model(ids[:, :6], cache)
            with pytest.raises(PartwiseError, match="token 11 is outside"):
                model(torch.full((2, 1), 11), cache)
            assert cache.length == 6
            rest, whole = model(ids[:, 6:], cache), model(ids)
        assert torch.allclose(rest, whole[:, 6:], atol=1e-10)


def test_reset_forgets_everything():
    for config in (CONFIG, RING):
        model, ids = make(config), random_ids(8)
        cache = model.new_cache(2)
        read(model, random_ids(9), [9], cache)
        cache.reset()
        assert cache.length == 0
        with torch.no_grad():
            assert torch.allclose(read(model, ids, [1], cache), model(ids), atol=1e-10)


def test_what_cannot_be_cached_is_refused():
    with pytest.raises(SamplingError, match="causal=false"):
        KVCache(dataclasses.replace(CONFIG, causal=False))
    for capacity in (0, 11):
        with pytest.raises(SamplingError, match=f"capacity={capacity} .* context_length=10"):
            KVCache(CONFIG, capacity=capacity)
    model = make(CONFIG)
    with pytest.raises(SamplingError, match="2 texts was given 3; make one for 3"):
        model(random_ids(2, batch=3), model.new_cache(2))


def test_a_ring_has_no_capacity_and_a_table_of_positions_no_ring():
    assert KVCache(RING, capacity=1).slots == 4 and KVCache(RING).capacity is None
    assert KVCache(dataclasses.replace(RING, position="learned")).slots == 10
    assert KVCache(CONFIG).slots == KVCache(CONFIG).capacity == 10
    assert KVCache(CONFIG, capacity=7).slots == 7


def test_a_model_without_attention_keeps_no_keys():
    config = dataclasses.replace(CONFIG, attention=False)
    model, ids = make(config), random_ids(10)
    cache = model.new_cache(2)
    assert cache.keys == cache.values == []
    with torch.no_grad():
        assert torch.allclose(read(model, ids, [4], cache), model(ids), atol=1e-10)


def test_keys_may_be_held_in_a_shorter_format_and_pass_no_gradient_on():
    model, ids = make(CONFIG), random_ids(10)
    short = KVCache(CONFIG, 2, dtype=torch.bfloat16)
    with torch.no_grad():
        close, whole = read(model, ids, [4], short), model(ids)
    assert short.keys[0].dtype == torch.bfloat16 and close.dtype == torch.float64
    assert 1e-9 < (close - whole).abs().max() < 0.1
    cache = model.new_cache(2)
    model(ids[:, :3], cache).sum().backward()
    assert not any(tensor.requires_grad for tensor in (*cache.keys, *cache.values))
