"""Every lesson in a real browser: read, run, answer, by keyboard, on a phone, in both languages."""

import re
from typing import Any

import pytest

from partwise.course import catalogue
from partwise.course.cells import Code, Quiz
from studio.browser.conftest import LAPTOP, PHONE, Journey, expect
from studio.live import Live

LESSONS = [lesson.number for lesson in catalogue.lessons()]


@pytest.mark.parametrize("number", LESSONS)
def test_a_lesson(journey: Journey, number: str) -> None:
    lesson = catalogue.lesson(number)
    page = journey.page
    journey.open(f"/lesson/{number}")
    expect(page.locator("h1")).to_contain_text(lesson.title.zh)
    expect(page.locator("html")).to_have_attribute("lang", re.compile("^zh"))
    for cell in lesson.cells:
        if isinstance(cell, Code | Quiz):
            expect(page.locator(f"[id='cell-{cell.id}']")).to_be_attached()
    journey.accessible("light")

    # The first cell runs by keyboard alone, and what it shows is there.
    first = lesson.code_cells[0]
    page.locator(f"section[id='cell-{first.id}'] .cm-content").first.focus()
    page.keyboard.press("Control+Enter")
    page.wait_for_function(
        "id => /\\d 秒|已停止/.test(document.querySelector(`section[id='${id}']`).innerText)",
        arg=f"cell-{first.id}",
    )
    journey.accessible("after a run")

    for quiz in lesson.cells:
        if isinstance(quiz, Quiz) and quiz.kind != "code":
            answer(journey, quiz)
    journey.accessible("after the answers")

    # Tab leaves the editor.
    page.locator(f"section[id='cell-{first.id}'] .cm-content").first.focus()
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    page.wait_for_function("!document.activeElement.classList.contains('cm-content')")

    page.set_viewport_size(PHONE)
    journey.fits()
    page.emulate_media(color_scheme="dark")
    journey.accessible("dark, on a phone")
    page.set_viewport_size(LAPTOP)


def answer(journey: Journey, quiz: Quiz) -> None:
    """Answer a question by keyboard alone, wrongly where it can be, then rightly."""
    page, section = journey.page, journey.page.locator(f"section[id='cell-{quiz.id}']")
    verdict = section.locator(".verdict")
    if quiz.kind == "number":
        for value, right in ((quiz.answer + 1 + 2 * quiz.tolerance, False), (quiz.answer, True)):
            section.locator("input").focus()
            page.keyboard.press("Control+A")
            page.keyboard.type(repr(value))
            page.keyboard.press("Enter")
            said = verdict.locator(".right" if right else ".wrong")
            assert said.inner_text().strip(), f"{quiz.id}: nothing is said to {value}"
    elif quiz.kind == "choice":
        for option in range(len(quiz.choices)):
            section.locator("input").nth(option).focus()
            page.keyboard.press("Space")
            page.keyboard.press("Enter")
            said = section.locator("li").nth(option).locator(".said")
            assert said.inner_text().strip(), f"{quiz.id}: nothing is said to an option"
            if verdict.locator(".right").count():
                break
        expect(verdict.locator(".right")).to_have_count(1)
    elif quiz.kind == "many":
        section.locator("input").first.focus()
        page.keyboard.press("Space")
        page.keyboard.press("Enter")
        expect(section.locator(".said")).to_have_count(len(quiz.choices))
        wrong = section.locator("li:has(.said:not(.good)) input")
        places = wrong.evaluate_all(
            "ones => { const all = [...ones[0].form.querySelectorAll('input')];"
            " return ones.map(one => all.indexOf(one)); }"
        )
        for place in places:
            section.locator("input").nth(place).focus()
            page.keyboard.press("Space")
        page.keyboard.press("Enter")
        expect(verdict.locator(".right")).to_have_count(1)
    else:
        section.locator(".down:enabled").first.focus()
        page.keyboard.press("Enter")
        page.wait_for_function("document.activeElement.matches('.order button')")
        section.locator("[type=submit]").focus()
        page.keyboard.press("Enter")
        assert verdict.inner_text().strip(), quiz.id


