"""The law finds the constants that made the runs, and stands on the runs that were measured."""

import itertools
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from partwise.bench.dial import all_rows, of_family, points_of
from partwise.budget.law import FILE, Law, Point, fit, standing, student, text_of, worth_of

TRUE = Law(0.6, 8.0, 0.3, 30.0, 0.35, 4.0, 0.0, 0.0, 0)
TEXTS = ((90_000, 1.8), (10**6, 1.6), (3 * 10**7, 1.4))
RESULTS = Path(__file__).parents[2] / "benchmarks" / "dial.jsonl"


def measured() -> list[Point]:
    """The points of all runs that are kept: those of the grid, of the rules, and earlier ones."""
    return points_of(all_rows(RESULTS))


def made(law: Law, off: float = 0.0, texts: tuple[float, ...] = (1, 1, 1)) -> list[Point]:
    """Runs that follow a law, every second one by the share `off` above it, the others below."""
    sign = 1
    points = []
    for parameters in (10**5, 4 * 10**5, 2 * 10**6):
        for tokens in (1 << 18, 1 << 20, 1 << 22):
            for number, (seen, hard) in enumerate(TEXTS):
                loss = law.loss(parameters, tokens, seen, hard) * (1 + sign * off) * texts[number]
                points.append(Point(str(number), parameters, tokens, seen, hard, loss))
                sign = -sign
    return points


def test_the_constants_that_made_the_runs_are_found() -> None:
    law = fit(made(TRUE))
    assert (law.model_power, law.data_power, law.repeats) == (0.3, 0.35, 4.0)
    assert law.floor == pytest.approx(0.6) and law.model == pytest.approx(8.0)
    assert law.spread < 1e-9 and law.runs == 27


def test_the_interval_is_as_wide_as_the_runs_are_off() -> None:
    law = fit(made(TRUE, off=0.02))
    assert 0.015 < law.spread < 0.03
    low, high = law.interval(1.5)
    assert low < 1.5 * 0.98 and high > 1.5 * 1.02


def test_what_a_texts_surprise_does_not_foretell_widens_the_interval_alone() -> None:
    law = fit(made(TRUE, texts=(1.1, 1.0, 1 / 1.1)))
    assert (law.model_power, law.data_power, law.repeats) == (0.3, 0.35, 4.0)
    # They deviate by 0.0955, and three are few: 2.92 and not 1.645 deviations hold nine of ten.
    assert law.spread < 1e-6
    assert law.between == pytest.approx(0.0955 * (4 / 3) ** 0.5 * 2.92 / 1.645, rel=0.02)
    assert law.interval(1.0)[1] - 1 == pytest.approx(1.645 * law.between, rel=1e-3)


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 6.3138), (2, 2.9200), (3, 2.3534), (4, 2.1318), (5, 2.0150), (9, 1.8331), (40, 1.6839)],
)
def test_few_texts_widen_the_interval_by_students_quantile(freedom: int, quantile: float) -> None:
    assert student(freedom) == pytest.approx(quantile, rel=1e-5 if freedom < 3 else 0.004)


def test_a_text_read_again_is_worth_less_each_time() -> None:
    assert worth_of(50, 100, 4.0) == 50
    worth = [worth_of(100 * times, 100, 4.0) for times in (1, 2, 4, 8, 100)]
    gains = [later - before for before, later in itertools.pairwise(worth)]
    assert worth[0] == 100 and 180 < worth[1] < 200
    assert worth == sorted(worth) and worth[-1] < 100 * (1 + 4.0) + 1e-9
    assert all(gain > 0 for gain in gains[:3])


def test_more_of_anything_promises_no_less() -> None:
    law = standing()
    for parameters, tokens in [(10**5, 10**6), (10**6, 10**6), (10**6, 10**7)]:
        here = law.loss(parameters, tokens, 10**6, 1.6)
        assert law.loss(2 * parameters, tokens, 10**6, 1.6) <= here
        assert law.loss(parameters, 2 * tokens, 10**6, 1.6) <= here


def test_an_earlier_forms_runs_say_how_sizes_compare_and_not_how_low_todays_come() -> None:
    older = [replace(point, loss=1.3 * point.loss, earlier=True) for point in made(TRUE)]
    law = fit([*older, *made(TRUE, texts=(1.1, 1.0, 1 / 1.1))])
    assert law.floor == pytest.approx(0.6, rel=0.02) and law.between > 0.08
    assert law.spread < 1e-6 and law.runs == 54


def test_the_law_is_the_one_that_the_measured_runs_give() -> None:
    law = fit(measured())
    # The last digits are those of the machine that fitted it.
    assert asdict(law) == pytest.approx(asdict(standing()), rel=1e-6)
    assert text_of(standing()) == FILE.read_text(encoding="utf-8")


def test_the_law_is_one_of_the_family_that_the_dial_trains() -> None:
    """Who changes the family has to measure its runs: those of another one say nothing of it."""
    assert len([point for point in measured() if not point.earlier]) >= 4
    row = next(row for row in all_rows(RESULTS) if "settings" in row and of_family(row))
    row["settings"]["train"]["muon_lr"] *= 2
    assert not of_family(row)


def test_nine_of_ten_runs_of_a_text_that_the_law_does_not_know_lie_in_their_intervals() -> None:
    points = measured()
    today = [point for point in points if not point.earlier]
    inside = 0
    for text in {point.text for point in today}:
        law = fit([point for point in points if point.text != text])
        for point in today:
            if point.text == text:
                low, high = law.interval(
                    law.loss(point.parameters, point.tokens, point.text_tokens, point.surprise)
                )
                inside += low <= point.loss <= high
                # An interval that holds all there is would say nothing.
                assert high < 1.7 * low
    assert inside >= 0.9 * len(today)


def test_points_that_no_law_of_the_form_fits_are_refused() -> None:
    rising = [
        replace(point, loss=point.parameters**0.5 * point.tokens**0.5) for point in made(TRUE)
    ]
    with pytest.raises(ValueError, match="no law"):
        fit(rising)
