"""Beam search against every text there is, and against greedy search where it must be greedy."""

import hashlib
import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from partwise.errors import ConfigError, SamplingError
from partwise.sampling.beam import Found, beam_search, greedy, length_penalty
from partwise.sampling.search_config import SearchConfig

START, END, PAD = 4, 5, 3
VOCABULARY = 6
LETTERS = (0, 1, 2)


class Oracle:
    """A language whose next token depends on everything before it, by a hash."""

    def __init__(self, names: Sequence[str], sharpness: float = 3.0) -> None:
        self.sharpness = sharpness
        self.rows: list[tuple[str, tuple[int, ...]]] = [(name, ()) for name in names]
        self.reads = 0

    def scores(self, name: str, text: tuple[int, ...]) -> list[float]:
        digest = hashlib.sha256(repr((name, text)).encode()).digest()
        seed = np.frombuffer(digest[:8], np.uint64)[0]
        return list(self.sharpness * np.random.default_rng(seed).standard_normal(VOCABULARY))

    def read(self, ids: Tensor) -> Tensor:
        self.reads += 1
        self.rows = [
            (name, (*text, *new)) for (name, text), new in zip(self.rows, ids.tolist(), strict=True)
        ]
        return torch.tensor([self.scores(*row) for row in self.rows], dtype=torch.float64)

    def select(self, rows: Tensor) -> None:
        self.rows = [self.rows[row] for row in rows.tolist()]

    def log_probability(self, name: str, text: tuple[int, ...]) -> float:
        """Of a text and its END, token by token."""
        total, before = 0.0, (START,)
        for token in (*text, END):
            scores = torch.tensor(self.scores(name, before), dtype=torch.float64)
            total += scores.log_softmax(-1)[token].item()
            before = (*before, token)
        return total


def begin(texts: int = 1) -> Tensor:
    return torch.full((texts, 1), START)


def search(oracle: Oracle, width: int, alpha: float, longest: int) -> list[list[Found]]:
    return beam_search(
        oracle,
        begin(len(oracle.rows)),
        end=END,
        never=(PAD, START),
        width=width,
        alpha=alpha,
        longest=longest,
    )


def every_text(longest: int) -> list[tuple[int, ...]]:
    return [text for n in range(longest + 1) for text in itertools.product(LETTERS, repeat=n)]


def test_the_penalty_is_the_published_one() -> None:
    assert length_penalty(1, 0.6) == 1.0
    assert length_penalty(7, 1.0) == 2.0
    assert length_penalty(13, 0.6) == pytest.approx(3**0.6)
    assert length_penalty(99, 0.0) == 1.0


@settings(max_examples=30, deadline=None)
@given(
    name=st.text(max_size=5),
    alpha=st.sampled_from([0.0, 0.6, 1.0, 2.0]),
    longest=st.integers(0, 3),
)
def test_a_beam_as_wide_as_the_language_finds_the_best_of_all_texts(
    name: str, alpha: float, longest: int
) -> None:
    texts = every_text(longest)
    oracle = Oracle([name])
    by_hand = {
        text: oracle.log_probability(name, text) / length_penalty(len(text) + 1, alpha)
        for text in texts
    }
    # One more than there are texts: then the beam is never full, and nothing is left out.
    found = search(Oracle([name]), len(texts) + 1, alpha, longest)[0]
    best = max(by_hand, key=lambda text: by_hand[text])
    assert found[0].ids == best
    # Near 0 a float32 logarithm of a probability is right to a few 1e-8, not to a share of itself.
    assert found[0].score == pytest.approx(by_hand[best], rel=1e-5, abs=1e-6)
    for each in found:
        assert each.score == pytest.approx(by_hand[each.ids], rel=1e-5, abs=1e-6)
        assert each.log_probability == pytest.approx(
            oracle.log_probability(name, each.ids), rel=1e-5, abs=1e-6
        )


@settings(max_examples=40, deadline=None)
@given(
    names=st.lists(st.text(max_size=4), min_size=1, max_size=4),
    alpha=st.sampled_from([0.0, 0.6, 1.5]),
    longest=st.integers(0, 6),
)
def test_a_beam_of_one_is_greedy(names: list[str], alpha: float, longest: int) -> None:
    found = search(Oracle(names), 1, alpha, longest)
    written = greedy(Oracle(names), begin(len(names)), end=END, never=(PAD, START), longest=longest)
    assert [each[0].ids for each in found] == written


