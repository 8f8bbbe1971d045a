"""Lesson files are read whole, and a fault in one is named with its line."""

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course.lesson_text import LESSON
from partwise.course.cells import Code, Formula, Markdown, Quiz, Reading, Widget
from partwise.course.format import LessonError, parse

PATH = Path("01_2_sample.py")


def cell(source: str, id: str) -> object:
    return parse(source, PATH).cell(id)


def test_a_lesson_is_read() -> None:
    lesson = parse(LESSON, PATH)
    assert (lesson.number, lesson.id, lesson.minutes) == ("01.2", "sample", 5)
    assert (lesson.title.zh, lesson.title.en) == ("样例", "A sample")
    kinds = [type(cell) for cell in lesson.cells]
    assert kinds == [Markdown, Formula, Code, Code, Quiz, Quiz, Quiz, Quiz, Widget, Reading]
    assert [code.id for code in lesson.code_cells] == ["mean", "sum"]
    with pytest.raises(KeyError):
        lesson.cell("none")


def test_the_sample_is_python() -> None:
    ast.parse(LESSON)


def test_chinese_lines_are_joined_without_a_space_and_others_stay() -> None:
    markdown = cell(LESSON, "why")
    assert isinstance(markdown, Markdown)
    assert markdown.text.zh == "第一句，第二句。带 code\n的行。\n\n- 一\n- 二"
    assert markdown.text.en == "First line\nsecond line."


@pytest.mark.parametrize(
    ("lines", "joined"),
    [
        ("一。\n二", "一。二"),
        ("一\n`x`", "一\n`x`"),
        ("一，\n`x`", "一，`x`"),
        ("`x`\n，一", "`x`，一"),
        ("- 一，\n  二\n- 三", "- 一，二\n- 三"),
        ("1. 一\n2. 二", "1. 一\n2. 二"),
        ("# 一\n\n二", "# 一\n\n二"),
        ("一：\n```\n二\n三\n```", "一：\n```\n二\n三\n```"),
        ("| 一 | 二 |\n|---|---|\n| 三 | 四 |", "| 一 | 二 |\n|---|---|\n| 三 | 四 |"),
        ("a\nb", "a\nb"),
    ],
)
def test_how_lines_of_chinese_are_joined(lines: str, joined: str) -> None:
    def cells(language: str, text: str) -> str:
        return f"# %% [md {language}] a\n" + "".join(f"# {line}\n" for line in text.split("\n"))

    head = '# %% [lesson]\n# number = "01.2"\n# minutes = 5\n# title = {zh = "一", en = "A"}\n'
    found = cell(head + cells("zh", lines) + cells("en", lines), "a")
    assert isinstance(found, Markdown)
    assert found.text.zh == joined and found.text.en == lines


def test_code_and_formula() -> None:
    lesson = parse(LESSON, PATH)
    formula = next(cell for cell in lesson.cells if isinstance(cell, Formula))
    assert formula.latex == r"\mu = \frac{1}{d} \sum_{j=1}^{d} x_j"
    assert formula.names[r"\mu"] == "mu" and formula.code == "mean"
    mean, total = lesson.code_cells
    assert mean.code == "x = np.array([1.0, 2.0])\nmu = x.mean()"
    assert mean.solution is None and mean.check is None
    assert total.solution == "total = 3" and total.check is not None
    assert mean.hash != total.hash and len(mean.hash) == 16


def test_quizzes() -> None:
    one, two, three, four = (cell(LESSON, id) for id in ("one", "two", "three", "four"))
    assert isinstance(one, Quiz) and [c.right for c in one.choices] == [True, False]
    assert one.choices[1].feedback.zh == "错"
    assert isinstance(two, Quiz) and (two.answer, two.tolerance) == (64, 0)
    assert two.right is not None and two.right.en == "Yes" and two.expression == "8 * 8"
    assert isinstance(three, Quiz) and [c.text.en for c in three.choices] == ["first", "then"]
    assert isinstance(four, Quiz) and four.start == "y = 1"


def test_widget_and_reading() -> None:
    widget, reading = cell(LESSON, "stack"), cell(LESSON, "reading")
    assert isinstance(widget, Widget) and dict(widget.props) == {"layers": 96}
    assert isinstance(reading, Reading) and reading.items[0].look.en == "Look"


def line_of(text: str) -> int:
    return LESSON[: LESSON.index(text)].count("\n") + 1