def test_an_exercise_is_solved_and_found_again(journey: Journey) -> None:
    """All cells above, the start that fails, the solution; and all of it after a reload."""
    lesson, page = catalogue.lesson("05"), journey.page
    exercise = next(cell for cell in lesson.code_cells if cell.solution is not None)
    journey.open("/lesson/05")
    section = page.locator(f"section[id='cell-{exercise.id}']")
    section.get_by_label("运行以上全部").click()
    page.wait_for_function(
        "id => /\\d 秒/.test(document.querySelector(`section[id='${id}'] .state`).innerText)",
        arg=f"cell-{exercise.id}",
    )
    section.get_by_role("button", name="检查").click()
    section.get_by_text("还没有通过").wait_for()
    assert section.locator(".check p, .check li").first.inner_text().strip()
    section.locator(".cm-content").focus()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(exercise.solution)
    page.keyboard.press("Control+Enter")
    section.get_by_text("通过了").wait_for()
    journey.accessible("a solved exercise")
    # Its name, its time and all of its buttons on a phone, where words are longest.
    page.get_by_role("button", name="English").click()
    page.set_viewport_size(PHONE)
    journey.fits()
    page.set_viewport_size(LAPTOP)
    page.get_by_role("button", name="中文").click()

    def kept() -> bool:
        cells = journey.live.get("/api/progress")["lessons"].get("05", {})
        mine = cells.get(exercise.id, {})
        passed = mine.get("check", {}).get("state", {}).get("passed")
        return passed and "np.where" in mine.get("code", {}).get("content", "")

    journey.until(kept, "the solution and its check are kept")
    page.reload()
    section.get_by_text("已通过").wait_for()
    expect(section.locator(".cm-content")).to_contain_text("np.where")
    section.get_by_role("button", name="还原").click()


@pytest.mark.parametrize("path", ["/", "/explorer", "/labs", "/ladder", "/runs", "/playground"])
def test_other_pages(journey: Journey, path: str) -> None:
    journey.open(path)
    journey.page.wait_for_timeout(1000)
    journey.accessible("light")
    journey.page.set_viewport_size(PHONE)
    journey.fits()
    journey.page.emulate_media(color_scheme="dark")
    journey.accessible("dark, on a phone")


@pytest.mark.parametrize("path", ["/calculator", "/review"])
def test_small_pages(journey: Journey, path: str) -> None:
    journey.open(path)
    journey.accessible()


def test_what_a_journey_must_not_do_is_found(studio: Live, browser: Any) -> None:
    """The harness itself: an error, a foreign request and a fault of access are each seen."""
    context = browser.new_context(locale="zh-CN")
    page = context.new_page()
    journey = Journey(page, studio)
    page.goto(studio.state.address)
    page.wait_for_selector("main h1")
    assert journey.wrong == []
    page.evaluate("console.error('wrong')")
    page.evaluate("setTimeout(() => { throw new Error('thrown') })")
    # The content policy stops it before it is asked, and says so.
    page.evaluate("fetch('http://example.org/').catch(() => 0)")
    page.evaluate("document.body.append(document.createElement('img'))")
    page.evaluate(
        "for (const one of [1, 2]) document.body.append(Object.assign("
        "document.createElement('p'), {id: 'twice'}))"
    )
    seen = ("console error: wrong", "Content Security Policy", "thrown")
    journey.until(lambda: all(said(journey, word) for word in seen), f"{seen} are seen")
    with pytest.raises(AssertionError, match=r"image-alt[\s\S]*twice"):
        journey.accessible()
    # A page without a policy asks.
    page.goto("about:blank")
    page.evaluate("fetch('http://example.org/').catch(() => 0)")
    journey.until(lambda: said(journey, "another machine"), "the request is seen")
    with pytest.raises(AssertionError) as caught:
        journey.end()
    for word in (*seen, "another machine"):
        assert word in str(caught.value)


def said(journey: Journey, word: str) -> bool:
    """Whether a journey has noticed something of that name."""
    return any(word in wrong for wrong in journey.wrong)
