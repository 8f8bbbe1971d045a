"""A learner with a keyboard and nothing else, who goes through a lesson from its first word on.

Every press of Tab is watched: the focus must move, go on in the order of the page, be on the screen
and be marked there. Whatever the learner comes to is used: cells are run, exercises are tried as
they stand and then solved, questions are answered wrongly and then rightly.
"""

import re
from typing import Any

from partwise.course.cells import Code, Lesson, Quiz
from studio.browser.conftest import Journey, expect
from studio.live import PATIENCE as SECONDS

# Where the focus is, and what is wrong with it there.
HERE = """() => {
  const one = document.activeElement;
  const wrong = [];
  const before = window.walked;
  window.walked = one;
  const nothing = {tag: 'BODY', cell: '', kind: '', option: -1, wrong: [], end: true};
  if (one === null || one === document.body) return nothing;
  if (before === one) wrong.push('the focus stays where it was');
  // An element may be drawn anew: only what is still there is compared.
  if (before && before.isConnected && before !== one &&
      !(before.compareDocumentPosition(one) & Node.DOCUMENT_POSITION_FOLLOWING))
    wrong.push('the focus goes back');
  // The whole editor is lit, not the line; an option is lit with its label.
  const shell = one.closest('.cm-editor') ?? one;
  const box = shell.getBoundingClientRect();
  const bar = document.querySelector('header')?.getBoundingClientRect().bottom ?? 0;
  if (box.width < 1 || box.height < 1) wrong.push('what has the focus has no size');
  const covered = box.bottom <= bar && !one.closest('header, .skip');
  if (covered || box.top >= innerHeight || box.right <= 0)
    wrong.push('what has the focus is not on the screen');
  const lit = element => {
    const style = getComputedStyle(element);
    return style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0 ||
      style.boxShadow !== 'none';
  };
  const marked = lit(one) || one.matches('svg a') ||
    one.closest('.cm-editor') !== null && one.closest('.cell, .box')?.matches(':focus-within');
  if (!marked) wrong.push('the focus is not marked');
  const section = one.closest('section[id^="cell-"]');
  return {
    tag: one.tagName,
    text: (one.getAttribute('aria-label') ?? one.innerText ?? one.value ?? '').trim().slice(0, 60),
    href: one.getAttribute('href'),
    cell: section?.id.slice(5) ?? '',
    kind: one.matches('.cm-content') ? 'editor' : one.type ?? one.tagName.toLowerCase(),
    wrong,
    end: false,
  };
}"""

# Whether a cell has run, from the moment that it is watched: it may be over before one looks.
WATCH = """log => {
  let begun = false;
  window.ran = new Promise(resolve => new MutationObserver((_, observer) => {
    if (log.getAttribute('aria-busy') === 'true') begun = true;
    else if (begun) { observer.disconnect(); resolve(true); }
  }).observe(log, {attributes: true, attributeFilter: ['aria-busy']}));
}"""
RAN = """(_, most) => Promise.race(
  [window.ran, new Promise(resolve => setTimeout(() => resolve(false), most))])"""

Place = dict[str, Any]

# A busy machine may take long (milliseconds).
PATIENCE = 1000 * SECONDS

NEXT = re.compile("下一题|完成")

# More stops than any page has.
MOST = 400