FAULTS = [
    # what is replaced, by what, which line is named (counted from the replaced text), what is said
    ('# number = "01.2"', '# number = "01.3"', 0, "not that of the file's name"),
    ("# minutes = 5", '# minutes = "5"', 0, "should be int"),
    ("# minutes = 5", "# minutes = 0", 0, "1 or more"),
    ("# minutes = 5", "# minuets = 5", -2, "lacks minutes"),
    ("# minutes = 5\n", "# minutes = 5\n# colour = 1\n", 1, "colour is not known"),
    ("# minutes = 5", "# minutes = ", 0, "not TOML"),
    ('title = {zh = "样例", en', 'title = {zh = "", en', -3, "zh is empty"),
    ("# %% [md en] why", "# %% [md en] wherefore", -9, "not followed by [md en] why"),
    ("# %% [md en] why", "# %% [md fr] why", 0, "name zh or en"),
    ("# %% [code] mean", "# %% [code]", 0, "needs an id"),
    ("# %% [code] mean", "# %% [cod] mean", 0, "no kind 'cod'"),
    ("# %% [code] mean", "# %% code mean", 0, "begins with"),
    ("# %% [code] mean", "# %% [code] total", -6, "not the cell just below"),
    ("mu = x.mean()", "mu = x.mean(", 0, "not Python"),
    ("# %% [code] sum", "# %% [code] mean", 0, "already"),
    ("total = 0", "", -1, "empty"),
    ("# %% [solution] sum", "# %% [solution] all", 0, "is called 'all'"),
    ("# %% [check] sum\nexpect", "# %% [code] more\nexpect", -6, "no check"),
    ("# 第一句，", "第一句，", 0, "comments alone"),
    ("latex = ", 'latex = "a" # ', 0, "left and a right side"),
    ('# kind = "choice"', '# kind = "coice"', 0, "no quiz"),
    ("# right = true", "# right = false", -6, "just one"),
    ("# right = true", "# right = 1", 0, "should be bool"),
    ("# answer = 64", "# answer = true", 0, "should be int or float"),
    ('# start = "y = 1"', '# start = "y = "', 0, "start is not Python"),
    ('# name = "DeepStack"', '# name = "deep stack"', 0, "not a widget's name"),
    ("# [[items]]\n# title", "# [items]\n# title", 0, "should be list"),
    ("# %% [widget] stack", "# %% [lesson]", 0, "holds one lesson"),
    ("# %% [code] sum", "# %% [check] sum", 0, "is called 'sum'"),
    ("# %% [md zh] why", "# %% [check] why", 0, "stands below"),
]


@pytest.mark.parametrize(("old", "new", "offset", "said"), FAULTS)
def test_a_fault_is_named_with_its_line(old: str, new: str, offset: int, said: str) -> None:
    assert LESSON.count(old) >= 1
    with pytest.raises(LessonError) as error:
        parse(LESSON.replace(old, new, 1), PATH)
    assert said in str(error.value)
    assert str(error.value).startswith(f"01_2_sample.py:{error.value.line}: ")
    assert error.value.line == line_of(old) + offset


def test_a_file_begins_with_its_lesson_and_has_its_name() -> None:
    for source in ("", "x = 1\n" + LESSON, LESSON[LESSON.index("# %% [md zh]") :]):
        with pytest.raises(LessonError) as error:
            parse(source, PATH)
        assert error.value.line == 1
    with pytest.raises(LessonError, match="is called like"):
        parse(LESSON, Path("sample.py"))


WORDS = st.text(st.sampled_from("ab 中文，。`$_\\{}"), min_size=1).map(str.strip).filter(bool)


@given(st.lists(WORDS, min_size=1, max_size=5), st.lists(WORDS, min_size=1, max_size=5))
def test_prose_keeps_every_character_but_the_ends_of_lines(zh: list[str], en: list[str]) -> None:
    def cells(language: str, lines: list[str]) -> str:
        return f"# %% [md {language}] a\n" + "".join(f"# {line}\n" for line in lines)

    head = '# %% [lesson]\n# number = "01.2"\n# minutes = 5\n# title = {zh = "一", en = "A"}\n'
    found = cell(head + cells("zh", zh) + cells("en", en), "a")
    assert isinstance(found, Markdown)
    for said, lines in ((found.text.zh, zh), (found.text.en, en)):
        assert said.replace("\n", "") == "".join(lines)
    assert found.text.en == "\n".join(en)


@given(st.data())
def test_any_damage_is_a_fault_with_a_line_or_a_lesson(data: st.DataObject) -> None:
    """Nothing but a LessonError ever comes out, whatever is cut from a file or put into it."""
    at = data.draw(st.integers(0, len(LESSON)))
    end = data.draw(st.integers(at, min(len(LESSON), at + 30)))
    put = data.draw(st.text(st.sampled_from("# %[]{}=\"'\n中a1"), max_size=6))
    damaged = LESSON[:at] + put + LESSON[end:]
    try:
        parse(damaged, PATH)
    except LessonError as error:
        assert 1 <= error.line <= damaged.count("\n") + 1
