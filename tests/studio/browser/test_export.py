"""Lessons as static pages: any web server shows them, and what was recorded works."""

import http.server
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from partwise.course import catalogue
from partwise.course.cells import Widget
from partwise.errors import UsageError
from partwise.studio.export import MARK, export
from partwise.studio.state import State
from studio.browser.conftest import Journey, expect

# What a page says where something was not recorded.
NEEDS = "这一部分要在 partwise studio 里才能用"


@contextmanager
def shown(folder: Path) -> Iterator[str]:
    """A plain web server over a folder: its address."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given, directory=str(folder))

        def log_message(self, *given: Any) -> None:
            """Nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def test_exported_lessons_work_without_a_server_of_ours(
    tiny: Path, browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = tuple(one for one in catalogue.lessons() if one.number in ("05", "06.1", "06.2"))
    monkeypatch.setattr(catalogue, "lessons", lambda: chosen)
    runs = tmp_path / "runs" / "private"
    runs.mkdir(parents=True)
    state = State(root=tmp_path / "runs", data=tmp_path / "home", language="zh")
    state.port = 1
    folder = tmp_path / "site"
    # Playwright has a loop in this thread already.
    with ThreadPoolExecutor(1) as beside:
        pages = beside.submit(export, folder, state).result()
    assert [page.name for page in pages] == ["05.html", "06.1.html", "06.2.html", "index.html"]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert MARK in text and "__CSP_NONCE__" not in text
        for secret in ("private", str(tmp_path), state.token, str(Path.home())):
            assert secret not in text, secret
    with shown(folder) as address:
        context = browser.new_context(locale="zh-CN", reduced_motion="reduce")
        journey = Journey(context.new_page(), None)  # type: ignore[arg-type]
        page = journey.page
        for number in ("05", "06.1", "06.2"):
            page.goto(f"{address}/{number}.html")
            page.wait_for_selector("main h1")
            expect(page.locator("h1")).to_contain_text(catalogue.lesson(number).title.zh)
            page.locator(".cm-content").first.wait_for()
            page.wait_for_timeout(1000)
            assert NEEDS not in page.inner_text("main"), number
            assert page.locator(".cm-content[contenteditable=true]").count() == 0
            first = catalogue.lesson(number).code_cells[0].id
            assert page.locator(f"section[id='cell-{first}']").inner_text().strip()
            journey.accessible()
        page.goto(f"{address}/index.html")
        page.locator("main a", has_text=chosen[0].title.zh).first.click()
        page.wait_for_url("**/05.html")
        journey.end()
    # Never over something else.
    other = tmp_path / "home"
    other.mkdir()
    (other / "note.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match="not empty"):
        export(other, state)
    assert (other / "note.txt").read_text(encoding="utf-8") == "mine"


def test_every_control_of_an_exported_lab_does_something_or_is_off(
    tiny: Path, browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each that is on is used, and never answers that it needs a studio."""
    chosen = tuple(one for one in catalogue.lessons() if one.number in ("06.6", "06.11"))
    monkeypatch.setattr(catalogue, "lessons", lambda: chosen)

    async def nothing(lesson: Any, state: Any) -> dict[str, Any]:
        return {}

    # What cells show is the other test's matter.
    monkeypatch.setattr("partwise.studio.export.shown", nothing)
    state = State(root=tmp_path / "runs", data=tmp_path / "home", language="zh")
    state.port = 1
    folder = tmp_path / "site"
    with ThreadPoolExecutor(1) as beside:
        beside.submit(export, folder, state).result()
    with shown(folder) as address:
        context = browser.new_context(locale="zh-CN", reduced_motion="reduce")
        journey = Journey(context.new_page(), None)  # type: ignore[arg-type]
        page = journey.page
        used = 0
        for one in chosen:
            page.goto(f"{address}/{one.number}.html")
            page.wait_for_selector("main h1")
            for widget in one.cells:
                if not isinstance(widget, Widget) or widget.name not in ("Norms", "Alignment"):
                    continue
                lab = page.locator(f"[id='cell-{widget.id}']")
                lab.scroll_into_view_if_needed()
                lab.locator("section").first.wait_for()
                expect(lab).to_contain_text(re.compile("导出的(静态)?页面"))
                for slider in lab.locator("input[type=range]:enabled").all():
                    for key in ("Home", "End"):
                        slider.press(key)
                        page.wait_for_timeout(300)
                        used += 1
                        assert NEEDS not in lab.inner_text()
                for _ in range(4):
                    for button in lab.locator(".controls button:enabled").all():
                        button.click()
                        page.wait_for_timeout(300)
                        used += 1
                        assert NEEDS not in lab.inner_text()
        assert used >= 6
        journey.end()
