"""What cannot be taken over is refused in one line that names it, and nothing is guessed."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")

from safetensors.torch import load_file, save_file

from interop.families import saved
from interop.folders import whole
from partwise.errors import InteropError, PartwiseError, StorageError
from partwise.interop.reader import load_folder, read_folder


def with_config(folder: Path, **changes: Any) -> Path:
    """Change config.json; a value of ... takes the field away."""
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    for name, value in changes.items():
        config.pop(name, None)
        if value is not ...:
            config[name] = value
    path.write_text(json.dumps(config), encoding="utf-8")
    return folder


def with_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> Path:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)
    return folder


def refusal(folder: Path) -> str:
    with pytest.raises(PartwiseError) as error:
        load_folder(folder)
    line = str(error.value)
    assert "\n" not in line and str(folder) in line
    return line


# Family, changes of config.json, and what the line must name.
CONFIGS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("gpt2", {"model_type": "gpt_neox"}, ['model_type="gpt_neox"', "llama"]),
    ("gpt2", {"model_type": ...}, ["model_type"]),
    ("gpt2", {"model_type": 7}, ["model_type=7", "a text"]),
    ("gpt2", {"scale_attn_weights": False}, ["scale_attn_weights=false"]),
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, ["scale_attn_by_inverse_layer_idx"]),
    ("gpt2", {"reorder_and_upcast_attn": True}, ["reorder_and_upcast_attn=true"]),
    ("gpt2", {"add_cross_attention": True}, ["add_cross_attention=true"]),
    ("gpt2", {"activation_function": "quick_gelu"}, ['"quick_gelu"', "gelu_new"]),
    ("gpt2", {"n_embd": "wide"}, ['n_embd="wide"', "a whole number"]),
    ("gpt2", {"n_layer": True}, ["n_layer=true", "a whole number"]),
    ("gpt2", {"n_head": ...}, ["n_head"]),
    ("gpt2", {"n_head": 5}, ["n_heads=5"]),
    ("gpt2", {"n_layer": 0}, ["n_layers=0"]),
    ("gpt2", {"vocab_size": 60}, ["wte.weight", "61×32", "60×32"]),
    ("gpt2", {"n_positions": 25}, ["wpe.weight", "24×32", "25×32"]),
    ("gpt2", {"quantization_config": {"quant_method": "gptq"}}, ["quantization_config"]),
    ("llama-1", {"hidden_act": "gelu"}, ['hidden_act="gelu"', "silu"]),
    ("llama-1", {"partial_rotary_factor": 0.5}, ["partial_rotary_factor=0.5"]),
    ("llama-1", {"hidden_size": ...}, ["hidden_size"]),
    ("llama-1", {"num_key_value_heads": 3}, ["n_kv_heads=3"]),
    ("llama-1", {"num_hidden_layers": 3}, ["layers.2.input_layernorm.weight"]),
    ("llama-1", {"num_hidden_layers": 1}, ["layers.1.input_layernorm.weight", "left over"]),
    ("llama-1", {"attention_bias": True}, ["layers.0.self_attn.q_proj.bias"]),
    ("llama-biases", {"attention_bias": False}, ["layers.0.self_attn.k_proj.bias", "left over"]),
    ("llama-biases", {"mlp_bias": False}, ["layers.0.mlp.down_proj.bias", "left over"]),
    ("llama-1", {"rope_scaling": {"type": "longrope", "factor": 2.0}}, ["type=", "longrope"]),
    ("mistral", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, ["sliding_window=5"]),
    (
        "llama-1",
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}},
        ["rope_parameters.rope_type", "yarn", "llama3"],
    ),
    ("llama-1", {"rope_parameters": {"rope_type": "linear"}}, ["rope_parameters.factor"]),
    ("llama-1", {"rope_parameters": 5}, ["rope_parameters=5", "a table"]),
    (
        "llama-1",
        {"rope_parameters": {"full_attention": {"rope_type": "default"}}},
        ["rope_parameters="],
    ),
    (
        "qwen2",
        {
            "use_sliding_window": True,
            "sliding_window": 4,
            "max_window_layers": 1,
            "layer_types": ...,
        },
        ["max_window_layers=1"],
    ),
    (
        "qwen3",
        {
            "use_sliding_window": True,
            "sliding_window": 4,
            "layer_types": ["full_attention", "sliding_attention"],
        },
        ["layer_types="],
    ),
    ("qwen3", {"model_type": "qwen2"}, ["lacks layers.0.self_attn.k_proj.bias"]),
    ("mistral", {"layer_types": ["full_attention", "sliding_attention"]}, ["layer_types="]),
    ("llama-1", {"is_causal": False}, ["is_causal=false"]),
    ("gpt2", {"is_causal": False}, ["is_causal=false"]),
    ("mistral", {"is_causal": None}, ["is_causal=null"]),
    ("llama-1", {"per_layer_config": {"1": {"head_dim": 4}}}, ["per_layer_config="]),
    # Far more than is there: to be told apart before anything of that size is made.
    ("gpt2", {"n_layer": 10**6}, ["parameters and the weights are 28,192"]),
    ("gpt2", {"n_embd": 2**31}, ["parameters and the weights are"]),
    ("llama-1", {"num_hidden_layers": 2**31}, ["parameters and the weights are"]),
    ("llama-1", {"head_dim": 2**31}, ["parameters and the weights are"]),
    ("llama-1", {"max_position_embeddings": 2**40}, ["1,099,511,627,776 positions", "GB"]),
    ("apertus", {"hidden_act": "xielu"}, ['hidden_act="xielu"']),
    ("apertus", {"hidden_act": ...}, ['hidden_act="xielu"']),
    ("apertus", {"rope_parameters": ...}, ["rope_parameters"]),
    ("apertus", {"rope_parameters": {}}, ["rope_parameters={}"]),
]


@pytest.mark.parametrize("family, changes, named", CONFIGS)
def test_a_config_that_has_no_counterpart_is_refused_by_its_field(
    family: str, changes: dict[str, Any], named: list[str], tmp_path: Path
) -> None:
    saved(family, tmp_path)
    line = refusal(with_config(tmp_path, **changes))
    for words in named:
        assert words in line


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    saved("gpt2", tmp_path)
    with_tensors(tmp_path, lambda t: t.pop("transformer.h.1.mlp.c_fc.bias"))
    assert "lacks h.1.mlp.c_fc.bias" in refusal(tmp_path)


def test_many_missing_tensors_are_counted(tmp_path: Path) -> None:
    saved("gpt2", tmp_path)
    with_tensors(tmp_path, lambda t: [t.pop(n) for n in list(t) if ".h.1." in n])
    assert "h.1.attn.c_attn.bias" in refusal(tmp_path) and "(12)" in refusal(tmp_path)


def test_a_tensor_left_over_is_named(tmp_path: Path) -> None:
    saved("llama-1", tmp_path)
    with_tensors(tmp_path, lambda t: t.update({"model.layers.0.extra": torch.zeros(2)}))
    assert "layers.0.extra left over" in refusal(tmp_path)


def test_a_wrong_shape_is_named_with_both(tmp_path: Path) -> None:
    saved("llama-1", tmp_path)
    name = "model.layers.1.mlp.gate_proj.weight"
    with_tensors(tmp_path, lambda t: t.update({name: t[name].T.contiguous()}))
    line = refusal(tmp_path)
    assert "layers.1.mlp.gate_proj.weight is 32×44" in line and "44×32" in line


def test_an_output_layer_of_its_own_needs_to_be_said(tmp_path: Path) -> None:
    saved("gpt2-own-head", tmp_path)
    line = refusal(with_config(tmp_path, tie_word_embeddings=True))
    assert "lm_head.weight is not wte.weight" in line and "tie_word_embeddings" in line


def test_compressed_numbers_are_refused(tmp_path: Path) -> None:
    saved("gpt2", tmp_path)
    name = "transformer.h.0.mlp.c_fc.weight"
    with_tensors(tmp_path, lambda t: t.update({name: t[name].to(torch.int8)}))
    assert "kept as I8" in refusal(tmp_path)


class Trap:
    """Unpickled, it would make itself known."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("opened"),))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.00.pth"])
