"""Pictures for the report: small SVG drawings without a library, a font file or a script.

A drawing takes its width, so the report can hold a wide one and a narrow one and let the page
choose; text keeps its size in both. Colours are CSS classes (`c1` … `c6`, `good`, `bad`, `quiet`),
so light, dark and printed pages differ in the style sheet alone. Colour is never the only sign:
lines carry their names and dash patterns, bars carry their numbers.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

DASHES = ("", "7 3", "2 3", "9 3 2 3", "5 2", "1 2")

ROW = 34


@dataclass(frozen=True)
class Line:
    """One curve.

    Args:
        name: what stands at its right end.
        points: (x, y), x rising.
        colour: 1 to 6.
        reference: a horizontal dashed line of the same colour, if there is one.
        dashed: drawn with the colour's dash pattern instead of a full line.
        band: (x, low, high) of the shade around it.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    colour: int
    reference: float | None = None
    dashed: bool = False
    band: tuple[tuple[float, float, float], ...] = ()


@dataclass(frozen=True)
class Bar:
    """One row of a chart of horizontal bars.

    Args:
        label: what stands above the bar.
        start, end: where the bar begins and ends on the axis.
        note: its number in words.
        kind: `good`, `bad`, `quiet`, or a colour `c1` … `c6`.
        low, high: ends of its whisker, if it has one.
        reference: a diamond on the row, if there is one.
    """

    label: str
    start: float
    end: float
    note: str
    kind: str
    low: float | None = None
    high: float | None = None
    reference: float | None = None


@dataclass
class _Drawing:
    """An SVG that is being drawn."""

    width: int
    height: int
    title: str
    description: str
    inside: list[str] = field(default_factory=list)

    def add(self, shape: str) -> None:
        self.inside.append(shape)

    def text(
        self, x: float, y: float, words: str, *, anchor: str = "start", kind: str = "label"
    ) -> None:
        self.add(
            f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
            f"{escape(words)}</text>"
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str, dash: str = "") -> None:
        pattern = f' stroke-dasharray="{dash}"' if dash else ""
        self.add(
            f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
            f"{pattern}/>"
        )

    def svg(self) -> str:
        return (
            f'<svg role="img" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
            f'height="{self.height}" xmlns="http://www.w3.org/2000/svg">'
            f"<title>{escape(self.title)}</title><desc>{escape(self.description)}</desc>"
            + "".join(self.inside)
            + "</svg>"
        )


