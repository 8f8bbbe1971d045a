"""What is said of other programs is what their sources say."""

from dataclasses import replace
from typing import Any

import pytest

from partwise.interop.elsewhere import accepted, beyond_llama_cpp, notices_on
from partwise.interop.forms import form_for
from partwise.model.presets import preset
from partwise.text.byte import ByteTokenizer
from partwise.text.char import CharTokenizer


@pytest.mark.parametrize(
    ("name", "changes", "beyond"),
    [
        ("gpt2", {}, []),
        ("gpt2", {"feedforward": "relu2"}, ["feedforward=relu2"]),
        ("gpt2", {"d_ff": 100}, ["d_ff=100"]),
        ("llama-7b", {}, []),
        ("llama-7b", {"rope_scaling": "llama3"}, []),
        ("llama-7b", {"qkv_bias": True, "feedforward_bias": True}, []),
        ("llama-7b", {"window": 9}, ["window=9"]),
        ("llama-7b", {"qk_norm": True}, []),
        ("llama-7b", {"qk_norm": True, "rope_scaling": "llama3"}, ["rope_scaling=llama3"]),
        ("llama-7b", {"qk_norm": True, "qkv_bias": True}, ["projection_bias=true"]),
        ("llama-7b", {"feedforward": "relu2"}, []),
        ("llama-7b", {"feedforward": "gelu"}, ["feedforward=gelu"]),
        ("small", {}, ["feedforward=relu2"]),
    ],
)
def test_llama_cpp(name: str, changes: dict[str, Any], beyond: list[str]) -> None:
    config = replace(preset(name), **changes)
    form = form_for(config, name)
    assert list(beyond_llama_cpp(form, config)) == beyond
    said = " ".join(map(str, notices_on(form, config)))
    assert ("do not convert" in said) == bool(beyond)
    assert all(part in said for part in beyond)


def test_vllm_has_its_own_apertus() -> None:
    config = preset("small")
    said = " ".join(map(str, notices_on(form_for(config, "small"), config)))
    assert "--model-impl transformers" in said


def test_tokenizers() -> None:
    assert "converter refuses it" in str(accepted(CharTokenizer("ab"), imported=False))
    assert "where it takes that model" in str(accepted(ByteTokenizer(), imported=True))
