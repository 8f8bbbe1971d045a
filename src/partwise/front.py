"""The front door in Python: `train` a text, `load` a run, `sample` from it."""

import dataclasses
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, TypeAlias

from partwise.budget.choices import DEFAULT, choose, start
from partwise.budget.dial import Wanted, turn
from partwise.budget.finetuning import choose_further, start_from
from partwise.errors import ConfigError
from partwise.messages import Notice
from partwise.model.config import ModelConfig
from partwise.model.lora_config import LoraConfig
from partwise.run import Run, Sampled, begin_with, find
from partwise.run.places import require_place
from partwise.sampling.config import SampleConfig
from partwise.sampling.generate import complete
from partwise.settings import build, wrong_type
from partwise.storage import cache_folder
from partwise.text.config import DataConfig
from partwise.text.prepare import prepare
from partwise.training.config import TrainConfig
from partwise.training.events import Event, Said

Listen: TypeAlias = Callable[[Event | Sampled], object]


def train(
    text: str | Path,
    *,
    model: ModelConfig | str | None = None,
    train: TrainConfig | None = None,
    data: DataConfig | None = None,
    begin: Run | str | Path | None = None,
    lora: LoraConfig | None = None,
    minutes: float | None = None,
    name: str | None = None,
    root: str | Path = "runs",
    offline: bool = False,
    listen: Listen = lambda event: None,
) -> Run:
    """Train a GPT on a text, as `partwise train` does, and return its finished run.

    Args:
        text: a file, a folder, a glob, or the name of a corpus.
        model: the model, or the name of a preset; None: a small one that fits the text.
        train: the training; None: what suits the model.
        data: tokenizer and split; None: characters, and the last tenth to validate on.
        begin: start with the weights and the tokenizer of this run or Hugging Face folder.
        lora: train additions of low rank in place of the weights of `begin`.
        minutes: how long it may take; with nothing else said of model and training, this chooses
            both, and counts from the call to its end.
        name: the run's name; None makes one from the text's and the date.
        root: the folder of runs.
        offline: never download a corpus.
        listen: is called with each event.

    Raises:
        PartwiseError: something in it makes no sense; nothing is written then.
    """
    _hold("text", text, str, Path)
    _hold("model", model, ModelConfig, str, None)
    _hold("train", train, TrainConfig, None)
    _hold("data", data, DataConfig, None)
    _hold("begin", begin, Run, str, Path, None)
    _hold("lora", lora, LoraConfig, None)
    _hold("minutes", minutes, float, int, None)
    _hold("name", name, str, None)
    _hold("root", root, str, Path)
    began = perf_counter()
    if train is not None and minutes is not None:
        raise ConfigError(
            "minutes={minutes} and train= both say how long; write it into the TrainConfig",
            minutes=minutes,
        )
    preset = model if isinstance(model, str) else None
    data, lora = data or DataConfig(), lora or LoraConfig()
    require_place(name, root)
    earlier = None
    if isinstance(begin, Run):
        earlier = begin.beginning()
    elif begin is not None:
        earlier = begin_with(begin, root)
    if earlier is None:
        usual = start(preset, None)
    elif preset is not None:
        raise ConfigError(
            "model={preset!r} and begin={run} both choose the model; give one of them",
            preset=preset,
            run=earlier.name,
        )
    else:
        usual = start_from(earlier.model, earlier.train, lora)
    prepared = prepare(
        str(text),
        data,
        cache=cache_folder(),
        tokenizer=None if earlier is None else earlier.tokenizer,
        offline=offline,
    )
    size = preset or DEFAULT
    dialled: tuple[Notice, ...] = ()
    said: set[str] = set() if minutes is None else {"minutes"}
    if minutes is not None:
        usual = replace(usual, train=replace(usual.train, minutes=minutes))
        turned = None
        if model is None and earlier is None:
            turned = turn(prepared, minutes, Wanted({}, {"minutes": minutes}), began=began)
        if turned is not None:
            size, usual, dialled = turned.name, turned.begin, turned.notices
    known: dict[str, Any] = {
        "model": model if isinstance(model, ModelConfig) else usual.model,
        "train": train or usual.train,
        "name": size,
        "said_of_model": _fields(model) if isinstance(model, ModelConfig) else set(),
        "said_of_training": said if train is None else _fields(train),
        "train_tokens": len(prepared.train),
        "validation_tokens": len(prepared.validation),
    }
    if earlier is None:
        chosen = choose(usual, vocab_size=prepared.tokenizer.vocab_size, **known)
    else:
        known |= {"name": earlier.name, "earlier": earlier.model, "lora": lora}
        chosen = choose_further(usual, elsewhere=earlier.train is None, **known)
    run = Run.create(
        root,
        name,
        str(text),
        chosen.model,
        chosen.train,
        data,
        lora=lora,
        offline=offline,
        begin=earlier,
        prepared=prepared,
    )
    if not isinstance(model, ModelConfig):
        for notice in (*dialled, *chosen.notices):
            listen(Said(notice))
    for event in run.train():
        listen(event)
    return run


def load(path: str | Path) -> Run:
    """The run in the folder `path`, or of that name in `runs`.

    Raises:
        RunError: there is none, it is damaged, or a newer Partwise wrote it.
    """
    _hold("path", path, str, Path)
    return Run.open(find(path))


def sample(run: Run | str | Path, prompt: str = "", **settings: object) -> str:
    """Text that a run's best model writes after `prompt`.

    Args:
        run: a run, its folder, or its name in `runs`.
        prompt: what the text starts with; it is not repeated.
        **settings: fields of `SampleConfig`, such as `temperature=0.5` or `chars=1000`.

    Raises:
        ConfigError: a setting is unknown or makes no sense.
        PartwiseError: the run has no checkpoint, or the prompt has unknown characters.
    """
    _hold("run", run, Run, str, Path)
    _hold("prompt", prompt, str)
    config = build(SampleConfig, settings)
    if config.count != 1:
        raise ConfigError(
            "sample() gives one text and count={count} was asked for; call it with different seeds",
            count=config.count,
        )
    opened = run if isinstance(run, Run) else load(run)
    return complete(opened.model(), opened.tokenizer(), prompt, config)[0]


def _fields(config: object) -> set[str]:
    return set(dataclasses.asdict(config))  # type: ignore[call-overload]


def _hold(name: str, value: object, *kinds: type | None) -> None:
    """Hold an argument to its types, so that a wrong one is neither ignored nor found out late.

    Raises:
        ConfigError: it has another.
    """
    if any(value is None if kind is None else isinstance(value, kind) for kind in kinds):
        return
    wanted = ", ".join("None" if kind is None else kind.__name__ for kind in kinds)
    raise wrong_type(name, value, wanted)
