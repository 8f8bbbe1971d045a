"""Presets hold what their sources say: parameters to the last one, and the choice of parts."""

import dataclasses
import subprocess
import sys

import pytest
import torch

from partwise.errors import ConfigError
from partwise.messages import use_language
from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT
from partwise.model.presets import ALIASES, PRESETS, preset, preset_names


def parameters(config: ModelConfig) -> int:
    """How many numbers the model really holds; on the meta device none takes memory."""
    with torch.device("meta"):
        model = GPT(config)
    return sum(parameter.numel() for parameter in model.parameters())


# --- exact counts ---------------------------------------------------------------------------------

# Parameters of the released weights, as the model pages of Hugging Face's hub state them.
RELEASED = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "llama-7b": 6_738_415_616,
    "llama-13b": 13_015_864_320,
    "llama-33b": 32_528_943_616,
    "llama-65b": 65_285_660_672,
    "llama2-7b": 6_738_415_616,
    "llama2-13b": 13_015_864_320,
    "llama2-70b": 68_976_648_192,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
}


@pytest.mark.parametrize("name", RELEASED)
def test_parameters_of_the_released_weights(name):
    assert parameters(preset(name)) == RELEASED[name]


def gpt(layers: int, width: int, vocabulary: int, context: int) -> int:
    """By hand: 12 d^2 in matrices, 9 d in their biases and 4 d in two norms, a block."""
    block = 12 * width**2 + 9 * width + 4 * width
    return vocabulary * width + context * width + layers * block + 2 * width


def llama(layers: int, width: int, inner: int, vocabulary: int, shared: int) -> int:
    """By hand: queries and projection d^2 each, keys and values d^2 / `shared` each, SwiGLU's three
    matrices, two norms; embedding and output layer apart."""
    block = 2 * width**2 + 2 * width**2 // shared + 3 * width * inner + 2 * width
    return 2 * vocabulary * width + layers * block + width


def palm(layers: int, width: int, heads: int) -> int:
    """By hand: heads of 256, one of keys and one of values, three matrices d x 4d, one norm."""
    block = 2 * width * heads * 256 + 2 * width * 256 + 12 * width**2 + width
    return 256_000 * width + layers * block + width


COMPUTED = {
    "gpt2": gpt(12, 768, 50257, 1024),
    "gpt2-xl": gpt(48, 1600, 50257, 1024),
    "gpt3-125m": gpt(12, 768, 50257, 2048),
    "gpt3-350m": gpt(24, 1024, 50257, 2048),
    "gpt3-760m": gpt(24, 1536, 50257, 2048),
    "gpt3-1.3b": gpt(24, 2048, 50257, 2048),
    "gpt3-2.7b": gpt(32, 2560, 50257, 2048),
    "gpt3-6.7b": gpt(32, 4096, 50257, 2048),
    "gpt3-13b": gpt(40, 5120, 50257, 2048),
    "gpt3-175b": gpt(96, 12288, 50257, 2048),
    "llama-65b": llama(80, 8192, 22016, 32000, shared=1),
    "llama2-70b": llama(80, 8192, 28672, 32000, shared=8),
    "llama3-8b": llama(32, 4096, 14336, 128256, shared=4),
    "llama3-70b": llama(80, 8192, 28672, 128256, shared=8),
    "palm-8b": palm(32, 4096, 16),
    "palm-62b": palm(64, 8192, 32),
    "palm-540b": palm(118, 18432, 48),
    # Token and position tables, then a block's matrices, then the output layer with its bias.
    "ladder-1": 65 * 32 + 8 * 32 + 3 * 32 * 32 + 32 * 65 + 65,
    "ladder-2": 7553 + 32 * 32 + 32,
    "ladder-3": 8609 + 32 * 32 + 32,
    "ladder-4": 7553 + 2 * 3072 + 3 * (32 * 32 + 32 + 32 * 128 + 128 + 128 * 32 + 32),
    "ladder-5": 41921 + 3 * 2 * 64 + 64,
}


@pytest.mark.parametrize("name", COMPUTED)
def test_parameters_computed_by_hand(name):
    assert parameters(preset(name)) == COMPUTED[name]


def test_parameters_of_the_scaled_rung():
    # The lecture's gpt.py prints "10.788929 M parameters" (Karpathy 2023, ng-video-lecture).
    assert parameters(preset("ladder-scaled")) == 10_788_929


