"""`partwise runs`: the runs of a folder, one of them in full, or several side by side."""

import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from partwise.cli import flags
from partwise.cli.parser import Parser, Said
from partwise.cli.screen import say, table
from partwise.cli.units import clock
from partwise.errors import UsageError
from partwise.messages import Notice, message
from partwise.settings import offer, option

if TYPE_CHECKING:
    from partwise.run import RunSummary

VERBS = ("list", "show", "compare")


@dataclass(frozen=True)
class RunsFlags:
    """What `partwise runs` can be told."""

    runs_dir: str = option("runs", "folder that holds the runs")
    json: bool = option(False, "print one JSON object instead of lines")


def declare(parser: Parser) -> None:
    """`partwise runs [list]`, `partwise runs show RUN`, `partwise runs compare RUN RUN …`."""
    parser.place("VERB", "", choices=VERBS)
    parser.place("RUN", "", many=True, folder=True)
    parser.form("list", message("all runs, the newest last; this is meant when nothing is said"))
    parser.form("show RUN", message("one run in full; without RUN the newest"))
    parser.form("compare RUN RUN …", message("in what runs differ"))
    flags.add(parser, "", RunsFlags, message("output"))


def run(said: Said) -> int:
    """List, show or compare.

    Raises:
        UsageError: another verb, or too few or too many runs for it.
    """
    asked = flags.given(said, "", RunsFlags)
    verb, *names = said.places or ["list"]
    if verb == "list" and not names:
        return _list(asked)
    if verb == "show" and len(names) <= 1:
        return _show(names, asked)
    if verb == "compare" and len(names) >= 2:
        return _compare(names, asked)
    if verb == "compare":
        raise UsageError("partwise runs compare needs two runs or more")
    if verb in VERBS:
        raise UsageError(
            "{command} does not know what {word!r} is for; see `{command} --help`",
            command="partwise runs",
            word=names[-1],
        )
    raise UsageError(
        "partwise runs cannot {verb!r}; {offer}",
        verb=verb,
        offer=offer(verb, VERBS),
    )


def _list(asked: RunsFlags) -> int:
    from partwise.run import list_runs

    found = list_runs(asked.runs_dir)
    if asked.json:
        say(_json({"runs": [_plain(summary) for summary in found]}))
    elif not found:
        say(message("{folder} holds no runs yet", folder=asked.runs_dir))
    else:
        headings = ["name", "text", "parameters", "step", "validation loss", "time", "status"]
        rows = [_row(summary) for summary in found]
        table([str(HEADINGS[name]) for name in headings], rows, right=[2, 3, 4, 5])
    return 0


def _row(summary: "RunSummary") -> list[str]:
    if summary.problem is not None:
        return [summary.name, "", "", "", "", "", str(summary.problem)]
    return [
        summary.name,
        summary.text,
        f"{summary.parameters:,}",
        f"{summary.step:,}",
        _loss(summary.best_val_loss),
        clock(summary.seconds),
        status(summary.status),
    ]


def _show(names: list[str], asked: RunsFlags) -> int:
    from partwise.cli.which import named_or_newest
    from partwise.run import summarise
    from partwise.settings import plain

    found = named_or_newest(names, asked.runs_dir)
    summary, record = summarise(found.path), found.record
    evaluations = [
        {name: line[name] for name in ("step", "val_loss", "seconds")}
        for line in found.metrics()
        if line.get("event") == "evaluation"
    ]
    settings = {
        f"{part}.{name}": value
        for part in ("model", "train", "data", "lora")
        for name, value in plain(getattr(record, part)).items()
        if value != plain(type(getattr(record, part))()).get(name)
    }
    if asked.json:
        report = {
            "run": _plain(summary),
            "text": dataclasses.asdict(record.text),
            "settings": {p: plain(getattr(record, p)) for p in ("model", "train", "data")},
            "machine": dict(record.machine),
            "versions": dict(record.versions),
            "evaluations": evaluations,
        }
        say(_json(report))
        return 0
    rows = [
        ("folder", str(summary.path)),
        ("created", summary.created),
        ("text", f"{record.text.name} ({record.text.tokenizer})".strip()),
        ("parameters", f"{summary.parameters:,}"),
        ("step", f"{summary.step:,}"),
        ("status", status(summary.status)),
        ("validation loss", _loss(summary.best_val_loss)),
        ("time", clock(summary.seconds)),
        ("machine", f"{record.machine.get('cores')} × {record.machine.get('cpu')}"),
    ]
    if record.ancestor is not None:
        rows.insert(2, ("began with", record.ancestor.path))
    table((), [(str(HEADINGS[name]), value) for name, value in rows])
    say()
    say(message("settings that differ from the defaults"))
    table((), [(f"  {name}", value) for name, value in settings.items()])
    if evaluations:
        say()
        shown = [(f"{e['step']:,}", _loss(e["val_loss"]), clock(e["seconds"])) for e in evaluations]
        names = ["step", "validation loss", "time"]
        table([str(HEADINGS[name]) for name in names], shown, right=[0, 1, 2])
    return 0


def _compare(names: list[str], asked: RunsFlags) -> int:
    from partwise.run import compare, find

    paths = [find(name, asked.runs_dir) for name in names]
    found = compare(paths)
    if asked.json:
        differences = {each.name: list(each.values) for each in found}
        say(_json({"runs": [str(path) for path in paths], "differences": differences}))
    elif not found:
        say(message("they do not differ"))
    else:
        rows = [(each.name, *map(_cell, each.values)) for each in found]
        table(["", *(path.absolute().name for path in paths)], rows)
    return 0


def status(word: str) -> str:
    """A run's status in the reader's language."""
    from partwise.cli.view import REASONS

    known: dict[str, Notice] = {**REASONS, **STATES}
    return str(known.get(word, word))


STATES = {
    "new": Notice("not trained yet"),
    "imported": Notice("imported"),
    "unfinished": Notice("unfinished; `partwise resume` goes on"),
    "damaged": Notice("damaged"),
}

HEADINGS = {
    "name": Notice("name"),
    "text": Notice("text"),
    "parameters": Notice("parameters"),
    "step": Notice("step"),
    "validation loss": Notice("validation loss"),
    "time": Notice("time"),
    "status": Notice("status"),
    "folder": Notice("folder"),
    "created": Notice("created"),
    "began with": Notice("began with"),
    "machine": Notice("machine"),
}


def _loss(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _cell(value: object) -> str:
    if value is None:
        return "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _plain(summary: "RunSummary") -> dict[str, Any]:
    return {
        **{f.name: getattr(summary, f.name) for f in dataclasses.fields(summary)},
        "path": str(summary.path),
        "problem": None if summary.problem is None else str(summary.problem),
    }


def _json(value: dict[str, Any]) -> str:
    return json.dumps({"schema": 1, **value}, ensure_ascii=False, indent=2)
