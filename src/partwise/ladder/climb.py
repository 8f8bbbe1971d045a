"""The climb: every rung, variant and seed that was asked for, each trained once, and the report.

A ladder is a folder, `ladders/<name>/`: `runs/` with an ordinary run folder for each model,
`ladder.json`, `ladder.html` and `ladder.svg`, written anew after every finished model. Starting
again goes on where it stopped; what is finished is not trained twice.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import partwise
from partwise.errors import StorageError
from partwise.ladder import estimate
from partwise.ladder.config import LadderConfig
from partwise.ladder.cover import cover
from partwise.ladder.deep import (
    RACE_INITIALISATIONS,
    RACE_NORMS,
    Depth,
    Racer,
    Stack,
    racer_from_plain,
    read_depth,
    stack_from_plain,
    write_depth,
)
from partwise.ladder.depth_pictures import depth_section
from partwise.ladder.events import (
    Climbed,
    Event,
    Failed,
    Measured,
    Moved,
    PartSilenced,
    Planned,
    Said,
)
from partwise.ladder.jobs import Job, reference
from partwise.ladder.place import Place
from partwise.ladder.plan import (
    corpus_of,
    find_text,
    plan,
    require_apart,
    require_fitting,
    require_same,
    steps_done,
)
from partwise.ladder.pool import work_through
from partwise.ladder.record import Record, read_record
from partwise.ladder.report import report
from partwise.ladder.rungs import SMALL, rungs
from partwise.ladder.table import Failure, LadderTable, Silenced, read_table, write_table
from partwise.machine import cores, describe
from partwise.machine.facts import version_of
from partwise.messages import Notice, language, words
from partwise.storage import cache_folder, cleaned, lock, safe_name, write_atomic
from partwise.storage.faults import writing
from partwise.text.config import DataConfig
from partwise.text.prepare import Prepared, prepare

Stop = Callable[[], bool]


def never() -> bool:
    """The stop request that is never made."""
    return False


def climb(
    config: LadderConfig | None = None,
    *,
    root: Path | str = "ladders",
    text: str | None = None,
    offline: bool = False,
    stop: Stop = never,
) -> Iterator[Event]:
    """Train what is missing, measure, and write table and report.

    Args:
        config: what was asked for.
        root: the folder of ladders.
        text: the text to climb on; None: tinyshakespeare, or shakespeare where it cannot be had.
        offline: never download a corpus.
        stop: asked a few times a second; True saves what is at hand and ends.

    Yields:
        What happens; the last event is a Climbed.

    Raises:
        ConfigError: what was asked for makes no sense.
        RunError: another process climbs here, or a run here has other settings.
        PartwiseError: the text cannot be used, or a file cannot be written.
    """
    config = config or LadderConfig()
    jobs, notices = plan(config)
    said: list[Notice] = list(notices)
    source = find_text(text, offline, said.append)
    tried = "" if config.steps is None else f"-steps-{config.steps}"
    folder = Path(root) / safe_name(config.name or cleaned(source.name + tried))
    require_apart(folder, source)
    prepared = prepare(source.spec, DataConfig(), cache=cache_folder(), offline=offline)
    require_fitting(jobs, prepared)
    place = Place(
        str(folder.absolute()),
        source.spec,
        offline,
        language(),
        words(),
        prepared.text_fingerprint,
    )
    with lock(folder / ".lock"):
        yield from map(Said, said)
        yield from _Climb(config, jobs, prepared, folder, place, stop).events()


@dataclass
class _Climb:
    """One climb under its lock."""

    config: LadderConfig
    jobs: tuple[Job, ...]
    prepared: Prepared
    folder: Path
    place: Place
    stop: Stop

    def __post_init__(self) -> None:
        self.corpus = corpus_of(self.prepared)
        self.records: dict[str, Record] = {}
        self.silenced: tuple[Silenced, ...] = ()
        self.machine: dict[str, Any] = {}
        self.depth: Depth | None = None
        self.failures: tuple[Failure, ...] = ()
        self.foretold: set[tuple[int, str | None]] = set()
        self.fatal = False

    @property
    def runs(self) -> Path:
        """Where the run folders are."""
        return self.folder / "runs"

    def events(self) -> Iterator[Event]:
        """All of it."""
        yield from self._read_what_is_here()
        missing = [one for one in self.jobs if one.run not in self.records]
        workers = min(self._workers(), max(1, len(missing)))
        planned = tuple((one.rung, one.variant, one.seed) for one in self.jobs)
        finished = len(self.jobs) - len(missing)
        references = any(reference(one, self.corpus) is not None for one in self.jobs)
        yield Planned(self.corpus, planned, finished, workers, references)
        for one in self.jobs:
            if one.run in self.records:
                yield Measured(self.records[one.run].row, True, self.table())
        # The longest first: the last one to be begun is then a short one, and no core waits for it.
        small = sorted((one for one in missing if not one.wide), key=lambda one: -one.work)
        yield from self._train(small, workers, 1)
        for one in (one for one in missing if one.wide):
            if self.over:
                break
            yield from self._foretell(one)
            yield from self._train([one], min(workers, 1), cores())
        if self.config.knock_out and not self.over:
            yield from self._knock_out()
        if self.config.depth and not self.over:
            yield from self._measure_depth()
        self._write()
        reason: Literal["finished", "interrupted", "failed"] = "finished"
        if self.failures:
            reason = "failed"
        if self.unfinished and self.stop():
            reason = "interrupted"
        yield Climbed(self.table(), reason, self.folder / "ladder.html")

    @property
    def over(self) -> bool:
        """Whether nothing more should be begun."""
        return self.fatal or self.stop()

    @property
    def unfinished(self) -> bool:
        """Whether anything that was asked for is still to be done."""
        if any(one.run not in self.records for one in self.jobs):
            return True
        measured = {(one.rung, one.seed) for one in self.silenced}
        whole = {(one.rung, one.seed) for one in self.jobs if _silenceable(one)}
        if self.config.knock_out and not whole <= measured:
            return True
        return self.config.depth and self.depth is None

    def table(self) -> LadderTable:
        """What is known so far."""
        rows = tuple(record.row for record in self.records.values())
        versions = {"partwise": partwise.__version__, "torch": str(version_of("torch"))}
        return LadderTable(
            self.corpus, self.folder, self.machine, versions, rows, self.silenced, self.failures
        )

    def _read_what_is_here(self) -> Iterator[Event]:
        asked = {one.run: one for one in self.jobs}
        steps = self.config.steps or SMALL.steps or 0
        finished = {path.parent.name for path in self.runs.glob("*/ladder.json")}
        for name in sorted(finished | asked.keys()):
            if not (self.config.again and name in asked):
                require_same(self.runs / name, asked.get(name), steps, self.prepared)
        if self.config.again:
            for name in asked:
                _remove(self.runs / name)
        for path in sorted(self.runs.glob("*/ladder.json")):
            try:
                record = read_record(path.parent)
            except StorageError as damage:
                # The run itself is whole: it is measured once more.
                yield Said(Notice("measured again: {reason}", reason=damage))
                continue
            if record is not None:
                self.records[path.parent.name] = record
        if not (self.config.again and self.config.depth):
            with suppress(StorageError):
                self.depth = read_depth(self.folder / "depth.json")
        with suppress(StorageError):
            before = read_table(self.folder / "ladder.json")
            self.machine = before.machine
            # What is trained anew is measured anew.
            rows = [record.row for record in self.records.values()]
            whole = {(row.rung, row.seed) for row in rows if row.variant is None}
            self.silenced = tuple(one for one in before.silenced if (one.rung, one.seed) in whole)

    def _workers(self) -> int:
        """Processes at once, if there is enough to do."""
        return cores() if self.config.workers is None else self.config.workers

    def _train(self, jobs: list[Job], workers: int, threads: int) -> Iterator[Event]:
        tasks = [{"task": "train", "job": one.to_plain()} for one in jobs]
        told = work_through(tasks, self.place, workers=workers, threads=threads, stop=self.stop)
        for each in told:
            one, message = jobs[each.task], each.message
            if message["kind"] == "moved":
                yield Moved(
                    one.rung,
                    one.variant,
                    one.seed,
                    message["step"],
                    message["steps"],
                    message["train_loss"],
                    message["val_loss"],
                    message["seconds"],
                )
            elif message["kind"] == "said":
                yield Said(Notice("{text}", text=message["text"]))
            elif message["kind"] == "failed":
                yield self._failed(one, message)
            elif message["kind"] == "done":
                record = read_record(self.runs / one.run)
                assert record is not None
                self.records[one.run] = record
                self.machine = message["machine"]
                self._write()
                yield Measured(record.row, False, self.table())

    def _foretell(self, one: Job) -> Iterator[Event]:
        """Say what a long training will take, measured on this machine just now."""
        if (one.rung, one.variant) in self.foretold:
            return
        self.foretold.add((one.rung, one.variant))
        tasks = [{"task": "time", "job": one.to_plain()}]
        workers = min(self._workers(), 1)
        for each in work_through(
            tasks, self.place, workers=workers, threads=cores(), stop=self.stop
        ):
            if each.message["kind"] == "timed":
                took = each.message["step"], each.message["evaluation"]
                done = steps_done(self.runs / one.run)
                yield Said(estimate.notice(one, *took, done))
                quicker = estimate.quicker(one, *took, done, self.corpus)
                if quicker is not None:
                    yield Said(quicker)

    def _knock_out(self) -> Iterator[Event]:
        jobs = [one for one in self.jobs if _silenceable(one) and one.run in self.records]
        asked = {(one.rung, one.seed) for one in jobs}
        measured = {(one.rung, one.seed) for one in self.silenced}
        known = [one for one in self.silenced if (one.rung, one.seed) in asked]
        yield from map(PartSilenced, known)
        jobs = [one for one in jobs if (one.rung, one.seed) not in measured]
        for wide in (False, True):
            these = [one for one in jobs if one.wide == wide]
            tasks = [{"task": "silence", "job": one.to_plain()} for one in these]
            workers = min(self._workers(), 1 if wide else max(1, len(these)))
            threads = cores() if wide else 1
            found: dict[int, list[Silenced]] = {}
            for each in work_through(
                tasks, self.place, workers=workers, threads=threads, stop=self.stop
            ):
                one, message = these[each.task], each.message
                if message["kind"] == "silenced":
                    measured_now = Silenced(
                        one.rung,
                        one.seed,
                        message["part"],
                        message["val_loss"],
                        message["difference"],
                    )
                    found.setdefault(each.task, []).append(measured_now)
                    yield PartSilenced(measured_now)
                elif message["kind"] == "done":
                    # Only whole sets are kept: a set that is begun is measured again.
                    self.silenced += tuple(found.get(each.task, ()))
                    self._write()
                elif message["kind"] == "failed":
                    yield self._failed(one, message)

    def _measure_depth(self) -> Iterator[Event]:
        if self.depth is not None:
            return
        yield Said(Notice("measuring deep stacks and racing pre-norm against post-norm"))
        tasks: list[dict[str, Any]] = [{"task": "stacks"}]
        tasks += [
            {"task": "race", "norm": norm, "initialisation": initialisation}
            for initialisation in RACE_INITIALISATIONS
            for norm in RACE_NORMS
        ]
        found: list[Stack] = []
        raced: dict[int, Racer] = {}
        done = 0
        workers = min(self._workers(), len(tasks))
        for each in work_through(tasks, self.place, workers=workers, threads=1, stop=self.stop):
            message = each.message
            if message["kind"] == "stack":
                found.append(stack_from_plain(message["stack"]))
            elif message["kind"] == "racer":
                raced[each.task] = racer_from_plain(message["racer"])
            elif message["kind"] == "done":
                done += 1
            elif message["kind"] == "failed":
                yield Said(Notice("deep stacks: {reason}", reason=message["reason"]))
        if done == len(tasks):
            self.depth = Depth(tuple(found), tuple(raced[place] for place in sorted(raced)))
            write_depth(self.folder / "depth.json", self.depth)

    def _failed(self, one: Job, message: dict[str, Any]) -> Failed:
        failure = Failure(one.rung, one.name, one.variant, one.seed, message["reason"])
        self.failures += (failure,)
        self.fatal |= bool(message["fatal"])
        return Failed(failure, message["fatal"])

    def _write(self) -> None:
        if not self.machine:
            self.machine = describe()
        table = self.table()
        write_table(self.folder / "ladder.json", table)
        extra = "" if self.depth is None else depth_section(self.depth)
        page = report(table, self.records, rungs(), extra)
        write_atomic(self.folder / "ladder.html", page.encode("utf-8"))
        write_atomic(self.folder / "ladder.svg", cover(table).encode("utf-8"))


def _silenceable(one: Job) -> bool:
    """Whether a knock-out takes this model: every rung's first seed."""
    return one.variant is None and one.seed == 1


def _remove(run: Path) -> None:
    """Clear a run folder away, if there is one."""
    if run.exists():
        with writing(run):
            shutil.rmtree(run)
