"""What a climb will do, settled before anything is trained: its models, its text, its folder."""

import dataclasses
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from partwise.errors import RunError, TextError
from partwise.ladder.config import LadderConfig
from partwise.ladder.jobs import Job, job
from partwise.ladder.rungs import PUBLISHED_CORPUS, Rung, rung
from partwise.ladder.variants import FAITHFUL, choose, variants
from partwise.machine import pick_device
from partwise.messages import Notice
from partwise.model.parameters import count_parameters
from partwise.settings import plain
from partwise.storage import cache_folder
from partwise.text.corpora import SHA256
from partwise.text.prepare import Prepared
from partwise.text.sources import Source, open_source
from partwise.training.config import MACHINE_FIELDS, RECORD_FIELDS

OFFLINE_CORPUS = "shakespeare"

# Steps from which a small rung is worth compiling: the compiler takes as long as about 5,000 steps
# the first time, and later no longer than reading what it kept.
COMPILED_FROM = 1000

# Models of fewer parameters fit into the memory of any machine that Python runs on.
MANY_PARAMETERS = 10**8


def plan(config: LadderConfig) -> tuple[tuple[Job, ...], tuple[Notice, ...]]:
    """The jobs of a climb in the order of its table, and what was left out and why.

    Raises:
        ConfigError: a rung, part, field or value that makes no sense.
    """
    chosen = [_rung(number, config.steps) for number in config.rungs]
    choice = choose(chosen, variants(config.without, config.swap, config.each))
    shared: dict[str, Any] = {} if config.steps is None else {"steps": config.steps}
    pairs = []
    for here in chosen:
        pairs.append((here, FAITHFUL))
        pairs += [(there, variant) for there, variant in choice.pairs if there == here]
    jobs = []
    for here, variant in pairs:
        for seed in range(1, config.seeds + 1):
            made = job(here, variant, seed, **shared)
            if made.wide:
                train = dataclasses.replace(made.train, threads=None)
                # "auto" leaves what the rung, or a swap, says.
                if config.device != "auto":
                    train = dataclasses.replace(train, device=config.device)
                if config.dtype != "auto":
                    train = dataclasses.replace(train, dtype=config.dtype)
                made = dataclasses.replace(made, train=train)
            jobs.append(made)
    return tuple(jobs), choice.notices


def _rung(number: int, steps: int | None) -> Rung:
    """Rung `number`; a short training of it is not compiled."""
    here = rung(number)
    if steps is None or steps >= COMPILED_FROM or here.train.compile != "on":
        return here
    return dataclasses.replace(here, train=dataclasses.replace(here.train, compile="off"))


def find_text(text: str | None, offline: bool, say: Callable[[Notice], None]) -> Source:
    """The text to climb on.

    Args:
        text: what was asked for; None: tiny Shakespeare, else Shakespeare, which is then said.
        offline: never download a corpus.
        say: is told what was chosen.
    """
    if text is not None:
        return open_source(text, offline=offline, cache=cache_folder(), announce=say)
    try:
        return open_source(
            f"corpus:{PUBLISHED_CORPUS}", offline=offline, cache=cache_folder(), announce=say
        )
    except TextError as error:
        source = open_source(f"corpus:{OFFLINE_CORPUS}", offline=True, cache=cache_folder())
        say(
            Notice(
                "on shakespeare instead, without published values, for tiny Shakespeare cannot be "
                "had: {reason}",
                reason=error,
            )
        )
        return source


def require_apart(folder: Path, source: Source) -> None:
    """Refuse a ladder inside the folder that it learns: what it writes would become the text.

    Args:
        folder: the ladder's folder, which need not exist.
        source: the text.

    Raises:
        RunError: it stands there.
    """
    text = Path(source.spec)
    if text.is_dir() and folder.resolve().is_relative_to(text.resolve()):
        raise RunError(
            "{folder} lies in the text {text}, and what is written there would become part of it; "
            "give another --ladders-dir",
            folder=folder,
            text=text,
        )


def corpus_of(prepared: Prepared) -> str:
    """What a text is called in the table: its name, or that of the corpus whose bytes it has.

    Published values hang on that name, so another text that is called like the corpus they belong
    to goes by its file's name.
    """
    if prepared.text_fingerprint == SHA256:
        return PUBLISHED_CORPUS
    if prepared.name != PUBLISHED_CORPUS:
        return prepared.name
    name = Path(prepared.spec).name
    return name if name != PUBLISHED_CORPUS else prepared.spec


def require_fitting(jobs: Sequence[Job], prepared: Prepared) -> None:
    """Refuse what could not be trained, before anything is.

    Args:
        jobs: what is to be trained.
        prepared: the text.

    Raises:
        TextError: it is too short for one of them.
        RunError: the weights of one do not fit into this machine's memory.
        ConfigError: there is no such device.
    """
    for device in {one.train.device for one in jobs} - {"auto", "cpu"}:
        pick_device(device)
    for one in jobs:
        try:
            prepared.require_tokens(one.model.context_length)
        except TextError as error:
            raise TextError(
                "the text is too short for {which}: {reason}", which=one.label, reason=error
            ) from error
        model = dataclasses.replace(one.model, vocab_size=prepared.tokenizer.vocab_size)
        if count_parameters(model) > MANY_PARAMETERS:
            # It comes with torch, which a ladder that only starts workers does without.
            from partwise.run.places import require_memory

            require_memory(model)


def require_same(run: Path, wanted: Job | None, steps: int, prepared: Prepared) -> None:
    """Refuse a run folder that holds another model, training or text than the ladder wants.

    Args:
        run: its folder, which need not exist.
        wanted: the model and its training; where and how fast it is computed does not matter. None:
            the ladder does not ask for it this time, yet its figures stand in the same table.
        steps: of every model of the ladder.
        prepared: the text.

    Raises:
        RunError: it differs; the line names the first field that does.
    """
    path = run / "run.toml"
    if not path.is_file():
        return
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        # Whoever opens the run says what is wrong with it.
        return
    pairs: list[tuple[str, object, object]] = []
    text = tables.get("text", {})
    if text.get("fingerprint") != prepared.text_fingerprint:
        if text.get("spec") == prepared.spec:
            raise RunError(
                "the text {spec} has changed since {run} was trained; bring the old text back, or "
                "give another --name",
                spec=prepared.spec,
                run=run,
            )
        pairs.append(("text", text.get("spec"), prepared.spec))
    if wanted is None:
        pairs.append(("steps", tables.get("train", {}).get("steps"), steps))
    else:
        ignored = (*MACHINE_FIELDS, *RECORD_FIELDS, "vocab_size")
        for table, config in (("model", wanted.model), ("train", wanted.train)):
            found = tables.get(table, {})
            pairs += [
                (name, found.get(name), value)
                for name, value in plain(config).items()
                if name not in ignored
            ]
    for name, before, now in pairs:
        if before == now:
            continue
        if wanted is None:
            raise RunError(
                "{folder} holds {run}, trained with {field}={before}, and this ladder wants {now}; "
                "give another --name",
                folder=run.parent.parent,
                run=run.name,
                field=name,
                before=before,
                now=now,
            )
        raise RunError(
            "{run} was trained with {field}={before} and this ladder wants {now}; give another "
            "--name, or --again to train it anew",
            run=run,
            field=name,
            before=before,
            now=now,
        )


def steps_done(run: Path) -> int:
    """Steps of the newest checkpoint in a run folder; 0 without one."""
    names = [path.name.removeprefix("step-") for path in (run / "checkpoints").glob("step-*")]
    return max((int(name) for name in names if name.isdecimal()), default=0)
