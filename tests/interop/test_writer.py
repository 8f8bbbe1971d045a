"""A folder that we write opens in transformers with the same logits, and comes back bit for bit."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")

from configurations import randomise
from transformers import AutoModelForCausalLM, AutoTokenizer

from partwise.errors import InteropError, StorageError
from partwise.interop.form import EVERYWHERE
from partwise.interop.forms import FORMS, form_for
from partwise.interop.reader import read_folder
from partwise.interop.writer import Outgoing, write_model
from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT
from partwise.model.presets import PRESETS
from partwise.text.char import CharTokenizer

TOKENIZER = CharTokenizer("".join(map(chr, range(97, 97 + 26))) + " \n.,!?ABCDEFGHIJKLMNOPQRSTUVW")
GPT_2 = ModelConfig(
    vocab_size=TOKENIZER.vocab_size,
    context_length=16,
    n_layers=2,
    d_model=24,
    n_heads=3,
    feedforward="gelu_tanh",
)
LLAMA = replace(
    GPT_2,
    norm="rmsnorm",
    norm_bias=False,
    norm_eps=1e-6,
    position="rotary",
    feedforward="swiglu",
    qkv_bias=False,
    projection_bias=False,
    feedforward_bias=False,
    n_kv_heads=1,
)
# Config, and the form that it is to take.
MODELS: dict[str, tuple[ModelConfig, str]] = {
    "gpt2": (GPT_2, "gpt2"),
    "gpt2 without biases": (
        replace(
            GPT_2, qkv_bias=False, projection_bias=False, feedforward_bias=False, norm_bias=False
        ),
        "gpt2",
    ),
    "gpt2 with sines": (replace(GPT_2, position="sinusoidal", d_ff=20), "gpt2"),
    "gpt2 without positions": (replace(GPT_2, position="none", tie_embeddings=False), "gpt2"),
    "gpt2 with relu2": (replace(GPT_2, feedforward="relu2"), "gpt2"),
    "llama": (LLAMA, "llama"),
    "llama with biases": (replace(LLAMA, qkv_bias=True, feedforward_bias=True), "llama"),
    "llama 3": (
        replace(LLAMA, rope_scaling="llama3", rope_factor=4.0, rope_original_context=8),
        "llama",
    ),
    "llama, stretched": (
        replace(LLAMA, rope_scaling="linear", rope_factor=2.0, rope_base=500.0, head_dim=6),
        "llama",
    ),
    "odd heads": (replace(LLAMA, n_heads=5, n_kv_heads=None, head_dim=4), "mistral"),
    "window": (replace(LLAMA, window=5), "mistral"),
    "window and biases": (replace(LLAMA, window=5, qkv_bias=True), "qwen2"),
    "qwen 2": (replace(LLAMA, qkv_bias=True, tie_embeddings=False), "qwen2"),
    "qwen 3": (replace(LLAMA, qk_norm=True, head_dim=6, window=7), "qwen3"),
    "qwen 3 with one bias": (replace(LLAMA, qk_norm=True, projection_bias=True), "qwen3"),
    "no gate": (replace(LLAMA, feedforward="relu2", feedforward_bias=True), "arcee"),
    "the small preset": (
        replace(PRESETS["small"], vocab_size=TOKENIZER.vocab_size, n_layers=2),
        "apertus",
    ),
}
# What each preset goes out as; a rung and PaLM have parts that no other program knows.
FORMS_OF = {"gpt2": "gpt2", "gpt3": "gpt2", "llama": "llama", "llama2": "llama", "llama3": "llama"}
UNKNOWN_PARTS = {"ladder": "head_bias=", "palm": "parallel="}


def shrunk(name: str) -> ModelConfig:
    """A preset's parts at a size that takes no time."""
    known = PRESETS[name]
    shared = 1 if known.key_value_heads == known.n_heads else 3
    return replace(
        known,
        vocab_size=TOKENIZER.vocab_size,
        context_length=16,
        n_layers=2,
        d_model=24,
        n_heads=3,
        n_kv_heads=None if shared == 1 else 1,
        d_ff=None if known.d_ff is None else 40,
        head_dim=None,
    )


MODELS |= {
    f"the preset {name}": (shrunk(name), FORMS_OF[name.split("-")[0]])
    for name in ("gpt2", "gpt3-1.3b", "llama-7b", "llama2-70b", "llama3-8b")
}
TEXT = "Hello,  World.\n\nABC  def !?\n"


def model_of(config: ModelConfig) -> GPT:
    model = GPT(config)
    randomise(model)
    return model.eval()


def write(folder: Path, model: GPT) -> None:
    out = Outgoing("model", model.config, model.state_dict(), TOKENIZER, {})
    write_model(folder, out, "# card\n")


