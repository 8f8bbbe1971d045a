"""Read a lesson file: Python in the percent format, `# %% [kind] id` before each cell.

Code, solutions and checks stand as Python; everything else stands in comments, prose as Markdown
and data as TOML. A fault is reported with the line that it stands on.

| cell | holds |
|---|---|
| `[lesson]` | number, minutes, title; the first cell of a file |
| `[md zh] id`, `[md en] id` | the same prose, in that order |
| `[formula] id` | latex, code (id of the cell just below), names (symbol = expression), caption |
| `[code] id` | Python; a `[solution] id` below makes it an exercise, a `[check] id` checks it |
| `[quiz] id` | kind, question; options, items, or answer and expression; feedback for each |
| `[widget] id` | name, label, and whatever the widget is given |
| `[reading]` | items: title, where, look |

What a reader reads is a table of zh and en: `title = {zh = "…", en = "…"}`, or `title.zh = "…"`.
"""

import ast
import re
import threading
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast, get_args

from partwise.course.cells import (
    Cell,
    Choice,
    Code,
    Formula,
    Lesson,
    Markdown,
    Quiz,
    QuizKind,
    Reading,
    Source,
    Widget,
    Words,
)

KINDS = ("lesson", "md", "formula", "code", "solution", "check", "quiz", "widget", "reading")
PYTHON = ("code", "solution", "check")
HEADER = re.compile(r"# %% \[(\w+)(?: (\w+))?\](?: (\S+))?")
ID = re.compile(r"[a-z][a-z0-9-]*")
FILE = re.compile(r"(\d\d(?:_\d+)?)_([a-z][a-z0-9_]*)\.py")
NUMBER = re.compile(r"\d\d(\.\d+)?")

# Where a line of the source ends between two of these, no space stands; nor on either side of a
# mark, whatever its neighbour is.
WIDE = re.compile(r"[\u2e80-\u9fff\uf900-\ufaff\uff00-\uff60“”‘’…—]")
MARK = re.compile(r"[\u3001\u3002\uff01\uff08\uff09\uff0c\uff1a\uff1b\uff1f]")
# What begins a paragraph of its own although no blank line stands before it.
BEGINS = re.compile(r"\s*([-*>#|] |\d+\. |\||```|\$\$|#+ )")

# Python 3.11's own parser fails now and then when two threads are in it.
ONE_AT_A_TIME = threading.Lock()


class LessonError(ValueError):
    """A fault in a lesson file: `file:line: what is wrong; what would do`."""

    def __init__(self, path: Path, line: int, said: str) -> None:
        super().__init__(f"{path.name}:{line}: {said}")
        self.path = path
        self.line = line


@dataclass(frozen=True)
class _Raw:
    """A cell as it stands in the file; `line` is its header's, counted from 1."""

    path: Path
    line: int
    kind: str
    language: str | None
    id: str
    lines: tuple[str, ...]

    def fault(self, said: str, line: int | None = None) -> LessonError:
        return LessonError(self.path, self.line if line is None else line, said)

    def python(self) -> str:
        """The lines as Python, without blank ones at either end."""
        blank = len(self.lines) - len("\n".join(self.lines).lstrip("\n").split("\n"))
        code = "\n".join(self.lines).strip("\n").rstrip()
        if not code:
            raise self.fault(f"the {self.kind} cell is empty; write some Python in it")
        try:
            ast.parse(code)
        except SyntaxError as error:
            line = self.line + blank + (error.lineno or 1)
            raise self.fault(f"not Python: {error.msg}", line) from error
        return code

    def comment(self) -> str:
        """The lines without their `# `."""
        found = []
        for number, line in enumerate(self.lines, start=self.line + 1):
            if line.startswith("# ") or line == "#":
                found.append(line[2:])
            elif line.strip():
                raise self.fault(
                    f"a {self.kind} cell holds comments alone; begin with `# `", number
                )
            else:
                found.append("")
        return "\n".join(found).strip("\n")

    def table(self) -> "_Table":
        """The lines as TOML."""
        first = next((n for n, line in enumerate(self.lines) if line.strip("# ")), 0)
        try:
            values = tomllib.loads(self.comment())
        except tomllib.TOMLDecodeError as error:
            place = re.search(r"at line (\d+)", str(error))
            line = self.line + first + int(place[1]) if place else self.line + len(self.lines)
            raise self.fault(f"not TOML: {error}", line) from error
        return _Table(self, values)


