"""`partwise bench`: the speed of this machine with this version, each figure beside another."""

import json
from dataclasses import dataclass
from pathlib import Path

from partwise.bench.config import BenchConfig
from partwise.cli import flags
from partwise.cli.parser import Parser, Said
from partwise.cli.screen import remark, say
from partwise.errors import UsageError
from partwise.messages import message
from partwise.settings import nearest, option


@dataclass(frozen=True)
class BenchFlags:
    """What else `partwise bench` can be told."""

    out: str | None = option(None, "also write the result as JSON to this file")
    json: bool = option(False, "print one JSON object instead of a table")


def declare(parser: Parser) -> None:
    """The benchmarks to run, and how."""
    parser.place(
        "BENCHMARK",
        message("start-up, preparation, training, sampling, memory; none: all of them"),
        choices=("start-up", "preparation", "training", "sampling", "memory"),
        many=True,
    )
    flags.add(parser, "", BenchConfig, message("how"))
    flags.add(parser, "", BenchFlags, message("output"))


def run(said: Said) -> int:
    """Measure and print a table in Markdown.

    Raises:
        UsageError: there is no such benchmark.
    """
    from partwise.bench.measure import BENCHMARKS, Bench, table
    from partwise.storage import write_output

    config = flags.given(said, "", BenchConfig)
    asked = flags.given(said, "", BenchFlags)
    for word in said.places:
        if word not in BENCHMARKS:
            raise UsageError(
                "there is no benchmark {word!r}; did you mean {nearest}?",
                word=word,
                nearest=nearest(word, BENCHMARKS),
            )
    bench = Bench(tuple(name for name in BENCHMARKS if name in (said.places or BENCHMARKS)), config)
    for each in bench.run():
        remark(
            message(
                "round {number} of {rounds}: {name}: {figure:,.4g} {unit}",
                number=each.number,
                rounds=each.rounds,
                name=each.case.name,
                figure=each.figure,
                unit=each.case.unit,
            )
        )
    result = bench.result()
    text = json.dumps(result, ensure_ascii=False, indent=2)
    if asked.out is not None:
        write_output(Path(asked.out), (text + "\n").encode("utf-8"))
    say(text if asked.json else table(result), end="\n" if asked.json else "")
    return 0