@pytest.mark.parametrize("name", MODELS)
def test_transformers_opens_it_with_the_same_logits(name: str, tmp_path: Path) -> None:
    config, form = MODELS[name]
    ours = model_of(config)
    assert form_for(config, "model").model_type == form
    write(tmp_path / "out", ours)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert theirs.config.model_type == form and theirs.dtype == torch.float32
    ids = torch.randint(0, config.vocab_size, (2, 14), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        wanted, found = ours(ids), theirs(ids).logits
    largest = float(wanted.abs().max())
    assert largest > 0.5
    torch.testing.assert_close(found, wanted, atol=1e-5 * max(1.0, largest), rtol=0)
    # No parameter was made up and none was left over: the judge counts as we do.
    written = GPT(form_for(config, "model").written(config))
    assert sum(p.numel() for p in theirs.parameters()) == sum(
        p.numel() for p in written.parameters()
    )


@pytest.mark.parametrize("name", MODELS)
def test_out_in_and_out_again_is_the_same_bits(name: str, tmp_path: Path) -> None:
    config, _ = MODELS[name]
    write(tmp_path / "one", model_of(config))
    back = read_folder(tmp_path / "one")
    assert isinstance(back.tokenizer, CharTokenizer)
    assert back.tokenizer.fingerprint == TOKENIZER.fingerprint
    write_model(
        tmp_path / "two",
        Outgoing("again", back.model, back.weights, back.tokenizer, back.files),
        "# card\n",
    )
    files = {path.name for path in (tmp_path / "one").iterdir()}
    for file in files - {"README.md"}:
        assert (tmp_path / "two" / file).read_bytes() == (tmp_path / "one" / file).read_bytes()
    assert "config.json" in files and "model.safetensors" in files


def test_tokens_are_the_same_too(tmp_path: Path) -> None:
    write(tmp_path / "out", model_of(GPT_2))
    theirs = AutoTokenizer.from_pretrained(tmp_path / "out")
    ids = TOKENIZER.encode(TEXT).tolist()
    assert theirs(TEXT)["input_ids"] == ids
    assert theirs.decode(ids) == TEXT
    assert len(theirs) == TOKENIZER.vocab_size
    assert theirs.model_max_length == GPT_2.context_length


def test_short_formats_come_back_as_they_were(tmp_path: Path) -> None:
    weights = {name: t.bfloat16() for name, t in model_of(LLAMA).state_dict().items()}
    write_model(tmp_path / "out", Outgoing("model", LLAMA, weights, TOKENIZER, {}), "")
    back = read_folder(tmp_path / "out")
    assert all(torch.equal(back.weights[name], weights[name]) for name in weights)
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == "bfloat16"


@pytest.mark.parametrize(
    ("formats", "named"),
    [
        ((torch.bfloat16, torch.float32), "float32"),
        ((torch.bfloat16, torch.float16), "float32"),
        ((torch.float16,), "float16"),
    ],
)
def test_the_format_that_is_named_holds_every_tensor(
    formats: tuple[torch.dtype, ...], named: str, tmp_path: Path
) -> None:
    model = model_of(LLAMA)
    weights = {
        name: tensor.to(formats[place % len(formats)])
        for place, (name, tensor) in enumerate(model.state_dict().items())
    }
    write_model(tmp_path / "out", Outgoing("model", LLAMA, weights, TOKENIZER, {}), "")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "out").float()
    model.load_state_dict(weights)
    ids = torch.arange(14)[None]
    with torch.no_grad():
        torch.testing.assert_close(theirs(ids).logits, model(ids), atol=1e-5, rtol=0)
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == named


UNFIT = {
    "attention": {"attention": False, "position": "none"},
    "output_projection": {"output_projection": False},
    "causal": {"causal": False},
    "feedforward_output": {"feedforward_output": False},
    "parallel": {"parallel": True},
    "norm_placement": {"norm_placement": "post"},
    "final_norm": {"final_norm": False},
    "residual": {"residual": False},
    "scale_embeddings": {"scale_embeddings": True},
    "head_bias": {"head_bias": True},
    "logit_soft_cap": {"logit_soft_cap": 30.0},
    "ngram": {"ngram": 2},
    "embedding_shortcut": {"embedding_shortcut": True},
    "position": {"position": "alibi"},
    "norm": {"norm": "batchnorm"},
    "feedforward": {"feedforward": "none"},
}


def test_every_part_that_no_form_has_is_tried() -> None:
    assert EVERYWHERE.keys() <= UNFIT.keys()


@pytest.mark.parametrize("field", UNFIT)
@pytest.mark.parametrize("base", [GPT_2, LLAMA], ids=["gpt2", "llama"])
def test_what_fits_no_form_is_refused_by_name(
    base: ModelConfig, field: str, tmp_path: Path
) -> None:
    unfit = replace(base, **UNFIT[field])  # type: ignore[arg-type]
    with pytest.raises(InteropError) as refusal:
        write(tmp_path / "out", GPT(unfit))
    assert f"{field}=" in str(refusal.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_goes_out_or_is_refused_by_a_part(name: str) -> None:
    family = name.split("-")[0]
    if family in UNKNOWN_PARTS:
        with pytest.raises(InteropError, match=UNKNOWN_PARTS[family]):
            form_for(PRESETS[name], name)
    elif name == "small":
        assert form_for(PRESETS[name], name).model_type == "apertus"
    else:
        assert form_for(PRESETS[name], name).model_type == FORMS_OF[family]


def test_the_refusal_names_what_would_do() -> None:
    with pytest.raises(InteropError) as refusal:
        form_for(replace(LLAMA, norm="layernorm"), "runs/mine")
    line = str(refusal.value)
    assert line.startswith("runs/mine fits no form that other programs read: gpt2 has ")
    assert "norm=rmsnorm (here layernorm)" in line


def test_a_folder_that_is_there_is_never_touched(tmp_path: Path) -> None:
    place = tmp_path / "out"
    place.mkdir()
    (place / "mine.txt").write_text("precious")
    with pytest.raises(InteropError, match="exists already"):
        write(place, model_of(GPT_2))
    assert [path.name for path in place.iterdir()] == ["mine.txt"]


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000})())
    with pytest.raises(StorageError, match="MB free"):
        write(tmp_path / "out", model_of(GPT_2))
    assert not list(tmp_path.iterdir())


def test_every_form_is_a_model_type_of_transformers() -> None:
    from transformers import AutoConfig

    for form in FORMS:
        config = AutoConfig.for_model(form.model_type)
        theirs = AutoModelForCausalLM._model_mapping[type(config)]  # type: ignore[attr-defined]
        assert theirs.__name__ == form.architecture
