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
from partwise.settings import above_zero, check, offer, option


@dataclass(frozen=True)
class BenchFlags:
    """What else `partwise bench` can be told."""

    out: str | None = option(None, "also write the result as JSON to this file")
    json: bool = option(False, "print one JSON object instead of a table")


@dataclass(frozen=True)
class DialFlags:
    """What `partwise bench dial` can be told."""

    results: str = option("benchmarks/dial.jsonl", "file that the runs are added to")
    for_minutes: float | None = option(
        None, "begin no run after this long (minutes); none: make all that are missing"
    )
    judge: bool = option(
        False, "the runs that the dial is judged by, instead of those its law is fitted to"
    )
    fit: bool = option(False, "only fit the law to the runs there are, and keep it")

    def __post_init__(self) -> None:
        check(self)
        above_zero(self, "for_minutes")


def declare(parser: Parser) -> None:
    """The benchmarks to run, and how."""
    parser.place(
        "BENCHMARK",
        message(
            "start-up, preparation, training, sampling, memory; none: all of them; dial: the runs "
            "that the minutes dial follows"
        ),
        choices=("start-up", "preparation", "training", "sampling", "memory", "dial"),
        many=True,
    )
    flags.add(parser, "", BenchConfig, message("how"))
    flags.add(parser, "", BenchFlags, message("output"))
    flags.add(parser, "dial", DialFlags, message("the minutes dial"))


def run(said: Said) -> int:
    """Measure and print a table in Markdown.

    Raises:
        UsageError: there is no such benchmark.
    """
    from partwise.bench.measure import BENCHMARKS, Bench, table
    from partwise.storage import try_output, write_output

    if "dial" in said.places:
        if len(said.places) > 1:
            raise UsageError("dial is measured by itself; leave out the other benchmarks")
        return _dial(flags.given(said, "dial", DialFlags))
    config = flags.given(said, "", BenchConfig)
    asked = flags.given(said, "", BenchFlags)
    for word in said.places:
        if word not in BENCHMARKS:
            raise UsageError(
                "there is no benchmark {word!r}; {offer}",
                word=word,
                offer=offer(word, BENCHMARKS),
            )
    if asked.out is not None:
        try_output(Path(asked.out))
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


def _dial(asked: DialFlags) -> int:
    """Make the runs that are missing, or fit the law to those there are."""
    from partwise.bench.dial import fitted, measure
    from partwise.budget.law import FILE, text_of
    from partwise.storage import write_atomic

    results = Path(asked.results)
    if asked.fit:
        law = fitted(results)
        write_atomic(FILE, text_of(law).encode("utf-8"))
        say(text_of(law), end="")
        return 0
    for row in measure(results, minutes=asked.for_minutes, judge=asked.judge):
        say(
            message(
                "{cell}: {size}, loss {loss:.4f}, {seconds:,.0f} core-seconds",
                cell=row["cell"],
                size=row["size"],
                loss=row["loss"],
                seconds=row["core_seconds"],
            )
        )
    return 0
