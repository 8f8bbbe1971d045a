"""What holds for every model of the covering set, and, where it cannot, that it really does not."""

import dataclasses

import pytest
import torch
from configurations import CONFIGURATIONS, name, randomise
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from partwise import reference
from partwise.errors import PartwiseError, SamplingError
from partwise.machine import can_compile
from partwise.messages import LANGUAGES, use_language
from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT
from partwise.model.guarantees import EXCLUSIONS, GUARANTEES, Guarantee, excluded


def having(guarantee: Guarantee) -> pytest.MarkDecorator:
    """The models that have a guarantee."""
    configs = [config for config in CONFIGURATIONS if excluded(guarantee, config) is None]
    return pytest.mark.parametrize("config", configs, ids=name)


def lacking(guarantee: Guarantee) -> pytest.MarkDecorator:
    """The models that the table excludes from it."""
    configs = [config for config in CONFIGURATIONS if excluded(guarantee, config) is not None]
    return pytest.mark.parametrize("config", configs, ids=name)


def make(config: ModelConfig) -> GPT:
    """The model in float64, in evaluation mode, with no weight that is 0 or 1 by chance."""
    model = GPT(config).double().eval()
    randomise(model)
    return model


def random_ids(config: ModelConfig, length: int | None = None, batch: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    length = config.context_length if length is None else length
    return torch.randint(config.vocab_size, (batch, length), generator=generator)


def difference(a: Tensor, b: Tensor) -> float:
    """The largest difference, as a share of the largest number."""
    return float((a - b).abs().max() / a.abs().max())


def test_the_table_is_read_in_both_languages():
    assert {row.guarantee for row in EXCLUSIONS} <= set(GUARANTEES)
    for row in EXCLUSIONS:
        assert any(row.applies(config) for config in CONFIGURATIONS), row
        assert not all(row.applies(config) for config in CONFIGURATIONS), row
        said = set()
        for language in LANGUAGES:
            with use_language(language):
                said.add(str(row.reason))
        assert len(said) == len(LANGUAGES), row


# --- causal -------------------------------------------------------------------------------------


def reach(config: ModelConfig, training: bool) -> Tensor:
    """(T, T): how much the logits at t move with the embeddings of the token at s."""
    model = make(config).train(training)
    embedded: list[Tensor] = []
    for module in model.modules():
        if isinstance(module, nn.Embedding):

            def keep(_module: nn.Module, _inputs: object, output: Tensor) -> None:
                embedded.append(output)

            module.register_forward_hook(keep)
    logits = model(random_ids(config))  # (B, T, vocab_size)
    rows = []
    for t in range(logits.shape[1]):
        gradients = torch.autograd.grad(
            (logits[:, t] * torch.arange(1, logits.shape[2] + 1)).sum(),
            embedded,
            retain_graph=True,
        )
        rows.append(
            sum(
                # Positions are looked up once for all texts: (T, d_model) there.
                gradient.abs().sum(dim=-1).reshape(-1, logits.shape[1]).sum(dim=0)
                for gradient in gradients
            )
        )
    return torch.stack(rows)


@having("causal")
def test_no_gradient_flows_into_later_tokens(config):
    for training in (False, True):
        moved = reach(config, training)
        assert (moved.triu(1) == 0).all()
        assert (moved.diagonal() > 0).all()


@lacking("causal")
def test_without_the_guarantee_it_does(config):
    assert (reach(config, training=True).triu(1) > 0).any()


@having("causal")
def test_a_changed_token_changes_nothing_before_it(config):
    # Through the n-gram tables a token's number matters itself, where no gradient flows.
    model, ids = make(config), random_ids(config)
    with torch.no_grad():
        before = model(ids)
        for t in range(1, ids.shape[1]):
            changed = ids.clone()
            changed[:, t] = (changed[:, t] + 1) % config.vocab_size
            after = model(changed)
            assert difference(before[:, :t], after[:, :t]) < 1e-12
            assert not torch.equal(before[:, t], after[:, t])


@pytest.mark.parametrize(
    "config", [c for c in CONFIGURATIONS if c.norm == "batchnorm" and c.causal], ids=name
)
def test_batchnorm_is_causal_in_evaluation(config):
    assert (reach(config, training=False).triu(1) == 0).all()


# --- cached and past_context --------------------------------------------------------------------


def read_in_pieces(model: GPT, ids: Tensor, pieces: list[int]) -> Tensor:
    """The logits of `ids`, read with a cache so many tokens at a time, then one by one."""
    cache = model.new_cache(len(ids))
    logits = []
    start = 0
    with torch.no_grad():
        while start < ids.shape[1]:
            end = start + (pieces.pop(0) if pieces else 1)
            logits.append(model(ids[:, start:end], cache))
            start = end
    assert cache.length == ids.shape[1]
    return torch.cat(logits, dim=1)


@having("cached")
def test_a_cache_changes_no_logit(config):
    model, ids = make(config), random_ids(config)
    with torch.no_grad():
        whole = model(ids)
    for pieces in ([], [4], [1, 3, 2], [config.context_length]):
        assert difference(whole, read_in_pieces(model, ids, pieces)) < 1e-10


@lacking("cached")
def test_without_the_guarantee_there_is_no_cache(config):
    with pytest.raises(SamplingError):
        make(config).new_cache()


@having("past_context")
def test_a_text_goes_on_past_the_context(config):
    model = make(config)
    ids = random_ids(config, length=3 * config.context_length + 1)
    weights = {key: tensor.numpy() for key, tensor in model.state_dict().items()}
    whole = torch.from_numpy(reference.forward(config, weights, ids.numpy()))
    for pieces in ([], [5], [2, 4, 1, 7], [config.context_length, 3]):
        assert difference(whole, read_in_pieces(model, ids, pieces)) < 1e-10


@lacking("past_context")
def test_without_the_guarantee_the_text_ends_at_the_context(config):
    model = make(config)
    ids = random_ids(config, length=config.context_length + 1)
    with pytest.raises(PartwiseError):
        model(ids)
    if excluded("cached", config) is None:
        cache = model.new_cache(len(ids))
        with torch.no_grad():
            model(ids[:, :-1], cache)
            with pytest.raises(SamplingError):
                model(ids[:, -1:], cache)


# --- accumulation -------------------------------------------------------------------------------


def gradients(model: GPT, ids: Tensor, parts: int) -> dict[str, Tensor]:
    """The gradient of the mean loss over `ids`, computed in so many equal parts."""
    model.zero_grad()
    for part in ids.chunk(parts):
        logits = model(part[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten())
        (loss / parts).backward()
    return {
        key: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
        for key, parameter in model.named_parameters()
    }


def accumulated_difference(config: ModelConfig) -> float:
    # Each part draws dropout masks of its own, and equals the whole batch on average alone.
    config = dataclasses.replace(config, dropout=0.0, attention_dropout=None, embedding_dropout=0.0)
    model = make(config).train()
    ids = random_ids(config, batch=4)
    whole, parts = gradients(model, ids, 1), gradients(model, ids, 4)
    largest = max(float(gradient.abs().max()) for gradient in whole.values())
    assert largest > 0
    return max(float((whole[key] - parts[key]).abs().max()) for key in whole) / largest


@having("accumulation")
def test_parts_of_a_batch_add_up_to_its_gradient(config):
    assert accumulated_difference(config) < 1e-10


@lacking("accumulation")
def test_without_the_guarantee_they_do_not(config):
    assert accumulated_difference(config) > 1e-6


# --- saved, deterministic_evaluation, compiled --------------------------------------------------


@having("saved")
def test_saved_and_loaded_weights_give_equal_logits(config, tmp_path):
    model, ids = make(config), random_ids(config)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    state = load_file(tmp_path / "model.safetensors")
    other = GPT(config).double().eval()
    other.load_state_dict(state, strict=True)
    with torch.no_grad():
        assert torch.equal(model(ids), other(ids))
    statistics = {key for key in state if key.endswith(("running_mean", "running_var"))}
    assert set(state) == statistics | {key for key, _ in model.named_parameters()}
    assert ("head.weight" in state) != config.tie_embeddings


@having("deterministic_evaluation")
def test_evaluation_is_the_same_each_time(config):
    model, ids = make(config), random_ids(config)
    state = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    chance = torch.get_rng_state()
    with torch.no_grad():
        assert torch.equal(model(ids), model(ids))
    assert torch.equal(torch.get_rng_state(), chance)
    assert all(torch.equal(tensor, state[key]) for key, tensor in model.state_dict().items())
    dropped = config.dropout or config.embedding_dropout
    if dropped or (config.attention and config.attention_dropout_rate):
        model.train()
        with torch.no_grad():
            assert not torch.equal(model(ids), model(ids))


# One of each kind of norm, position and feed-forward, between them; a compilation takes seconds.
COMPILED = [
    next(c for c in CONFIGURATIONS if c.position == "rotary" and c.feedforward == "swiglu"),
    next(c for c in CONFIGURATIONS if c.position == "alibi" and c.norm == "rmsnorm"),
    next(c for c in CONFIGURATIONS if c.position == "learned" and c.norm == "batchnorm"),
]


@pytest.mark.parametrize("config", COMPILED, ids=name)
def test_the_traced_graph_gives_the_same_logits(config):
    # Without a compiler: what torch traces is run as it stands, which no machine lacks.
    assert excluded("compiled", config) is None
    model, ids = make(config), random_ids(config)
    torch.compiler.reset()
    traced = torch.compile(model, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        assert difference(model(ids), traced(ids)) < 1e-12


@pytest.mark.long
@pytest.mark.parametrize("config", COMPILED, ids=name)
def test_compiled_training_is_eager_training(config):
    if not can_compile():
        pytest.skip("no working compiler on this machine")
    config = dataclasses.replace(config, dropout=0.0, attention_dropout=None, embedding_dropout=0.0)
    model, ids = make(config).train(), random_ids(config)
    torch.compiler.reset()
    compiled = torch.compile(model)
    found = []
    for forward in (model, compiled):
        model.zero_grad()
        logits = forward(ids)
        logits.square().mean().backward()
        found.append([logits] + [p.grad for p in model.parameters() if p.grad is not None])
    assert len(found[0]) == len(found[1])
    largest = max(float(a.abs().max()) for a in found[0])
    for eager, other in zip(*found, strict=True):
        assert float((eager - other).abs().max()) < 1e-9 * largest
