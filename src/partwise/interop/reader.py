"""A Hugging Face folder, read whole: the model, its weights, its tokenizer."""

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from partwise.errors import ConfigError, InteropError
from partwise.interop.fields import Fields, read_object
from partwise.interop.form import Form
from partwise.interop.forms import form_of
from partwise.interop.origin import files_of_origin
from partwise.interop.rope import is_dynamic
from partwise.interop.tokenizer import FILE, read_tokenizer
from partwise.interop.weights import listed, not_finite, opened, take
from partwise.messages import Notice
from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT
from partwise.text.tokenizers import Tokenizer

CONFIG = "config.json"


@dataclass(frozen=True)
class Imported:
    """A model that was made elsewhere.

    Args:
        folder: where it lies.
        form: the form that it is written in.
        model: its config as ours.
        weights: its tensors by our names, in the number format that they are stored in.
        tokenizer: its tokenizer.
        files: its small files, licence and model card among them, by name.
        notices: what the reader should know.
    """

    folder: Path
    form: Form
    model: ModelConfig
    weights: dict[str, Tensor]
    tokenizer: Tokenizer
    files: dict[str, bytes]
    notices: tuple[Notice, ...]


def is_folder(path: Path) -> bool:
    """Whether `path` is a folder with a `config.json`, as Hugging Face's tools write it."""
    return (path / CONFIG).is_file()


def read_folder(folder: Path | str, tokenizer: Path | str | None = None) -> Imported:
    """The model in a Hugging Face folder of a form that we know.

    Args:
        folder: holds `config.json`, the weights as safetensors, and `tokenizer.json`.
        tokenizer: another `tokenizer.json`, for a folder without one.

    Raises:
        InteropError: something in it is missing, left over, torn, or has no counterpart here; the
            line names it.
        TextError: the tokenizer is none.
        StorageError: a file cannot be read.
    """
    folder = Path(folder).expanduser()
    form, config = _described(folder)
    path = folder / FILE if tokenizer is None else Path(tokenizer).expanduser()
    read = read_tokenizer(path, config.vocab_size)
    files = files_of_origin(folder)
    weights = _weights(folder, form, config)
    broken = not_finite(weights)
    notices = read.notices
    if is_dynamic(read_object(folder / CONFIG)):
        notices += (
            Notice(
                "rope_type=dynamic stretches positions beyond {context:,} tokens only, further "
                "than the model reads here, and is left out",
                context=config.context_length,
            ),
        )
    if broken:
        notices += (
            Notice(
                "{names}: some of the numbers are no numbers (NaN, or infinite), and what the "
                "model writes may make no sense; get the folder again, if that is a surprise",
                names=listed(broken),
            ),
        )
    return Imported(
        folder=folder,
        form=form,
        model=config,
        weights=weights,
        tokenizer=read.tokenizer,
        files=files,
        notices=notices,
    )


def load_folder(folder: Path | str) -> GPT:
    """The model in a Hugging Face folder as a `GPT` in float32, ready to read; no tokenizer needed.

    Args:
        folder: holds `config.json` and the weights as safetensors.

    Raises:
        InteropError: something in it is missing, left over, torn, or has no counterpart here; the
            line names it.
        StorageError: a file cannot be read.
    """
    folder = Path(folder).expanduser()
    form, config = _described(folder)
    weights = _weights(folder, form, config)
    model = GPT(config)
    model.load_state_dict(weights)
    return model.eval()


def _described(folder: Path) -> tuple[Form, ModelConfig]:
    if not folder.is_dir():
        raise _no_folder(folder)
    if not is_folder(folder):
        raise InteropError(
            "{folder} is not a Hugging Face folder: it has no {file}{hint}",
            folder=folder,
            file=CONFIG,
            hint=_hint(folder),
        )
    fields = read_object(folder / CONFIG)
    form = form_of(fields)
    return form, _config(form, fields)


def _config(form: Form, fields: Fields) -> ModelConfig:
    try:
        return form.config(fields)
    except ConfigError as error:
        raise InteropError(
            "{path} describes a model that makes no sense: {reason}", path=fields.path, reason=error
        ) from error


def _weights(folder: Path, form: Form, config: ModelConfig) -> dict[str, Tensor]:
    with opened(folder) as stored:
        return take(stored, form, config, folder)


def _no_folder(path: Path) -> InteropError:
    if path.exists():
        return InteropError(
            "{path} is a file; give the folder that holds config.json and model.safetensors",
            path=path,
        )
    return InteropError(
        "there is no folder {path}; a model of the Hugging Face hub is fetched with: hf download "
        "{path} --local-dir FOLDER",
        path=path,
    )


def _hint(folder: Path) -> Notice | str:
    if (folder / "adapter_config.json").is_file():
        return Notice("; it holds an adapter alone: merge it into its base model first")
    if any(folder.glob("*.gguf")):
        return Notice("; GGUF is a format of llama.cpp: get the model's safetensors")
    return ""
