"""What vLLM and llama.cpp make of a folder that transformers opens, as far as their sources tell.

Neither is run here. Read, as of 2026: vLLM's GPT-2, Arcee and Apertus; llama.cpp's converter and
its gpt2, llama, arcee and qwen3. What is said of other forms follows from these.
"""

from collections.abc import Iterator

from partwise.interop.form import Form
from partwise.messages import Notice
from partwise.model.config import ModelConfig
from partwise.text.tokenizers import Tokenizer

# Forms for which other programs compute one activation, whatever `config.json` says.
_ACTIVATIONS = {"gpt2": "gelu_tanh", "arcee": "relu2"}


def notices_on(form: Form, config: ModelConfig) -> tuple[Notice, ...]:
    """What the reader should know before taking a model in this form to another program."""
    notices = [
        Notice(
            "form {form}, {architecture} of transformers",
            form=form.model_type,
            architecture=form.architecture,
        )
    ]
    if form.model_type == "apertus" or (
        form.model_type == "arcee" and config.feedforward != _ACTIVATIONS["arcee"]
    ):
        notices.append(
            Notice(
                "vLLM reads this form with another activation of its own; with --model-impl "
                "transformers it reads the model as it is"
            )
        )
    beyond = list(beyond_llama_cpp(form, config))
    if beyond:
        notices.append(
            Notice(
                "llama.cpp does not compute {parts} in the form {form}: do not convert it there",
                parts=", ".join(beyond),
                form=form.model_type,
            )
        )
    return tuple(notices)


def beyond_llama_cpp(form: Form, config: ModelConfig) -> Iterator[str]:
    """The settings of a model that llama.cpp passes over or refuses in this form."""
    name = form.model_type
    if name == "apertus" or config.feedforward != _ACTIVATIONS.get(name, config.feedforward):
        yield f"feedforward={config.feedforward}"
    if name == "gpt2" and config.inner_width != 4 * config.d_model:
        yield f"d_ff={config.inner_width}"
    if config.window is not None:
        yield f"window={config.window}"
    if name in ("qwen2", "qwen3") and config.rope_scaling == "llama3":
        yield "rope_scaling=llama3"
    if name in ("qwen3", "arcee", "apertus") and form.written(config).projection_bias:
        yield "projection_bias=true"
    if name == "arcee" and config.feedforward_bias:
        yield "feedforward_bias=true"


def accepted(tokenizer: Tokenizer, imported: bool) -> Notice:
    """What other programs make of this tokenizer.

    Args:
        tokenizer: the tokenizer.
        imported: it came with a model that was made elsewhere.
    """
    if imported:
        return Notice(
            "tokenizer {name}, as it came with the imported model: transformers and vLLM read it; "
            "llama.cpp's converter takes it where it takes that model",
            name=tokenizer.name,
        )
    return Notice(
        "tokenizer {name}: transformers reads it, and vLLM through it; llama.cpp's converter "
        "refuses it, as it knows the tokenizers of published models only",
        name=tokenizer.name,
    )
