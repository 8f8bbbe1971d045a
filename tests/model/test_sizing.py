"""The whole answer of `partwise size`."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from configurations import CONFIGURATIONS, name

from partwise.errors import ConfigError
from partwise.messages import LANGUAGES, use_language
from partwise.model.config import ModelConfig
from partwise.model.flops import unmasked_scores
from partwise.model.memory import training_memory
from partwise.model.parameters import count_parameters
from partwise.model.presets import preset, preset_names
from partwise.model.sizing import Workload, size

GPT2 = preset("gpt2")


@pytest.mark.parametrize("known", preset_names())
def test_every_preset_is_sized_and_is_plain_data(known: str) -> None:
    found = size(preset(known))
    data = json.loads(json.dumps(found.as_dict()))
    assert {
        "parameters",
        "parameters_by_part",
        "approximation_12nd2",
        "flops_per_token",
        "memory",
    } <= set(data)
    assert sum(data["parameters_by_part"].values()) == data["parameters"]
    gap = sum(data["approximation_gap"].values())
    assert data["approximation_12nd2"] + gap == data["parameters"]
    assert data["compute_optimal_tokens"] == 20 * data["parameters"]


@pytest.mark.parametrize("config", CONFIGURATIONS, ids=name)
@pytest.mark.parametrize("language", LANGUAGES)
def test_every_model_is_explained_in_both_languages(config: ModelConfig, language: str) -> None:
    found = size(config)
    with use_language(language):  # type: ignore
        lines = [str(notice) for notice in found.notices()]
    assert all(line and "\n" not in line and "{" not in line for line in lines)
    assert len(lines) == len(set(lines))
    # One line for each source of the difference, besides those on operations, tokens and time.
    sources = sum(1 for count in found.approximation_gap.values() if count)
    assert len(lines) == 1 + sources + (2 if config.attention else 1) + 2


def test_no_tensor_is_needed() -> None:
    code = (
        "import sys; from partwise.model.presets import preset; from partwise.model.sizing import "
        "size; size(preset('palm-540b')); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_operations_of_gpt2_fall_where_they_should() -> None:
    flops = size(GPT2).flops_per_token
    parts = ("attention", "attention_scores", "feedforward", "head")
    assert flops["forward"] == sum(flops[part] for part in parts)
    assert flops["training"] == 3 * flops["forward"]
    assert flops["training_checkpointed"] == 4 * flops["forward"] - flops["head"]
    assert flops["attention_scores_unmasked"] == unmasked_scores(GPT2, 1024)
    # The last token of a full context looks at all of it.
    assert flops["decode"] - flops["forward"] == pytest.approx(
        unmasked_scores(GPT2, 1024) / 2, 0.01
    )


def test_attention_has_a_third_and_feedforward_two_thirds_of_a_standard_block() -> None:
    shares = size(preset("gpt3-175b")).shares
    ratio = shares["feedforward_parameters"] / shares["attention_parameters"]
    assert ratio == pytest.approx(2, rel=0.001)


def test_hours_of_gpt3() -> None:
    """Brown et al. 2020, table D.1: 300 billion tokens cost 3.14e23 operations."""
    workload = Workload(tokens=300 * 10**9, accelerator="A100", utilisation=0.5)
    found = size(preset("gpt3-175b"), workload)
    assert found.as_dict()["training_flops"] == pytest.approx(3.14e23, rel=0.03)
    assert found.speed is not None
    assert found.speed.hours == pytest.approx(3.14e23 / (312e12 * 0.5) / 3600, rel=0.03)
    assert found.speed.fits is False


def test_this_machine_is_used_when_no_accelerator_is_named() -> None:
    workload = Workload(accelerator=None, tokens=10**6, utilisation=0.5)
    assert size(GPT2, workload).speed is None
    found = size(GPT2, workload, here_flops=2e11, here_bandwidth=5e10).speed
    assert found is not None and found.hardware == "here"
    training = size(GPT2, workload).flops_per_token["training"]
    assert found.hours == pytest.approx(1e6 * training / 1e11 / 3600)
    assert found.decode_tokens == pytest.approx(5e10 / (2 * count_parameters(GPT2)), rel=0.1)
    assert found.fits is None


def test_memory_follows_the_workload() -> None:
    workload = Workload(
        batch_size=3, context=100, optimizer="muon", ema=True, dtype="float32", texts=5,
        accelerator=None,
    )  # fmt: skip
    found = size(GPT2, workload)
    assert found.training == training_memory(
        GPT2, batch=3, context=100, optimizer="muon", average=True
    )
    assert found.serving.cache == 5 * size(GPT2, replace(workload, texts=1)).serving.cache
    fits = size(GPT2, Workload(batch_size=1, accelerator="RTX 4090")).speed
    assert fits is not None and fits.fits and fits.fits_checkpointed


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"batch_size": 0}, "batch_size=0"),
        ({"context": 0}, "context=0"),
        ({"tokens": -1}, "tokens=-1"),
        ({"utilisation": 1.5}, "utilisation=1.5"),
        ({"accelerator": "A10000"}, "'A10000'"),
        ({"dtype": "float8"}, "float8"),
    ],
)
def test_a_workload_that_makes_no_sense_is_refused(wrong: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        Workload(**wrong)  # type: ignore


def test_a_context_that_the_model_cannot_read_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"context=2048.*1024"):
        size(GPT2, Workload(context=2048))
    endless = replace(GPT2, position="rotary", window=256)
    assert size(endless, Workload(context=2048)).context == 2048
