"""The explorer in a real browser: eight stages by keyboard, real numbers, every width and theme."""

import re
from typing import Any

import pytest

from studio.browser.conftest import LAPTOP, PHONE, PROJECTOR, Journey, expect

STAGES = ["输入", "LayerNorm 1", "多头注意力", "+ 残差", "LayerNorm 2", "前馈层", "+ 残差", "输出"]

DIAGRAM = "[role=listbox][aria-orientation=vertical]"


def ready(journey: Journey) -> Any:
    """The diagram, once a text has been read."""
    journey.open("/explorer")
    diagram = journey.page.locator(DIAGRAM)
    diagram.wait_for()
    return diagram


def title(journey: Journey, expected: str) -> None:
    """Wait until the stage with that title is shown, with its tensor."""
    heading = journey.page.locator("article header :is(h2, h3)")
    heading.filter(has_text=expected).wait_for()
    journey.page.locator("article [role=application], article [role=listbox]").first.wait_for()


def test_eight_stages_by_keyboard_alone(journey: Journey) -> None:
    diagram = ready(journey)
    diagram.focus()
    page = journey.page
    page.keyboard.press("Home")
    for number, name in enumerate(STAGES):
        if number:
            page.keyboard.press("ArrowDown")
        title(journey, name)
        expect(diagram.locator("[aria-selected=true]")).to_contain_text(name)
        article = page.locator("article")
        expect(article).to_contain_text("做什么")
        expect(article).to_contain_text("为什么")
        expect(article.locator(".katex").first).to_be_attached()
        journey.accessible(name)
    page.keyboard.press("Home")
    title(journey, STAGES[0])
    page.keyboard.press("End")
    title(journey, STAGES[-1])
    journey.drawn()


def test_a_head_is_chosen_and_its_rows_add_up(journey: Journey) -> None:
    diagram = ready(journey)
    diagram.locator("[role=option]").nth(2).click()
    heads = journey.page.locator("[role=listbox][aria-label*='注意力头']")
    heads.focus()
    journey.page.keyboard.press("End")
    heads.locator("[role=option]").first.wait_for()
    last = re.compile(rf"{heads.locator('[role=option]').count()}\s*$")
    expect(heads.locator("[aria-selected=true]")).to_have_text(last)
    attention = journey.page.locator("article .attention")
    attention.get_by_role("button", name="表格").click()
    cells = attention.locator("table tbody tr").nth(3).locator("td")
    cells.first.wait_for()
    weights = [float(cell) for cell in cells.all_inner_texts() if cell.strip() not in ("", "·")]
    assert len(weights) == 4
    assert sum(weights) == pytest.approx(1, abs=2e-3)


def test_odd_texts_are_answered_plainly(journey: Journey) -> None:
    ready(journey)
    page = journey.page
    field = page.get_by_label("文本", exact=True)
    field.fill("To be 世界")
    page.get_by_text("已略去模型没见过的字符").wait_for()
    field.fill("the " * 100)
    page.get_by_text("一次只读").wait_for()
    field.fill("")
    page.get_by_text("没有输入文本").wait_for()
    journey.accessible("without a text")


def test_the_temperature_changes_the_bars_at_once(journey: Journey) -> None:
    ready(journey)
    page = journey.page
    bars = page.get_by_role("list", name="下一个词元的概率")
    bars.wait_for()
    assert "100.0%" not in bars.locator("li").first.inner_text()
    page.get_by_label("温度").focus()
    page.keyboard.press("Home")
    expect(bars.locator("li").first).to_contain_text("100.0%")


@pytest.mark.parametrize(
    ("size", "theme"), [(PHONE, "dark"), (LAPTOP, "light"), (PROJECTOR, "dark")]
)
def test_every_width_and_theme(journey: Journey, size: dict[str, int], theme: str) -> None:
    page = journey.page
    page.set_viewport_size(size)
    page.emulate_media(color_scheme=theme)
    diagram = ready(journey)
    for number in (1, 2, 3):
        diagram.locator("[role=option]").nth(number).click()
        title(journey, STAGES[number])
        journey.fits()
    journey.accessible(theme)
