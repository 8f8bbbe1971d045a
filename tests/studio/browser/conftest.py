"""A real browser before a real studio: what it may not do fails the test that made it do so.

A journey gets `journey`: a page that is logged in. When it ends, the test fails if the console has
shown an error, a script has thrown, or anything was asked of another machine;
`journey.accessible()` fails on what axe finds against WCAG 2.2 AA. What a page comes to show is
claimed by `expect`, which waits for it. Without a Chromium, the built pages or axe the journeys are
skipped and say why. `--slow-browser` shows which claims did not wait.
"""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

import partwise
from partwise.studio.state import STATIC
from studio.live import Live, running

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

CLIENT = Path(partwise.__file__).parent / "studio" / "client"
AXE = CLIENT / "node_modules" / "axe-core" / "axe.min.js"

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    r"C:\\Program Files\\Google\\Chrome\\Application\\chrome.exe",
    r"C:\\Program Files (x86)\\Microsoft\\Edge\\Application\\msedge.exe",
)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)

# Levels A and AA of every version.
RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa")

# A busy machine may take long (milliseconds).
PATIENCE = 60_000

PHONE = {"width": 360, "height": 740}
LAPTOP = {"width": 1280, "height": 800}
PROJECTOR = {"width": 1920, "height": 1080}


def chromium() -> str | None:
    """Where a Chromium is installed."""
    for name in NAMES:
        found = shutil.which(name)
        if found is not None:
            return found
    return next((place for place in PLACES if Path(place).is_file()), None)


def missing() -> str | None:
    """Why there can be no journey here."""
    if chromium() is None:
        return "no Chromium is installed (apt-get install chromium)"
    if not (STATIC / "index.html").is_file():
        return "the studio's pages are not built (make studio)"
    if not AXE.is_file():
        return "axe is not installed (make studio)"
    try:
        import playwright  # noqa: F401
    except ImportError:
        return "playwright is not installed"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what lies in this folder where it cannot run."""
    reason = missing()
    here = Path(__file__).parent
    for item in items:
        if reason is not None and item.path.is_relative_to(here):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    """One browser for all journeys of a process."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        yield started
        started.close()


@pytest.fixture(scope="session")
def studio(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A Chinese studio with a tiny model and no runs."""
    with running(tmp_path_factory.mktemp("studio"), language="zh") as live:
        yield live


def expect(target: "Locator") -> Any:
    """A claim about what a page shows, or comes to show before patience ends."""
    from playwright.sync_api import expect

    return expect(target)


class Journey:
    """One tab of a learner.

    Args:
        page: the tab.
        live: the studio.
    """

    def __init__(self, page: "Page", live: Live) -> None:
        self.page = page
        self.live = live
        self.wrong: list[str] = []
        page.set_default_timeout(PATIENCE)
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.wrong.append(f"thrown: {error}"))
        page.on("request", self._request)
        page.on("requestfailed", self._failed)

    def open(self, path: str = "/") -> None:
        """Go to a page, as by the address bar, and wait until it stands."""
        self.page.goto(self.live.origin + path)
        self.page.wait_for_selector("main h1")
        self.page.wait_for_load_state("load")

    def until(self, come: Callable[[], bool], what: str) -> None:
        """Wait for something that is not on the page, while the browser goes on."""
        end = time.monotonic() + PATIENCE / 1000
        while not come():
            assert time.monotonic() < end, what
            self.page.wait_for_timeout(50)

    def drawn(self) -> None:
        """Wait until every formula is drawn, and fail on one that KaTeX does not read."""
        self.page.wait_for_function(
            """() => [...document.querySelectorAll('[data-latex]')]
              .every(one => one.querySelector('.katex, .katex-error'))"""
        )
        assert self.page.locator(".katex-error").count() == 0, self.page.url

    def accessible(self, where: str = "") -> None:
        """Fail on anything that axe finds once the formulas are drawn."""
        self.drawn()
        if not self.page.evaluate("typeof window.axe === 'object'"):
            self.page.evaluate(AXE.read_text(encoding="utf-8") + "\n;0")
        # What the fixed bar happens to cover just now is no fault of the page.
        self.page.evaluate("window.scrollTo({top: 0, behavior: 'instant'})")
        options = {"runOnly": {"type": "tag", "values": list(RULES)}, "resultTypes": ["violations"]}
        found = self.page.evaluate("options => window.axe.run(document, options)", options)
        lines = [
            f"{one['id']}: {one['help']}: {node['target']}: {node['html'][:160]}: "
            f"{node.get('failureSummary', '')[:300]}"
            for one in found["violations"]
            for node in one["nodes"][:3]
        ]
        twice = self.page.evaluate(
            """() => {
              const ids = [...document.querySelectorAll('[id]')].map(one => one.id);
              return [...new Set(ids.filter((id, place) => ids.indexOf(id) !== place))];
            }"""
        )
        lines += [f"the id {id} stands twice" for id in twice]
        assert not lines, f"{where} {self.page.url}\n" + "\n".join(lines)

    def fits(self) -> None:
        """Fail where the page is wider than the window."""
        wide = self.page.evaluate(
            """() => {
              const room = document.documentElement.clientWidth;
              if (document.documentElement.scrollWidth <= room) return [];
              return [...document.querySelectorAll('main *')]
                .filter(one => one.getBoundingClientRect().right > room + 1)
                .slice(0, 5).map(one => one.outerHTML.slice(0, 120));
            }"""
        )
        assert not wide, f"{self.page.url} is wider than the window:\n" + "\n".join(wide)

    def end(self) -> None:
        """Fail on what went wrong on the way."""
        self.page.context.close()
        assert not self.wrong, "\n".join(self.wrong)

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(f"console {message.type}: {message.text} ({message.location})")

    def _request(self, request: Any) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.hostname != "127.0.0.1":
            self.wrong.append(f"asked of another machine: {request.url}")

    def _failed(self, request: Any) -> None:
        if "ERR_ABORTED" not in str(request.failure):
            self.wrong.append(f"failed: {request.url}: {request.failure}")


@pytest.fixture(autouse=True)
def slowness(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `--slow-browser`, every tab is slow."""
    if not request.config.getoption("--slow-browser"):
        return
    begin = Journey.__init__

    def slowly(self: Journey, page: "Page", live: Live) -> None:
        begin(self, page, live)
        protocol = page.context.new_cdp_session(page)
        protocol.send("Emulation.setCPUThrottlingRate", {"rate": 4})
        network = {"offline": False, "downloadThroughput": -1, "uploadThroughput": -1}
        protocol.send("Network.emulateNetworkConditions", {**network, "latency": 500})

    monkeypatch.setattr(Journey, "__init__", slowly)


@pytest.fixture
def journey(browser: "Browser", studio: Live) -> Iterator[Journey]:
    """A tab that has opened the printed address."""
    with travelling(browser, studio) as made:
        yield made


@contextmanager
def travelling(browser: "Browser", live: Live, **context: Any) -> Iterator[Journey]:
    """A journey through any studio, with any settings of the browser (viewport, color_scheme)."""
    made = browser.new_context(
        **{"viewport": LAPTOP, "locale": "zh-CN", "reduced_motion": "reduce", **context}
    )
    journey = Journey(made.new_page(), live)
    journey.page.goto(live.state.address)
    journey.page.wait_for_selector("main h1")
    yield journey
    journey.end()
