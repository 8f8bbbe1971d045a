"""The lessons as the pages take them: each cell as data, in both languages."""

import hashlib
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from partwise.course import catalogue
from partwise.course.cells import (
    Cell,
    Code,
    Formula,
    Lesson,
    Markdown,
    Quiz,
    Reading,
    Widget,
    Words,
)
from partwise.studio.answers import Json
from partwise.studio.kernels import known
from partwise.studio.state import State


def routes(state: State) -> list[BaseRoute]:
    """`GET /api/lessons/{number}`."""

    def one(request: Request) -> Response:
        number = request.path_params["number"]
        known(number)
        return Json(lesson_of(number))

    return [Route("/api/lessons/{number}", one)]


def lesson_of(number: str) -> dict[str, Any]:
    """A whole lesson; its checks and solutions stay here.

    Raises:
        KeyError: there is none of that number.
    """
    found = catalogue.lesson(number)
    before, after = catalogue.neighbours(number)
    return {
        **row(found),
        "previous": None if before is None else row(catalogue.lesson(before)),
        "next": None if after is None else row(catalogue.lesson(after)),
        "cells": [{"id": cell.id, **_cell(cell)} for cell in found.cells],
    }


def row(lesson: Lesson) -> dict[str, Any]:
    """A lesson as the course lists it."""
    quizzes = [cell.id for cell in lesson.cells if isinstance(cell, Quiz)]
    exercises = [cell.id for cell in lesson.code_cells if cell.check is not None]
    return {
        "number": lesson.number,
        "id": lesson.id,
        "minutes": lesson.minutes,
        "title": _words(lesson.title),
        "parts": {"quizzes": quizzes, "exercises": exercises},
    }


def hashes() -> dict[tuple[str, str], str]:
    """Lesson number and cell id -> what changes when the lesson's own code of that cell does."""
    found = {}
    for lesson in catalogue.lessons():
        for cell in lesson.cells:
            if isinstance(cell, Code):
                found[lesson.number, cell.id] = cell.hash
            elif isinstance(cell, Quiz) and cell.kind == "code":
                found[lesson.number, cell.id] = hash_of(cell.start)
    return found


def hash_of(code: str) -> str:
    """Changes when the code does; the same as a code cell's."""
    return hashlib.sha256(code.encode("utf-8")).hexdigest()[:16]


def _cell(cell: Cell) -> dict[str, Any]:
    if isinstance(cell, Markdown):
        return {"kind": "md", **_words(cell.text)}
    if isinstance(cell, Formula):
        caption = None if cell.caption is None else _words(cell.caption)
        return {"kind": "formula", "latex": cell.latex, "code": cell.code, "caption": caption}
    if isinstance(cell, Code):
        return {
            "kind": "code",
            "code": cell.code,
            "hash": cell.hash,
            "exercise": cell.solution is not None,
            "checked": cell.check is not None,
        }
    if isinstance(cell, Quiz):
        return {"kind": "quiz", "quiz": cell.kind, **_quiz(cell)}
    if isinstance(cell, Widget):
        label = _words(cell.label)
        return {"kind": "widget", "name": cell.name, "props": dict(cell.props), "label": label}
    assert isinstance(cell, Reading)
    items = [
        {"title": item.title, "where": item.where, "look": _words(item.look)} for item in cell.items
    ]
    return {"kind": "reading", "items": items}


def _quiz(quiz: Quiz) -> dict[str, Any]:
    told: dict[str, Any] = {"question": _words(quiz.question)}
    choices = [
        {**_words(one.text), "right": one.right, "feedback": _words(one.feedback)}
        for one in quiz.choices
    ]
    if quiz.kind == "order":
        told["items"] = choices
    elif choices:
        told["options"] = choices
    if quiz.kind == "number":
        told |= {"answer": quiz.answer, "tolerance": quiz.tolerance}
    if quiz.kind == "code":
        told |= {"start": quiz.start, "hash": hash_of(quiz.start)}
    told["feedback"] = {
        name: None if words is None else _words(words)
        for name, words in (("right", quiz.right), ("wrong", quiz.wrong))
    }
    return told


def _words(words: Words) -> dict[str, str]:
    return {"zh": words.zh, "en": words.en}
