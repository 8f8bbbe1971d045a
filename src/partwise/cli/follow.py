"""Follows a training to its end: draws its events, saves at the first Ctrl+C, gives the status."""

from collections.abc import Callable, Iterator

from partwise.cli.interrupts import Stop, first_saves
from partwise.cli.screen import say
from partwise.cli.speak import speak
from partwise.cli.view import Opened, QuietView, View, view_for
from partwise.messages import message
from partwise.run import Run
from partwise.sampling.config import SampleConfig
from partwise.training.events import Finished

# Enough to read a few sentences of what the model has learned.
LAST_SAMPLE = 500


def follow(
    run: Run,
    begin: Callable[[Stop], Iterator[object]],
    first: list[object],
    *,
    quiet: bool,
    as_json: bool,
) -> int:
    """Draw every event of a training, and let the trained model have the last word.

    Args:
        run: the run that is trained.
        begin: starts the training, given what it is to ask before every step.
        first: events to draw before those of the training.
        quiet: print the run's folder at the end and nothing else.
        as_json: print each event as a line of JSON and nothing else.

    Returns:
        The exit status.

    Raises:
        OSError: standard output takes no more, or its reader went away; the run was saved.
    """
    interrupted, status = watch(
        Opened(run.name, run.path), begin, first, quiet=quiet, as_json=as_json
    )
    if quiet:
        say(run.path)
    elif not as_json and interrupted:
        say(message("go on with: partwise resume {run}", run=run.path))
    elif not as_json:
        if run.record.train.sample_chars:
            say()
            speak(run.model(), run.tokenizer(), "", SampleConfig(chars=LAST_SAMPLE))
            say()
        say(message("for more: partwise sample {run} --chars 2000", run=run.path))
    return status


def watch(
    opened: Opened,
    begin: Callable[[Stop], Iterator[object]],
    first: list[object],
    *,
    quiet: bool,
    as_json: bool,
) -> tuple[bool, int]:
    """Draw every event of a training of any kind.

    Args:
        opened: where its folder is.
        begin, first, quiet, as_json: as `follow` takes them.

    Returns:
        Whether it was interrupted, and the exit status of that.

    Raises:
        OSError: standard output takes no more, or its reader went away; the run was saved.
    """
    view: View = view_for(quiet=quiet, as_json=as_json)
    finished = None
    deaf: OSError | None = None

    def draw(event: object) -> None:
        nonlocal view, deaf
        try:
            view(event)
        except OSError as error:
            # Nobody reads any more, or the disk behind a > is full: save, as after Ctrl+C, and end.
            view, deaf, stop.asked = QuietView(), error, True

    with first_saves(message("saving the run; a second time ends at once, without saving")) as stop:
        try:
            for event in [opened, *first]:
                draw(event)
            for event in begin(stop):
                if isinstance(event, Finished):
                    finished = event
                draw(event)
        finally:
            view.close()
    if deaf is not None:
        raise deaf
    interrupted = finished is not None and finished.reason == "interrupted"
    return interrupted, stop.status if interrupted else 0
