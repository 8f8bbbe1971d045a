"""A lesson as data: what stands in its file, cell by cell."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

QuizKind = Literal["choice", "many", "order", "number", "code"]


@dataclass(frozen=True)
class Words:
    """The same said in both languages."""

    zh: str
    en: str


@dataclass(frozen=True)
class Markdown:
    """Prose, one Markdown text a language."""

    id: str
    text: Words
    line: int


@dataclass(frozen=True)
class Formula:
    """A formula and the code cell that computes it.

    Args:
        id: its name.
        latex: left side = right side.
        code: id of the code cell that is its Python.
        names: symbol -> Python expression in that cell's namespace; for the tests.
        caption: what it says, or None.
    """

    id: str
    latex: str
    code: str
    names: Mapping[str, str]
    caption: Words | None
    line: int


@dataclass(frozen=True)
class Code:
    """A piece of Python that the learner can run and change.

    Args:
        id: its name.
        code: what stands in it at first.
        solution: for an exercise, code that passes the check; `code` does not.
        check: code that is run, unseen, after the learner's.
    """

    id: str
    code: str
    solution: str | None
    check: str | None
    line: int

    @property
    def hash(self) -> str:
        """Changes when the lesson's code does."""
        return hashlib.sha256(self.code.encode("utf-8")).hexdigest()[:16]


@dataclass(frozen=True)
class Choice:
    """One option of a quiz, or one item of an order, with what is said to who takes it."""

    text: Words
    feedback: Words
    right: bool = True


@dataclass(frozen=True)
class Quiz:
    """A question.

    Args:
        id: its name.
        kind: `choice` (one is right), `many`, `order` (the choices in their right order), `number`
            or `code`.
        question: Markdown.
        choices: of `choice`, `many` and `order`.
        answer, tolerance: of `number`: right within ± tolerance.
        expression: Python that computes the answer, for the tests.
        right, wrong: what is said to a right and to a wrong number or code.
        start, check, solution: of `code`, as in a code cell.
    """

    id: str
    kind: QuizKind
    question: Words
    line: int
    choices: tuple[Choice, ...] = ()
    answer: float | None = None
    tolerance: float = 0.0
    expression: str = ""
    right: Words | None = None
    wrong: Words | None = None
    start: str = ""
    check: str = ""
    solution: str = ""


@dataclass(frozen=True)
class Widget:
    """Something to play with: a component of the client by name, and what it is given."""

    id: str
    name: str
    label: Words
    line: int
    props: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Source:
    """Something to read: its title, where to find it, and what to look for."""

    title: str
    where: str
    look: Words


@dataclass(frozen=True)
class Reading:
    """Further reading."""

    id: str
    items: tuple[Source, ...]
    line: int


Cell: TypeAlias = Markdown | Formula | Code | Quiz | Widget | Reading


@dataclass(frozen=True)
class Lesson:
    """One lesson.

    Args:
        number: such as "06.5".
        id: such as "residual".
        minutes: about how long it takes.
        title: its title.
        cells: in their order.
        path: its file.
    """

    number: str
    id: str
    minutes: int
    title: Words
    cells: tuple[Cell, ...]
    path: Path

    def cell(self, id: str) -> Cell:
        """The cell of that name.

        Raises:
            KeyError: there is none.
        """
        for cell in self.cells:
            if cell.id == id:
                return cell
        raise KeyError(id)

    @property
    def code_cells(self) -> tuple[Code, ...]:
        """The cells that can be run, in their order."""
        return tuple(cell for cell in self.cells if isinstance(cell, Code))
