"""Trainings and ladders that a page has started: processes of their own, which outlive the studio.

Each has a folder `jobs/ID/` in the user's data folder: `job.json` says what it is, `output.log`
what it said. They write ordinary run folders, which are followed by looking at their files; so a
page may be loaded anew, and the studio stopped and started, while they go on.
"""

import asyncio
import importlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

import partwise
from partwise.course.tiny import TRAINING, tiny_folder, tiny_ready
from partwise.errors import PartwiseError, StorageError, UsageError
from partwise.messages import language, message
from partwise.storage import read_json, safe_name, write_json
from partwise.storage.faults import writing
from partwise.studio.answers import Json, body, field, logged
from partwise.studio.hub import Tab
from partwise.studio.orders import Order, order, tiny
from partwise.studio.state import State
from partwise.studio.tails import Tail
from partwise.training.listeners import read_metrics

# The same package that runs here.
_FIRST = "import sys; sys.path.append(sys.argv.pop(1)); "

KIND = "job"
VERSION = 1

# Jobs at once; seconds between two looks, also after a fault of ours; jobs that are remembered.
MOST = 3
LOOK = 0.5
AFTER_A_FAULT = 30.0
REMEMBERED = 30

# What a process that was asked to stop ends with, see docs/exit-statuses.md.
STOPPED = (130, 143, -signal.SIGINT, -signal.SIGTERM)

# Bytes at a log's end that may hold the line that says why.
LAST = 4000


@dataclass
class Job:
    """One process.

    Args:
        id: its folder's name.
        kind, name: what it makes.
        folder: where.
        pid, born: its number, and when the system says that it began: a number is used again.
        started: when it was asked for (seconds since 1970).
        state: "running", "done", "failed" or "stopped".
        error: why it failed, in one line.
        minutes: how long it was told to train.
        stopping: whether it was asked to stop.
        ended: when it had ended.
        last: how far it had come then.
    """

    id: str
    kind: str
    name: str
    folder: str
    pid: int
    born: float
    started: float
    state: str = "running"
    error: str | None = None
    minutes: float | None = None
    stopping: bool = False
    ended: float | None = None
    last: dict[str, Any] | None = None


def routes(state: State) -> list[BaseRoute]:
    """`GET` and `POST /api/jobs`, `POST /api/jobs/{id}/stop`, `POST /api/models/tiny`."""
    jobs: Jobs = state.jobs

    def known(request: Request) -> Response:
        return Json({"jobs": jobs.told()})

    async def begin(request: Request) -> Response:
        sent = await body(request)
        wanted = await run_in_threadpool(order, state, sent, language())
        return Json(await run_in_threadpool(jobs.begin, wanted))

    async def begin_tiny(request: Request) -> Response:
        if tiny_ready():
            return Json({"id": "tiny", "kind": "tiny", "state": "done"})
        return Json(await run_in_threadpool(jobs.begin, tiny(tiny_folder())))

    async def stop(request: Request) -> Response:
        sent = await body(request)
        now = field(sent, "now", bool, False)
        return Json(await run_in_threadpool(jobs.stop, request.path_params["id"], now))

    return [
        Route("/api/jobs", known, methods=["GET"]),
        Route("/api/jobs", begin, methods=["POST"]),
        Route("/api/jobs/{id}/stop", stop, methods=["POST"]),
        Route("/api/models/tiny", begin_tiny, methods=["POST"]),
    ]