def test_a_pickle_is_never_opened(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "model"
    saved("gpt2", folder)
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(pickle.dumps(Trap()))
    line = refusal(folder)
    assert name in line and "save_pretrained" in line
    assert not (tmp_path / "opened").exists()


def test_a_pickle_with_a_false_name_is_never_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "model"
    saved("gpt2", folder)
    (folder / "model.safetensors").write_bytes(pickle.dumps(Trap()))
    assert "pickle" in refusal(folder)
    assert not (tmp_path / "opened").exists()


def test_a_torn_file_is_named(tmp_path: Path) -> None:
    saved("gpt2", tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    assert "model.safetensors is torn" in refusal(tmp_path)


def test_a_torn_config_is_named(tmp_path: Path) -> None:
    saved("gpt2", tmp_path)
    path = tmp_path / "config.json"
    path.write_bytes(path.read_bytes()[:-10])
    assert "config.json is torn" in refusal(tmp_path)
    path.write_text("[1, 2]")
    assert "is not a JSON object" in refusal(tmp_path)


def index_of(folder: Path) -> tuple[Path, dict[str, Any]]:
    saved("gpt2", folder, max_shard_size="9KB")
    path = folder / "model.safetensors.index.json"
    return path, json.loads(path.read_text(encoding="utf-8"))


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    _, index = index_of(tmp_path)
    file = sorted(set(index["weight_map"].values()))[1]
    (tmp_path / file).unlink()
    assert file in refusal(tmp_path)


def test_a_tensor_that_only_the_index_knows_is_named(tmp_path: Path) -> None:
    path, index = index_of(tmp_path)
    index["weight_map"]["transformer.ghost"] = next(iter(index["weight_map"].values()))
    path.write_text(json.dumps(index))
    assert "transformer.ghost" in refusal(tmp_path)


AWKWARD_NAMES = ["a\0b", "a\nb", "a\ud800b", "a" * 5000, ".", "", "c/../d.safetensors"]


@pytest.mark.parametrize(
    "file", ["../other.safetensors", "/etc/passwd", "a\\b.safetensors", "..", *AWKWARD_NAMES]
)
def test_an_index_cannot_lead_out_of_its_folder(file: str, tmp_path: Path) -> None:
    path, index = index_of(tmp_path)
    index["weight_map"]["transformer.wte.weight"] = file
    path.write_text(json.dumps(index))
    assert "not in its own folder" in refusal(tmp_path)


def test_a_tensor_in_two_shards_is_not_chosen_by_chance(tmp_path: Path) -> None:
    _, index = index_of(tmp_path)
    first, *_, last = sorted(set(index["weight_map"].values()))
    name = next(name for name, file in index["weight_map"].items() if file == first)
    tensors = load_file(tmp_path / last)
    save_file({**tensors, name: load_file(tmp_path / first)[name] + 1}, tmp_path / last)
    assert f"has {name} in two of its files" in refusal(tmp_path)


@pytest.mark.parametrize("damage", ["torn", "empty"])
def test_a_damaged_shard_is_named(damage: str, tmp_path: Path) -> None:
    _, index = index_of(tmp_path)
    file = sorted(set(index["weight_map"].values()))[1]
    data = (tmp_path / file).read_bytes()
    (tmp_path / file).write_bytes(data[:-10] if damage == "torn" else b"")
    assert f"{file} is torn" in refusal(tmp_path)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        (1 << 40).to_bytes(8, "little") + b"{}",
        (200_000_000).to_bytes(8, "little") + b" " * 1000,
        (8).to_bytes(8, "little") + b"notjson!",
    ],
)
def test_a_header_that_lies_is_refused(data: bytes, tmp_path: Path) -> None:
    saved("gpt2", tmp_path)
    (tmp_path / "model.safetensors").write_bytes(data)
    assert "model.safetensors is torn" in refusal(tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "a\nb\x1b[31m",
        "a" * 10_000,
        "transformer.h." + "9" * 5000 + ".x",
        "transformer.h.\u00b2.x",
        "\u00b2",
    ],
)
def test_a_name_that_no_program_gives_is_shown_in_one_line(name: str, tmp_path: Path) -> None:
    saved("gpt2", tmp_path)
    with_tensors(tmp_path, lambda t: t.update({name: torch.zeros(2)}))
    line = refusal(tmp_path)
    assert "left over" in line and line.isprintable() and len(line) < 400 + len(str(tmp_path))


