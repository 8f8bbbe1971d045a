"""The labs and the ladder in a real browser: what a page shows of a mistake, of time, of a job."""

import re

from studio.browser.conftest import Journey, expect

# 100 steps take ten seconds, and minutes on a machine with much else to do (milliseconds).
TRAINING = 400_000


def test_the_calculator_keeps_its_figures_and_marks_the_field(journey: Journey) -> None:
    page = journey.page
    journey.open("/calculator")
    exact = page.locator("dl .main dd").first
    exact.wait_for()
    before = exact.inner_text()
    heads = page.get_by_label("h：头数")
    heads.focus()
    page.keyboard.press("ArrowRight")
    alert = page.get_by_role("alert")
    alert.wait_for()
    expect(alert).to_contain_text("宽度 d_model=768")
    expect(alert).to_contain_text("头数 n_heads=13")
    assert "head_dim" not in alert.inner_text()
    assert exact.inner_text() == before
    expect(heads).to_have_attribute("aria-invalid", "true")
    assert page.get_by_label("上下文（词元）").get_attribute("aria-invalid") is None
    journey.accessible("with a mistake")
    page.keyboard.press("ArrowLeft")
    alert.wait_for(state="detached")
    expect(heads).not_to_have_attribute("aria-invalid", re.compile(""))
    page.get_by_label("词表").fill("")
    expect(alert).to_contain_text("词表 vocab_size")
    assert exact.inner_text() == before
    # The browser says in its console what the page says in words.
    journey.wrong = [one for one in journey.wrong if "422" not in one]


def test_the_ladder_says_its_text_its_time_and_its_order(journey: Journey) -> None:
    page = journey.page
    journey.open("/ladder")
    facts = page.locator(".facts")
    facts.get_by_text("不是同一份文本").wait_for()
    facts.get_by_text(re.compile("要训练 5 个模型，每次 .* 个，在这台机器上大约要")).wait_for()
    facts.get_by_text("先训练最费时的（第 4 级）").wait_for()
    journey.accessible()
    rungs = page.locator("ol").last
    expect(rungs).to_contain_text("残差连接")
    expect(rungs).to_contain_text("n_heads）：1 → 4")
    assert "without" not in rungs.inner_text()


def test_the_ladder_forgets_why_it_could_not_be_foretold(journey: Journey) -> None:
    page = journey.page
    refused = {"error": {"kind": "text", "message": "no such text"}}
    page.route("**/api/ladder/estimate", lambda route: route.fulfill(status=422, json=refused))
    journey.open("/ladder")
    facts = page.locator(".facts")
    facts.get_by_text("no such text").wait_for()
    # The next answer takes its time.
    page.unroute("**/api/ladder/estimate")
    page.route("**/api/ladder/estimate", lambda route: None)
    page.get_by_label("种子数").focus()
    page.keyboard.press("ArrowRight")
    facts.get_by_text("正在这台机器上试跑几步").wait_for()
    expect(facts.get_by_text("no such text")).to_have_count(0)
    page.unroute("**/api/ladder/estimate")
    journey.wrong = [one for one in journey.wrong if "422" not in one]


def test_a_translator_is_trained_and_used_on_the_page(journey: Journey) -> None:
    page = journey.page
    journey.open("/labs/alignment")
    page.get_by_text("还没有翻译模型").wait_for()
    journey.accessible("before")
    steps = page.get_by_label("步数")
    steps.focus()
    page.keyboard.press("Home")
    page.get_by_role("button", name="开始训练").click()
    page.get_by_role("progressbar").wait_for()
    source = page.get_by_label("原文")
    source.wait_for(timeout=TRAINING)
    expect(source).to_have_value("partwise")
    page.get_by_role("button", name="翻译", exact=True).click()
    page.locator(".written").wait_for()
    page.locator("canvas").first.wait_for()
    journey.accessible("after")


def test_an_edit_outlives_a_server_that_ends_as_the_page_does(journey: Journey) -> None:
    """The last post gets no answer; the next visit sends it."""
    page = journey.page
    journey.open("/lesson/06.6")
    editor = page.locator(".cm-content").first
    editor.focus()
    page.route("**/api/progress", lambda route: route.abort("aborted"))
    page.keyboard.press("Control+Home")
    page.keyboard.type("# kept after all\n")
    page.goto("about:blank")
    page.unroute("**/api/progress")
    journey.open("/lesson/06.6")
    page.locator(".cm-content", has_text="kept after all").first.wait_for()

    def sent() -> bool:
        cells = journey.live.get("/api/progress")["lessons"].get("06.6", {})
        return any(
            "kept after all" in one.get("code", {}).get("content", "") for one in cells.values()
        )

    journey.until(sent, "the edit is sent")
