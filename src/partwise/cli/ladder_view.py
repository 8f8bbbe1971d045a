"""Draws a ladder: a live table of 80 columns on a terminal, plain lines in a pipe."""

import sys
from typing import Any

from partwise.cli.screen import console, harmless, is_terminal, say, show
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
from partwise.ladder.parts import label as part_label
from partwise.ladder.pictures import loss, signed, with_error
from partwise.ladder.rungs import PUBLISHED_CORPUS
from partwise.ladder.table import Group, LadderTable
from partwise.messages import message

Key = tuple[int, str | None]

# The longest name of a rung: `3 feedforward`. A variant's is folded to it.
NAME = 13


class QuietView:
    """Draws nothing."""

    def __call__(self, event: Event) -> None:
        return

    def close(self) -> None:
        """Leave the terminal as it was."""

    def conclude(self, climbed: Climbed) -> None:
        """Say what came of it."""


class LineView(QuietView):
    """Plain lines."""

    def __call__(self, event: Event) -> None:
        match event:
            case Planned():
                self.line(title(event.corpus))
                self.line(planned(event))
            case Measured() if not event.before:
                row = event.row
                self.line(
                    message(
                        "{which}: validation loss {loss}, best {best}, {seconds} s",
                        which=which(row.rung, row.name, row.variant, row.seed),
                        loss=loss(row.val_loss),
                        best=loss(row.best_val_loss),
                        seconds=f"{row.seconds:.1f}",
                    )
                )
            case Failed():
                failure = event.failure
                self.line(
                    message(
                        "{which}: not trained: {reason}",
                        which=which(failure.rung, failure.name, failure.variant, failure.seed),
                        reason=failure.reason,
                    )
                )
            case PartSilenced():
                one = event.silenced
                self.line(
                    message(
                        "rung {rung} without {part}: {loss} ({difference})",
                        rung=one.rung,
                        part=part_label(one.part),
                        loss=loss(one.val_loss),
                        difference=signed(one.difference),
                    )
                )
            case Said():
                self.line(str(event.notice))
            case _:
                pass

    def line(self, words: str) -> None:
        """One line, above whatever moves."""
        say(harmless(words))

    def conclude(self, climbed: Climbed) -> None:
        table = climbed.table
        say()
        if table.groups:
            show_table(table)
            say()
            for line in verdicts(table):
                say(line)
        if climbed.reason == "interrupted":
            say(message("interrupted and saved; the same command goes on where it stopped"))
        say(message("report: {path}", path=climbed.report))