class Learner:
    """Walks by Tab.

    Args:
        journey: the tab of the browser.
        faults: what was wrong on the way is added here.
    """

    def __init__(self, journey: Journey) -> None:
        self.journey = journey
        self.page = journey.page
        self.faults: list[str] = []
        self.stops = 0
        self.number = ""
        self.missed: list[str] = []

    def here(self) -> Place:
        """Where the focus is."""
        found: Place = self.page.evaluate(HERE)
        for wrong in found["wrong"]:
            self.faults.append(f"{wrong}: {found['tag']} {found.get('text')!r} in {found['cell']}")
        return found

    def tab(self) -> Place:
        """One press of Tab."""
        self.page.keyboard.press("Tab")
        self.stops += 1
        assert self.stops < MOST, "there is no end to this page"
        return self.here()

    def to_link(self, path: str) -> None:
        """Tab on to a link in the page and follow it."""
        while True:
            place = self.tab()
            assert not place["end"], f"no link leads to {path}"
            if place["href"] == path:
                break
        self.page.keyboard.press("Enter")
        self.page.wait_for_url(f"**{path}")
        self.page.wait_for_selector("main h1")
        self.stops = 0

    def skip(self) -> None:
        """Past the bar, by the first link of every page."""
        self.page.evaluate("window.walked = null")
        place = self.tab()
        assert place["href"] == "#main", place
        self.page.keyboard.press("Enter")
        self.page.evaluate("window.walked = null")

    def lesson(self, lesson: Lesson) -> list[str]:
        """Everything in a lesson, from the focus on to the end of the page; the cells met."""
        self.number, self.stops = lesson.number, 0
        parts = {cell.id: cell for cell in lesson.cells if isinstance(cell, Code | Quiz)}
        self.page.locator("aside button:enabled").first.wait_for()
        # The editors come a moment after the page.
        editors = sum(isinstance(one, Code) or one.kind == "code" for one in parts.values())
        self.page.locator(".cm-content").nth(editors - 1).wait_for()
        met: list[str] = []
        while True:
            place = self.tab()
            if place["end"]:
                return met
            part = parts.get(place["cell"])
            if part is None or part.id in met:
                continue
            if isinstance(part, Code) and place["kind"] == "editor":
                self.code(part)
            elif isinstance(part, Quiz) and begins(part, place):
                self.quiz(part)
            else:
                continue
            met.append(part.id)
            self.page.evaluate("window.walked = null")

    def review(self, lesson: Lesson) -> list[str]:
        """A round of the review, from its heading on; the questions that were asked."""
        self.number = lesson.number
        asked: list[str] = []
        while not self.page.get_by_text("这一轮结束").count():
            self.stops = 0
            self.page.evaluate("window.walked = null")
            shown = self.page.locator("section.quiz")
            quiz = lesson.cell(str(shown.get_attribute("id")).removeprefix("cell-"))
            assert isinstance(quiz, Quiz)
            if quiz.kind == "code":
                shown.locator(".cm-content").wait_for()
                shown.locator(".primary:enabled").wait_for()
            while not begins(quiz, place := self.tab()):
                assert not place["end"], "the question is out of reach"
            asked.append(quiz.id)
            self.quiz(quiz)
            self.reach(self.page.locator("main button.primary", has_text=NEXT))
            self.page.keyboard.press("Enter")
        return asked

    # --- Cells ------------------------------------------------------------------------------------

    def code(self, cell: Code) -> None:
        """Run a cell; try an exercise as it stands, then solve it."""
        if cell.solution is None:
            self.run(cell.id)
            if cell.check is not None:
                self.passed(cell.id, True)
            assert not self.section(cell.id).locator(".error").count(), self.said(cell.id)
            return
        self.run(cell.id)
        self.passed(cell.id, False)
        self.write(cell.solution)
        self.run(cell.id)
        self.passed(cell.id, True)

    def write(self, code: str) -> None:
        """Put other code into the editor."""
        self.page.keyboard.press("Control+A")
        self.page.keyboard.insert_text(code)

    def run(self, id: str) -> None:
        """Run by Ctrl+Enter and wait for the end."""
        log = self.section(id).locator("[role=log]")
        log.evaluate(WATCH)
        self.page.keyboard.press("Control+Enter")
        assert log.evaluate(RAN, PATIENCE), f"{id} does not run to its end: {self.said(id)}"

    def passed(self, id: str, expected: bool) -> None:
        """What the check said."""
        result = self.section(id).locator(".check")
        expect(result).to_contain_text("通过了" if expected else "还没有通过")
        if not expected:
            assert len(result.locator("p, li").first.inner_text()) > 9, id

    def section(self, id: str) -> Any:
        return self.page.locator(f"section[id='cell-{id}']")

    def said(self, id: str) -> str:
        """All that stands below a cell."""
        return str(self.section(id).inner_text())[-600:]

    # --- Questions --------------------------------------------------------------------------------

    def quiz(self, quiz: Quiz) -> None:
        """Answer, wrongly where that is easy, read what is said, and answer rightly.

        The focus is on the question's first control.
        """
        section, press = self.section(quiz.id), self.page.keyboard.press
        verdict = section.locator(".verdict")
        if quiz.kind == "code":
            self.run(quiz.id)
            self.passed(quiz.id, False)
            self.missed.append(quiz.id)
            self.write(quiz.solution)
            self.run(quiz.id)
            self.passed(quiz.id, True)
            return
        if quiz.kind == "number":
            assert quiz.answer is not None
            wrong_one = quiz.answer + 1 + 2 * quiz.tolerance
            for typed, kind in ((wrong_one, ".wrong"), (f"{quiz.answer!r} × 2 ÷ 2", ".right")):
                press("Control+A")
                self.page.keyboard.type(str(typed))
                press("Enter")
                verdict.locator(kind).wait_for()
            self.missed.append(quiz.id)
        elif quiz.kind == "choice":
            press("Space")
            for turn in range(len(quiz.choices)):
                press("Enter")
                chosen = section.locator("li:has(input:checked) .said")
                assert chosen.inner_text().strip(), quiz.id
                if verdict.locator(".right").count():
                    break
                if turn == 0:
                    self.missed.append(quiz.id)
                press("ArrowDown")
        elif quiz.kind == "many":
            press("Space")
            press("Enter")
            expect(section.locator(".said")).to_have_count(len(quiz.choices))
            if verdict.locator(".wrong").count():
                self.missed.append(quiz.id)
            wrong = section.locator("li").evaluate_all(
                "ones => ones.map(one => one.querySelector('.said:not(.good)') !== null)"
            )
            for place, is_wrong in enumerate(wrong):
                if is_wrong:
                    press("Space")
                if place + 1 < len(wrong):
                    press("Tab")
            press("Enter")
        else:
            self.reach(section.locator("[type=submit]"))
            press("Enter")
            verdict.locator(".wrong").wait_for()
            self.missed.append(quiz.id)
            self.sort(quiz)
        verdict.locator(".right").wait_for()

    def sort(self, quiz: Quiz) -> None:
        """Carry every item to its place by its own arrow."""
        section = self.section(quiz.id)
        sequence = shuffled(len(quiz.choices), f"{self.number} {quiz.id}")
        for place in range(len(sequence)):
            at = sequence.index(place)
            while at > place:
                self.reach(section.locator(".order > li").nth(at).locator(".up"))
                self.page.keyboard.press("Enter")
                sequence.insert(at - 1, sequence.pop(at))
                at -= 1
        self.reach(section.locator("[type=submit]"))
        self.page.keyboard.press("Enter")

    def reach(self, target: Any) -> None:
        """Tab or Shift+Tab to a control nearby."""
        for _ in range(40):
            way = target.evaluate(
                "one => one === document.activeElement ? 0 : "
                "document.activeElement.compareDocumentPosition(one) & 4 ? 1 : -1"
            )
            if way == 0:
                return
            self.page.keyboard.press("Tab" if way > 0 else "Shift+Tab")
        raise AssertionError("a control is out of reach")


def begins(quiz: Quiz, place: Place) -> bool:
    """Whether the focus is on what answers a question, and not on a link in it."""
    if place["cell"] != quiz.id:
        return False
    return bool(place["kind"] == "editor" if quiz.kind == "code" else place["kind"] != "a")


def shuffled(length: int, name: str) -> list[int]:
    """The order in which the page shows what is to be put in order, as `lib/review.ts` makes it."""
    state = 2166136261
    for letter in name:
        state = (state ^ ord(letter)) * 16777619 % 2**32
    order = list(range(length))
    for index in range(length - 1, 0, -1):
        state = (state * 1664525 + 1013904223) % 2**32
        other = int(state / 2**32 * (index + 1))
        order[index], order[other] = order[other], order[index]
    if length > 1 and order == list(range(length)):
        order.append(order.pop(0))
    return order
