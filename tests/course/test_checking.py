"""`expect` collects what is wrong, in both languages."""

import json

import numpy as np

from partwise.course.checking import Expect


def test_what_holds_says_nothing() -> None:
    expect = Expect()
    assert expect(True, zh="错", en="wrong")
    assert expect(np.array([True, True]), zh="错", en="wrong")
    assert expect.passed
    assert json.loads(expect.report()) == {"passed": True, "messages": []}


def test_what_does_not_hold_is_said_in_order() -> None:
    expect = Expect()
    assert not expect(False, zh="甲", en="a")
    assert not expect(np.array([True, False]), zh="乙", en="b")
    assert not expect(np.bool_(False), zh="丙", en="c")
    report = json.loads(expect.report())
    assert not report["passed"]
    assert [said["zh"] for said in report["messages"]] == ["甲", "乙", "丙"]
    expect.begin()
    assert expect.said == [] and expect.count == 0


def test_a_check_that_looked_at_nothing_has_not_passed() -> None:
    assert not Expect().passed


def test_a_check_that_stops_says_why() -> None:
    expect = Expect()
    expect(True, zh="错", en="wrong")
    expect.stopped("NameError", "name 'q' is not defined")
    assert not expect.passed
    assert "'q'" in expect.said[0]["zh"] and "keep it" in expect.said[0]["en"]
    expect.stopped("ValueError", "shapes")
    assert "print it" in expect.said[1]["en"]
