"""The ladder as one drawing, for a page that is not the report: `ladder.svg`."""

from importlib import resources

from partwise.ladder.pictures import WIDE, waterfall_of_width
from partwise.ladder.table import LadderTable


def cover(table: LadderTable) -> str:
    """What each part bought, as an SVG file that carries the report's style sheet in itself."""
    drawing = waterfall_of_width(table, WIDE)
    style = resources.files("partwise.ladder").joinpath("report.css").read_text(encoding="utf-8")
    # In a page of its own a drawing has no body to take font and ground from.
    ground = "svg { font-family: system-ui, sans-serif; background: var(--page); }"
    start = drawing.index(">") + 1
    return f"{drawing[:start]}<style>{style}\n{ground}</style>{drawing[start:]}\n"