class Jobs:
    """All jobs of one learner.

    Args:
        state: of the studio.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._home = state.data / "jobs"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._jobs: dict[str, Job] = {}
        self._told: dict[str, dict[str, Any]] = {}
        self._tails: dict[tuple[str, str], Tail] = {}
        for path in sorted(self._home.glob("*/job.json")):
            with suppress(PartwiseError, TypeError):
                _, value = read_json(path, kind=KIND, newest=VERSION)
                self._jobs[value["id"]] = Job(**value)

    def begin(self, wanted: Order) -> dict[str, Any]:
        """Start a process; one that makes the same already is told instead.

        Raises:
            UsageError: too many are running.
            StorageError: it cannot be written down; nothing is started then.
        """
        self.look()
        running = [job for job in list(self._jobs.values()) if job.state == "running"]
        for job in running:
            if Path(job.folder) == wanted.folder.absolute():
                return self.of(job)
        if len(running) >= MOST:
            raise UsageError(
                "{count} trainings are running already; stop one, or wait until it ends", count=MOST
            )
        id = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
        home = self._home / id
        here = str(Path(partwise.__file__).parent.parent)
        with writing(home):
            home.mkdir(parents=True)
            log = (home / "output.log").open("wb")
        with log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _FIRST + wanted.program, here, *wanted.words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=home,
                env={**os.environ, "PYTHONUTF8": "1"},
                # Ctrl+C in the studio's terminal is not meant for them.
                start_new_session=sys.platform != "win32",
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
            )
        job = Job(
            id=id,
            kind=wanted.kind,
            name=wanted.name,
            folder=str(wanted.folder.absolute()),
            pid=process.pid,
            born=_born(process.pid) or 0.0,
            started=round(time.time(), 1),
            minutes=wanted.minutes,
        )
        try:
            self._write(job)
        except StorageError:
            # Nobody would find it again.
            process.kill()
            shutil.rmtree(home, ignore_errors=True)
            raise
        self._processes[id], self._jobs[id] = process, job
        self._forget()
        told = self.of(job)
        self._told[id] = told
        self._state.hub.threadsafe(lambda: self._state.hub.event("jobs", job=told))
        return told

    def stop(self, id: str, now: bool = False) -> dict[str, Any]:
        """Ask a job to save and end; with `now`, one that was asked ends at once.

        Raises:
            UsageError: there is no such job.
        """
        job = self._jobs.get(id)
        if job is None:
            raise UsageError("there is no job {name!r}", name=id)
        if job.state == "running" and self._alive(job) and (now or not job.stopping):
            with suppress(OSError):
                # SIGTERM, which means the same to a training as Ctrl+C, and which no shell that
                # started the studio in the background has told its children to ignore.
                number = signal.SIGTERM
                if sys.platform == "win32":
                    number = signal.CTRL_BREAK_EVENT
                os.kill(job.pid, number)
                job.stopping = True
                self._note(job)
        return self.of(job)

    def told(self) -> list[dict[str, Any]]:
        """Every job, the newest first."""
        self.look()
        newest = sorted([*self._jobs.values()], key=lambda job: job.started, reverse=True)
        return [self.of(job) for job in newest]

    def running(self) -> list[str]:
        """Names of what goes on."""
        self.look()
        return [job.name for job in list(self._jobs.values()) if job.state == "running"]

    def of(self, job: Job) -> dict[str, Any]:
        """A job as a page shows it, with how far it is."""
        told: dict[str, Any] = {
            "id": job.id,
            "kind": job.kind,
            "name": job.name,
            "channel": f"ladder:{job.name}" if job.kind == "ladder" else f"run:{job.name}",
            "state": job.state,
            "stopping": job.stopping and job.state == "running",
            "started": job.started,
            "error": job.error,
        }
        if job.kind == "ladder":
            return told
        return told | (_far(job) if job.last is None else job.last)

    def look(self) -> None:
        """Notice which have ended, and how."""
        for job in list(self._jobs.values()):
            if job.state == "running" and not self._alive(job):
                self._settle(job)

    async def watch(self) -> None:
        """Tell the pages what happens, for as long as the studio runs."""
        while True:
            await asyncio.sleep(LOOK)
            try:
                await self._look_around()
            except (PartwiseError, OSError):
                # A file that is being written, or a full disk: the next look may see it.
                continue
            except Exception as error:
                logged(error)
                await asyncio.sleep(AFTER_A_FAULT)

    async def _look_around(self) -> None:
        hub, tails = self._state.hub, self._tails
        if any(job.state == "running" for job in list(self._jobs.values())):
            await run_in_threadpool(self.look)
        for job in list(self._jobs.values()):
            if job.state != "running" and job.id in self._told:
                told = self.of(job)
            elif job.state == "running":
                told = await run_in_threadpool(self.of, job)
            else:
                continue
            if told != self._told.get(job.id):
                self._told[job.id] = told
                hub.event("jobs", job=told)
        watched = set(hub.watched("run:")) | set(hub.watched("ladder:"))
        for channel in watched:
            for run, path in self._followed(channel):
                tail = tails.setdefault((channel, run), Tail(path))
                more = await run_in_threadpool(tail.more)
                if more is not None:
                    hub.event(channel, run=run, **more)
        for key in [key for key in tails if key[0] not in watched]:
            del tails[key]

    def first_look(self, tab: Tab, channel: str) -> None:
        """What a tab is told when it begins to watch a channel."""
        if channel == "jobs":
            tab.send({"type": "event", "channel": channel, "jobs": self.told()})
        for run, path in self._followed(channel):
            tail = self._tails.setdefault((channel, run), Tail(path))
            # What others have not been told yet, so that nobody is told twice.
            more = tail.more()
            if more is not None:
                self._state.hub.event(channel, run=run, **more)
            tab.send({"type": "event", "channel": channel, "run": run, **tail.whole()})

    def _followed(self, channel: str) -> list[tuple[str, Path]]:
        """The metrics files behind a channel, by run; a name leads nowhere but into its folder."""
        kind, _, name = channel.partition(":")
        try:
            if safe_name(name) != name:
                return []
        except PartwiseError:
            return []
        if kind == "run":
            folder = tiny_folder() if name == "tiny" else self._state.root / name
            return [(name, folder / "metrics.jsonl")]
        if kind == "ladder":
            runs = sorted((self._state.ladders / name / "runs").glob("*/run.toml"))
            return [(path.parent.name, path.parent / "metrics.jsonl") for path in runs]
        return []

    def _alive(self, job: Job) -> bool:
        process = self._processes.get(job.id)
        if process is not None:
            return process.poll() is None
        # A child of an earlier studio: only the same number and the same birth are it.
        born = _born(job.pid)
        return born is not None and abs(born - job.born) < 2

    def _settle(self, job: Job) -> None:
        """Note how a process that is gone has ended."""
        process = self._processes.get(job.id)
        status = None if process is None else process.poll()
        reason = _finished(Path(job.folder))
        if status is None:
            ended_well = reason is not None or job.kind == "ladder"
            status = 0 if ended_well and not _complaint(self._log(job)) else 1
        if job.stopping or status in STOPPED:
            job.state = "stopped"
        elif status == 0:
            job.state = "done" if reason != "interrupted" else "stopped"
        else:
            job.state = "failed"
            job.error = _complaint(self._log(job)) or message(
                "it ended with status {status}", status=status
            )
        job.ended = round(time.time(), 1)
        job.last = _far(job) if job.kind != "ladder" else None
        self._note(job)

    def _log(self, job: Job) -> Path:
        return self._home / job.id / "output.log"

    def _note(self, job: Job) -> None:
        """Write down how a job is; a full disk must keep nobody from reading or stopping it.

        A studio that is started later finds out by itself how it has ended.
        """
        try:
            self._write(job)
        except StorageError as error:
            logged(error)

    def _write(self, job: Job) -> None:
        write_json(self._home / job.id / "job.json", vars(job), kind=KIND, version=VERSION)

    def _forget(self) -> None:
        """Old jobs that have ended."""
        ended = [job for job in list(self._jobs.values()) if job.state != "running"]
        for job in sorted(ended, key=lambda job: job.started)[: -REMEMBERED or None]:
            del self._jobs[job.id]
            self._processes.pop(job.id, None)
            self._told.pop(job.id, None)
            shutil.rmtree(self._home / job.id, ignore_errors=True)


def _far(job: Job) -> dict[str, Any]:
    """How far a training is: steps done and to do, the last losses, and the share of its time."""
    folder = Path(job.folder)
    step, seconds, loss, val_loss = 0, 0.0, None, None
    with suppress(PartwiseError, OSError):
        for line in read_metrics(folder / "metrics.jsonl"):
            step, seconds = line.get("step", step), line.get("seconds", seconds)
            loss, val_loss = line.get("loss", loss), line.get("val_loss", val_loss)
    steps = TRAINING.steps if job.kind == "tiny" else None
    with suppress(OSError, ValueError, KeyError, TypeError):
        tables = tomllib.loads((folder / "run.toml").read_text(encoding="utf-8"))
        found = tables["train"]["steps"]
        steps = found if isinstance(found, int) else None
    return {
        "step": step,
        "steps": steps,
        "seconds": seconds,
        "minutes": job.minutes,
        "loss": loss,
        "val_loss": val_loss,
    }


def _finished(folder: Path) -> str | None:
    """Why a run has ended, by its own metrics; None when it has not."""
    last: dict[str, Any] = {}
    with suppress(PartwiseError, OSError):
        for line in read_metrics(folder / "metrics.jsonl"):
            last = line
    return str(last.get("reason")) if last.get("event") == "finished" else None


def _complaint(log: Path) -> str | None:
    """The last line of `partwise: …` in a log."""
    try:
        text = log.read_bytes()[-LAST:].decode("utf-8", "replace")
    except OSError:
        return None
    said = [line for line in text.splitlines() if line.startswith("partwise: ")]
    return said[-1].removeprefix("partwise: ") if said else None


def _born(pid: int) -> float | None:
    """When a process began, as the system has it; None when there is none of that number."""
    psutil: Any = importlib.import_module("psutil")
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return float(process.create_time())
    except psutil.Error:
        return None
