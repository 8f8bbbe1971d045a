"""`partwise import FOLDER`: a model that was made elsewhere becomes a run."""

import json
from dataclasses import dataclass

from partwise.cli import flags
from partwise.cli.parser import Parser, Said
from partwise.cli.screen import remark, say
from partwise.errors import UsageError
from partwise.messages import message
from partwise.settings import option


@dataclass(frozen=True)
class ImportFlags:
    """What `partwise import` can be told."""

    name: str | None = option(None, "name of the run; none: made from the folder's and the date")
    tokenizer: str | None = option(None, "this tokenizer.json, for a folder without one")
    runs_dir: str = option("runs", "folder that holds the runs")
    quiet: bool = option(False, "print the run's folder and nothing else")
    json: bool = option(False, "print one JSON object instead of lines")


def declare(parser: Parser) -> None:
    """FOLDER, and where the run goes."""
    parser.place(
        "FOLDER",
        message("a Hugging Face folder: config.json, model.safetensors, tokenizer.json"),
        folder=True,
    )
    flags.add(parser, "", ImportFlags, message("what to do"))


def run(said: Said) -> int:
    """Import.

    Raises:
        UsageError: no folder is named.
    """
    asked = flags.given(said, "", ImportFlags)
    if not said.places:
        raise UsageError(
            "name the FOLDER to import: {what}",
            what=message("a Hugging Face folder: config.json, model.safetensors, tokenizer.json"),
        )

    from partwise.interop.reader import read_folder
    from partwise.model.parameters import count_parameters
    from partwise.run.imported import keep
    from partwise.run.places import require_place

    require_place(asked.name, asked.runs_dir)
    imported = read_folder(said.places[0], asked.tokenizer)
    made = keep(imported, asked.name, root=asked.runs_dir)
    parameters = count_parameters(imported.model)
    dtype = str(imported.weights["token_embedding.weight"].dtype).removeprefix("torch.")
    if asked.json:
        report = {
            "schema": 1,
            "run": str(made.path),
            "form": imported.form.model_type,
            "parameters": parameters,
            "dtype": dtype,
            "tokenizer": imported.tokenizer.name,
            "notices": [str(notice) for notice in imported.notices],
        }
        say(json.dumps(report, ensure_ascii=False))
        return 0
    if asked.quiet:
        say(made.path)
        return 0
    for notice in imported.notices:
        remark(notice)
    say(
        message(
            "{form} with {parameters:,} parameters in {dtype}, context of {context} tokens, "
            "tokenizer {tokenizer}: {path}",
            form=imported.form.model_type,
            parameters=parameters,
            dtype=dtype,
            context=f"{imported.model.context_length:,}",
            tokenizer=imported.tokenizer.name,
            path=made.path,
        )
    )
    say(message("let it write: partwise sample {run}", run=made.path))
    say(message("train it on: partwise train TEXT --from {run}", run=made.path))
    return 0
