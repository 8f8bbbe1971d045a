"""The tensors of a Hugging Face folder: in one safetensors file or several, read when needed."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from partwise.errors import InteropError
from partwise.interop.fields import read_object
from partwise.interop.form import Form
from partwise.interop.rules import Shape, shapes_of
from partwise.machine import memory_bytes
from partwise.model.config import ModelConfig
from partwise.model.parameters import count_parameters
from partwise.storage import refuse_pickle
from partwise.storage.faults import reading

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"

_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "F64": torch.float64}
BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
_SHOWN = 4
# As many letters of a name as a message shows, and more than any file of a model has.
LONGEST_NAME = 120
# So many times more parameters are described than are there that it is another model altogether.
FAR_MORE = 8


@dataclass(frozen=True)
class Stored:
    """One tensor in a file.

    Args:
        name: as the file names it.
        file: the open file.
        shape: its shape.
        dtype: its number format, as safetensors names it.
    """

    name: str
    file: Any
    shape: Shape
    dtype: str


@contextmanager
def opened(folder: Path) -> Iterator[dict[str, Stored]]:
    """The tensors of `folder` by name, inside the `with`.

    Raises:
        InteropError: there are none in a form that is safe to open, a part is missing or torn, or
            the index names what is not there.
    """
    with ExitStack() as stack:
        yield _opened(folder, stack)


def _opened(folder: Path, stack: ExitStack) -> dict[str, Stored]:
    single, index = folder / SINGLE, folder / INDEX
    if single.is_file():
        return _tensors(single, stack)
    if not index.is_file():
        raise _without(folder)
    table = read_object(index).table("weight_map")
    if table is None or not all(isinstance(file, str) for file in table.values.values()):
        raise InteropError("{path} has no weight_map; get the folder again", path=index)
    found: dict[str, Stored] = {}
    for file in sorted(set(table.values.values())):
        # A name could lead out of the folder, or be none at all.
        plain = file == Path(file).name and file.isprintable() and len(file) <= LONGEST_NAME
        if not plain or "\\" in file or file in ("", ".", ".."):
            raise InteropError(
                "{path} names the file {file!r}, which is not in its own folder; get the folder "
                "again",
                path=index,
                file=file[:LONGEST_NAME],
            )
        if not (folder / file).is_file():
            raise InteropError(
                "{folder} lacks {file}, which {index} names; get that file too",
                folder=folder,
                file=file,
                index=INDEX,
            )
        part = _tensors(folder / file, stack)
        twice = sorted(found.keys() & part.keys())
        if twice:
            raise InteropError(
                "{folder} has {names} in two of its files; get the files of one version",
                folder=folder,
                names=listed(twice),
            )
        found.update(part)
    absent = sorted(set(table.values) - set(found))
    if absent:
        raise InteropError(
            "{folder} lacks {names}, which {index} names; get the files of the same version",
            folder=folder,
            names=listed(absent),
            index=INDEX,
        )
    return found


def _tensors(path: Path, stack: ExitStack) -> dict[str, Stored]:
    refuse_pickle(path)
    with reading(path):
        try:
            file = stack.enter_context(safe_open(path, framework="pt"))
            found = {}
            for name in file.keys():  # noqa: SIM118  (the library's object is no mapping)
                part = file.get_slice(name)
                found[name] = Stored(name, file, tuple(part.get_shape()), part.get_dtype())
        except SafetensorError as error:
            raise InteropError(
                "{path} is torn or not safetensors ({reason}); get it again",
                path=path,
                reason=error,
            ) from error
    return found


def _without(folder: Path) -> InteropError:
    """The error for a folder without safetensors."""
    pickles = sorted(path.name for pattern in _PICKLES for path in folder.glob(pattern))
    if pickles:
        return InteropError(
            "{folder} keeps its weights in {file}, a pickle, and opening one runs whatever program "
            "is hidden in it; where you trust it, convert it with transformers: "
            'AutoModelForCausalLM.from_pretrained("{folder}").save_pretrained("{folder}-safe")',
            folder=folder,
            file=pickles[0],
        )
    return InteropError(
        "{folder} has no weights: {single}, or {index} with its parts, is missing; get the whole "
        "folder",
        folder=folder,
        single=SINGLE,
        index=INDEX,
    )


def take(
    stored: Mapping[str, Stored], form: Form, config: ModelConfig, folder: Path
) -> dict[str, Tensor]:
    """Our tensors from theirs, each in the number format that it is stored in.

    Args:
        stored: the tensors of `folder`.
        form: how they are named.
        config: the model that they are of.
        folder: for messages.

    Raises:
        InteropError: one is missing, left over, or of the wrong shape or number format.
    """
    _require_sense(stored, config, folder)
    rules = form.rules(config)
    ours = shapes_of(config)
    wanted = {name: shape for rule in rules for name, shape in rule.shapes(ours[rule.ours]).items()}
    found = _plain(stored, form, folder)
    if config.tie_embeddings:
        _check_tied(found, next(iter(rules)).theirs[0], folder)
    missing = sorted(wanted.keys() - found.keys(), key=_natural)
    if missing:
        raise InteropError(
            "{folder} lacks {names}, which its config.json asks for; get the whole folder of one "
            "model",
            folder=folder,
            names=listed(missing),
        )
    over = sorted(found.keys() - wanted.keys(), key=_natural)
    if over:
        raise InteropError(
            "{folder} has {names} left over, for which a {form} model of its config.json has no "
            "place; get the config.json that belongs to the weights",
            folder=folder,
            names=listed(over),
            form=form.model_type,
        )
    for name, shape in wanted.items():
        if found[name].shape != shape:
            raise InteropError(
                "{folder}: {name} is {found} where config.json asks for {wanted}; get the "
                "config.json that belongs to the weights",
                folder=folder,
                name=name,
                found=_by(found[name].shape),
                wanted=_by(shape),
            )
        if found[name].dtype not in _DTYPES:
            raise InteropError(
                "{folder}: {name} is kept as {dtype}, a compressed format; get the same model in "
                "float32, float16 or bfloat16",
                folder=folder,
                name=name,
                dtype=found[name].dtype,
            )
    return {rule.ours: rule.take(_reader(found)) for rule in rules}


def _require_sense(stored: Mapping[str, Stored], config: ModelConfig, folder: Path) -> None:
    """Check that a model of about that size is there, and fits, before anything is made for it."""
    described = count_parameters(config)
    found = sum(math.prod(tensor.shape) for tensor in stored.values())
    if described > FAR_MORE * max(found, 1_000_000):
        raise InteropError(
            "{folder}: config.json describes {described:,} parameters and the weights are "
            "{found:,}; get the config.json that belongs to the weights",
            folder=folder,
            described=described,
            found=found,
        )
    weights = sum(math.prod(t.shape) * BYTES.get(t.dtype, 4) for t in stored.values())
    # Cosines and sines, computed in float64.
    angles = 2 * 8 * config.context_length * config.head_size if config.position == "rotary" else 0
    memory = memory_bytes()
    if memory is not None and weights + angles > memory:
        raise InteropError(
            "{folder} needs {weights} GB of memory for its weights and {angles} GB for the angles "
            "of {positions:,} positions, and this machine has {memory} GB; read it where there is "
            "more",
            folder=folder,
            weights=f"{weights / 1e9:,.1f}",
            angles=f"{angles / 1e9:,.1f}",
            positions=config.context_length,
            memory=f"{memory / 1e9:,.1f}",
        )


def _plain(stored: Mapping[str, Stored], form: Form, folder: Path) -> dict[str, Stored]:
    """The tensors by their names without the form's prefix, less those that are computed."""
    found: dict[str, Stored] = {}
    for name, tensor in stored.items():
        plain = name.removeprefix(form.prefix)
        if form.computed.fullmatch(plain):
            continue
        if plain in found:
            raise InteropError(
                "{folder} has both {one} and {other}; get the folder again",
                folder=folder,
                one=shown(found[plain].name),
                other=shown(name),
            )
        found[plain] = tensor
    return found