@pytest.mark.parametrize("map", [None, [], {"wte.weight": 3}])
def test_an_index_without_a_map_is_named(map: object, tmp_path: Path) -> None:
    path, index = index_of(tmp_path)
    path.write_text(json.dumps({**index, "weight_map": map}))
    assert "weight_map" in refusal(tmp_path)


def test_what_is_no_folder_of_a_model_is_explained(tmp_path: Path) -> None:
    assert "hf download" in refusal(tmp_path / "gpt2")
    (tmp_path / "file.bin").write_bytes(b"x")
    assert "is a file" in refusal(tmp_path / "file.bin")
    (tmp_path / "empty").mkdir()
    assert "it has no config.json" in refusal(tmp_path / "empty")
    (tmp_path / "empty" / "model.gguf").write_bytes(b"GGUF")
    assert "GGUF" in refusal(tmp_path / "empty")
    (tmp_path / "empty" / "adapter_config.json").write_text("{}")
    assert "merge it" in refusal(tmp_path / "empty")
    saved("gpt2", tmp_path / "bare")
    (tmp_path / "bare" / "model.safetensors").unlink()
    assert "has no weights" in refusal(tmp_path / "bare")


def test_a_folder_without_its_tokenizer_is_refused_for_a_run(tmp_path: Path) -> None:
    saved("gpt2", tmp_path)
    with pytest.raises(InteropError, match="--tokenizer"):
        read_folder(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"")
    with pytest.raises(InteropError, match=r"tokenizer\.model.*save_pretrained"):
        read_folder(tmp_path)


