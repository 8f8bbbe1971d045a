"""Every lesson holds what it promises, in both languages.

Its cells run in order, its checks tell right from wrong, and its formulas are what its Python
computes.
"""

import ast
import contextlib
import io
import re
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from course.latex import evaluate, sides
from partwise.course import prelude
from partwise.course.catalogue import LESSONS, lesson_files, lessons, neighbours
from partwise.course.cells import Code, Formula, Lesson, Markdown, Quiz, Reading, Widget, Words
from partwise.course.glossary import terms

NUMBERS = [lesson.number for lesson in lessons()]
ALL = pytest.mark.parametrize("number", NUMBERS)

PLANNED = ["05", *(f"06.{k}" for k in range(1, 14)), "07", "08"]

# The longest that a cell may compute (seconds of one core), told apart from waiting for others.
LONGEST = 20.0


def lesson_of(number: str) -> Lesson:
    return next(lesson for lesson in lessons() if lesson.number == number)


class Class:
    """A namespace in which cells run, as in the kernel."""

    def __init__(self, model: str | Path) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.run(f"from partwise.course.prelude import *\nuse_model({str(model)!r})")

    def run(self, code: str, names: dict[str, Any] | None = None) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(code, "<cell>", "exec"), self.names if names is None else names)

    def check(self, check: str, names: dict[str, Any] | None = None) -> list[dict[str, str]]:
        """What a check finds wrong; it must have looked at something."""
        prelude.expect.begin()
        self.run(check, names)
        assert prelude.expect.count > 0
        return list(prelude.expect.said)


def walk(lesson: Lesson, here: Class, *, starts: bool = False) -> Iterator[Code]:
    """Run every cell in its order, exercises by their solution; yields each cell after it ran.

    With `starts`, what an exercise starts with is tried before: it runs, and its check objects.
    """
    for cell in lesson.code_cells:
        began = time.process_time()
        code = cell.code if cell.solution is None else cell.solution
        try:
            if starts and cell.solution is not None:
                start_fails(cell, here)
            here.run(code)
        except Exception as error:
            raise AssertionError(f"{lesson.number} [{cell.id}]: {error!r}") from error
        spent = time.process_time() - began
        assert spent < LONGEST, f"{lesson.number} [{cell.id}] takes {spent:.1f} s"
        yield cell


def start_fails(cell: Code, here: Class) -> None:
    names = dict(here.names)
    here.run(cell.code, names)
    said = here.check(cell.check or "", names)
    assert said, "the start passes its check already"
    for words in said:
        assert len(words["zh"]) >= 10 and len(words["en"]) >= 20, words


@ALL
def test_cells_run_checks_pass_and_formulas_are_true(
    number: str, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lesson, here = lesson_of(number), Class("tiny")
    formulas = {cell.code: cell for cell in lesson.cells if isinstance(cell, Formula)}
    for cell in walk(lesson, here, starts=True):
        said = [] if cell.check is None else here.check(cell.check)
        assert said == [], f"{number} [{cell.id}] fails its own check: {said}"
        if cell.id in formulas:
            formula_holds(formulas[cell.id], here.names)
    for quiz in (cell for cell in lesson.cells if isinstance(cell, Quiz)):
        if quiz.kind == "number":
            assert quiz.answer is not None
            found = eval(quiz.expression, here.names)
            assert abs(found - quiz.answer) <= max(quiz.tolerance, 1e-9), (quiz.id, found)
        if quiz.kind == "code":
            names = dict(here.names)
            here.run(quiz.start, names)
            assert here.check(quiz.check, names), f"{quiz.id}: the start passes"
            here.run(quiz.solution, names)
            assert here.check(quiz.check, names) == [], quiz.id


# Their cells train models of their own, whatever is chosen.
SLOW = ("06.7", "06.10", "06.11", "06.12", "07", "08")


def with_each(number: str, model: Path) -> None:
    here = Class(model)
    for cell in walk(lesson_of(number), here):
        said = [] if cell.check is None else here.check(cell.check)
        assert said == [], f"{number} [{cell.id}] fails its own check: {said}"


@ALL
def test_cells_run_with_another_model(
    number: str, modern: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with_each(number, modern)


@pytest.mark.parametrize(
    "number",
    [pytest.param(n, marks=[pytest.mark.long] if n in SLOW else []) for n in NUMBERS],
)
def test_cells_run_with_a_model_that_lacks_most_parts(
    number: str, lowest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with_each(number, lowest)


def formula_holds(formula: Formula, names: dict[str, Any]) -> None:
    values = [evaluate(side, formula.names, names) for side in sides(formula.latex)]
    for value in values[1:]:
        assert np.shape(value) == np.shape(values[0]), formula.id
        assert np.allclose(value, values[0], rtol=1e-4, atol=1e-5), formula.id
    assert np.isfinite(values[0]).all()


# --- What it says -----------------------------------------------------------------------------


def said_in(lesson: Lesson) -> Iterator[tuple[str, Words]]:
    """Everything that a reader reads, with the cell that it stands in."""
    yield "title", lesson.title
    for cell in lesson.cells:
        if isinstance(cell, Markdown):
            yield cell.id, cell.text
        elif isinstance(cell, Formula) and cell.caption is not None:
            yield cell.id, cell.caption
        elif isinstance(cell, Widget):
            yield cell.id, cell.label
        elif isinstance(cell, Reading):
            yield from ((cell.id, item.look) for item in cell.items)
        elif isinstance(cell, Quiz):
            yield cell.id, cell.question
            for choice in cell.choices:
                yield cell.id, choice.text
                yield cell.id, choice.feedback
            for words in (cell.right, cell.wrong):
                if words is not None:
                    yield cell.id, words
    for id, check in checks_of(lesson):
        for call in ast.walk(ast.parse(check)):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "expect":
                words = {str(k.arg): literal(k.value) for k in call.keywords}
                assert set(words) == {"zh", "en"}, f"{lesson.number} [{id}]"
                yield id, Words(words["zh"], words["en"])


def checks_of(lesson: Lesson) -> Iterator[tuple[str, str]]:
    for cell in lesson.cells:
        is_quiz = isinstance(cell, Quiz) and cell.kind == "code"
        if (is_quiz or isinstance(cell, Code)) and cell.check:
            yield cell.id, cell.check


def literal(node: ast.expr) -> str:
    """The text of a string, with … for what an f-string puts in."""
    parts = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)]
    return "…".join(part for part in parts if isinstance(part, str))


def plain(markdown: str) -> str:
    """Prose alone: code, formulas and the targets of links are each one letter-like sign."""
    text = re.sub(r"```.*?```", "¤", markdown, flags=re.S)
    text = re.sub(r"`[^`]*`", "¤", text)
    text = re.sub(r"\$\$.*?\$\$|\$[^$]*\$", "¤", text, flags=re.S)
    return re.sub(r"\]\([^)]*\)", "]", text)


HAN = "[\u4e00-\u9fff]"


@ALL
def test_chinese_is_set_as_a_chinese_reader_expects(number: str) -> None:
    for id, words in said_in(lesson_of(number)):
        text = plain(words.zh)
        assert re.search(HAN, text) or len(text) < 40, f"{number} [{id}] is not Chinese: {text}"
        half = re.search(rf"{HAN}[,;:?!]|{HAN}\.(\s|$)|[,;?!]\s?{HAN}|{HAN}\(|\){HAN}", text)
        assert half is None, f"{number} [{id}]: half-width punctuation at {half and half[0]!r}"
        tight = re.search(rf"{HAN}[A-Za-z0-9¤]|[A-Za-z0-9%¤]{HAN}", text)
        around = tight and text[max(0, tight.start() - 10) : tight.end() + 10]
        assert tight is None, f"{number} [{id}]: a space is missing in {around!r}"


@ALL
def test_english_is_english(number: str) -> None:
    for id, words in said_in(lesson_of(number)):
        found = re.search(rf"{HAN}|[，。；：？！（）、]", plain(words.en))
        assert found is None, f"{number} [{id}]: {found and found[0]!r}"


@ALL
def test_markdown_is_whole_and_without_html(number: str) -> None:
    for id, words in said_in(lesson_of(number)):
        for text in (words.zh, words.en):
            bare = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.S)
            assert bare.count("$") % 2 == 0, f"{number} [{id}]: a $ is left open"
            assert text.count("```") % 2 == 0, f"{number} [{id}]"
            html = re.search(r"<[A-Za-z/!]", re.sub(r"\$[^$]*\$", "", bare))
            assert html is None, f"{number} [{id}]: HTML at {html and html[0]}"


