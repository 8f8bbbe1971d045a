"""`partwise ladder`: what each part of a Transformer buys, measured."""

import json
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from partwise.cli import flags
from partwise.cli.interrupts import first_saves
from partwise.cli.parser import Parser, Said
from partwise.cli.screen import remark, say
from partwise.ladder.config import LadderConfig
from partwise.messages import message
from partwise.settings import option

# A terminal's usual width.
NARROW = 80


@dataclass(frozen=True)
class LadderFlags:
    """What `partwise ladder` can be told beside the ladder's own settings."""

    text: str | None = option(
        None, "text to climb on; none: tinyshakespeare, or shakespeare where it cannot be had"
    )
    ladders_dir: str = option("ladders", "folder that holds the ladders")
    offline: bool = option(False, "never download anything")
    quiet: bool = option(False, "print the report's path at the end and nothing else")
    json: bool = option(False, "print the table as one JSON object and nothing else")


def declare(parser: Parser) -> None:
    """Every setting of a ladder."""
    flags.add(parser, "", LadderConfig, message("ladder"))
    flags.add(parser, "", LadderFlags, message("text and output"))


def run(said: Said) -> int:
    """Climb, or show what each rung adds.

    Raises:
        ConfigError: what was asked for makes no sense.
    """
    asked = flags.given(said, "", LadderFlags)
    config = flags.given(said, "", LadderConfig)
    if config.show:
        return _show(config, asked.json)
    from partwise.cli.ladder_view import view_for
    from partwise.ladder.climb import climb
    from partwise.ladder.events import Climbed, Event, Failed

    view = view_for(quiet=asked.quiet or asked.json)
    climbed: Climbed | None = None
    fatal = False

    def events(stop: Any) -> Iterator[Event]:
        return climb(
            config, root=asked.ladders_dir, text=asked.text, offline=asked.offline, stop=stop
        )

    words = message("saving what is at hand; a second time ends at once, without saving")
    with first_saves(words) as stop:
        try:
            for event in events(stop):
                if isinstance(event, Climbed):
                    climbed = event
                fatal |= isinstance(event, Failed) and event.fatal
                view(event)
        finally:
            view.close()
    assert climbed is not None
    if asked.json:
        say(json.dumps(climbed.table.to_dict(), ensure_ascii=False, indent=2))
    elif asked.quiet:
        say(climbed.report)
    else:
        view.conclude(climbed)
    if climbed.reason == "interrupted":
        return stop.status
    return 2 if fatal else 0


def _show(config: LadderConfig, as_json: bool) -> int:
    """What each chosen rung adds to the one below it, and what each variant changes."""
    from partwise.ladder.rungs import changes, definition, difference, rung
    from partwise.ladder.variants import choose, variants

    chosen = [rung(number) for number in config.rungs]
    choice = choose(chosen, variants(config.without, config.swap, config.each))
    found: list[dict[str, Any]] = []
    for here in chosen:
        below = None if here.number == 1 else rung(here.number - 1)
        entry: dict[str, Any] = {"rung": here.number, "name": here.name, "adds": str(here.adds)}
        if below is None:
            entry["definition"] = dict(definition(here))
        else:
            entry["changes"] = [vars(change) for change in changes(below, here)]
        entry["variants"] = []
        if not as_json:
            say(f"{here.number} {here.name}")
            for line in textwrap.wrap(str(here.adds), NARROW - 2):
                say(f"  {line}")
            if below is None:
                for line in _in_lines(definition(here)):
                    say(f"    {line}")
            for change in changes(below, here):
                say(f"    {change}")
        for there, variant in choice.pairs:
            if there == here:
                model, train = variant.applied(here)
                differing = difference(here.model, model, here.train, train)
                entry["variants"].append(
                    {"variant": variant.label, "changes": [vars(one) for one in differing]}
                )
                if not as_json:
                    say(f"  {variant.label}")
                    for change in differing:
                        say(f"    {change}")
        found.append(entry)
    if as_json:
        say(json.dumps({"schema": 1, "rungs": found}, ensure_ascii=False, indent=2))
        return 0
    for notice in choice.notices:
        remark(notice)
    return 0


def _in_lines(pairs: tuple[tuple[str, Any], ...]) -> Iterator[str]:
    """`name=value` pairs, as many to a line as a narrow terminal holds."""
    from partwise.ladder.rungs import written

    line = ""
    for name, value in pairs:
        word = f"{name}={written(value)}"
        if line and len(line) + len(word) + 2 > NARROW - 4:
            yield line
            line = ""
        line = f"{line}  {word}" if line else word
    if line:
        yield line
