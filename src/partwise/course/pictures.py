"""Pictures from a cell: `show` a matrix, `plot` some curves; they appear below the cell.

Labels are symbols and numbers, so that one picture serves both languages.
"""

import importlib
import io
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Readable on a light page and on a dark one.
INK = "#808890"
COLOURS = ("#3b82c4", "#e07b39", "#4a9d6e", "#b565a7", "#8a7f3d", "#c9485b", "#5b8def", "#7a7a7a")
DASHES = ("-", "--", "-.", ":")


def show(
    values: Any,
    *,
    rows: Sequence[str] | str | None = None,
    cols: Sequence[str] | str | None = None,
    title: str = "",
    centre: float | None = None,
) -> None:
    """Show one matrix, or several beside each other, as heat maps.

    Args:
        values: (rows, columns), one such matrix a name, or (n, rows, columns).
        rows, cols: what to write at rows and columns: one label each, such as the characters.
        title: above it.
        centre: this value is white, smaller ones blue and larger ones red; None: from light to
            dark.
    """
    if isinstance(values, Mapping):
        panels = {str(name): np.asarray(value, float) for name, value in values.items()}
    else:
        array = np.asarray(values, float)
        array = array[None] if array.ndim == 1 else array
        panels = (
            {title: array}
            if array.ndim == 2
            else {f"{title} {i}".strip(): each for i, each in enumerate(array)}
        )
    # At most three beside each other, so that labels stay readable on a page and on a phone.
    down = -(-len(panels) // 3)
    across = -(-len(panels) // down)
    figure = _figure(3.2 * across + 0.6, 3.2 * down)
    for place, (name, matrix) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(down, across, place)
        kind: dict[str, Any] = {"cmap": "Blues"}
        if centre is not None:
            reach = float(np.nanmax(np.abs(matrix - centre))) or 1.0
            kind = {"cmap": "RdBu_r", "vmin": centre - reach, "vmax": centre + reach}
        picture = axes.imshow(matrix, aspect="auto", interpolation="nearest", **kind)
        bar = figure.colorbar(picture, ax=axes)
        bar.ax.tick_params(colors=INK, labelsize=7)
        _dress(axes, name)
        for labels, ticks in ((rows, axes.set_yticks), (cols, axes.set_xticks)):
            if labels is not None:
                shown = [{" ": "␣", "\n": "↵"}.get(label, label) for label in labels]
                ticks(range(len(shown)), shown)
    _display(figure)


def plot(
    curves: Mapping[str, Iterable[float]],
    *,
    x: Sequence[float] | None = None,
    xlabel: str = "",
    ylabel: str = "",
    log: bool = False,
    title: str = "",
) -> None:
    """Plot curves over one axis, told apart by colour and by stroke.

    Args:
        curves: name -> values.
        x: where the values stand; None: 1, 2, 3, …
        xlabel, ylabel, title: what to write.
        log: a logarithmic scale upwards.
    """
    figure = _figure(6.4, 3.4)
    axes = figure.add_subplot(1, 1, 1)
    whole = True
    for i, (name, values) in enumerate(curves.items()):
        ys = np.asarray(list(values), float)
        xs = np.arange(1, len(ys) + 1) if x is None else np.asarray(x, float)
        whole = whole and bool(np.all(xs == np.round(xs)))
        colour, dash = COLOURS[i % len(COLOURS)], DASHES[i // 2 % len(DASHES)]
        mark = "o" if len(ys) <= 12 else None
        axes.plot(xs, ys, dash, color=colour, marker=mark, markersize=3.5, label=name)
    if log:
        axes.set_yscale("log")
    if whole:
        from matplotlib.ticker import MaxNLocator

        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(xlabel, color=INK)
    axes.set_ylabel(ylabel, color=INK)
    axes.grid(alpha=0.25)
    if len(curves) > 1:
        axes.legend(frameon=False, labelcolor=INK, fontsize=8)
    _dress(axes, title)
    _display(figure)


def _figure(width: float, height: float) -> "Figure":
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=130, layout="constrained", facecolor="none")


def _dress(axes: Any, title: str) -> None:
    axes.set_title(title, color=INK, fontsize=9)
    axes.set_facecolor("none")
    axes.tick_params(colors=INK, labelsize=8)
    for side in axes.spines.values():
        side.set_color(INK)
        side.set_linewidth(0.5)


def _display(figure: "Figure") -> None:
    """Hand the picture to the notebook; without one there is nobody to see it."""
    data = io.BytesIO()
    figure.savefig(data, format="png")
    if "IPython" in sys.modules:
        notebook: Any = importlib.import_module("IPython")
        shown: Any = importlib.import_module("IPython.display")
        if notebook.get_ipython() is not None:
            shown.display(shown.Image(data.getvalue(), format="png"))
