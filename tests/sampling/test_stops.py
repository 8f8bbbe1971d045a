"""Stop strings against the plain definition: look at the whole text after each character."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partwise.sampling.stops import StopScanner


def plain(text: str, stop: list[str], limit: int | None) -> str:
    """The text before the stop string that is complete first, by looking at every prefix."""
    for length in range(len(text) + 1 if limit is None else min(len(text), limit) + 1):
        ending = [word for word in stop if text[:length].endswith(word)]
        if ending:
            return text[: length - max(map(len, ending))]
    return text if limit is None else text[:limit]


def pieces(text: str, cuts: list[int]) -> list[str]:
    places = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(places)]


@given(
    st.text(alphabet="abc", max_size=30),
    st.lists(st.text(alphabet="abc", min_size=1, max_size=5), max_size=4),
    st.lists(st.integers(0, 30), max_size=8),
    st.none() | st.integers(0, 20),
)
def test_text_ends_before_the_first_complete_stop(
    text: str, stop: list[str], cuts: list[int], limit: int | None
) -> None:
    scanner = StopScanner(stop, limit)
    expected = plain(text, stop, limit)
    shown = ""
    for piece in pieces(text, cuts):
        shown += scanner.push(piece)
        assert expected.startswith(shown), "shown beyond a stop or a possible beginning of one"
    shown += scanner.finish()
    assert shown == expected


@given(
    st.text(alphabet="ab", max_size=20),
    st.lists(st.text(alphabet="ab", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_nothing_is_held_that_cannot_become_a_stop(text: str, stop: list[str]) -> None:
    scanner = StopScanner(stop)
    shown = ""
    for end in range(1, len(text) + 1):
        shown += scanner.push(text[end - 1])
        if scanner.ended:
            break
        held = text[len(shown) : end]
        assert held == "" or any(word.startswith(held) for word in stop)


def test_overlapping_stops() -> None:
    scanner = StopScanner(["abcd", "bc"])
    assert [scanner.push(c) for c in "xabcd"] == ["x", "", "", "a", ""]
    assert scanner.ended


def test_of_two_stops_that_end_together_the_longer_counts() -> None:
    scanner = StopScanner(["b", "ab"])
    assert scanner.push("xab") == "x"


def test_a_stop_across_three_pieces_is_never_shown() -> None:
    scanner = StopScanner(["\nROMEO:"])
    assert [scanner.push(p) for p in ("said.\nRO", "ME", "O", ": no")] == ["said.", "", "", ""]
    assert scanner.ended


def test_a_beginning_that_comes_to_nothing_is_shown_in_the_end() -> None:
    scanner = StopScanner(["END"])
    assert [scanner.push(c) for c in "EEN"] == ["", "E", ""]
    assert scanner.finish() == "EN"


@pytest.mark.parametrize("limit", [0, 1, 5])
def test_the_limit_is_exact(limit: int) -> None:
    scanner = StopScanner((), limit)
    assert (scanner.push("abcdefgh") + scanner.push("ij") + scanner.finish()) == "abcdefgh"[:limit]
    assert scanner.ended