def _check_tied(found: dict[str, Stored], embedding: str, folder: Path) -> None:
    """Take away an output layer that is the embedding once more; refuse one that is not."""
    head = found.get("lm_head.weight")
    if head is None or embedding not in found:
        return
    read = _reader(found)
    if head.shape != found[embedding].shape or not torch.equal(
        read("lm_head.weight"), read(embedding)
    ):
        raise InteropError(
            "{folder}: lm_head.weight is not {embedding}, though config.json says "
            "tie_word_embeddings=true; say false there if the model has an output layer of its own",
            folder=folder,
            embedding=embedding,
        )
    del found["lm_head.weight"]


def _reader(found: Mapping[str, Stored]) -> Callable[[str], Tensor]:
    def read(name: str) -> Tensor:
        tensor: Tensor = found[name].file.get_tensor(found[name].name)
        return tensor

    return read


def not_finite(weights: Mapping[str, Tensor]) -> list[str]:
    """Names of tensors that hold a NaN or an infinity."""
    return [name for name, tensor in weights.items() if not bool(torch.isfinite(tensor).all())]


def listed(names: Iterable[str]) -> str:
    """A few names, and how many there are."""
    known = list(names)
    more = f", … ({len(known)})" if len(known) > _SHOWN else ""
    return ", ".join(map(shown, known[:_SHOWN])) + more


def shown(name: str) -> str:
    """A name from somebody else's file, in one line and no longer than one."""
    plain = name if name.isprintable() else repr(name)[1:-1]
    return plain if len(plain) <= LONGEST_NAME else f"{plain[:LONGEST_NAME]}…"


def _by(shape: Shape) -> str:
    return "×".join(map(str, shape)) or "1"


def _natural(name: str) -> list[tuple[int, str]]:
    """Layer 2 comes before layer 10."""
    # A number with fewer digits is smaller; it need not be read to know that.
    parts = re.split(r"([0-9]+)", name)
    return [(len(part) * (place % 2), part) for place, part in enumerate(parts)]
