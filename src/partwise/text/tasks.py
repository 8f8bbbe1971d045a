"""Tasks with a known answer, to see whether a translator can be trusted at all.

Each makes different pairs from a seed: letters turned round, letters in order, dates in one form.
"""

import random
from collections.abc import Callable
from datetime import date, timedelta

from partwise.text.pairs import Pair

LETTERS = "abcdefghijklmnopqrstuvwxyz"
SHORTEST, LONGEST = 3, 12

MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)


def reverse(random: random.Random) -> Pair:
    """Letters, and the same from the last to the first."""
    text = _letters(random)
    return text, text[::-1]


def sort(random: random.Random) -> Pair:
    """Letters, and the same in the order of the alphabet."""
    text = _letters(random)
    return text, "".join(sorted(text))


def dates(random: random.Random) -> Pair:
    """A date as people write it, and as ISO 8601 does: "March 5, 2031" and "2031-03-05"."""
    day = date(1900, 1, 1) + timedelta(days=random.randrange(73_000))
    month = MONTHS[day.month - 1]
    forms = (
        f"{day.day} {month} {day.year}",
        f"{month} {day.day}, {day.year}",
        f"{day.day} {month[:3]} {day.year}",
        f"{month[:3]} {day.day}, {day.year}",
        f"{day.day:02}/{day.month:02}/{day.year}",
        f"{day.day}.{day.month}.{day.year}",
    )
    return random.choice(forms), day.isoformat()


TASKS: dict[str, Callable[[random.Random], Pair]] = {
    "reverse": reverse,
    "sort": sort,
    "dates": dates,
}


def task_pairs(name: str, count: int) -> tuple[Pair, ...]:
    """`count` different pairs of a task; the same ones each time, and fewer are the first ones.

    Args:
        name: one of `TASKS`.
        count: pairs; no more than the task has.
    """
    make, draws = TASKS[name], random.Random(f"partwise {name}")
    # A dict keeps the order in which they were made.
    found: dict[Pair, None] = {}
    while len(found) < count:
        found[make(draws)] = None
    return tuple(found)


def _letters(random: random.Random) -> str:
    return "".join(random.choices(LETTERS, k=random.randint(SHORTEST, LONGEST)))
