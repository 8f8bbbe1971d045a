"""`partwise export RUN FOLDER`: a run as a folder that other programs open."""

import json
from dataclasses import dataclass
from typing import Literal

from partwise.cli import flags
from partwise.cli.parser import Parser, Said
from partwise.cli.screen import remark, say
from partwise.errors import UsageError
from partwise.messages import message
from partwise.settings import option


@dataclass(frozen=True)
class ExportFlags:
    """What `partwise export` can be told."""

    which: Literal["best", "last"] = option(
        "best", "the weights with the lowest validation loss, or the last ones"
    )
    license: str | None = option(
        None, "licence that the model card names, e.g. apache-2.0; none: that of an imported model"
    )
    runs_dir: str = option("runs", "folder that holds the runs")
    quiet: bool = option(False, "print the folder and nothing else")
    json: bool = option(False, "print one JSON object instead of lines")


def declare(parser: Parser) -> None:
    """RUN, and the FOLDER that appears."""
    parser.place("RUN", message("a run's folder or name"), folder=True)
    parser.place("FOLDER", message("the folder to write; nothing may be there yet"))
    flags.add(parser, "", ExportFlags, message("what to do"))


def run(said: Said) -> int:
    """Export.

    Raises:
        UsageError: RUN or FOLDER is missing.
    """
    asked = flags.given(said, "", ExportFlags)
    if len(said.places) < 2:
        raise UsageError("name the RUN to export and the FOLDER to write")

    from partwise.run import Run, export_run, find

    found = Run.open(find(said.places[0], asked.runs_dir))
    made = export_run(found, said.places[1], which=asked.which, licence=asked.license)
    if asked.json:
        report = {
            "schema": 1,
            "folder": str(made.folder),
            "form": made.form,
            "parameters": made.parameters,
            "notices": [str(notice) for notice in made.notices],
        }
        say(json.dumps(report, ensure_ascii=False))
        return 0
    if asked.quiet:
        say(made.folder)
        return 0
    for notice in made.notices:
        remark(notice)
    say(
        message(
            "{parameters:,} parameters written to {folder}; its README.md is the model card",
            parameters=made.parameters,
            folder=made.folder,
        )
    )
    return 0
