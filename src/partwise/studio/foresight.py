"""How long a ladder will take on this machine: a few steps of each model, times how many it has."""

import dataclasses
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from partwise.errors import StorageError, TrainingError
from partwise.ladder.estimate import seconds
from partwise.ladder.jobs import Job
from partwise.ladder.place import Place
from partwise.ladder.plan import find_text, plan, steps_done
from partwise.ladder.pool import work_through
from partwise.ladder.record import read_record
from partwise.machine import cores
from partwise.messages import language, words
from partwise.studio.orders import ladder, ladder_of
from partwise.studio.recent import Recent
from partwise.studio.state import State

# Of how many models it is remembered what a step takes.
REMEMBERED = 256

# What a finished model is measured by: two more evaluations of the whole split, and 200 batches,
# which cost a third of a step each.
EVALUATIONS = 2
BATCHES = 200 / 3

# A step and an evaluation of the whole validation split (seconds).
Took = tuple[float, float]

# What that depends on: the text, the rung and its variant, and the device and dtype asked for.
Key = tuple[str, int, str | None, str, str]


class Foresight:
    """What models take, measured once each.

    Args:
        state: of the studio.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._known: Recent[Key, Took] = Recent(REMEMBERED)
        # Two measurements at once would slow each other down.
        self._turn = threading.Lock()

    def told(self, sent: Mapping[str, Any]) -> dict[str, Any]:
        """The time that is left of the ladder which a page would start.

        Args:
            sent: as a page orders it.

        Returns:
            `seconds` in all, `models` to train and `finished` ones, `workers` at once, and the
            rung of the `first` one.

        Raises:
            PartwiseError: there is no such ladder or text.
        """
        folder = ladder(self._state, sent, language()).folder
        config, spec = ladder_of(self._state, sent)
        jobs, _ = plan(config)
        left = [one for one in jobs if not _finished(folder / "runs" / one.run)]
        source = find_text(spec, True, lambda notice: None)
        with self._turn:
            took = self._took(left, source.spec)
        times = [_left(one, took[one.rung, one.variant], folder / "runs" / one.run) for one in left]
        workers = max(1, min(cores() if config.workers is None else config.workers, len(left)))
        return {
            "seconds": _together(left, times, workers),
            "models": len(left),
            "finished": len(jobs) - len(left),
            "workers": workers,
            "first": max(left, key=lambda one: one.work).rung if left else None,
        }

    def _took(self, jobs: Sequence[Job], spec: str) -> dict[tuple[int, str | None], Took]:
        """What each model takes, whatever its seed; those that are not known are measured."""
        each = {(one.rung, one.variant): one for one in jobs}
        found = {key: self._known.get(_key(one, spec)) for key, one in each.items()}
        missing = [each[key] for key, took in found.items() if took is None]
        with _folder() as folder:
            place = Place(str(folder), spec, True, language(), words())
            # As the ladder trains them: small ones on a core each, a wide one on all of them.
            for wide, threads in ((False, 1), (True, cores())):
                these = [one for one in missing if one.wide == wide]
                for one, took in _measured(these, place, threads):
                    found[one.rung, one.variant] = self._known.put(_key(one, spec), took)
        return {key: took for key, took in found.items() if took is not None}


def _key(one: Job, spec: str) -> Key:
    return spec, one.rung, one.variant, one.train.device, one.train.dtype


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder for the workers' logs; it stays where one is left there, which an error names."""
    folder = Path(tempfile.mkdtemp(prefix="partwise-"))
    try:
        yield folder
    finally:
        with suppress(OSError):
            folder.rmdir()


def _measured(jobs: Sequence[Job], place: Place, threads: int) -> Iterator[tuple[Job, Took]]:
    # Plain steps: the compiler makes them quicker, and takes as long itself the first time.
    plain = [
        dataclasses.replace(one, train=dataclasses.replace(one.train, compile="off"))
        for one in jobs
    ]
    tasks = [{"task": "time", "job": one.to_plain()} for one in plain]
    for told in work_through(tasks, place, workers=1, threads=threads, stop=lambda: False):
        message = told.message
        if message["kind"] == "timed":
            yield jobs[told.task], (message["step"], message["evaluation"])
        elif message["kind"] == "failed":
            raise TrainingError("{reason}", reason=message["reason"])


def _finished(run: Path) -> bool:
    try:
        return read_record(run) is not None
    except StorageError:
        return False


def _left(one: Job, took: Took, run: Path) -> float:
    step, evaluation = took
    return seconds(one, *took, steps_done(run)) + EVALUATIONS * evaluation + BATCHES * step


def _together(jobs: Sequence[Job], times: Sequence[float], workers: int) -> float:
    """Small models share the cores, and none is quicker than its own time; wide ones come alone."""
    small = [time for one, time in zip(jobs, times, strict=True) if not one.wide]
    wide = sum(time for one, time in zip(jobs, times, strict=True) if one.wide)
    return wide + (max(max(small), sum(small) / workers) if small else 0.0)
