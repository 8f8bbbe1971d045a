"""What a page may have done as a process of its own: the command line of each kind of job.

A page names settings, never files: texts and runs go by their ids. Every setting is held to its
type here, so that what makes no sense is refused at once and not by a process that ends.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from partwise.errors import UsageError
from partwise.ladder.config import LadderConfig
from partwise.model.config import ModelConfig
from partwise.model.lora_config import LoraConfig
from partwise.settings import build, plain
from partwise.storage import cleaned, safe_name
from partwise.studio.answers import field
from partwise.studio.models import Models
from partwise.studio.state import State
from partwise.studio.texts import spec_of
from partwise.text.config import DataConfig
from partwise.text.tasks import TASKS
from partwise.training.config import TrainConfig

COMMAND = """
from partwise.cli import main
from partwise.messages import use_words
from partwise.studio.wording import PAGES
with use_words(PAGES):
    sys.exit(main(sys.argv[1:]))
"""
TINY = "from partwise.course.tiny import make_tiny; make_tiny()"

SECTIONS: dict[str, type[Any]] = {
    "model": ModelConfig,
    "train": TrainConfig,
    "data": DataConfig,
    "lora": LoraConfig,
}

# A page's settings of a ladder; where it is kept is the studio's.
LADDER = (
    "to",
    "only",
    "seeds",
    "without",
    "swap",
    "each",
    "steps",
    "knock_out",
    "depth",
    "again",
    "workers",
    "device",
    "dtype",
)

# What data a page may choose; the others name files.
DATA = ("tokenizer", "validation_fraction", "bpe_vocab_size", "unknown")


# Steps of a translator that a page trains, if it does not say how many.
TRANSLATOR_STEPS = 1500


@dataclass(frozen=True)
class Order:
    """One process to start.

    Args:
        kind: "train", "ladder", "translate" or "tiny".
        name: of the run or ladder that it writes.
        folder: where it writes it.
        program: what Python runs.
        words: its arguments.
        minutes: how long it was told to train, if it was.
    """

    kind: str
    name: str
    folder: Path
    program: str
    words: tuple[str, ...]
    minutes: float | None = None


def order(state: State, sent: Mapping[str, Any], language: str) -> Order:
    """The process that a page asks for.

    Raises:
        UsageError: there is no such kind, text or run.
        ConfigError: its settings make no sense.
    """
    kind = field(sent, "kind", str)
    if kind == "train":
        return _resume(state, sent, language) if "resume" in sent else _train(state, sent, language)
    if kind == "ladder":
        return ladder(state, sent, language)
    if kind == "translate":
        return _translate(state, sent, language)
    raise UsageError("there is no job {name!r}", name=kind)


def _train(state: State, sent: Mapping[str, Any], language: str) -> Order:
    settings = field(sent, "settings", dict, {})
    for section, values in settings.items():
        if section not in SECTIONS or not isinstance(values, dict):
            raise UsageError("there is no section of settings {name!r}", name=section)
        if section == "data":
            for name in values:
                if name not in DATA:
                    raise UsageError("there is no setting {name!r} of the text here", name=name)
    train = dict(settings.get("train", {}))
    for name in ("minutes", "steps"):
        if sent.get(name) is not None:
            train[name] = sent[name]
    settings = {**settings, "train": train}
    for section, values in settings.items():
        build(SECTIONS[section], values)
    text = field(sent, "text", str)
    spec = spec_of(state.data / "texts", text)
    name = field(sent, "name", str, None)
    stem = cleaned(text.partition(":")[2] or text)
    name = _free(state.root, stem) if name is None else safe_name(name)
    if (state.root / name).exists():
        raise UsageError("there is a run {name} already; choose another name", name=name)
    words = ["train", spec, "--runs-dir", str(state.root.absolute()), "--name", name]
    earlier, preset = field(sent, "from", str, None), field(sent, "preset", str, None)
    if earlier is not None:
        words += ["--from", str(Models(state).folder(earlier))]
    if preset is not None:
        words.append(f"--preset={preset}")
    words += _flags(settings)
    minutes = train.get("minutes")
    return Order(
        "train",
        name,
        state.root / name,
        COMMAND,
        _words(words, language),
        None if minutes is None else float(minutes),
    )


def _resume(state: State, sent: Mapping[str, Any], language: str) -> Order:
    id = field(sent, "resume", str)
    if id == "tiny":
        raise UsageError("the tiny model stays as the lessons know it; train one of your own")
    path = Models(state).folder(id)
    settings = {"train": dict(field(field(sent, "settings", dict, {}), "train", dict, {}))}
    for name in ("minutes", "steps"):
        if sent.get(name) is not None:
            settings["train"][name] = sent[name]
    build(TrainConfig, settings["train"])
    words = ["resume", str(path), *_flags(settings)]
    minutes = settings["train"].get("minutes")
    return Order(
        "train",
        path.name,
        path,
        COMMAND,
        _words(words, language),
        None if minutes is None else float(minutes),
    )


def _translate(state: State, sent: Mapping[str, Any], language: str) -> Order:
    """A translator of one of the tasks whose answers are known."""
    task, steps = field(sent, "task", str), field(sent, "steps", int, TRANSLATOR_STEPS)
    if task not in TASKS:
        raise UsageError(
            "there is no task {name!r}; there are {known}", name=task, known=", ".join(TASKS)
        )
    build(TrainConfig, {"steps": steps})
    name = _free(state.root, task)
    words = ["translate", task, "--runs-dir", str(state.root.absolute()), "--name", name]
    words += [f"--steps={steps}", "--quiet", "--lang", language]
    return Order("translate", name, state.root / name, COMMAND, tuple(words))


def ladder_of(state: State, sent: Mapping[str, Any]) -> tuple[LadderConfig, str]:
    """The ladder that a page asks for, and the text that it climbs on (see `open_source`).

    Raises:
        ConfigError: its settings make no sense.
        UsageError: there is no such text.
    """
    values = {name: sent[name] for name in LADDER if sent.get(name) is not None}
    config = build(LadderConfig, values)
    return config, spec_of(state.data / "texts", field(sent, "text", str, "shakespeare"))


def ladder(state: State, sent: Mapping[str, Any], language: str) -> Order:
    """The process of a ladder; see `ladder_of`."""
    config, spec = ladder_of(state, sent)
    values = [name for name in LADDER if sent.get(name) is not None]
    text = field(sent, "text", str, "shakespeare")
    usual = cleaned(text.partition(":")[2] or text)
    if config.steps is not None:
        usual += f"-steps-{config.steps}"
    name = safe_name(field(sent, "name", str, usual))
    words = ["ladder", "--text", spec, "--ladders-dir", str(state.ladders.absolute())]
    words.append(f"--name={name}")
    for key in values:
        value = getattr(config, key)
        if value is True:
            words.append(f"--{key.replace('_', '-')}")
        elif isinstance(value, tuple):
            words += [f"--{key}={one}" for one in value]
        elif value is not None and value is not False:
            words.append(f"--{key}={value}")
    return Order("ladder", name, state.ladders / name, COMMAND, _words(words, language))


def tiny(folder: Path) -> Order:
    """The tiny model, trained on the spot."""
    return Order("tiny", "tiny", folder, TINY, ())


def _words(words: list[str], language: str) -> tuple[str, ...]:
    return (*words, "--offline", "--quiet", "--lang", language)


def _flags(settings: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """`--train.lr=0.001` for each setting that was named."""
    found = []
    for section, values in settings.items():
        written = plain(build(SECTIONS[section], values))
        for name in values:
            value = written[name]
            word = str(value).lower() if isinstance(value, bool) else value
            word = ",".join(map(str, word)) if isinstance(word, list) else word
            found.append(f"--{section}.{name.replace('_', '-')}={word}")
    return found


def _free(root: Path, stem: str) -> str:
    """A name that no run has yet."""
    name, number = stem, 2
    while (root / name).exists():
        name, number = f"{stem}-{number}", number + 1
    return safe_name(name)
