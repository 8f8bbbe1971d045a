"""The explorer: what it shows is what the model computes, whatever the model and the text."""

import math
import threading

import numpy as np
import pytest
import torch
from configurations import CONFIGURATIONS, name, randomise

from partwise import reference
from partwise.errors import ConfigError, RunError, TextError
from partwise.messages import use_language
from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT
from partwise.model.trace import trace
from partwise.studio import diagram, interventions, lens, reading, tensors, traces
from partwise.studio.traces import Traced, Traces, trace_text
from partwise.text.bpe import learn_bpe
from partwise.text.byte import ByteTokenizer
from partwise.text.char import CharTokenizer

LETTERS = "abcdefghijklmno"


def made(config: ModelConfig) -> tuple[GPT, CharTokenizer]:
    """A model with no weight at rest, and a tokenizer for its vocabulary."""
    model = GPT(config)
    randomise(model)
    return model.eval(), CharTokenizer(LETTERS[: config.vocab_size])


def traced(config: ModelConfig, text: str = "abcdefgabc") -> Traced:
    model, tokenizer = made(config)
    return trace_text(model, tokenizer, text)


SMALL = ModelConfig(vocab_size=11, context_length=8, n_layers=2, d_model=16, n_heads=4)


# --- The diagram ----------------------------------------------------------------------------------


@pytest.mark.parametrize("config", CONFIGURATIONS, ids=name)
def test_every_model_has_a_diagram_and_every_stage_its_tensor(config: ModelConfig) -> None:
    seen = traced(config)
    stages = diagram.block_stages(config)
    assert stages[0].id == "input"
    assert stages[-1].id == "output"
    assert len({stage.id for stage in stages}) == len(stages)
    sizes = diagram.sizes(config, len(seen.ids))
    for layer in range(config.n_layers):
        known: set[str] = set()
        for stage in stages:
            assert set(stage.reads) <= known, "a stage reads what comes later"
            known.add(stage.id)
            value = tensors.find(seen, f"block.{layer}.{stage.as_dict()['tensor']}")
            assert list(value.shape) == [sizes[dim] for dim in stage.shape]
            for inner in stage.inner:
                value = tensors.find(seen, f"block.{layer}.{inner.id}")
                assert list(value.shape) == [sizes[dim] for dim in inner.shape]
    parts = {stage.id for stage in stages}
    assert ("attention" in parts) == config.attention
    assert ("feedforward" in parts) == (config.feedforward != "none")
    residuals = [stage for stage in stages if stage.kind == "residual"]
    assert bool(residuals) == config.residual


def test_the_classic_block_has_eight_stages() -> None:
    assert [stage.id for stage in diagram.block_stages(ModelConfig())] == [
        "input",
        "norm1",
        "attention",
        "residual1",
        "norm2",
        "feedforward",
        "residual2",
        "output",
    ]


@pytest.mark.parametrize("config", CONFIGURATIONS, ids=name)
def test_the_drawn_arrows_are_the_computation(config: ModelConfig) -> None:
    """A residual stage is the sum of what it reads, and the output is the last stage."""
    seen = traced(config)
    for layer in range(config.n_layers):

        def value(id: str, layer: int = layer) -> torch.Tensor:
            tensor = {"sum": "output"}.get(id, id)
            return tensors.find(seen, f"block.{layer}.{tensor}")

        for stage in diagram.block_stages(config):
            if stage.kind in ("residual", "sum"):
                summed = torch.stack([value(id) for id in stage.reads]).sum(0)
                torch.testing.assert_close(value(stage.id), summed)
            if stage.kind == "output":
                torch.testing.assert_close(value(stage.id), value(stage.reads[0]))


@pytest.mark.parametrize("config", CONFIGURATIONS, ids=name)
def test_the_pipeline_has_a_tensor_at_each_station(config: ModelConfig) -> None:
    seen = traced(config)
    sizes = diagram.sizes(config, len(seen.ids))
    for station in diagram.pipeline(config):
        if station["tensor"]:
            value = tensors.find(seen, station["tensor"])
            assert list(value.shape) == [sizes[dim] for dim in station["shape"]]


