"""`partwise resume RUN`: goes on where a run stopped, or further than it was meant to go."""

from dataclasses import dataclass

from partwise.cli import flags
from partwise.cli.parser import Parser, Said
from partwise.cli.screen import remark, say
from partwise.cli.train import SHORT
from partwise.messages import message
from partwise.settings import option
from partwise.training.config import TrainConfig

# Limits that end a training for good, unless they are changed.
ENDS = ("steps", "epochs", "tokens", "minutes", "target_loss", "patience")


@dataclass(frozen=True)
class ResumeFlags:
    """What `partwise resume` can be told beside the training's settings."""

    text: str | None = option(None, "where the text is now, if it was moved")
    runs_dir: str = option("runs", "folder that holds the runs")
    offline: bool = option(False, "never download anything")
    quiet: bool = option(False, "print the run's folder at the end and nothing else")
    json: bool = option(False, "print each event as a line of JSON")


def declare(parser: Parser) -> None:
    """RUN, and what of its training may be changed."""
    parser.place("RUN", message("a run's folder or name; without it the newest"), folder=True)
    flags.add(parser, "", ResumeFlags, message("what to do"))
    flags.add(
        parser,
        "train",
        TrainConfig,
        message("changes to the training, e.g. more --steps"),
        short=SHORT,
        defaults=False,
    )


def run(said: Said) -> int:
    """Train on."""
    asked = flags.given(said, "", ResumeFlags)
    changes = flags.overrides(said, "train", TrainConfig)

    from partwise.cli.follow import follow
    from partwise.cli.which import named_or_newest
    from partwise.run import find, summarise
    from partwise.run.record import TRANSLATION, kind_of

    named = find(said.places[0], asked.runs_dir) if said.places else None
    if named is not None and kind_of(named) == TRANSLATION:
        from partwise.cli.translate import resumed

        return resumed(named, changes, pairs=asked.text, quiet=asked.quiet, as_json=asked.json)
    found = named_or_newest(said.places, asked.runs_dir)
    if not changes and not asked.json and summarise(found.path).status in ENDS:
        longer = message(
            "{run} is finished; --steps or another limit trains it longer", run=found.path
        )
        say(found.path if asked.quiet else longer)
        return 0
    settings = flags.layered(TrainConfig, found.record.train, changes) if changes else None
    return follow(
        found,
        lambda stop: found.train(
            resume=True,
            stop=stop,
            settings=settings,
            text=asked.text,
            offline=asked.offline,
            announce=remark,
        ),
        [],
        quiet=asked.quiet,
        as_json=asked.json,
    )
