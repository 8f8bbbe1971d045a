"""What reaches a page names no flag of the command line: it is said in words of the page."""

import ast
import re
import string
from pathlib import Path

import pytest

import partwise
from partwise.errors import TextError
from partwise.messages import Notice, message, use_language, use_words
from partwise.studio.wording import PAGES
from partwise.text.char import CharTokenizer
from studio.live import running

SOURCE = Path(partwise.__file__).parent
FLAG = re.compile(
    r"(?:^|[\s(`])--[a-z]|set head_dim|另设 head_dim|[:：]\s?partwise (?:resume|translate)\b"
)

# Nothing of these reaches a page: what is said in the terminal alone, or read in a file.
TERMINAL = (
    "bench/",
    # What is chosen for the user is said while a terminal shows a training; jobs run quietly.
    "budget/dial.py",
    "budget/finetuning.py",
    "translation/choices.py",
    # Models are imported in a terminal.
    "interop/",
    # Before there is a page, or where none was built: what to type is a command.
    "studio/serve.py",
    "studio/pages.py",
)
SAID_IN_THE_TERMINAL = (
    "model {name}: {parameters:,} parameters, which two CPU cores train in minutes",
    "validation loss on a fixed sample of",
    "{steps:,} steps, since nothing says how long",
    "the text {epochs:g} times, since nothing says how long",
    "cpu: there is no GPU here that torch can use",
    "{device}: the fastest device here",
    "another recipe, which is no rung of this ladder",
)


def templates() -> dict[str, str]:
    """Template -> the file that says it, for all that name a flag."""
    found = {}
    for path in SOURCE.rglob("*.py"):
        name = path.relative_to(SOURCE).as_posix()
        if name.startswith(("cli/", "course/lessons/")) or "node_modules" in name:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            called = ast.unparse(node.func).split(".")[-1]
            first = node.args[0]
            says = called.endswith("Error") or called in ("Notice", "message")
            if says and isinstance(first, ast.Constant) and FLAG.search(str(first.value)):
                found[str(first.value)] = name
    return found


def test_every_template_with_a_flag_has_words_for_pages() -> None:
    left = [
        f"{name}: {template}"
        for template, name in templates().items()
        if template not in PAGES
        and not name.startswith(TERMINAL)
        and not template.startswith(SAID_IN_THE_TERMINAL)
    ]
    assert not left, "\n".join(left)


def names(template: str) -> set[str]:
    return {str(name) for _, name, _, _ in string.Formatter().parse(template) if name}


@pytest.mark.parametrize("template", PAGES)
def test_the_words_of_a_page(template: str) -> None:
    assert template in templates(), "nobody says this any more"
    shown = PAGES[template]
    assert not FLAG.search(shown) and names(shown) <= names(template)
    with use_language("zh"), use_words(PAGES):
        values = dict.fromkeys(names(template), 1)
        chinese = message(template, **values)
    assert not FLAG.search(chinese) and re.search(r"[\u4e00-\u9fff]", chinese)


def test_errors_and_notices_are_said_in_them() -> None:
    notice = Notice(
        "matrices in bfloat16: a long text is read from half the memory (--dtype float32)"
    )
    with use_language("en"):
        with use_words(PAGES):
            assert "--" not in str(notice)
            with pytest.raises(TextError) as caught:
                CharTokenizer("ab").encode("c")
            assert str(caught.value).endswith("use other characters")
        assert "--dtype" in str(notice)
        assert "--unknown skip" in str(caught.value)


def test_a_page_is_told_in_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an address, of the socket, and of what comes from a thread behind it."""

    def refuse(*given: object) -> None:
        CharTokenizer("ab").encode("c")

    monkeypatch.setattr("partwise.studio.jobs.order", refuse)
    monkeypatch.setattr("partwise.studio.models.Models.load", refuse)
    with running(tmp_path) as live, live.tab() as tab:
        for language, word in (("en", "other characters"), ("zh", "别的字符")):
            status, answer = live.post("/api/jobs", {"kind": "train"}, language)
            assert status == 422
            assert word in answer["error"]["message"] and "--" not in answer["error"]["message"]
            tab.send("sample.start", ask=language, model="tiny", language=language)
            told = tab.until(lambda m: m["type"] == "error")
            assert word in told["message"] and "--" not in told["message"]
