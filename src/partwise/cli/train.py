"""`partwise train TEXT`: from any text to a trained model, what is not said being chosen."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from partwise.budget.choices import DEFAULT, about_machine, choose, start, start_from
from partwise.budget.recipes import RECIPES
from partwise.cli import flags
from partwise.cli.parser import Parser, Said
from partwise.cli.screen import progress, remark
from partwise.errors import UsageError
from partwise.messages import message
from partwise.model.config import ModelConfig
from partwise.model.presets import preset_names
from partwise.settings import option
from partwise.text.config import DataConfig
from partwise.training.config import TrainConfig

if TYPE_CHECKING:
    from partwise.run import Run

# The flags that have a short form; every other one is written with its section.
SHORT = {
    "steps": "--steps",
    "minutes": "--minutes",
    "seed": "--seed",
    "device": "--device",
    "dtype": "--dtype",
    "lr": "--lr",
    "batch_size": "--batch-size",
}

# What a run.toml records beside its settings; such a file may be given to --config as it is.
RECORDS = (
    "kind",
    "format",
    "checksum",
    "created",
    "text",
    "resolved",
    "versions",
    "machine",
    "git",
)


@dataclass(frozen=True)
class TrainFlags:
    """What `partwise train` can be told beside the settings of model, training and text."""

    preset: str | None = option(None, "model to train, e.g. small, ladder-4, gpt2; none: small")
    recipe: str | None = option(None, "model and training together; none: small")
    from_: str | None = option(None, "begin with the weights and the tokenizer of this run")
    config: str | None = option(
        None, "TOML file with [model], [train] and [data], such as a run.toml; flags go before it"
    )
    name: str | None = option(None, "name of the run; none: made from the text and the date")
    runs_dir: str = option("runs", "folder that holds the runs")
    offline: bool = option(False, "never download anything")
    quiet: bool = option(False, "print the run's folder at the end and nothing else")
    json: bool = option(False, "print each event as a line of JSON")


def declare(parser: Parser) -> None:
    """TEXT and every setting."""
    usual = start(None, None)
    texts = message(
        "a file, a folder, a glob, - for standard input, or a corpus: shakespeare (offline), "
        "tinyshakespeare"
    )
    parser.form("TEXT", texts)
    # A shell makes several words of a glob; they are taken here, so that `run` can say so.
    parser.place("TEXT", texts, many=True)
    known = {"preset": preset_names(), "recipe": tuple(RECIPES)}
    flags.add(parser, "", TrainFlags, message("what to do"), known=known)
    flags.add(parser, "train", TrainConfig, message("training"), base=usual.train, short=SHORT)
    # The vocabulary follows from the text.
    flags.add(
        parser,
        "model",
        ModelConfig,
        message("model"),
        base=usual.model,
        leave_out=["vocab_size"],
    )
    flags.add(parser, "data", DataConfig, message("text"), short={"errors": "--errors"})


def run(said: Said) -> int:
    """Prepare the text, choose what was left open, train.

    Raises:
        UsageError: no text is named, or several.
    """
    asked = flags.given(said, "", TrainFlags)
    if not said.places:
        raise UsageError(
            "name the TEXT to train on: {texts}",
            texts=message(
                "a file, a folder, a glob, - for standard input, or a corpus: shakespeare "
                "(offline), tinyshakespeare"
            ),
        )
    if len(said.places) > 1:
        raise UsageError(
            "one TEXT is trained on, and {count} are named; give their folder, or put a glob in "
            'quotes: "*.txt"',
            count=len(said.places),
        )
    text = said.places[0]
    sections: dict[str, type[Any]] = {
        "model": ModelConfig,
        "train": TrainConfig,
        "data": DataConfig,
    }
    file = {} if asked.config is None else flags.read_config(asked.config, sections, RECORDS)
    layers = {
        name: {**file.get(name, {}), **flags.overrides(said, name, config)}
        for name, config in sections.items()
    }
    earlier = None if asked.from_ is None else _earlier(asked.from_, asked)
    if earlier is None:
        begin = start(asked.preset, asked.recipe)
    else:
        begin = start_from(earlier.record.model, earlier.record.train)
    model = flags.layered(ModelConfig, begin.model, layers["model"])
    train = flags.layered(TrainConfig, begin.train, layers["train"])
    data = flags.layered(DataConfig, DataConfig(), layers["data"])

    # Everything that was said makes sense; only now is torch worth its second.
    from partwise.cli.follow import follow
    from partwise.machine import pick_device
    from partwise.run import Run
    from partwise.storage import cache_folder
    from partwise.text.prepare import prepare
    from partwise.training.events import Said as Line

    with progress(message("preparing"), quiet=asked.quiet or asked.json) as report:
        prepared = prepare(
            text,
            data,
            cache=cache_folder(),
            tokenizer=None if earlier is None else earlier.tokenizer(),
            offline=asked.offline,
            progress=report,
            announce=remark,
        )
    chosen = choose(
        begin,
        model,
        train,
        name=asked.from_ or asked.recipe or asked.preset or DEFAULT,
        fine_tuned=earlier is not None,
        said_of_model=set(layers["model"]),
        said_of_training=set(layers["train"]),
        train_tokens=len(prepared.train),
        validation_tokens=len(prepared.validation),
        vocab_size=prepared.tokenizer.vocab_size,
    )
    made = Run.create(
        asked.runs_dir,
        asked.name,
        text,
        chosen.model,
        chosen.train,
        data,
        offline=asked.offline,
        begin=earlier,
        prepared=prepared,
    )

    here = about_machine(chosen.train, str(pick_device(chosen.train.device)))
    return follow(
        made,
        lambda stop: made.train(stop=stop),
        [Line(notice) for notice in (*chosen.notices, *here)],
        quiet=asked.quiet,
        as_json=asked.json,
    )


def _earlier(name: str, asked: TrainFlags) -> "Run":
    """The run whose weights are the beginning.

    Raises:
        UsageError: another model is asked for as well.
        RunError: there is no such run.
    """
    if asked.preset is not None or asked.recipe is not None:
        raise UsageError(
            "--from={run} brings its model with it; leave out --preset and --recipe", run=name
        )
    from partwise.run import Run, find

    return Run.open(find(name, asked.runs_dir))
