"""The encoder-decoder against torch's own, and what must hold whatever its weights are."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from partwise.errors import ConfigError, PartwiseError, SamplingError
from partwise.model.alignment import alignment
from partwise.model.decoder import DecoderBlock
from partwise.model.seq2seq import Seq2Seq
from partwise.model.seq2seq_config import Seq2SeqConfig
from partwise.model.seq2seq_presets import SEQ2SEQ_PRESETS, seq2seq_preset
from partwise.model.trace import first_non_finite, trace

TINY = {
    "vocab_size": 17,
    "context_length": 12,
    "n_encoder_layers": 2,
    "n_decoder_layers": 2,
    "d_model": 16,
    "n_heads": 4,
    "d_ff": 24,
    "dropout": 0.0,
    "embedding_dropout": 0.0,
}

# Every field that changes the computation, each value at least once.
VARIANTS = [
    {},
    {"norm_placement": "pre"},
    {"norm_placement": "none", "head_bias": True},
    {"norm": "none", "position": "none"},
    {"norm": "rmsnorm", "norm_placement": "pre", "position": "rotary", "feedforward": "swiglu"},
    {"position": "learned", "share_embeddings": False, "attention_bias": True},
    {"tie_embeddings": False, "n_kv_heads": 2, "qk_norm": True, "feedforward": "gelu"},
    {"feedforward": "none", "head_dim": 6, "n_kv_heads": 1, "final_norm": True},
    {"norm_bias": False, "scale_embeddings": False, "n_encoder_layers": 1, "n_decoder_layers": 3},
]


def tiny(**changes: object) -> Seq2SeqConfig:
    return Seq2SeqConfig(**{**TINY, **changes})  # type: ignore[arg-type]


def build(config: Seq2SeqConfig, seed: int = 0) -> Seq2Seq:
    torch.manual_seed(seed)
    model = Seq2Seq(config).eval()
    with torch.no_grad():
        # Norms and biases at their first values would hide a wrong place.
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def texts(config: Seq2SeqConfig, batch: int, length: int, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, config.pad, (batch, length), generator=generator)


def torchs(config: Seq2SeqConfig, ours: Seq2Seq) -> nn.Transformer:
    """torch's own model with the weights of ours."""
    theirs = nn.Transformer(
        config.d_model,
        config.n_heads,
        config.n_encoder_layers,
        config.n_decoder_layers,
        config.encoder.inner_width,
        dropout=0.0,
        activation="relu",
        layer_norm_eps=config.norm_eps,
        batch_first=True,
        norm_first=config.norm_placement == "pre",
    ).eval()
    state: dict[str, Tensor] = {}

    def linear(name: str, module: nn.Module) -> None:
        assert isinstance(module, nn.Linear)
        state[f"{name}.weight"], state[f"{name}.bias"] = module.weight, module.bias

    def norm(name: str, module: nn.Module | None) -> None:
        assert module is not None
        for what, tensor in module.state_dict().items():
            state[f"{name}.{what}"] = tensor

    for side, stack in (("encoder", ours.encoder), ("decoder", ours.decoder)):
        norm(f"{side}.norm", stack.final_norm)
        for layer, block in enumerate(stack.blocks):
            name = f"{side}.layers.{layer}"
            state[f"{name}.self_attn.in_proj_weight"] = block.attention.qkv.weight
            state[f"{name}.self_attn.in_proj_bias"] = block.attention.qkv.bias
            linear(f"{name}.self_attn.out_proj", block.attention.projection)
            linear(f"{name}.linear1", block.feedforward.up)
            linear(f"{name}.linear2", block.feedforward.down)
            norm(f"{name}.norm1", block.norm1)
            norm(f"{name}.norm2", block.norm2)
            if isinstance(block, DecoderBlock):
                cross = block.cross_attention
                for what in ("weight", "bias"):
                    parts = getattr(cross.query, what), getattr(cross.key_value, what)
                    state[f"{name}.multihead_attn.in_proj_{what}"] = torch.cat(parts)
                linear(f"{name}.multihead_attn.out_proj", cross.projection)
                norm(f"{name}.norm3", block.norm3)
    theirs.load_state_dict(state)
    return theirs