@pytest.mark.parametrize("config", CONFIGURATIONS, ids=name)
def test_formulas_name_what_the_model_has(config: ModelConfig) -> None:
    lines = " ".join(line for stage in diagram.block_stages(config) for line in stage.formula)
    assert lines.count("{") == lines.count("}")
    if config.attention:
        assert ("W_O" in lines) == config.output_projection
        assert (" + M" in lines) == config.causal
        assert ("b_Q" in lines) == config.qkv_bias
        assert ("g(i)" in lines) == (config.key_value_heads != config.n_heads)
    if config.feedforward != "none":
        assert ("W_g" in lines) == (config.feedforward == "swiglu")
        assert ("W_2" in lines) == config.feedforward_output


# --- The tensors ----------------------------------------------------------------------------------


@pytest.mark.parametrize("config", CONFIGURATIONS, ids=name)
def test_the_trace_is_the_reference(config: ModelConfig) -> None:
    model, tokenizer = made(config)
    seen = trace_text(model, tokenizer, "abcdefgabc")
    weights = {key: value.double().numpy() for key, value in model.state_dict().items()}
    logits = reference.forward(config, weights, np.array([seen.ids]))[0]
    np.testing.assert_allclose(seen.values["logits"].numpy(), logits, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("config", [one for one in CONFIGURATIONS if one.attention], ids=name)
def test_heads_follow_from_queries_keys_and_values(config: ModelConfig) -> None:
    """softmax(q k^T / sqrt(size)) where positions and masks add nothing; joined and projected."""
    seen = traced(config)
    block = tensors.block_of(seen, config.n_layers - 1)
    name = f"block.{config.n_layers - 1}.attention"
    joined = tensors.find(seen, f"{name}.joined")
    assert block.attention is not None
    projected = joined if block.attention.projection is None else block.attention.projection(joined)
    torch.testing.assert_close(projected, seen.values[name], rtol=1e-4, atol=1e-4)
    for head in range(config.n_heads):
        weights = tensors.find(seen, f"{name}.weights", head)
        q, k = (tensors.find(seen, f"{name}.{part}", head) for part in ("query", "key"))
        if config.position != "alibi":
            scores = q @ k.T / math.sqrt(config.head_size)
            scores = scores.masked_fill(weights == 0, -math.inf)
            torch.testing.assert_close(scores.softmax(-1), weights, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    "config", [one for one in CONFIGURATIONS if one.feedforward != "none"], ids=name
)
def test_the_hidden_layer_leads_to_the_feed_forward_output(config: ModelConfig) -> None:
    seen = traced(config)
    layer = config.n_layers - 1
    feedforward = tensors.block_of(seen, layer).feedforward
    assert feedforward is not None
    hidden = tensors.find(seen, f"block.{layer}.feedforward.hidden")
    assert hidden.shape[1] == config.inner_width
    out = hidden if feedforward.down is None else feedforward.down(hidden)
    torch.testing.assert_close(out, seen.values[f"block.{layer}.feedforward"])


@pytest.mark.parametrize("config", CONFIGURATIONS, ids=name)
def test_the_parts_of_the_embedding_add_up(config: ModelConfig) -> None:
    seen = traced(config)
    total = tensors.find(seen, "embedding.token")
    for part in ("position", "ngram"):
        try:
            total = total + tensors.find(seen, f"embedding.{part}")
        except ConfigError:
            continue
    torch.testing.assert_close(total, seen.values["embedding"])
    if config.ngram > 1:
        ids = torch.tensor([seen.ids])
        tables = seen.model.ngram_tables
        assert tables is not None
        padded = torch.cat((ids.new_full((1, config.ngram - 1), -1), ids), dim=1)
        rows = sum(t(padded[:, config.ngram - n :]) for n, t in enumerate(tables, start=2))
        torch.testing.assert_close(
            tensors.find(seen, "embedding.ngram"), rows[0], rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize(
    "asked",
    ["", "nothing", "block.9.input", "block.0.", "block.0.attention.weight", "../logits"],
)
def test_an_unknown_tensor_is_refused(asked: str) -> None:
    with pytest.raises(ConfigError, match="no tensor"):
        tensors.find(traced(SMALL), asked)


@pytest.mark.parametrize("head", [-1, 4])
def test_an_unknown_head_is_refused(head: int) -> None:
    with pytest.raises(ConfigError):
        tensors.find(traced(SMALL), "block.0.attention.weights", head)


def test_a_window_is_what_it_says() -> None:
    values = torch.arange(60.0).view(6, 10)
    data = tensors.pack(values, {"name": "é中"}, tensors.Window(2, 3, 4, 99))
    header, numbers = tensors.unpack(data)
    assert header == {"name": "é中", "shape": [6, 10], "from": [2, 4], "sent": [3, 6]}
    assert list(numbers) == values[2:5, 4:].flatten().tolist()
    assert int.from_bytes(data[:4], "little") % 4 == 0


@pytest.mark.parametrize("window", [(6, None, 0, None), (-3, 2, 0, 0), (99, 5, 99, 5)])
def test_a_window_outside_is_empty_or_cut(window: tuple[int, int, int, int]) -> None:
    header, numbers = tensors.unpack(tensors.pack(torch.ones(6, 10), {}, tensors.Window(*window)))
    assert math.prod(header["sent"]) == len(numbers)


def test_what_is_sent_at_once_is_bounded() -> None:
    wide = torch.zeros(1, 1).expand(5000, 3000)
    header, numbers = tensors.unpack(tensors.pack(wide, {}))
    assert header["shape"] == [5000, 3000]
    assert header["sent"][1] == 3000
    assert len(numbers) <= tensors.MOST_SENT
    longer = torch.zeros(1, 1).expand(2, 3 * tensors.MOST_SENT)
    assert tensors.unpack(tensors.pack(longer, {}))[0]["sent"] == [1, tensors.MOST_SENT]


def test_numbers_that_are_none_are_told_and_not_counted() -> None:
    values = torch.tensor([[1.0, math.nan], [math.inf, -3.0]])
    figures = tensors.statistics(values)
    assert (figures["min"], figures["max"], figures["mean"]) == (-3.0, 1.0, -1.0)
    assert figures["not_finite"] == 2
    assert tensors.statistics(torch.full((2,), math.nan))["mean"] is None
    assert tensors.by_token(values)["mean"] == [None, None]
    tensors.pack(values, figures)  # JSON has no NaN


def test_figures_are_those_of_the_whole_matrix() -> None:
    values = torch.randn(64, 32, generator=torch.Generator().manual_seed(1))
    figures = tensors.statistics(values)
    assert figures["mean"] == pytest.approx(values.mean().item(), abs=1e-6)
    assert figures["std"] == pytest.approx(values.std(correction=0).item(), rel=1e-5)
    below = (values.abs() <= figures["p99"]).float().mean().item()
    assert 0.99 <= below < 0.991


def test_small_maps_keep_the_largest_weight() -> None:
    seen = traced(SMALL)
    weights = seen.values["block.1.attention.weights"]
    assert torch.equal(tensors.maps(seen, 1), weights)
    small = tensors.maps(seen, 1, most=3)
    assert small.shape == (4, 3, 3)
    assert small[:, 1, 0].tolist() == weights[:, 3:6, :3].amax((1, 2)).tolist()
    with pytest.raises(ConfigError):
        tensors.maps(seen, 2)


def test_the_stream_has_a_norm_at_every_point() -> None:
    seen = traced(SMALL)
    names, norms = tensors.stream(seen)
    assert norms.shape == (len(names), 8)
    assert names[0] == "embedding"
    assert names[-1] == "final_norm"
    place = names.index("block.1.residual1")
    assert norms[place, 3].item() == pytest.approx(
        seen.values["block.1.residual1"][3].norm().item()
    )


# --- The text -------------------------------------------------------------------------------------


def test_unknown_characters_are_left_out_and_named() -> None:
    read = reading.read_text("ab世界c", CharTokenizer("abc"), vocab_size=3, most=9)
    assert [label.text for label in read.labels] == list("abc")
    with use_language("en"):
        assert "'世' (U+4E16)" in str(read.notices[0])
    with use_language("zh"):
        assert "模型没见过" in str(read.notices[0])


def test_a_text_without_a_known_character_is_refused_plainly() -> None:
    with pytest.raises(TextError, match="none of these"):
        reading.read_text("世界", CharTokenizer("abc"), vocab_size=3, most=9)


@pytest.mark.parametrize("tokenizer", [CharTokenizer("abc\n"), ByteTokenizer()])
def test_half_a_character_is_left_out(tokenizer: CharTokenizer | ByteTokenizer) -> None:
    read = reading.read_text("a\ud800b", tokenizer, vocab_size=tokenizer.vocab_size, most=9)
    assert [label.text for label in read.labels] == ["a", "b"]
    assert len(read.notices) == 1
    alone = reading.read_text("\udc00", tokenizer, vocab_size=tokenizer.vocab_size, most=9)
    assert [label.text for label in alone.labels] == ["\n"]


def test_no_text_is_where_sampling_begins() -> None:
    read = reading.read_text("", CharTokenizer("ab\n"), vocab_size=3, most=9)
    assert [label.text for label in read.labels] == ["\n"]
    assert read.notices


def test_of_a_long_text_the_end_is_read() -> None:
    read = reading.read_text("abcabcabc", CharTokenizer("abc"), vocab_size=3, most=4)
    assert "".join(label.text for label in read.labels) == "cabc"
    with use_language("en"):
        assert "9 tokens" in str(read.notices[0])
        assert "last 4" in str(read.notices[0])


def test_bytes_that_are_half_a_character_show_as_bytes() -> None:
    read = reading.read_text("é", ByteTokenizer(), vocab_size=256, most=9)
    assert [label.as_dict() for label in read.labels] == [
        {"id": 0xC3, "text": "", "bytes": "c3"},
        {"id": 0xA9, "text": "", "bytes": "a9"},
    ]


def test_every_token_has_a_name() -> None:
    tokenizer = learn_bpe(["the cat sat on the mat 世界 世界\n" * 20], 300)
    named = reading.labels(tokenizer, range(-1, tokenizer.vocab_size + 2))
    assert len(named) == tokenizer.vocab_size + 3
    assert named[0].text == named[-1].text == ""
    known = {label.text for label in named}
    assert " the" in known, "the space before a word is shown"


# --- Traces that are kept -------------------------------------------------------------------------


def test_a_trace_is_made_once_and_found_by_its_key() -> None:
    model, tokenizer = made(SMALL)
    kept = Traces()
    first, again = kept.trace(model, tokenizer, "abcabc")
    assert not again
    second, again = kept.trace(model, tokenizer, "abcabc")
    assert again
    assert second.values is first.values
    assert kept.get(first.key).values is first.values
    other, again = kept.trace(model, tokenizer, "abcab")
    assert not again
    assert other.key != first.key


def test_the_notices_are_those_of_the_text_just_typed() -> None:
    model, tokenizer = made(SMALL)
    kept = Traces()
    kept.trace(model, tokenizer, "abc")
    again, known = kept.trace(model, tokenizer, "ab世c")
    assert known
    assert len(again.reading.notices) == 1


def test_old_traces_go_and_the_newest_stays() -> None:
    model, tokenizer = made(SMALL)
    one = trace_text(model, tokenizer, "abc").bytes
    kept = Traces(most_bytes=traces.traced_bytes(SMALL, 8) + one // 2)
    keys = [kept.trace(model, tokenizer, text)[0].key for text in ("abcdefgh", "bcdefgha", "abc")]
    assert kept.get(keys[-1]).key == keys[-1]
    with pytest.raises(RunError, match="no longer kept"):
        kept.get(keys[0])
    with pytest.raises(RunError):
        kept.get("nothing")


def test_a_trace_that_would_not_fit_is_of_fewer_tokens() -> None:
    config = ModelConfig(vocab_size=11, context_length=512, n_layers=2, d_model=16, n_heads=4)
    most = traces.most_tokens(config, 10**6)
    assert 1 < most < 512
    assert traces.traced_bytes(config, most) <= 10**6 < traces.traced_bytes(config, most + 1)
    assert traces.most_tokens(config, 1) == 1
    model, tokenizer = made(config)
    seen = trace_text(model, tokenizer, "abc" * 300, most_bytes=10**6)
    assert len(seen.ids) == most
    assert seen.bytes <= 10**6


@pytest.mark.parametrize("config", CONFIGURATIONS, ids=name)
def test_a_trace_holds_what_was_foretold_at_most(config: ModelConfig) -> None:
    seen = traced(config)
    assert seen.bytes <= traces.traced_bytes(config, len(seen.ids))


@pytest.mark.parametrize("config", CONFIGURATIONS, ids=name)
def test_a_twin_says_the_same_and_shares_the_weights(config: ModelConfig) -> None:
    model, _ = made(config)
    other = traces.twin(model)
    ids = torch.tensor([[1, 2, 3, 4]])
    with torch.no_grad():
        assert torch.equal(trace(model, ids)["logits"], trace(other, ids)["logits"])
    mine = {p.data_ptr() for p in model.parameters()}
    assert {p.data_ptr() for p in other.parameters()} == mine


def test_a_twin_without_the_mask_sees_what_comes_after() -> None:
    model, tokenizer = made(ModelConfig(**{**SMALL.__dict__, "window": 3}))
    kept = Traces()
    masked, _ = kept.trace(model, tokenizer, "abcabc")
    free, known = kept.trace(model, tokenizer, "abcabc", causal=False)
    assert not known
    weights = "block.0.attention.weights"
    assert masked.values[weights][0, 0, 1:].count_nonzero() == 0
    assert free.values[weights][0, 0].count_nonzero() == 6
    assert model.config.causal, "the model itself is as it was"


def test_many_at_once_get_what_they_asked_for() -> None:
    model, tokenizer = made(SMALL)
    kept = Traces()
    found: dict[str, torch.Tensor] = {}

    def ask(text: str) -> None:
        seen, _ = kept.trace(model, tokenizer, text)
        found[text] = tensors.find(seen, "block.1.feedforward.hidden")

    texts = ["abcab", "bcdef", "fghijk", "kjihgf"]
    threads = [threading.Thread(target=ask, args=(text,)) for text in texts * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for text in texts:
        alone = tensors.find(trace_text(model, tokenizer, text), "block.1.feedforward.hidden")
        torch.testing.assert_close(found[text], alone)


# --- What the model would say ---------------------------------------------------------------------


@pytest.mark.parametrize("config", CONFIGURATIONS, ids=name)
def test_the_last_layer_read_out_is_the_model(config: ModelConfig) -> None:
    seen = traced(config)
    exact = seen.values["logits"].log_softmax(-1)
    torch.testing.assert_close(
        lens.read_out(seen, lens.streams(seen)[-1]), exact, rtol=1e-4, atol=1e-4
    )
    found = lens.lens(seen, 2)
    assert len(found["layers"]) == config.n_layers + 1
    assert found["target"]["id"] == seen.ids[3]
    chance = exact[2, seen.ids[3]].exp().item()
    assert found["layers"][-1]["target"]["probability"] == pytest.approx(chance, rel=1e-3)
    assert found["losses"][-1] == pytest.approx(
        float(np.mean(lens.surprise(seen))), rel=1e-3, abs=1e-4
    )


def test_the_lens_at_the_end_of_the_text_has_no_target() -> None:
    seen = traced(SMALL)
    assert lens.lens(seen, 7)["target"] is None
    for position in (-1, 8):
        with pytest.raises(ConfigError):
            lens.lens(seen, position)


def test_the_grid_names_the_likeliest() -> None:
    seen = traced(SMALL)
    grid = lens.lens_grid(seen, 3, 99)
    assert (grid["first"], grid["count"]) == (3, 5)
    best = seen.values["logits"][3:].argmax(-1).tolist()
    assert [cell["token"]["id"] for cell in grid["layers"][-1]] == best
    assert grid["layers"][-1][-1]["right"] is None


def test_next_tokens_are_those_of_the_tokenizer_alone() -> None:
    config = ModelConfig(**{**SMALL.__dict__, "vocab_size": 15})
    model = GPT(config)
    randomise(model)
    seen = trace_text(model, CharTokenizer(LETTERS[:11]), "abcabc")
    found = lens.next_tokens(seen, 5, count=99)
    assert found["scored"] == 11
    assert len(found["top"]) == 11
    logits = [one["logit"] for one in found["top"]]
    assert logits == sorted(logits, reverse=True)
    assert logits[0] == seen.values["logits"][5, :11].max().item()


def test_a_long_job_is_cut_and_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lens, "MOST_OPERATIONS", 2 * 3 * 16 * 11 * 2)
    seen = traced(SMALL)
    assert lens.lens_grid(seen, 0, 8)["count"] == 2
    assert lens.lens(seen, 0)["losses"] is None


# --- What happens if ------------------------------------------------------------------------------


@pytest.mark.parametrize("config", CONFIGURATIONS, ids=name)
def test_a_changed_token_moves_nothing_before_it(config: ModelConfig) -> None:
    seen = traced(config)
    position = 3
    found = interventions.perturb(seen, position, (seen.ids[position] + 1) % config.vocab_size)
    if config.causal or not config.attention:
        assert found.leaks == 0
        assert found.stream[:, :position].count_nonzero() == 0
    assert found.stream[0, position] > 0
    if found.feedforward is not None:
        moved = found.feedforward > 0
        moved[position] = False
        assert not moved.any(), "the feed-forward layer mixes no tokens"


def test_without_the_mask_what_comes_later_leaks() -> None:
    model, tokenizer = made(SMALL)
    kept = Traces()
    free, _ = kept.trace(model, tokenizer, "abcabc", causal=False)
    found = interventions.perturb(free, 5, 0)
    assert found.leaks == 5
    assert 0 < found.output.max() <= 1


def test_an_unknown_place_or_token_is_refused() -> None:
    seen = traced(SMALL)
    for position, token in ((8, 0), (-1, 0), (0, 11), (0, -1)):
        with pytest.raises(ConfigError):
            interventions.perturb(seen, position, token)


def test_a_silent_part_is_measured_and_the_model_whole_again() -> None:
    model, _ = made(SMALL)
    own = traces.twin(model)
    measure = interventions.measure_typed(own, [1, 2, 3, 4] * 6, "typed")
    assert measure.tokens == 23
    whole = measure.loss()
    ids = torch.tensor([[1, 2, 3, 4] * 2])
    both = measure.loss(["block.0.attention.head.1", "block.1.feedforward"])
    assert len({whole, both, measure.loss(["block.1.feedforward"])}) == 3
    assert measure.loss() == whole
    with torch.no_grad():
        assert torch.equal(own(ids), model(ids))
    with pytest.raises(ConfigError):
        measure.loss(["block.7.attention"])
    with pytest.raises(TextError):
        interventions.measure_typed(own, [1], "short")


def test_all_heads_silent_is_attention_without_its_bias() -> None:
    model, _ = made(ModelConfig(**{**SMALL.__dict__, "projection_bias": False}))
    measure = interventions.measure_typed(traces.twin(model), [1, 2, 3, 4] * 2, "typed")
    heads = [f"block.0.attention.head.{head}" for head in range(4)]
    assert measure.loss(heads) == pytest.approx(measure.loss(["block.0.attention"]), rel=1e-6)


def test_a_large_model_is_measured_on_fewer_tokens() -> None:
    small, large = ModelConfig(), ModelConfig(n_layers=48, d_model=1600, n_heads=25)
    assert interventions.measured_tokens(small) <= interventions.MOST_TOKENS
    assert interventions.measured_tokens(large) == large.context_length
