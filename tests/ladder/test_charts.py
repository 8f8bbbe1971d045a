"""SVG drawings: valid, escaped, inside their frame, and legible as numbers."""

import math
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partwise.ladder.charts import Bar, Line, bars, curves, log_ticks, short, spread_out, ticks

SVG = "{http://www.w3.org/2000/svg}"
finite = st.floats(-1e6, 1e6, allow_nan=False)


def drawn(svg: str) -> ET.Element:
    root = ET.fromstring(svg)
    width, height = map(float, root.attrib["viewBox"].split()[2:])
    for element in root.iter():
        for name in ("x", "x1", "x2", "cx"):
            assert -1 <= float(element.attrib.get(name, 0)) <= width + 1
        for name in ("y", "y1", "y2", "cy"):
            assert -1 <= float(element.attrib.get(name, 0)) <= height + 1
        for pair in element.attrib.get("points", "").split():
            x, y = map(float, pair.split(","))
            assert 0 <= x <= width
            assert 0 <= y <= height
    return root


@given(
    st.lists(
        st.lists(finite, min_size=1, max_size=8),
        min_size=1,
        max_size=6,
    ),
    st.text(max_size=20),
)
def test_curves_are_valid_whatever_the_numbers_and_names(
    losses: list[list[float]], name: str
) -> None:
    name = "".join(char for char in name if char.isprintable())
    lines = [
        Line(name, tuple((float(k), y) for k, y in enumerate(ys)), place + 1)
        for place, ys in enumerate(losses)
    ]
    root = drawn(
        curves(
            lines,
            width=340,
            height=240,
            title=f"<{name}>",
            description="d & e",
            x_label="x",
            y_label="y",
        )
    )
    assert root.find(f"{SVG}title").text == f"<{name}>"  # type: ignore[union-attr]
    assert root.find(f"{SVG}desc").text == "d & e"  # type: ignore[union-attr]
    assert root.attrib["role"] == "img"


@given(st.lists(st.tuples(finite, finite), min_size=1, max_size=6))
def test_bars_are_valid_whatever_the_numbers(ends: list[tuple[float, float]]) -> None:
    rows = [Bar("<a>", start, end, "n", "good", end - 1, end + 1, start) for start, end in ends]
    root = drawn(bars(rows, width=340, title="t", description="d", axis="a", joined=True))
    assert len(root.findall(f"{SVG}rect")) == len(rows)


def test_a_longer_bar_is_longer() -> None:
    rows = [Bar("a", 0, 1, "", "good"), Bar("b", 0, 2, "", "good")]
    root = drawn(bars(rows, width=340, title="t", description="d", axis="a", zero=True))
    first, second = (float(rect.attrib["width"]) for rect in root.findall(f"{SVG}rect"))
    assert second == pytest.approx(2 * first, abs=0.2)


def test_log_axis_is_even_in_powers() -> None:
    rows = [Bar("", 0, 10.0**k, "", "c1") for k in (3, 4, 5)]
    root = drawn(bars(rows, width=340, title="t", description="d", axis="a", log=True))
    a, b, c = (float(rect.attrib["width"]) for rect in root.findall(f"{SVG}rect"))
    assert c - b == pytest.approx(b - a, abs=0.3)


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9), st.integers(2, 9))
def test_ticks_are_round_and_inside(low: float, wide: float, most: int) -> None:
    high = low + wide
    if high - low < 1e-6 * abs(low):
        return
    found = ticks(low, high, most)
    assert len(found) <= most + 1
    slack = 1e-6 * (high - low)
    assert all(low - slack <= tick <= high + slack for tick in found)


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (0, "0"),
        (2.4, "2.4"),
        (-0.25, "−0.25"),
        (5000, "5,000"),
        (10_788_929, "10.8M"),
        (3e-14, "3e-14"),
        (1e15, "1e15"),
    ],
)
def test_short(value: float, word: str) -> None:
    assert short(value) == word


def test_log_ticks() -> None:
    assert log_ticks(5e3, 2e6) == [1e4, 1e5, 1e6]
    assert len(log_ticks(1e-40, 1e3)) <= 9


@given(st.lists(st.floats(0, 100), max_size=6))
def test_labels_do_not_overlap(wanted: list[float]) -> None:
    placed = sorted(spread_out(wanted, 14, 0, 100))
    assert all(b - a >= 14 - 1e-9 for a, b in pairwise(placed))


def test_labels_stay_where_there_is_room() -> None:
    assert spread_out([10, 50, 90], 14, 0, 100) == [10, 50, 90]


def test_nothing_to_draw_is_still_a_drawing() -> None:
    drawn(curves([], width=340, height=200, title="t", description="", x_label="", y_label=""))
    line = Line("n", ((1.0, math.inf),), 1)
    assert "inf" not in curves(
        [line], width=340, height=200, title="t", description="", x_label="", y_label=""
    )
