"""The model that a lesson looks into: lazy, so that a cell without it never waits for torch."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from partwise.course.tiny import TINY, checkpoint_folder, make_tiny, prose
from partwise.errors import NoWeightError, PartwiseError
from partwise.model.config import ModelConfig
from partwise.text.corpora import shakespeare
from partwise.text.tokenizers import Tokenizer, load_tokenizer

if TYPE_CHECKING:
    from partwise.model.gpt import GPT

Array = npt.NDArray[Any]

# How much text a lesson finds (characters), and how much it needs.
LONG = 20_000
SHORT = 500

# Windows that `val_loss` reads, and tokens in each at most.
WINDOWS = 16
WINDOW = 128


class LazyModel:
    """Stands for a GPT that is loaded when it is first used."""

    def __init__(self, run: Path) -> None:
        object.__setattr__(self, "_run", run)
        object.__setattr__(self, "_found", None)

    def _model(self) -> "GPT":
        if self._found is None:
            from partwise.run import Run

            object.__setattr__(self, "_found", Run.open(self._run).model())
        model: GPT = self._found
        return model

    def __getattr__(self, name: str) -> Any:
        # What notebooks ask of every object, to draw it, loads nothing.
        if name.startswith(("_repr_", "_ipython_")):
            raise AttributeError(name)
        return getattr(self._model(), name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._model(), name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._model()(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> "GPT":
        import copy

        return copy.deepcopy(self._model(), memo)

    def __repr__(self) -> str:
        return repr(self._model())


class LazyWeights(Mapping[str, Array]):
    """A run's best weights as NumPy arrays, by name; read when they are first asked for."""

    def __init__(self, run: Path, plain: bool) -> None:
        self._run = run
        self._plain = plain
        self._found: dict[str, Array] | None = None

    def _weights(self) -> dict[str, Array]:
        if self._found is None and self._plain:
            from safetensors.numpy import load_file

            path = checkpoint_folder(self._run) / "model.safetensors"
            self._found = dict(sorted(load_file(path).items()))
        elif self._found is None:
            from partwise.run import Run

            tensors = Run.open(self._run).weights()
            self._found = {name: tensors[name].float().numpy() for name in sorted(tensors)}
        return self._found or {}

    def __getitem__(self, name: str) -> Array:
        found = self._weights()
        if name not in found:
            raise NoWeightError(
                "the chosen model has no weight {name}: it was built without that part; choose "
                "another model at the top of the lesson, such as the tiny one",
                name=name,
            )
        return found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights())

    def __len__(self) -> int:
        return len(self._weights())

    def __repr__(self) -> str:
        return "\n".join(f"{name:40} {array.shape}" for name, array in self._weights().items())


def learned(name: str | Path) -> dict[str, Any]:
    """What a lesson finds of the chosen model, by name; see `prelude.use_model`.

    Args:
        name: "tiny", "run:NAME" or a run folder.

    Raises:
        PartwiseError: there is no such run, or it has no checkpoint.
    """
    tiny, spec = name == "tiny", None
    if tiny:
        run = make_tiny()
        tokenizer: Tokenizer = load_tokenizer(run / "tokenizer.json")
        config = replace(TINY, vocab_size=tokenizer.vocab_size)
    else:
        from partwise.run import Run, find

        run = find(str(name).removeprefix("run:"))
        opened = Run.open(run)
        config, spec, tokenizer = opened.record.model, opened.record.text.spec, opened.tokenizer()
    model = LazyModel(run)
    train_text, text = _texts(spec, tokenizer, model, config)

    def encode(text: str) -> npt.NDArray[np.int64]:
        """The ids of a text, (T,); what the vocabulary lacks is left out."""
        return tokenizer.encode(text, unknown="skip")

    def decode(ids: npt.ArrayLike) -> str:
        """The text of some ids."""
        return tokenizer.decode(np.asarray(ids).ravel().tolist())

    val_ids = encode(text)

    def val_loss(changed: Any = None, ids: npt.ArrayLike | None = None) -> float:
        """The mean loss (nats a token) of the chosen model, or of another, on some of `text`."""
        return loss_on(model if changed is None else changed, val_ids if ids is None else ids)

    return {
        "model": model,
        "weights": LazyWeights(run, plain=tiny),
        "tokenizer": tokenizer,
        "config": config,
        "encode": encode,
        "decode": decode,
        "text": text,
        "train_ids": encode(train_text),
        "val_ids": val_ids,
        "val_loss": val_loss,
    }


