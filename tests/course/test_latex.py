"""The evaluator that holds formulas equal to their Python: it must see when they are not."""

import math
from typing import Any

import numpy as np
import pytest

from course.latex import LatexError, evaluate, sides

RANDOM = np.random.default_rng(0)
SPACE: dict[str, Any] = {
    "np": np,
    "x": RANDOM.normal(size=(3, 4)),
    "w": RANDOM.normal(size=(4, 4)),
    "v": np.array([1.0, 2.0, 3.0]),
    "a": 2.0,
    "b": 3.0,
    "f": lambda x: x + 1,
}
NAMES = {
    "x": "x",
    "W_Q": "w",
    "v": "v",
    "v_j": "v[j - 1]",
    "d": "len(v)",
    "a": "a",
    "b": "b",
    "\\sigma^2": "v.var()",
    "\\mu": "v.mean()",
    "Attention": "f",
    "\\hat{x}": "x * 2",
}


@pytest.mark.parametrize(
    ("latex", "expected"),
    [
        ("1 + 2 \\cdot 3 - 4", 3),
        ("-a^2 + b", -1),
        ("\\frac{a}{b} b", 2),
        ("12 a b^2", 216),
        ("\\sqrt{a + b + 4}", 3),
        ("a^{b - 1}", 4),
        ("\\left( a + b \\right)^2", 25),
        ("\\frac{1}{d} \\sum_{j=1}^{d} v_j", 2),
        ("\\frac{1}{d} \\sum_{j=1}^{d} (v_j - \\mu)^2", 2 / 3),
        ("\\sum_{j=1}^{d} v_j + 1", 7),
        ("\\sum_{j=2}^{d} j \\cdot v_j", 13),
        ("\\prod_{j=1}^{d} v_j", 6),
        ("\\sqrt{\\sigma^2}", math.sqrt(2 / 3)),
        ("\\sigma^2 \\cdot 3", 2),
        ("a / b / a", 1 / 3),
        ("x W_Q", SPACE["x"] @ SPACE["w"]),
        ("x W_{Q}^\\top", SPACE["x"] @ SPACE["w"].T),
        ("x \\odot x", SPACE["x"] ** 2),
        ("a\\, x", 2 * SPACE["x"]),
        ("\\hat{x} + \\operatorname{Attention}(x)", 3 * SPACE["x"] + 1),
        ("\\text{ReLU}(x)", np.maximum(SPACE["x"], 0)),
        ("\\max(0, x)", np.maximum(SPACE["x"], 0)),
        ("\\operatorname{Concat}(x, x)", np.concatenate([SPACE["x"]] * 2, -1)),
    ],
)
def test_values(latex: str, expected: Any) -> None:
    assert np.allclose(evaluate(latex, NAMES, SPACE), expected)


def test_softmax_rows_are_shares() -> None:
    shares = evaluate(
        "\\operatorname{softmax}\\left(\\frac{x x^\\top}{\\sqrt{a}}\\right)", NAMES, SPACE
    )
    assert np.allclose(shares.sum(-1), 1) and shares.shape == (3, 3)


@pytest.mark.parametrize("latex", ["y", "a +", "\\frac{a}", "a ? b", "(a", "\\sum_{j} v_j"])
def test_what_is_not_understood_is_refused(latex: str) -> None:
    with pytest.raises((LatexError, ValueError, TypeError)):
        evaluate(latex, NAMES, SPACE)


def test_sides() -> None:
    assert sides("y = \\sum_{i=1}^{n} x = z") == ["y ", " \\sum_{i=1}^{n} x ", " z"]