@settings(max_examples=30, deadline=None)
@given(
    names=st.lists(st.text(max_size=4), min_size=1, max_size=4, unique=True),
    width=st.integers(1, 5),
    longest=st.integers(0, 5),
)
def test_a_text_does_not_depend_on_its_neighbours(
    names: list[str], width: int, longest: int
) -> None:
    together = search(Oracle(names), width, 0.6, longest)
    alone = [search(Oracle([name]), width, 0.6, longest)[0] for name in names]
    assert together == alone


@settings(max_examples=30, deadline=None)
@given(name=st.text(max_size=5), width=st.integers(1, 5), longest=st.integers(0, 6))
def test_what_is_found_is_in_order_and_within_the_limits(
    name: str, width: int, longest: int
) -> None:
    found = search(Oracle([name]), width, 0.6, longest)[0]
    assert found
    scores = [each.score for each in found]
    assert scores == sorted(scores, reverse=True)
    assert all(len(each.ids) <= longest and set(each.ids) <= set(LETTERS) for each in found)
    assert len({each.ids for each in found}) == len(found)


def test_a_wider_beam_finds_what_greed_misses() -> None:
    class Trap(Oracle):
        """0 looks best at first, and leads nowhere; 1 then END is likelier by far."""

        def scores(self, name: str, text: tuple[int, ...]) -> list[float]:
            if text == (START,):
                chances = [0.5, 0.4, 0.05, 0.01, 0.01, 0.03]
            elif text[1] == 1:
                chances = [0.01, 0.01, 0.01, 0.01, 0.01, 0.95]
            else:
                chances = [0.3, 0.3, 0.3, 0.02, 0.02, 0.06]
            return [math.log(chance) for chance in chances]

    assert search(Trap(["x"]), 1, 0.0, 4)[0][0].ids[0] == 0
    best = search(Trap(["x"]), 2, 0.0, 4)[0][0]
    assert best.ids == (1,)
    assert best.log_probability == pytest.approx(math.log(0.4 * 0.95), rel=1e-5)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_a_sure_text_is_found_among_bad_ends(width: int, alpha: float) -> None:
    """A model that is sure of one long text leaves the rest of the beam to unlikely ends."""
    sure = (0, 1, 2, 0, 1, 2, 0)

    class Sure(Oracle):
        def scores(self, name: str, text: tuple[int, ...]) -> list[float]:
            written = text[1:]
            right = END if len(written) >= len(sure) else sure[len(written)]
            # Off the right way, and on it in second place, END is the likeliest by far.
            scores = [-20.0] * VOCABULARY
            scores[END] = -10.0
            if written == sure[: len(written)]:
                scores[right] = 0.0
            return scores

    assert search(Sure(["x"]), width, alpha, 20)[0][0].ids == sure


def test_it_stops_when_nothing_can_become_better() -> None:
    class Short(Oracle):
        def scores(self, name: str, text: tuple[int, ...]) -> list[float]:
            return [0.0, -1.0, -1.0, 0.0, 0.0, 30.0]

    oracle = Short(["x"])
    assert search(oracle, 4, 0.6, 50)[0][0].ids == ()
    assert oracle.reads < 4


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_scores_that_are_not_numbers_are_refused(bad: float) -> None:
    class Broken(Oracle):
        def scores(self, name: str, text: tuple[int, ...]) -> list[float]:
            return [bad] * VOCABULARY

    with pytest.raises(SamplingError, match="not numbers after 0 tokens"):
        search(Broken(["x"]), 2, 0.6, 3)
    with pytest.raises(SamplingError, match="not numbers after 0 tokens"):
        greedy(Broken(["x"]), begin(), end=END, longest=3)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"beam": 0}, "beam=0 is too small"),
        ({"length_penalty": -0.1}, "length_penalty=-0.1 must be from 0 to 10"),
        ({"longer_by": -1}, "longer_by=-1 is negative"),
        ({"beam": 2.5}, "beam=2.5 has the wrong type"),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        SearchConfig(**changes)  # type: ignore[arg-type]
    assert said in str(caught.value)