@pytest.mark.parametrize("name", ["LICENSE", "README.md", "generation_config.json"])
def test_a_link_to_a_file_of_the_readers_is_not_carried(name: str, tmp_path: Path) -> None:
    folder, secret = tmp_path / "model", tmp_path / "secret"
    whole(folder, "gpt2")
    secret.write_text("mine")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(secret)
    with pytest.raises(InteropError, match=r"leads out of its folder.*secret"):
        read_folder(folder)


def test_links_within_the_folder_and_into_the_hubs_cache_are_followed(tmp_path: Path) -> None:
    cache = tmp_path / "models--them--theirs"
    folder = cache / "snapshots" / "0123"
    whole(folder, "gpt2")
    (cache / "blobs").mkdir()
    for number, path in enumerate(sorted(folder.iterdir())):
        path.rename(cache / "blobs" / str(number))
        path.symlink_to(Path("..", "..", "blobs", str(number)))
    (folder / "LICENSE.txt").symlink_to("LICENSE")
    read = read_folder(folder)
    assert read.files["LICENSE"] == read.files["LICENSE.txt"] == b"Do as you like.\n"


def test_weights_that_are_no_numbers_are_said(tmp_path: Path) -> None:
    whole(tmp_path, "gpt2")
    assert read_folder(tmp_path).notices == ()
    with_tensors(tmp_path, lambda t: t["transformer.ln_f.bias"].fill_(float("nan")))
    (notice,) = read_folder(tmp_path).notices
    assert "final_norm.bias" in str(notice) and "NaN" in str(notice)


def test_what_a_dynamic_scaling_does_not_do_here_is_said(tmp_path: Path) -> None:
    whole(tmp_path, "llama-2-dynamic")
    (notice,) = read_folder(tmp_path).notices
    assert "beyond 24 tokens only" in str(notice)


def test_an_empty_table_of_positions_says_nothing(tmp_path: Path) -> None:
    saved("llama-3", tmp_path)
    before = load_folder(tmp_path).config
    assert load_folder(with_config(tmp_path, rope_scaling={})).config == before


def test_a_folder_that_may_not_be_read_is_one_line(tmp_path: Path) -> None:
    saved("gpt2", tmp_path)
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").mkdir()
    with pytest.raises((InteropError, StorageError)):
        load_folder(tmp_path)
