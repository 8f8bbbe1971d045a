"""A model that transformers made gives the same logits here, read from its folder."""

import json
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")

from transformers import AutoModelForCausalLM

from interop.families import FAMILIES, judged, made, saved
from partwise.interop.reader import load_folder
from partwise.model.gpt import GPT

TOLERANCE = 1e-5
IDS = torch.randint(0, 61, (3, 20), generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def logits(model: GPT) -> torch.Tensor:
    scores: torch.Tensor = model(IDS)
    return scores


@torch.no_grad()
def cached_logits(model: GPT) -> torch.Tensor:
    """In pieces of 7, 1, 1, … tokens, as sampling reads."""
    cache = model.new_cache(IDS.shape[0])
    pieces = [IDS[:, :7], *IDS[:, 7:].split(1, dim=1)]
    return torch.cat([model(piece, cache) for piece in pieces], dim=1)


@pytest.mark.parametrize("name", FAMILIES)
def test_logits_are_those_of_transformers_with_cache_and_without(name: str, tmp_path: Path) -> None:
    theirs = saved(name, tmp_path)
    ours = load_folder(tmp_path)
    wanted = judged(theirs, IDS)
    assert wanted.abs().max() > 1  # else a tolerance of 1e-5 says nothing
    torch.testing.assert_close(logits(ours), wanted, atol=TOLERANCE, rtol=0)
    torch.testing.assert_close(cached_logits(ours), wanted, atol=TOLERANCE, rtol=0)


def test_a_mistral_reads_on_past_its_context_as_transformers_does(tmp_path: Path) -> None:
    theirs = saved("mistral", tmp_path)
    ours = load_folder(tmp_path)
    assert ours.config.past_context
    ids = torch.randint(0, 61, (1, 60), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(ours(ids), judged(theirs, ids), atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("name", ["gpt2-own-head", "llama-3", "qwen3-biases"])
def test_shards_are_read_by_their_index(name: str, tmp_path: Path) -> None:
    theirs = saved(name, tmp_path, max_shard_size="9KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert not (tmp_path / "model.safetensors").exists()
    torch.testing.assert_close(
        logits(load_folder(tmp_path)), judged(theirs, IDS), atol=TOLERANCE, rtol=0
    )


@pytest.mark.parametrize("name", ["llama-1", "llama-2-linear", "llama-3", "qwen2"])
def test_the_spelling_of_transformers_4_is_read_too(name: str, tmp_path: Path) -> None:
    theirs = saved(name, tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    table = config.pop("rope_parameters")
    config["rope_theta"] = table.pop("rope_theta")
    kind = table.pop("rope_type")
    # The first folders with a scaling named it "type".
    table["type" if kind == "linear" else "rope_type"] = kind
    config["rope_scaling"] = None if kind == "default" else table
    config["torch_dtype"] = config.pop("dtype")
    path.write_text(json.dumps(config), encoding="utf-8")
    torch.testing.assert_close(
        logits(load_folder(tmp_path)), judged(theirs, IDS), atol=TOLERANCE, rtol=0
    )


def test_the_oldest_llama_configs_say_little(tmp_path: Path) -> None:
    theirs = saved("llama-1", tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    for name in ("num_key_value_heads", "head_dim", "attention_bias", "mlp_bias", "hidden_act"):
        del config[name]
    for name in ("rope_parameters", "tie_word_embeddings", "attention_dropout", "dtype"):
        del config[name]
    path.write_text(json.dumps(config), encoding="utf-8")
    torch.testing.assert_close(
        logits(load_folder(tmp_path)), judged(theirs, IDS), atol=TOLERANCE, rtol=0
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_short_formats_are_read_as_they_are(dtype: torch.dtype, tmp_path: Path) -> None:
    made("llama-1").to(dtype).save_pretrained(tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    torch.testing.assert_close(
        logits(load_folder(tmp_path)), judged(theirs, IDS), atol=TOLERANCE, rtol=0
    )


def test_names_without_their_prefix_and_computed_tensors_are_known(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    theirs = saved("gpt2", tmp_path)
    path = tmp_path / "model.safetensors"
    # As the folder of the first GPT-2 on the hub has them.
    tensors = {name.removeprefix("transformer."): t for name, t in load_file(path).items()}
    for layer in range(2):
        tensors[f"h.{layer}.attn.bias"] = torch.ones(1, 1, 24, 24).tril()
        tensors[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    tensors["lm_head.weight"] = tensors["wte.weight"].clone()
    save_file(tensors, path)
    torch.testing.assert_close(
        logits(load_folder(tmp_path)), judged(theirs, IDS), atol=TOLERANCE, rtol=0
    )