# Billions, to the digits that are printed. Brown et al. 2020, table 2.1; Touvron et al. 2023,
# table 2; Chowdhery et al. 2022, table 1.
PUBLISHED = {
    "gpt3-125m": (0.125, 0.01),
    "gpt3-350m": (0.350, 0.02),
    "gpt3-760m": (0.760, 0.01),
    "gpt3-1.3b": (1.3, 0.02),
    "gpt3-2.7b": (2.7, 0.02),
    "gpt3-6.7b": (6.7, 0.01),
    "gpt3-13b": (13.0, 0.02),
    "gpt3-175b": (175.0, 0.01),
    "llama-7b": (6.7, 0.01),
    "llama-13b": (13.0, 0.005),
    "llama-33b": (32.5, 0.002),
    "llama-65b": (65.2, 0.002),
    "palm-8b": (8.63, 0.001),
    "palm-62b": (62.50, 0.0002),
    "palm-540b": (540.35, 0.00002),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_those_of_the_paper(name):
    billions, tolerance = PUBLISHED[name]
    assert parameters(preset(name)) / 1e9 == pytest.approx(billions, rel=tolerance)


def test_gpt3_xl_has_the_heads_that_make_its_parameters():
    # The paper's row says 24 heads of 128 beside a width of 2048: built so, it is no 1.3B model.
    literal = dataclasses.replace(preset("gpt3-xl"), n_heads=24, head_dim=128)
    assert parameters(literal) / 1e9 == pytest.approx(1.52, rel=0.01)


# --- parts ----------------------------------------------------------------------------------------


def test_palm_is_what_its_paper_says_and_not_what_is_often_told():
    config = preset("palm-540b")
    assert (config.norm, config.norm_bias, config.parallel) == ("layernorm", False, True)
    assert (config.key_value_heads, config.head_size) == (1, 256)
    assert config.n_heads * config.head_size == 12288 != config.d_model
    assert not any((config.qkv_bias, config.projection_bias, config.feedforward_bias))
    assert config.tie_embeddings and config.scale_embeddings


def test_a_scaled_shared_embedding_is_palms_divided_logits():
    # E on the way in and x E^T / sqrt(d) on the way out, with E = sqrt(d) times our table.
    config = dataclasses.replace(
        preset("palm-8b"), vocab_size=7, context_length=4, n_layers=1, d_model=16, n_heads=2
    )
    config = dataclasses.replace(config, d_ff=None, head_dim=4)
    model = GPT(config).double().eval()
    ids = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        table = 4 * model.token_embedding.weight
        found = {}
        model(ids, observe=found.__setitem__)
        assert torch.allclose(found["embedding"], table[ids])
        assert torch.allclose(found["logits"], found["final_norm"] @ table.T / 4)


def rounded_up(width: int, multiple: int) -> int:
    return -(-width // multiple) * multiple


def test_llama_inner_widths_follow_the_released_rule():
    # facebookresearch/llama, model.py: 2/3 of 4 d, times a multiplier, up to a multiple.
    for name in ("llama-7b", "llama-13b", "llama-33b", "llama-65b", "llama2-7b", "llama2-13b"):
        assert preset(name).inner_width == rounded_up(8 * preset(name).d_model // 3, 256)
    assert preset("llama2-70b").inner_width == rounded_up(int(1.3 * (8 * 8192 // 3)), 4096)
    assert preset("llama3-8b").inner_width == rounded_up(int(1.3 * (8 * 4096 // 3)), 1024)
    assert preset("llama3-70b").inner_width == rounded_up(int(1.3 * (8 * 8192 // 3)), 4096)


RUNGS = {
    2: {"n_heads": 4, "output_projection": True},
    3: {"feedforward": "relu"},
    4: {"n_layers": 3, "residual": True, "feedforward_output": True},
    5: {"norm": "layernorm"},
    6: {"n_layers": 6, "n_heads": 6, "d_model": 384, "context_length": 256, "dropout": 0.2},
}


@pytest.mark.parametrize("number", RUNGS)
def test_a_rung_differs_from_the_one_below_in_what_it_adds(number):
    below, here = preset(f"ladder-{number - 1}"), preset(f"ladder-{number}")
    assert here == dataclasses.replace(below, **RUNGS[number])
    assert all(getattr(below, field) != value for field, value in RUNGS[number].items())


def modules(name: str) -> set[str]:
    with torch.device("meta"):
        return {key.removeprefix("blocks.0.") for key in GPT(preset(name)).state_dict()}


def test_the_ladders_parts_as_modules():
    shared = {"token_embedding.weight", "position_embedding.weight", "head.weight", "head.bias"}
    first = modules("ladder-1")
    assert first == shared | {"attention.qkv.weight"}
    projection = {"attention.projection.weight", "attention.projection.bias"}
    assert modules("ladder-2") - first == projection
    assert modules("ladder-3") - modules("ladder-2") == {
        "feedforward.up.weight",
        "feedforward.up.bias",
    }
    assert preset("ladder-3").inner_width == 32
    assert preset("ladder-4").inner_width == 128
    norms = {key for key in modules("ladder-5") if "norm" in key}
    assert {"norm1.weight", "norm2.weight", "final_norm.weight"} < norms


def test_the_ladder_starts_from_torchs_initialisation_and_tiny_shakespeare():
    for number in range(1, 7):
        config = preset(f"ladder-{number}")
        assert (config.initialisation, config.vocab_size) == ("torch", 65)
        assert not config.tie_embeddings and config.head_bias and not config.qkv_bias
        assert config.embedding_dropout == 0


# --- names ----------------------------------------------------------------------------------------


def test_names_and_other_names():
    assert len(set(preset_names())) == len(preset_names()) == len(PRESETS)
    assert not set(ALIASES) & set(PRESETS)
    for other, name in ALIASES.items():
        assert preset(other) is preset(name)
    rungs = ("head", "heads", "feedforward", "residual", "layernorm", "scaled")
    for number, rung in enumerate(rungs, start=1):
        assert preset(f"ladder-{rung}") is preset(f"ladder-{number}")


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("gpt2xl", "gpt2-xl"), ("Llama-7B", "llama-7b"), ("lader-3", "ladder-3"), ("smal", "small")],
)
def test_a_wrong_name_is_told_the_nearest(wrong, right):
    for language in ("en", "zh"):
        with pytest.raises(ConfigError) as caught, use_language(language):
            preset(wrong)
        with use_language(language):
            line = str(caught.value)
        assert repr(wrong) in line and right in line and "\n" not in line


def test_presets_need_no_torch():
    program = (
        "import sys, partwise.model.presets, partwise.model.guarantees; "
        "sys.exit(any(name in sys.modules for name in ('torch', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_an_encoder_decoder_is_trained_by_another_command():
    with pytest.raises(ConfigError, match="partwise translate PAIRS --preset transformer-base"):
        preset("transformer-base")