def windows(ids: npt.ArrayLike, length: int, count: int = WINDOWS) -> npt.NDArray[np.int64]:
    """`count` rows of `length` + 1 tokens from a text, side by side without overlap, or fewer."""
    row = np.asarray(ids, np.int64).ravel()
    length = min(length, len(row) - 1)
    count = max(1, min(count, len(row) // (length + 1)))
    return row[: count * (length + 1)].reshape(count, length + 1)


def loss_on(model: Any, ids: npt.ArrayLike) -> float:
    """The mean loss of a model's predictions in a text (nats a token), over a few windows of it."""
    import torch
    from torch.nn import functional as F

    from partwise.model.trace import evaluating

    real = real_model(model)
    rows = torch.from_numpy(windows(ids, min(real.config.context_length, WINDOW)))
    with evaluating(real), torch.no_grad():
        logits = real(rows[:, :-1])  # (B, T, vocab_size)
    return float(F.cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].flatten()))


def observe(model: Any, ids: npt.ArrayLike) -> dict[str, npt.NDArray[np.float64]]:
    """Every value of one forward pass by its name (see `pw.trace`), as NumPy arrays.

    Args:
        model: a GPT.
        ids: the ids of one text, (T,), or of several, (B, T).

    Returns:
        Name -> array; for one text without the axis of texts.
    """
    import torch

    from partwise.model.trace import trace

    whole = np.asarray(ids, np.int64)
    found = trace(real_model(model), torch.from_numpy(np.atleast_2d(whole)))
    return {
        name: (value[0] if whole.ndim == 1 else value).double().numpy()
        for name, value in found.items()
    }


def real_model(model: Any) -> Any:
    """The GPT itself."""
    return model._model() if isinstance(model, LazyModel) else model


def _texts(
    spec: str | None, tokenizer: Tokenizer, model: LazyModel, config: ModelConfig
) -> tuple[str, str]:
    """Some text that the model learned from, and some that it did not, all in its vocabulary.

    From the beginning and from the last tenth of a run's text; where that is gone, of Shakespeare
    or of the lessons' prose; and where the tokenizer knows little of those, what the model itself
    writes.
    """
    for ends in (_ends_of(spec), _usual_ends()):
        train, text = (
            tokenizer.decode(tokenizer.encode(end, unknown="skip"))[:LONG] for end in ends
        )
        if len(text) >= max(SHORT, 2 * config.context_length):
            return train, text
    from partwise.sampling.config import SampleConfig
    from partwise.sampling.generate import complete

    first, second = (
        complete(model._model(), tokenizer, "", SampleConfig(chars=2 * SHORT, seed=seed))[0]
        for seed in (1, 2)
    )
    return first, second


def _ends_of(spec: str | None) -> tuple[str, str]:
    if spec is None or not Path(spec).is_file():
        return "", ""
    found = []
    try:
        with Path(spec).open("rb") as file:
            size = file.seek(0, 2)
            for place in (0, size * 9 // 10):
                file.seek(place)
                found.append(_from_line(file.read(4 * LONG).decode("utf-8", "ignore")))
    except OSError:
        return "", ""
    return found[0], found[1]


def _usual_ends() -> tuple[str, str]:
    try:
        whole = shakespeare().decode("utf-8")
    except PartwiseError:
        whole = prose()
    return whole[: 2 * LONG], _from_line(whole[len(whole) * 9 // 10 :][: 2 * LONG])


def _from_line(text: str) -> str:
    """Begin at a line, not in the middle of one."""
    return text[text.find("\n") + 1 :].replace("\r\n", "\n").lstrip()