def curves(
    lines: Sequence[Line],
    *,
    width: int,
    height: int,
    title: str,
    description: str,
    x_label: str,
    y_label: str,
    mark: tuple[float, str] | None = None,
    y_log: bool = False,
) -> str:
    """Curves over a shared x, named at their right ends.

    Args:
        lines: the curves.
        width, height: of the drawing (pixels).
        title, description: for readers who do not see it.
        x_label, y_label: what the axes count.
        mark: a vertical line at x with a word.
        y_log: a logarithmic y axis, all y above 0.
    """
    drawing = _Drawing(width, height, title, description)
    longest = max((_wide(line.name) for line in lines), default=0)
    left, right, top, bottom = 46, min(longest * 7.4 + 14, width * 0.42), 26, 36
    x_low, x_high = _range(x for line in lines for x, _ in line.points)
    ys = [y for line in lines for _, y in line.points]
    ys += [line.reference for line in lines if line.reference is not None]
    ys += [y for line in lines for _, low, high in line.band for y in (low, high)]
    y_low, y_high = _range(ys, log=y_log)

    def x_at(x: float) -> float:
        return left + (x - x_low) / (x_high - x_low) * (width - left - right)

    def y_at(y: float) -> float:
        share = _share(y, y_low, y_high, y_log)
        return height - bottom - share * (height - top - bottom)

    for y in log_ticks(y_low, y_high) if y_log else ticks(y_low, y_high, 5):
        drawing.line(left, y_at(y), width - right, y_at(y), "grid")
        drawing.text(left - 6, y_at(y) + 4, short(y), anchor="end", kind="tick")
    for x in ticks(x_low, x_high, 4 if width < 500 else 6):
        drawing.line(x_at(x), height - bottom, x_at(x), height - bottom + 4, "axis")
        drawing.text(x_at(x), height - bottom + 17, short(x), anchor="middle", kind="tick")
    drawing.line(left, height - bottom, width - right, height - bottom, "axis")
    drawing.text(left, 14, y_label, kind="tick")
    drawing.text(width - right, height - 4, x_label, anchor="end", kind="tick")
    if mark is not None:
        drawing.line(x_at(mark[0]), top, x_at(mark[0]), height - bottom, "mark", "3 3")
        beyond = x_at(mark[0]) > (left + width - right) / 2
        drawing.text(
            x_at(mark[0]) + (-4 if beyond else 4),
            top + 10,
            mark[1],
            anchor="end" if beyond else "start",
            kind="tick",
        )
    for line in lines:
        if line.reference is not None:
            y = y_at(line.reference)
            drawing.line(left, y, width - right, y, f"reference c{line.colour}", "4 3")
        if line.band:
            upper = [f"{x_at(x):.1f},{y_at(high):.1f}" for x, _, high in line.band]
            lower = [f"{x_at(x):.1f},{y_at(low):.1f}" for x, low, _ in reversed(line.band)]
            drawing.add(
                f'<polygon class="band c{line.colour}" points="{" ".join(upper + lower)}"/>'
            )
        points = " ".join(f"{x_at(x):.1f},{y_at(y):.1f}" for x, y in line.points)
        dash = f' stroke-dasharray="{DASHES[2]}"' if line.dashed else ""
        drawing.add(f'<polyline class="curve c{line.colour}"{dash} points="{points}"/>')
    ended = [line for line in lines if line.points]
    places = spread_out([y_at(line.points[-1][1]) for line in ended], 14, top, height - bottom)
    for line, place in zip(ended, places, strict=True):
        last = y_at(line.points[-1][1])
        drawing.line(width - right + 1, last, width - right + 7, place, f"leader c{line.colour}")
        drawing.text(width - right + 9, place + 4, line.name, kind=f"name c{line.colour}")
    return drawing.svg()


def bars(
    rows: Sequence[Bar],
    *,
    width: int,
    title: str,
    description: str,
    axis: str,
    log: bool = False,
    zero: bool = False,
    joined: bool = False,
) -> str:
    """Horizontal bars, one a row, each with its name and number above it.

    Args:
        rows: the bars from top to bottom.
        width: of the drawing (pixels).
        title, description: for readers who do not see it.
        axis: what the axis counts.
        log: a logarithmic axis; bars then begin at its left end.
        zero: draw a line at 0, where the bars begin.
        joined: a thread from each bar's start up to the row above, as in a waterfall.
    """
    top, bottom, left, right = 4, 36, 10, 14
    height = top + ROW * len(rows) + bottom
    drawing = _Drawing(width, height, title, description)
    ends = [value for row in rows for value in (row.start, row.end, row.low, row.high)]
    ends += [row.reference for row in rows]
    kept = [value for value in ends if value is not None and (value > 0 or not log)]
    low, high = _range(kept + ([0.0] if zero else []), log=log)

    def x_at(value: float) -> float:
        share = 0.0 if log and value <= 0 else _share(value, low, high, log)
        return left + share * (width - left - right)

    floor = height - bottom
    for value in log_ticks(low, high) if log else ticks(low, high, 4 if width < 500 else 7):
        drawing.line(x_at(value), top, x_at(value), floor, "grid")
        drawing.text(x_at(value), floor + 15, short(value), anchor="middle", kind="tick")
    drawing.text(width - right, height - 3, axis, anchor="end", kind="tick")
    for place, row in enumerate(rows):
        y = top + ROW * place
        if joined and place:
            x = x_at(row.start)
            drawing.line(x, y - ROW + 28, x, y + 18, "join", "2 2")
        begin, end = sorted((x_at(row.start), x_at(row.end)))
        drawing.text(left, y + 13, row.label, kind="label halo")
        drawing.text(width - right, y + 13, row.note, anchor="end", kind="label halo")
        drawing.add(
            f'<rect class="bar {row.kind}" x="{begin:.1f}" y="{y + 18:.1f}" '
            f'width="{max(end - begin, 1.5):.1f}" height="10" rx="1.5"/>'
        )
        if zero:
            drawing.line(x_at(0), y + 15, x_at(0), y + 31, "axis")
        if row.low is not None and row.high is not None:
            middle = y + 23
            drawing.line(x_at(row.low), middle, x_at(row.high), middle, "whisker")
            for edge in (row.low, row.high):
                drawing.line(x_at(edge), middle - 3, x_at(edge), middle + 3, "whisker")
        if row.reference is not None:
            x, middle = x_at(row.reference), y + 23
            drawing.add(
                f'<path class="diamond" d="M{x - 5:.1f} {middle} L{x:.1f} {middle - 6} '
                f'L{x + 5:.1f} {middle} L{x:.1f} {middle + 6} Z"/>'
            )
    return drawing.svg()