class _Table:
    """A TOML table whose keys are taken one by one; what is left over at the end is a fault."""

    def __init__(self, raw: _Raw, values: dict[str, Any]) -> None:
        self.raw = raw
        self.values = dict(values)

    def line_of(self, key: str) -> int:
        """Where a key stands, or else the cell's first line."""
        for number, line in enumerate(self.raw.lines, start=self.raw.line + 1):
            if re.match(rf"#\s*(\[+)?\s*{re.escape(key)}\b", line):
                return number
        return self.raw.line

    def take(self, key: str, *kinds: type, default: Any = None) -> Any:
        """The value of a key, which must be there unless a default is given."""
        if key not in self.values:
            if default is None:
                raise self.raw.fault(f"the {self.raw.kind} cell lacks {key}")
            return default
        value = self.values.pop(key)
        if not isinstance(value, kinds) or isinstance(value, bool) != (kinds == (bool,)):
            names = " or ".join(kind.__name__ for kind in kinds)
            raise self.raw.fault(f"{key} is {value!r} and should be {names}", self.line_of(key))
        return value

    def text(self, key: str) -> str:
        """A string with something in it."""
        value = str(self.take(key, str)).strip("\n")
        if not value.strip():
            raise self.raw.fault(f"{key} is empty", self.line_of(key))
        return value

    def words(self, key: str | None = None) -> Words:
        """zh and en, of this table or of the one under `key`."""
        if key is not None:
            return _Table(self.raw, self.take(key, dict)).finish("words")
        return Words(zh=self.text("zh"), en=self.text("en"))

    def tables(self, key: str) -> "list[_Table]":
        """The tables of an array, at least one."""
        values = self.take(key, list)
        if not values or not all(isinstance(value, dict) for value in values):
            raise self.raw.fault(f"{key} should be tables: [[{key}]]", self.line_of(key))
        return [_Table(self.raw, value) for value in values]

    def finish(self, what: str = "") -> Words:
        """Nothing may be left; with `what`, after zh and en are taken."""
        found = self.words() if what else Words("", "")
        for key in self.values:
            raise self.raw.fault(f"{key} is not known here", self.line_of(key))
        return found


def read_lesson(path: Path) -> Lesson:
    """The lesson in a file.

    Raises:
        LessonError: a fault in it, with its line.
    """
    return parse(path.read_text(encoding="utf-8"), path)


def parse(source: str, path: Path) -> Lesson:
    """The lesson whose file holds `source`.

    Args:
        source: the text.
        path: its name says number and id: `06_5_residual.py`.

    Raises:
        LessonError: a fault in it, with its line.
    """
    with ONE_AT_A_TIME:
        return _parse(source, path)


def _parse(source: str, path: Path) -> Lesson:
    raws = list(_cells(source, path))
    if not raws or raws[0].kind != "lesson":
        raise LessonError(path, 1, "the first cell should be `# %% [lesson]`")
    named = FILE.fullmatch(path.name)
    if named is None:
        raise LessonError(path, 1, "a lesson's file is called like 06_5_residual.py")
    head, *rest = raws
    about = head.table()
    number, minutes = about.text("number"), int(about.take("minutes", int))
    if not NUMBER.fullmatch(number) or number != named[1].replace("_", "."):
        raise head.fault(
            f"number {number!r} is not that of the file's name", about.line_of("number")
        )
    if minutes < 1:
        raise head.fault("minutes should be 1 or more", about.line_of("minutes"))
    title = about.words("title")
    about.finish()
    cells = tuple(_built(rest))
    _check_formulas(cells, path)
    return Lesson(number, named[2].replace("_", "-"), minutes, title, cells, path)


