"""The model that a lesson looks into: lazy, so that a cell without it never waits for torch."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from partwise.course.tiny import TINY, checkpoint_folder, make_tiny, prose
from partwise.errors import PartwiseError
from partwise.model.config import ModelConfig
from partwise.text.corpora import shakespeare
from partwise.text.tokenizers import Tokenizer, load_tokenizer

if TYPE_CHECKING:
    from partwise.model.gpt import GPT

Array = npt.NDArray[Any]

# How much text a lesson finds (characters), and how much it needs.
LONG = 20_000
SHORT = 500


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
        return self._weights()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights())

    def __len__(self) -> int:
        return len(self._weights())

    def __repr__(self) -> str:
        return "\n".join(f"{name:40} {array.shape}" for name, array in self._weights().items())


def learned(name: str | Path) -> dict[str, Any]:
    """What a lesson calls `model`, `weights`, `tokenizer`, `config` and `text`.

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
    return {
        "model": model,
        "weights": LazyWeights(run, plain=tiny),
        "tokenizer": tokenizer,
        "config": config,
        "text": _text(spec, tokenizer, model, config),
    }


def _text(spec: str | None, tokenizer: Tokenizer, model: LazyModel, config: ModelConfig) -> str:
    """Some text that the model did not learn from, all of it in its vocabulary.

    The end of a run's text, which is what validation reads; where that is gone, Shakespeare or the
    lessons' prose; and where the tokenizer knows little of those, what the model itself writes.
    """
    for data in (_end_of(spec), _usual()):
        known = tokenizer.encode(data[-2 * LONG :], unknown="skip")
        found = tokenizer.decode(known)[-LONG:]
        # Begin at a line, not in the middle of one.
        found = found[found.find("\n") + 1 :].lstrip()
        if len(found) >= max(SHORT, 2 * config.context_length):
            return found
    from partwise.sampling.config import SampleConfig
    from partwise.sampling.generate import complete

    drawn = SampleConfig(chars=2 * SHORT, temperature=0.8, seed=1)
    return complete(model._model(), tokenizer, "", drawn)[0]


def _end_of(spec: str | None) -> str:
    if spec is None or not Path(spec).is_file():
        return ""
    try:
        with Path(spec).open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 8 * LONG))
            return file.read().decode("utf-8", "ignore").replace("\r\n", "\n")
    except OSError:
        return ""


def _usual() -> str:
    try:
        return shakespeare().decode("utf-8")
    except PartwiseError:
        return prose()
