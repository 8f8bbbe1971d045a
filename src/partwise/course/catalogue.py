"""Which lessons there are, in their order."""

from functools import cache
from pathlib import Path

from partwise.course.cells import Lesson
from partwise.course.format import FILE, read_lesson

LESSONS = Path(__file__).parent / "lessons"


def lesson_files(folder: Path = LESSONS) -> tuple[Path, ...]:
    """The lessons' files, in the order of their numbers."""
    found = []
    for path in folder.glob("*.py"):
        named = FILE.fullmatch(path.name)
        if named is not None:
            found.append((tuple(map(int, named[1].split("_"))), path))
    return tuple(path for _, path in sorted(found))


@cache
def lessons() -> tuple[Lesson, ...]:
    """Every lesson, in the order of their numbers.

    Raises:
        LessonError: a fault in one, with its line.
    """
    return tuple(read_lesson(path) for path in lesson_files())


def lesson(number: str) -> Lesson:
    """The lesson of that number, such as "06.5".

    Raises:
        KeyError: there is none.
    """
    for found in lessons():
        if found.number == number:
            return found
    raise KeyError(number)


def neighbours(number: str) -> tuple[str | None, str | None]:
    """The numbers of the lessons before and after; None at either end."""
    numbers = [found.number for found in lessons()]
    place = numbers.index(number)
    before = numbers[place - 1] if place else None
    after = numbers[place + 1] if place + 1 < len(numbers) else None
    return before, after
