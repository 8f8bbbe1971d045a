"""The alignment picture: source above, translation at the side, and how much each looked at which.

An SVG of squares without a library, a font file or a script; a square's darkness is its weight, and
pointing at it says the number.
"""

from collections.abc import Sequence
from html import escape

CELL = 26
LETTER = 7.6
EDGE = 12

_STYLE = (
    "text{font:13px ui-monospace,monospace;fill:#1a1a1a}rect{fill:#1f4e8c;stroke:#e4e4e4}"
    "@media(prefers-color-scheme:dark){svg{background:#16181c}text{fill:#e8e8e8}"
    "rect{fill:#7fb2f0;stroke:#33373d}}"
)


def alignment_svg(
    weights: Sequence[Sequence[float]],
    source: Sequence[str],
    target: Sequence[str],
    title: str,
) -> str:
    """The picture as an SVG document.

    Args:
        weights: one row for each token of the target, one number from 0 to 1 for each of the
            source.
        source, target: the tokens as they are shown.
        title: for readers who do not see it, and for a window's bar.
    """
    left = EDGE + max(map(_wide, target)) * LETTER + 8
    top = EDGE + max(map(_wide, source)) * LETTER + 8
    width = left + CELL * len(source) + EDGE
    height = top + CELL * len(target) + EDGE
    drawn = [f"<title>{escape(title)}</title><style>{_STYLE}</style>"]
    for column, token in enumerate(source):
        x = left + CELL * (column + 0.5) + 4
        drawn.append(
            f'<text transform="translate({x:.1f} {top - 8:.1f}) rotate(-90)">{escape(token)}</text>'
        )
    for row, token in enumerate(target):
        y = top + CELL * row
        drawn.append(
            f'<text x="{left - 8:.1f}" y="{y + CELL / 2 + 4:.1f}" text-anchor="end">'
            f"{escape(token)}</text>"
        )
        for column, weight in enumerate(weights[row]):
            said = escape(f"{token} ← {source[column]}: {weight:.2f}")
            drawn.append(
                f'<rect x="{left + CELL * column:.1f}" y="{y:.1f}" width="{CELL}" height="{CELL}" '
                f'fill-opacity="{weight:.3f}"><title>{said}</title></rect>'
            )
    return (
        f'<svg role="img" xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" '
        f'height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">' + "".join(drawn) + "</svg>"
    )


def _wide(words: str) -> float:
    """The width of a text in letters; Chinese and the like count twice."""
    return sum(2 if ord(letter) > 0x2E80 else 1 for letter in words)
