"""`partwise studio`: the course and the workshop, in the browser, on this machine alone."""

from dataclasses import dataclass
from pathlib import Path

from partwise.cli import flags
from partwise.cli.parser import Parser, Said
from partwise.cli.screen import remark, say
from partwise.messages import message
from partwise.settings import option


@dataclass(frozen=True)
class StudioFlags:
    """What `partwise studio` can be told."""

    port: int | None = option(None, "port to listen on; none: 8017, or the next that is free")
    no_browser: bool = option(False, "print the address and open nothing")
    export: str | None = option(
        None, "write the lessons as static pages into this folder, and serve nothing"
    )
    runs_dir: str = option("runs", "folder that holds the runs")
    ladders_dir: str = option("ladders", "folder that holds the ladders")


def declare(parser: Parser) -> None:
    """Where it listens, and what it shows."""
    flags.add(parser, "", StudioFlags, message("what to do"))


def run(said: Said) -> int:
    """Serve until Ctrl+C.

    Raises:
        UsageError: the port is taken.
    """
    asked = flags.given(said, "", StudioFlags)
    from partwise.studio.pages import not_built
    from partwise.studio.serve import serve
    from partwise.studio.state import State

    state = State(root=Path(asked.runs_dir), ladders=Path(asked.ladders_dir))
    if asked.export is not None:
        from partwise.studio.export import export

        for page in export(Path(asked.export), state, remark):
            say(page)
        return 0

    def announce(address: str) -> None:
        say(address)
        if not (state.static / "index.html").is_file():
            remark(not_built())

    ended = serve(state, port=asked.port, browser=not asked.no_browser, announce=announce)
    remark(message("the studio has stopped"))
    going = ", ".join(state.jobs.running())
    if going:
        remark(message("still training: {names}; the studio shows them again", names=going))
    return 0 if ended is None else 128 + ended