@pytest.mark.parametrize("placement", ["post", "pre"])
@pytest.mark.parametrize("implementation", ["sdpa", "plain"])
def test_it_is_torchs_transformer(placement: str, implementation: str) -> None:
    config = tiny(
        norm_placement=placement, attention_bias=True, final_norm=True, n_decoder_layers=3
    )
    ours = build(config).double()
    ours.use_attention(implementation)  # type: ignore[arg-type]
    theirs = torchs(config, ours).double()
    source, target = texts(config, 3, 7), texts(config, 3, 5, seed=2)
    source[0, 4:] = config.pad
    source[1, 6:] = config.pad
    padding = source == config.pad

    def embed(ids: Tensor) -> Tensor:
        return ours._embed(ids, torch.arange(ids.shape[1]), target=False)

    causal = nn.Transformer.generate_square_subsequent_mask(5).bool()
    expected = theirs(
        embed(source),
        embed(target),
        tgt_mask=causal,
        src_key_padding_mask=padding,
        memory_key_padding_mask=padding,
    )
    expected = expected @ ours.token_embedding.weight.T
    assert torch.allclose(ours(source, target), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("changes", VARIANTS)
def test_every_variant_is_causal_and_sees_the_whole_source(changes: dict[str, object]) -> None:
    config = tiny(**changes)
    model = build(config)
    source, target = texts(config, 1, 6), texts(config, 1, 6, seed=2)
    logits = model(source, target)
    later = target.clone()
    later[0, 3] = (later[0, 3] + 1) % config.pad
    moved = (model(source, later) - logits).abs().amax(-1)[0]
    assert moved[:3].max() < 1e-6
    assert moved[3] > 1e-6
    for place in range(6):
        other = source.clone()
        other[0, place] = (other[0, place] + 1) % config.pad
        assert (model(other, target) - logits).abs().amax(-1).min() > 1e-7


def test_no_gradient_reaches_a_later_token() -> None:
    config = tiny(share_embeddings=False, tie_embeddings=False)
    model = build(config)
    source, target = texts(config, 1, 5), torch.arange(6)[None]
    model(source, target)[0, 2].sum().backward()
    assert model.target_embedding is not None
    gradient = model.target_embedding.weight.grad
    assert gradient is not None
    reached = gradient.abs().sum(-1) > 0
    assert reached[:3].all()
    assert not reached[3:].any()


@settings(max_examples=25, deadline=None)
@given(
    changes=st.sampled_from(VARIANTS),
    more=st.tuples(st.integers(0, 5), st.integers(0, 5)),
    seed=st.integers(0, 9),
)
def test_padding_changes_nothing(
    changes: dict[str, object], more: tuple[int, int], seed: int
) -> None:
    config = tiny(**changes)
    # Without norms scores are large, and float32 rounds them by as much as that.
    model = build(config).double()
    source, target = texts(config, 2, 6, seed), texts(config, 2, 5, seed + 100)
    logits = model(source, target)
    longer = torch.cat((source, torch.full((2, more[0]), config.pad)), dim=1)
    wider = torch.cat((target, torch.full((2, more[1]), config.pad)), dim=1)
    assert torch.allclose(model(longer, wider)[:, :5], logits, atol=1e-5)


def test_a_short_text_is_the_same_beside_a_long_one() -> None:
    config = tiny()
    model = build(config)
    short, long = texts(config, 1, 3), texts(config, 1, 9, seed=2)
    target = texts(config, 2, 4, seed=3)
    both = torch.full((2, 9), config.pad)
    both[0, :3], both[1] = short, long
    together = model(both, target)
    assert torch.allclose(together[:1], model(short, target[:1]), atol=1e-5)
    assert torch.allclose(together[1:], model(long, target[1:]), atol=1e-5)


@pytest.mark.parametrize("changes", VARIANTS)
def test_cached_is_uncached(changes: dict[str, object]) -> None:
    config = tiny(**changes)
    model = build(config)
    source, target = texts(config, 3, 6), texts(config, 3, 8, seed=2)
    source[1, 4:] = config.pad
    expected = model(source, target)
    cache = model.new_cache(source)
    parts = torch.split(target, [1, 3, 1, 1, 2], dim=1)
    with torch.no_grad():
        logits = torch.cat([model.decode(part, cache=cache) for part in parts], dim=1)
    assert torch.allclose(logits, expected, atol=1e-5)


def test_a_cache_goes_on_with_the_texts_that_are_chosen() -> None:
    config = tiny()
    model = build(config)
    source, target = texts(config, 3, 6), texts(config, 3, 4, seed=2)
    source[2, 3:] = config.pad
    rows = torch.tensor([2, 0, 2, 1])
    cache = model.new_cache(source, capacity=4)
    with torch.no_grad():
        model.decode(target[:, :3], cache=cache)
        cache.select(rows)
        logits = model.decode(target[rows, 3:], cache=cache)
    assert torch.allclose(logits[:, 0], model(source, target)[rows, 3], atol=1e-5)
    with pytest.raises(SamplingError, match="5 tokens do not fit"), torch.no_grad():
        model.decode(target[rows, :1], cache=cache)


def test_side_by_side_is_one_after_the_other() -> None:
    config = tiny()
    model = build(config)
    source, target = texts(config, 2, 5), texts(config, 2, 5, seed=2)
    assert torch.equal(model(torch.stack((source, target), dim=1)), model(source, target))


@pytest.mark.parametrize(
    ("name", "exact", "published"),
    # Vaswani et al. (2017), table 3, rows "base" and "big"; the exact counts are worked out below.
    [("transformer-base", 63_045_632, 65e6), ("transformer-big", 214_171_648, 213e6)],
)
def test_presets_have_the_published_size(name: str, exact: int, published: float) -> None:
    config = seq2seq_preset(name)
    width, inner, layers = config.d_model, config.encoder.inner_width, 6
    attention, feedforward = 4 * width**2, 2 * width * inner + inner + width
    by_hand = 37_000 * width
    by_hand += layers * (attention + feedforward + 2 * 2 * width)
    by_hand += layers * (2 * attention + feedforward + 3 * 2 * width)
    with torch.device("meta"):
        built = sum(parameter.numel() for parameter in Seq2Seq(config).parameters())
    assert built == by_hand == exact
    assert abs(built / published - 1) < 0.035


def test_an_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean transformer-base"):
        seq2seq_preset("transformer-bse")
    assert all(seq2seq_preset(name) is config for name, config in SEQ2SEQ_PRESETS.items())


def test_shared_embeddings_are_one_tensor() -> None:
    shared, own = build(tiny()), build(tiny(share_embeddings=False))
    assert shared.head.weight is shared.token_embedding.weight
    assert own.target_embedding is not None
    assert own.head.weight is own.target_embedding.weight
    assert own.token_embedding.weight is not own.target_embedding.weight
    assert "head.weight" not in shared.state_dict()


def test_weights_that_are_saved_and_loaded_give_the_same_logits() -> None:
    config = tiny(position="rotary")
    model, other = build(config), build(config, seed=5)
    source, target = texts(config, 2, 5), texts(config, 2, 5, seed=2)
    assert not torch.allclose(model(source, target), other(source, target))
    other.load_state_dict(model.state_dict())
    assert torch.equal(model(source, target), other(source, target))


def test_a_table_built_without_memory_is_right_once_it_is_filled() -> None:
    config = tiny()
    model = build(config)
    with torch.device("meta"):
        other = Seq2Seq(config)
    other.load_state_dict(model.state_dict(), assign=True)
    source, target = texts(config, 2, 5), texts(config, 2, 5, seed=2)
    assert torch.equal(model(source, target), other.eval()(source, target))


def test_dropout_falls_in_training_alone() -> None:
    config = tiny(dropout=0.5, embedding_dropout=0.5, attention_dropout=0.5)
    model = build(config)
    source, target = texts(config, 2, 5), texts(config, 2, 5, seed=2)
    assert torch.equal(model(source, target), model(source, target))
    model.train()
    assert not torch.equal(model(source, target), model(source, target))


def test_trace_names_both_sides() -> None:
    config = tiny()
    model = build(config)
    values = trace(model, torch.stack((texts(config, 2, 5), texts(config, 2, 5, 2)), dim=1))
    names = list(values)
    assert names[0] == "encoder.embedding"
    assert names[-1] == "logits"
    weights = values["decoder.block.1.cross_attention.weights"]
    assert weights.shape == (2, 4, 5, 5)
    assert torch.allclose(weights.sum(-1), torch.ones(2, 4, 5))
    assert values["encoder.block.0.attention.weights"].shape == (2, 4, 5, 5)
    norms = values["decoder.block.0.norm3"]
    assert torch.equal(norms, values["decoder.block.0.output"])  # post-norm ends with its norm


def test_the_first_value_that_is_no_number_is_named() -> None:
    config = tiny()
    model = build(config)
    pairs = torch.stack((texts(config, 2, 5), texts(config, 2, 5, 2)), dim=1)
    assert first_non_finite(model, pairs) is None
    block = model.decoder.blocks[1]
    assert isinstance(block, DecoderBlock)
    with torch.no_grad():
        block.cross_attention.query.weight[0, 0] = float("nan")
    assert first_non_finite(model, pairs) == "decoder.block.1.cross_attention.weights"


def test_alignment_is_the_mean_of_what_was_looked_at() -> None:
    config = tiny()
    model = build(config).train()
    source, target = texts(config, 2, 6), texts(config, 2, 4, seed=2)
    source[1, 3:] = config.pad
    found = alignment(model, source, target)
    assert model.training
    assert found.shape == (2, 4, 6)
    assert torch.allclose(found.sum(-1), torch.ones(2, 4))
    assert found[1, :, 3:].abs().max() == 0
    each = [
        alignment(model, source, target, layer=layer, head=head)
        for layer, head in itertools.product(range(2), range(4))
    ]
    assert torch.allclose(torch.stack(each).mean(0), found)
    assert not torch.allclose(each[0], each[1])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"n_encoder_layers": 0}, "n_encoder_layers=0 is too small"),
        ({"n_decoder_layers": -1}, "n_decoder_layers=-1 is too small"),
        ({"vocab_size": 3}, "leaves no token beside PAD, START and END; give 4 or more"),
        ({"n_heads": 5}, "d_model=16 is not divisible by n_heads=5"),
        ({"d_model": 15, "n_heads": 3}, "d_model=15 is odd"),
        ({"dropout": 1.0}, "dropout=1.0 is not a share"),
        ({"norm": "batchnorm"}, "norm='batchnorm' is not a choice"),
        ({"position": "alibi"}, "position='alibi' is not a choice"),
        ({"d_ff": 2.5}, "d_ff=2.5 has the wrong type"),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        tiny(**changes)
    assert said in str(caught.value)


def test_wrong_input_is_named() -> None:
    config = tiny()
    model = build(config)
    with pytest.raises(PartwiseError, match="13 tokens are more than context_length=12"):
        model(texts(config, 1, 13), texts(config, 1, 2))
    with pytest.raises(PartwiseError, match="not \\(5,\\)"):
        model(torch.arange(5), texts(config, 1, 2))
    with pytest.raises(PartwiseError, match="must be int64, not float32"):
        model(texts(config, 1, 5).float(), texts(config, 1, 2))
    with pytest.raises(PartwiseError, match="add or remove a dimension"):
        model(texts(config, 1, 5))