@ALL
def test_links_lead_to_lessons_and_pages(number: str) -> None:
    pages = {"/explorer", "/labs", "/ladder", "/runs", "/playground", "/calculator", "/review"}
    for id, words in said_in(lesson_of(number)):
        for text in (words.zh, words.en):
            for target in re.findall(r"\]\(([^)]*)\)", re.sub(r"`[^`]*`", "", text)):
                ends = target.removeprefix("/lesson/")
                assert target in pages or ends in PLANNED, f"{number} [{id}]: {target}"


@ALL
def test_terms_are_the_glossary_s(number: str) -> None:
    for id, words in said_in(lesson_of(number)):
        for term in terms():
            for other in term.avoid_zh:
                assert other not in words.zh, f"{number} [{id}]: {other}; say {term.zh}"
            for other in term.avoid_en:
                found = re.search(rf"\b{re.escape(other)}\b", words.en, re.IGNORECASE)
                assert not found, f"{number} [{id}]: {other}; say {term.en}"


@ALL
def test_a_lesson_has_what_a_lesson_needs(number: str) -> None:
    lesson = lesson_of(number)
    kinds = [type(cell) for cell in lesson.cells]
    assert kinds[0] is Markdown
    quizzes = [cell for cell in lesson.cells if isinstance(cell, Quiz)]
    assert len(quizzes) >= 3
    assert Reading in kinds
    if number != "06.13":
        assert any(cell.solution is not None for cell in lesson.code_cells), "an exercise"
    if number not in ("06.8", "06.13"):
        assert Widget in kinds
    zh = sum(len(words.zh) for _, words in said_in(lesson))
    assert zh >= 1_000


def test_every_planned_lesson_is_there_in_order() -> None:
    assert [number for number in PLANNED if number in NUMBERS] == NUMBERS
    assert len({lesson.id for lesson in lessons()}) == len(lessons())
    assert {path.name for path in LESSONS.glob("*.py")} == {path.name for path in lesson_files()}
    for number in NUMBERS:
        before, after = neighbours(number)
        assert (before is None) == (number == NUMBERS[0])
        assert (after is None) == (number == NUMBERS[-1])


def test_the_glossary_is_whole() -> None:
    ids = [term.id for term in terms()]
    assert len(set(ids)) == len(ids) and ids
    for term in terms():
        assert term.zh and term.en and term.says.zh and term.says.en
        assert term.zh not in term.avoid_zh and term.en not in term.avoid_en
    source = (LESSONS.parent / "glossary.toml").read_text(encoding="utf-8")
    assert len(tomllib.loads(source)["terms"]) == len(ids)