class LiveView(LineView):
    """The same lines above a table that fills as the rungs are trained."""

    def __init__(self) -> None:
        self._console = console()
        self._live: Any = None
        self._keys: list[Key] = []
        self._moves: dict[tuple[int, str | None, int], Moved] = {}
        self._table: LadderTable | None = None
        self._published = False
        self._seeds: dict[Key, int] = {}

    def __call__(self, event: Event) -> None:
        if not isinstance(event, Measured):
            super().__call__(event)
        match event:
            case Planned():
                self._begin(event)
            case Moved():
                self._moves[event.rung, event.variant, event.seed] = event
                self._draw()
            case Measured():
                self._table = event.table
                self._moves.pop((event.row.rung, event.row.variant, event.row.seed), None)
                self._draw()
            case _:
                pass

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def line(self, words: str) -> None:
        from rich.text import Text

        self._console.print(Text(harmless(words), overflow="fold"))

    def _begin(self, event: Planned) -> None:
        from rich.live import Live

        self._published = event.published
        for rung, variant, _ in event.runs:
            self._seeds[rung, variant] = self._seeds.get((rung, variant), 0) + 1
        self._keys = list(self._seeds)
        # What others print must not be caught up in the table.
        self._live = Live(
            console=self._console,
            refresh_per_second=8,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()
        self._draw()

    def _draw(self) -> None:
        if self._live is None:
            return
        done = {group.key: group for group in self._table.groups} if self._table else {}
        several = max(self._seeds.values(), default=1) > 1
        published = self._published
        rows = []
        for key in self._keys:
            moving = [move for move in self._moves.values() if (move.rung, move.variant) == key]
            group = done.get(key)
            if group is not None and self._table is not None and not moving:
                rows.append(cells(self._table, group, several, published))
            else:
                rows.append(self._moving(key, moving, group, several, published))
        self._live.update(Grid(headings(several, published), rows))

    def _moving(
        self, key: Key, moving: list[Moved], group: Group | None, several: bool, published: bool
    ) -> list[str]:
        """A row that is being trained, or waits."""
        finished = len(group.rows) if group is not None else 0
        share = float(finished) + sum(move.step / max(move.steps, 1) for move in moving)
        losses = [move.val_loss or move.train_loss for move in moving]
        known = [value for value in losses if value is not None]
        row = ["" for _ in headings(several, published)]
        row[0] = name_of(*key)
        if moving or finished:
            row[2] = f"{sum(known) / len(known):.2f}…" if known else "…"
            row[-1] = f"{100 * share / self._seeds[key]:.0f} %"
        else:
            row[-1] = message("waits")
        return row


def view_for(*, quiet: bool) -> QuietView:
    """The view that suits where it is read."""
    if quiet:
        return QuietView()
    return LiveView() if is_terminal(sys.stdout) else LineView()


def title(corpus: str) -> str:
    """What is climbed; another text than tiny Shakespeare is named, for its figures are others."""
    if corpus == PUBLISHED_CORPUS:
        return message("The ladder on tiny Shakespeare")
    return message(
        "The ladder on {corpus} (published values belong to tiny Shakespeare; none are shown)",
        corpus=corpus,
    )


def planned(event: Planned) -> str:
    """How much there is to do."""
    return message(
        "models: {count}, trained before: {finished}, at once: {workers}",
        count=len(event.runs),
        finished=event.finished,
        workers=event.workers,
    )


def which(rung: int, name: str, variant: str | None, seed: int) -> str:
    """One model in words."""
    if variant is None:
        return message("rung {rung} {name}, seed {seed}", rung=rung, name=name, seed=seed)
    return message(
        "rung {rung} {name}, {variant}, seed {seed}",
        rung=rung,
        name=name,
        variant=variant,
        seed=seed,
    )


def name_of(rung: int, variant: str | None, name: str | None = None) -> str:
    """A row's first cell: `4 residual`, or the variant under it."""
    from partwise.ladder.config import RUNG_NAMES

    return f"{rung} {name or RUNG_NAMES[rung - 1]}" if variant is None else f"  {variant}"


def headings(several: bool, published: bool) -> list[str]:
    """One heading a column."""
    names = [
        message("rung"),
        message("params"),
        message("loss"),
        message("difference"),
        message("best"),
    ]
    if several:
        names.insert(3, message("sd"))
    if published:
        names.append(message("published"))
    return [*names, message("time")]


def cells(table: LadderTable, group: Group, several: bool, published: bool) -> list[str]:
    """One rung or variant in the columns of `headings`."""
    step, spread = table.step(group), group.val_loss
    row = [
        name_of(group.rung, group.variant, group.name),
        count(group.parameters),
        loss(spread.mean),
        "" if step is None or not step.seeds else with_error(step),
        loss(group.best_val_loss.mean),
    ]
    if several:
        row.insert(3, "" if spread.sd is None else f"{spread.sd:.3f}")
    if published:
        row.append("" if group.published is None else f"({group.published:.2f})")
    return [*row, seconds(group.seconds)]


class Grid:
    """A table that fits where it is drawn.

    A long variant's name is folded. Where the numbers need more than there is, whole columns are
    left out rather than digits.

    Args:
        names: the headings (see `headings`).
        rows: the cells.
    """

    def __init__(self, names: list[str], rows: list[list[str]]) -> None:
        self._names, self._rows = names, rows

    def __rich_console__(self, console: Any, options: Any) -> Any:
        """The table as wide as the terminal lets it be."""
        yield self.fitted(options.max_width)

    def fitted(self, width: int) -> Any:
        """The table in at most `width` columns of the terminal."""
        from rich.cells import cell_len
        from rich.table import Table
        from rich.text import Text

        lines = [self._names, *self._rows]
        widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
        widths[0] = min(widths[0], NAME)
        kept = list(range(len(widths)))
        first_to_go = ("params", "sd", "best", "published", "time", "difference")
        for name in map(message, first_to_go):
            # One column of the terminal between any two.
            if sum(widths[place] + 1 for place in kept) - 1 <= width:
                break
            kept = [place for place in kept if self._names[place] != name]
        drawn = Table(box=None, padding=(0, 1, 0, 0), header_style="bold", pad_edge=False)
        for place in kept:
            drawn.add_column(
                Text(self._names[place]),
                justify="right" if place else "left",
                no_wrap=place > 0,
                overflow="fold",
                max_width=None if place else 24,
            )
        for row in self._rows:
            drawn.add_row(*(Text(row[place]) for place in kept))
        return drawn


def show_table(table: LadderTable) -> None:
    """The whole table on standard output."""
    several = any(len(group.rows) > 1 for group in table.groups)
    published = any(group.published is not None for group in table.groups)
    rows = [cells(table, group, several, published) for group in table.groups]
    show(Grid(headings(several, published), rows))


def verdicts(table: LadderTable) -> list[str]:
    """What may be concluded of each difference, and what the columns mean."""
    lines = []
    for group in table.groups:
        step, below = table.step(group), table.below(group)
        if step is None or below is None or step.verdict in ("lower", "one seed"):
            continue
        name = group.name if group.variant is None else group.variant
        lines.append(
            message(
                "{below} to {name}: {difference} ({verdict})",
                below=below.name,
                name=name,
                difference=with_error(step),
                verdict=step,
            )
        )
    steps = [step for step in map(table.step, table.groups) if step is not None]
    if any(step.verdict == "one seed" for step in steps):
        lines.append(message("one seed cannot tell which differences are noise; --seeds 3 can"))
    elif steps:
        lines.append(message("difference: mean ± standard error over paired seeds (nats a token)"))
    if any(group.published is not None for group in table.groups):
        lines.append(message("(in brackets: published values, for reference; not results)"))
    return lines


def count(parameters: int) -> str:
    """Parameters in four places: 7,553, 42.4k, 10.8M."""
    if parameters < 10_000:
        return f"{parameters:,}"
    return f"{parameters / 1e3:.1f}k" if parameters < 1e6 else f"{parameters / 1e6:.1f}M"


def seconds(value: float) -> str:
    """A time in few places: 3.1s, 4m, 6.1h."""
    if value < 100:
        return f"{value:.1f}s"
    return f"{value / 60:.1f}m" if value < 6000 else f"{value / 3600:.1f}h"
