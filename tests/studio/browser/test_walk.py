"""The course as a learner walks it with a keyboard alone: from the contents to the last quiz."""

from pathlib import Path
from typing import Any

import pytest

from partwise.course import catalogue
from partwise.course.cells import Code, Lesson, Quiz
from studio.browser.conftest import travelling
from studio.browser.keyboard import Learner
from studio.live import Live, running

# One with an order and its explorer, one with questions that are answered by code; the others are
# walked by `make test-all`.
SHORT = ("06.2", "06.13")
LESSONS = [
    pytest.param(lesson.number, marks=[] if lesson.number in SHORT else [pytest.mark.long])
    for lesson in catalogue.lessons()
]


def kept(live: Live, lesson: Lesson) -> bool:
    """Whether every answer has reached the disk: they are sent a moment after they are given."""
    wanted = {cell.id for cell in lesson.cells if isinstance(cell, Quiz)}
    cells = live.get("/api/progress")["lessons"].get(lesson.number, {})
    answers = {id: kinds["quiz"]["state"] for id, kinds in cells.items() if "quiz" in kinds}
    return {id for id, state in answers.items() if state["right"]} == wanted


@pytest.mark.parametrize("number", LESSONS)
def test_a_lesson_by_keyboard_alone(browser: Any, tiny: Path, tmp_path: Path, number: str) -> None:
    """Every cell is run, every exercise solved, every question answered; a restart keeps it all."""
    lesson = catalogue.lesson(number)
    with running(tmp_path, language="zh") as live, travelling(browser, live) as journey:
        learner = Learner(journey)
        learner.skip()
        learner.to_link(f"/lesson/{number}")
        met = learner.lesson(lesson)
        assert met == [cell.id for cell in lesson.cells if isinstance(cell, Code | Quiz)]
        assert learner.faults == []
        journey.page.get_by_text("这一课完成了").wait_for()
        journey.accessible("all answered")
        missed = sorted(learner.missed)
        journey.until(lambda: kept(live, lesson), "every answer is kept, and right")

    with running(tmp_path, language="zh") as live, travelling(browser, live) as journey:
        page, learner = journey.page, Learner(journey)
        row = page.locator(f"a[href='/lesson/{number}']", has_text=lesson.title.zh)
        row.locator(".complete").wait_for()
        # What was missed comes back, all of it and no more.
        journey.open("/review")
        page.get_by_role("button", name=f"提前练一遍（{len(missed)} 题）").focus()
        page.keyboard.press("Enter")
        page.get_by_text(f"第 1 题，共 {len(missed)} 题").wait_for()
        journey.accessible("review")
        page.locator("h1").focus()
        assert sorted(learner.review(lesson)) == missed
        assert learner.faults == []