def _cells(source: str, path: Path) -> Iterator[_Raw]:
    header: tuple[int, str, str | None, str] | None = None
    lines: list[str] = []
    for number, line in enumerate(source.split("\n"), start=1):
        if not line.startswith("# %%"):
            if header is None and line.strip():
                raise LessonError(path, number, "nothing stands before the first `# %%`")
            lines.append(line)
            continue
        if header is not None:
            yield _Raw(path, *header, tuple(lines))
        found = HEADER.fullmatch(line.rstrip())
        if found is None:
            raise LessonError(path, number, "a cell begins with `# %% [kind] id`")
        kind, language, id = found[1], found[2], found[3] or ""
        if kind not in KINDS:
            said = f"there is no kind {kind!r}; there are {', '.join(KINDS)}"
            raise LessonError(path, number, said)
        if (language is not None) != (kind == "md") or language not in (None, "zh", "en"):
            raise LessonError(path, number, "md cells, and they alone, name zh or en: [md zh]")
        if kind not in ("lesson", "reading") and not ID.fullmatch(id):
            said = f"a {kind} cell needs an id of small letters, digits and -"
            raise LessonError(path, number, said)
        header, lines = (number, kind, language, id or kind), []
    if header is not None:
        yield _Raw(path, *header, tuple(lines))


def _built(raws: list[_Raw]) -> Iterator[Cell]:
    """Put those that belong together into one cell each."""
    seen: set[str] = set()
    waiting = list(reversed(raws))
    while waiting:
        raw = waiting.pop()
        # A formula may be called as the code below it: the two belong together.
        own = f"formula {raw.id}" if raw.kind == "formula" else raw.id
        if own in seen:
            raise raw.fault(f"there is a cell {raw.id!r} already")
        seen.add(own)
        if raw.kind == "md":
            twin = waiting.pop() if waiting else raw
            if (raw.language, twin.kind, twin.language, twin.id) != ("zh", "md", "en", raw.id):
                raise raw.fault(f"[md zh] {raw.id} is not followed by [md en] {raw.id}")
            yield Markdown(raw.id, Words(_prose(raw), _prose(twin)), raw.line)
        elif raw.kind == "code":
            cell = Code(raw.id, raw.python(), None, None, raw.line)
            while waiting and waiting[-1].kind in ("solution", "check"):
                part = waiting.pop()
                if part.id != raw.id:
                    raise part.fault(f"this {part.kind} is called {part.id!r}, its code {raw.id!r}")
                if getattr(cell, part.kind) is not None:
                    raise part.fault(f"{raw.id} has a {part.kind} already")
                cell = (
                    replace(cell, check=part.python())
                    if part.kind == "check"
                    else replace(cell, solution=part.python())
                )
            if cell.solution is not None and cell.check is None:
                raise raw.fault(f"the exercise {raw.id} has a solution and no check")
            yield cell
        elif raw.kind in ("solution", "check"):
            raise raw.fault(f"a {raw.kind} stands below its code cell")
        elif raw.kind == "lesson":
            raise raw.fault("a file holds one lesson")
        else:
            yield BUILT[raw.kind](raw)


def _prose(raw: _Raw) -> str:
    """Markdown; in Chinese a line's end is a space only where one would be written."""
    text = raw.comment()
    if not text:
        raise raw.fault("the md cell is empty")
    if raw.language != "zh":
        return text
    lines = text.split("\n")
    joined = [lines[0]]
    fenced = lines[0].startswith("```")
    for line in lines[1:]:
        before, begun = joined[-1], line.strip()
        plain = not fenced and before and begun and not BEGINS.match(line)
        if plain and not before.endswith("  ") and _tight(before[-1], begun[0]):
            joined[-1] = before + begun
        else:
            joined.append(line)
        fenced ^= line.startswith("```")
    return "\n".join(joined)


