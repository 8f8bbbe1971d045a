"""`partwise train TEXT`: from any text to a trained model, what is not said being chosen."""

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from partwise.budget.choices import DEFAULT, about_machine, choose, start
from partwise.budget.finetuning import choose_further, start_from
from partwise.budget.recipes import RECIPES
from partwise.cli import flags
from partwise.cli.parser import Parser, Said
from partwise.cli.screen import progress, remark
from partwise.errors import UsageError
from partwise.messages import Notice, message
from partwise.model.config import ModelConfig
from partwise.model.lora_config import LoraConfig
from partwise.model.presets import preset_names
from partwise.settings import option
from partwise.text.config import DataConfig
from partwise.training.config import TrainConfig

if TYPE_CHECKING:
    from partwise.run.beginning import Beginning

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

# Settings of the text that a trained model decides.
DECIDED = ("tokenizer", "tokenizer_file", "bpe_vocab_size", "bpe_sample")

# What a run.toml records beside its settings; such a file may be given to --config as it is.
RECORDS = (
    "kind",
    "format",
    "checksum",
    "created",
    "text",
    "ancestor",
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
    from_: str | None = option(
        None, "begin with the weights and the tokenizer of this run or Hugging Face folder"
    )
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
    data = {"errors": "--errors", "unknown": "--unknown"}
    flags.add(parser, "data", DataConfig, message("text"), short=data)
    flags.add(parser, "lora", LoraConfig, message("LoRA, with --from"))


def run(said: Said) -> int:
    """Prepare the text, choose what was left open, train.

    Raises:
        UsageError: no text is named, or several.
    """
    began = perf_counter()
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
        "lora": LoraConfig,
    }
    file = {} if asked.config is None else flags.read_config(asked.config, sections, RECORDS)
    layers = {
        name: {**file.get(name, {}), **flags.overrides(said, name, config)}
        for name, config in sections.items()
    }
    data = flags.layered(DataConfig, DataConfig(), layers["data"])
    lora = flags.layered(LoraConfig, LoraConfig(), layers["lora"])
    earlier = _earlier(asked, said, lora, bool(layers["lora"]))
    if earlier is None:
        begin = start(asked.preset, asked.recipe)
    else:
        begin = start_from(earlier.model, earlier.train, lora)
    model = flags.layered(ModelConfig, begin.model, layers["model"])
    train = flags.layered(TrainConfig, begin.train, layers["train"])

    # Everything that was said makes sense; only now is torch worth its second.
    from partwise.cli.follow import follow
    from partwise.machine import pick_device
    from partwise.run import Run
    from partwise.run.places import require_place
    from partwise.storage import cache_folder
    from partwise.text.prepare import prepare
    from partwise.training.events import Said as Line

    require_place(asked.name, asked.runs_dir)
    with progress(message("preparing"), quiet=asked.quiet or asked.json) as report:
        prepared = prepare(
            text,
            data,
            cache=cache_folder(),
            tokenizer=None if earlier is None else earlier.tokenizer,
            offline=asked.offline,
            progress=report,
            announce=remark,
        )
    dialled: tuple[Notice, ...] = ()
    name = asked.from_ or asked.recipe or asked.preset or DEFAULT
    chooses = earlier is None and asked.preset is None and asked.recipe is None
    if chooses and train.minutes is not None:
        from partwise.budget.dial import Wanted, turn

        wanted = Wanted(layers["model"], layers["train"])
        with progress(message("measuring this machine"), quiet=asked.quiet or asked.json) as report:
            turned = turn(prepared, train.minutes, wanted, began=began, report=report)
        if turned is not None:
            name, begin, dialled = turned.name, turned.begin, turned.notices
            model = flags.layered(ModelConfig, begin.model, layers["model"])
            train = flags.layered(
                TrainConfig, begin.train, {**layers["train"], "minutes": begin.train.minutes}
            )
    known: dict[str, Any] = {
        "name": name,
        "said_of_model": set(layers["model"]),
        "said_of_training": set(layers["train"]),
        "train_tokens": len(prepared.train),
        "validation_tokens": len(prepared.validation),
    }
    if earlier is None:
        vocab_size = prepared.tokenizer.vocab_size
        chosen = choose(begin, model, train, vocab_size=vocab_size, **known)
    else:
        elsewhere = earlier.train is None
        known |= {"earlier": earlier.model, "elsewhere": elsewhere, "lora": lora}
        chosen = choose_further(begin, model, train, **known)
    made = Run.create(
        asked.runs_dir,
        asked.name,
        text,
        chosen.model,
        chosen.train,
        data,
        lora=lora,
        offline=asked.offline,
        begin=earlier,
        prepared=prepared,
    )

    here = about_machine(chosen.train, str(pick_device(chosen.train.device)))
    return follow(
        made,
        lambda stop: made.train(stop=stop),
        [Line(notice) for notice in (*dialled, *chosen.notices, *here)],
        quiet=asked.quiet,
        as_json=asked.json,
    )


def _earlier(
    asked: TrainFlags, said: Said, lora: LoraConfig, said_of_lora: bool
) -> "Beginning | None":
    """The trained model whose weights are the beginning, if one is named.

    Raises:
        UsageError: another model or another tokenizer is asked for as well, or LoRA without a
            model to add to.
        RunError: there is no such run.
        InteropError: the folder holds what has no counterpart here.
    """
    if said_of_lora and not lora.on:
        raise UsageError("the settings of LoRA do nothing without a rank: give --lora.rank 8")
    if asked.from_ is None:
        if lora.on:
            raise UsageError(
                "--lora.rank={rank} adds to a trained model; name it with --from", rank=lora.rank
            )
        return None
    if asked.preset is not None or asked.recipe is not None:
        raise UsageError(
            "--from={run} brings its model with it; leave out --preset and --recipe",
            run=asked.from_,
        )
    decided = [name for name in flags.overrides(said, "data", DataConfig) if name in DECIDED]
    if decided:
        raise UsageError(
            "--from={run} brings its tokenizer with it; leave out {flag}",
            run=asked.from_,
            flag="--data." + decided[0].replace("_", "-"),
        )
    from partwise.run import begin_with

    return begin_with(asked.from_, asked.runs_dir)