def ticks(low: float, high: float, most: int) -> list[float]:
    """At most about `most` round numbers from low to high: 1, 2 or 5 times a power of ten apart."""
    wide = high - low
    power: float = 10.0 ** math.floor(math.log10(wide / most))
    step = next((power * k for k in (1, 2, 5) if wide / (power * k) <= most), power * 10)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten from low to high, eight at most; low and high where there are too few."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    apart = max(1, math.ceil((last - first + 1) / 8))
    powers = [10.0**k for k in range(first, last + 1, apart)]
    return powers if len(powers) > 1 else [low, high]


def short(value: float) -> str:
    """A number as an axis shows it: 2.4, 5,000, 10M, 3e-14."""
    if value == 0:
        return "0"
    size = abs(value)
    for unit, word in ((1e9, "G"), (1e6, "M")):
        if unit <= size < unit * 1000:
            return f"{value / unit:.3g}{word}"
    if size >= 1e12 or size < 1e-3:
        return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")
    if size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}".replace("-", "\N{MINUS SIGN}")


def spread_out(wanted: Sequence[float], apart: float, low: float, high: float) -> list[float]:
    """Places near `wanted`, at least `apart` from each other where low to high has the room."""
    order = sorted(range(len(wanted)), key=lambda place: wanted[place])
    placed: list[float] = []
    for index in order:
        placed.append(max(wanted[index], placed[-1] + apart if placed else low))
    if placed and placed[-1] > high:
        placed[-1] = high
        for k in range(len(placed) - 2, -1, -1):
            placed[k] = min(placed[k], placed[k + 1] - apart)
    found = [0.0] * len(wanted)
    for index, place in zip(order, placed, strict=True):
        found[index] = place
    return found


def _range(values: Iterable[float], log: bool = False) -> tuple[float, float]:
    """Lowest and highest with a little air; never empty."""
    kept = [value for value in values if math.isfinite(value)]
    if log:
        kept = [value for value in kept if value > 0] or [1.0]
        return min(kept) / 1.3, max(kept) * 1.3
    low, high = min(kept, default=0.0), max(kept, default=1.0)
    air = 0.04 * (high - low) or 0.04 * abs(high) or 1.0
    # An axis that begins at 0 begins there.
    return (low if low == 0 else low - air), high + air


def _share(value: float, low: float, high: float, log: bool) -> float:
    if log:
        value, low, high = math.log(max(value, low)), math.log(low), math.log(high)
    return min(1.0, max(0.0, (value - low) / (high - low)))


def _wide(words: str) -> float:
    """Width in Latin letters; a Chinese character takes two."""
    return sum(2 if ord(char) > 0x2E80 else 1 for char in words)