def _tight(left: str, right: str) -> bool:
    """Whether two characters stand beside each other without a space."""
    both = WIDE.match(left) and WIDE.match(right)
    return bool(both or MARK.match(left) or MARK.match(right))


def _formula(raw: _Raw) -> Formula:
    table = raw.table()
    latex, code = table.text("latex"), table.text("code")
    if "=" not in latex:
        raise raw.fault("a formula has a left and a right side", table.line_of("latex"))
    names = table.take("names", dict)
    for symbol, expression in names.items():
        if not isinstance(expression, str):
            raise raw.fault(f"{symbol} should be a Python expression", table.line_of("names"))
    caption = table.words("caption") if "caption" in table.values else None
    table.finish()
    return Formula(raw.id, latex, code, names, caption, raw.line)


def _quiz(raw: _Raw) -> Quiz:
    table = raw.table()
    kind = table.text("kind")
    if kind not in get_args(QuizKind):
        known = ", ".join(get_args(QuizKind))
        raise raw.fault(f"there is no quiz {kind!r}; there are {known}", table.line_of("kind"))
    quiz = Quiz(raw.id, cast(QuizKind, kind), table.words("question"), raw.line)
    if kind in ("choice", "many", "order"):
        choices = []
        for option in table.tables("items" if kind == "order" else "options"):
            right = True if kind == "order" else option.take("right", bool)
            feedback = option.words("feedback")
            choices.append(Choice(option.words(), feedback, right))
            option.finish()
        count = sum(choice.right for choice in choices)
        if len(choices) < 2 or not count or (kind == "choice" and count != 1):
            raise raw.fault(f"a {kind} needs 2 options or more, and a right one (choice: just one)")
        quiz = replace(quiz, choices=tuple(choices))
    else:
        said = _Table(raw, table.take("feedback", dict))
        quiz = replace(quiz, right=said.words("right"), wrong=said.words("wrong"))
        said.finish()
    if kind == "number":
        quiz = replace(
            quiz,
            answer=float(table.take("answer", int, float)),
            tolerance=float(table.take("tolerance", int, float, default=0.0)),
            expression=table.text("expression"),
        )
    elif kind == "code":
        code = {key: table.text(key) for key in ("start", "check", "solution")}
        for key, source in code.items():
            try:
                ast.parse(source)
            except SyntaxError as error:
                raise raw.fault(f"{key} is not Python: {error}", table.line_of(key)) from error
        quiz = replace(quiz, start=code["start"], check=code["check"], solution=code["solution"])
    table.finish()
    return quiz


def _widget(raw: _Raw) -> Widget:
    table = raw.table()
    name, label = table.text("name"), table.words("label")
    if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", name):
        raise raw.fault(f"{name!r} is not a widget's name", table.line_of("name"))
    return Widget(raw.id, name, label, raw.line, dict(table.values))


def _reading(raw: _Raw) -> Reading:
    table = raw.table()
    items = []
    for item in table.tables("items"):
        items.append(Source(item.text("title"), item.text("where"), item.words("look")))
        item.finish()
    table.finish()
    return Reading(raw.id, tuple(items), raw.line)


BUILT: dict[str, Callable[[_Raw], Cell]] = {
    "formula": _formula,
    "quiz": _quiz,
    "widget": _widget,
    "reading": _reading,
}


def _check_formulas(cells: tuple[Cell, ...], path: Path) -> None:
    for here, below in zip(cells, (*cells[1:], None), strict=True):
        if isinstance(here, Formula) and not (isinstance(below, Code) and below.id == here.code):
            said = f"the formula's code {here.code!r} is not the cell just below it"
            raise LessonError(path, here.line, said)
