"""A small evaluator of LaTeX: enough to hold a formula of a lesson equal to its Python.

Letters are looked up in a table of Python expressions, which are evaluated where the cell ran; the
index of a sum is known to them as a number from 1. Two things side by side are multiplied: two
matrices as matrices, anything else element by element, as are \\cdot, \\odot and \\times.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

TOKEN = re.compile(r"\\[A-Za-z]+|\\[,;:!{}| ]|[A-Za-z]|\d+(?:\.\d+)?|\S")
SPACE = {"\\,", "\\;", "\\:", "\\!", "\\ ", "\\quad", "\\qquad", "\\left", "\\right", "\\big", "~"}
TIMES = {"\\cdot", "\\odot", "\\times"}
WORDS = {"\\operatorname", "\\text", "\\mathrm", "\\mathbf"}
ACCENTS = {"\\hat", "\\tilde", "\\bar"}
CLOSING = {"(": ")", "[": "]"}


def softmax(x: Any) -> Any:
    e = np.exp(np.asarray(x) - np.max(x, axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def layer_norm(x: Any) -> Any:
    x = np.asarray(x)
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "softmax": softmax,
    "ReLU": lambda x: np.maximum(x, 0),
    "GELU": lambda x: x * (1 + np.vectorize(math.erf)(np.asarray(x) / math.sqrt(2))) / 2,
    "LayerNorm": layer_norm,
    "Concat": lambda *parts: np.concatenate(parts, axis=-1),
    "\\max": lambda *args: np.max(args[0]) if len(args) == 1 else np.maximum(*args),
    "\\min": lambda *args: np.min(args[0]) if len(args) == 1 else np.minimum(*args),
    "\\exp": np.exp,
    "\\log": np.log,
    "\\ln": np.log,
    "\\cos": np.cos,
    "\\sin": np.sin,
    "\\tanh": np.tanh,
}
CONSTANTS = {"\\pi": math.pi, "\\infty": math.inf}


class LatexError(ValueError):
    """Something that this grammar does not have."""


def product(a: Any, b: Any) -> Any:
    """Side by side: matrices as matrices, a row and a matrix too, all else element by element."""
    if np.ndim(b) >= 2 and np.ndim(a) >= 1:
        return np.asarray(a) @ np.asarray(b)
    if np.ndim(a) >= 2 and np.ndim(b) == 1 and np.shape(a)[-1] == np.shape(b)[0]:
        return np.asarray(a) @ np.asarray(b)
    return np.asarray(a) * np.asarray(b)


class Reader:
    """Reads one expression and works it out on the way."""

    def __init__(self, latex: str, names: Mapping[str, str], namespace: dict[str, Any]) -> None:
        self.tokens = [token for token in TOKEN.findall(latex) if token not in SPACE]
        self.at = 0
        self.names = {squeeze(name): expression for name, expression in names.items()}
        self.namespace = namespace
        self.bound: dict[str, int] = {}

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def next(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def want(self, token: str) -> None:
        if self.next() != token:
            raise LatexError(f"{token} expected in {''.join(self.tokens)}")

    def group(self) -> list[str]:
        """The tokens of a braced group, or the one that stands without braces."""
        if self.peek() != "{":
            return [self.next()]
        depth, found = 0, []
        while True:
            token = self.next()
            if not token:
                raise LatexError("a brace is not closed")
            depth += (token == "{") - (token == "}")
            if depth == 0:
                return found[1:]
            found.append(token)

    def inner(self, tokens: list[str]) -> Any:
        """The value of a group."""
        outer, self.tokens, place, self.at = self.tokens, tokens, self.at, 0
        value = self.sum()
        if self.at < len(self.tokens):
            raise LatexError(f"{self.peek()} is not understood in {''.join(tokens)}")
        self.tokens, self.at = outer, place
        return value

    def sum(self) -> Any:
        value = self.term()
        while self.peek() in ("+", "-"):
            sign = self.next()
            other = self.term()
            value = value + other if sign == "+" else value - other
        return value

    def term(self) -> Any:
        if self.peek() == "-":
            self.next()
            return -self.term()
        value = self.factor()
        while self.peek() and self.peek() not in ("+", "-", ")", "]", ",", "=", "}", "\\}"):
            if self.peek() == "/":
                self.next()
                value = value / self.factor()
            elif self.peek() in TIMES:
                self.next()
                value = value * self.factor()
            else:
                value = product(value, self.factor())
        return value

    def factor(self) -> Any:
        token = self.peek()
        if token in ("\\sum", "\\prod"):
            return self.series()
        if token == "\\frac":
            self.next()
            above = self.inner(self.group())
            return self.powers(above / self.inner(self.group()))
        if token == "\\sqrt":
            self.next()
            return self.powers(np.sqrt(self.inner(self.group())))
        if token in CLOSING:
            return self.powers(self.arguments()[0])
        if re.fullmatch(r"[\d.]+", token):
            return self.powers(float(self.next()))
        return self.symbol()

    def arguments(self) -> list[Any]:
        closing = CLOSING[self.next()]
        found = [self.sum()]
        while self.peek() in (",", ";"):
            self.next()
            found.append(self.sum())
        self.want(closing)
        return found

    def series(self) -> Any:
        fold = np.add if self.next() == "\\sum" else np.multiply
        self.want("_")
        index, equals, *low = self.group()
        if equals != "=":
            raise LatexError("a sum goes from i=a to b")
        first = self.inner(low)
        self.want("^")
        last = self.inner(self.group())
        start, value = self.at, None
        for i in range(int(first), int(last) + 1):
            self.at = start
            self.bound[index] = i
            here = self.term()
            value = here if value is None else fold(value, here)
        del self.bound[index]
        return value

    def symbol(self) -> Any:
        token = self.next()
        if token in WORDS:
            name = "".join(self.group())
        elif token in ACCENTS:
            name = f"{token}{{{''.join(self.group())}}}"
        elif re.fullmatch(r"[A-Za-z]|\\[A-Za-z]+", token):
            name = token
        else:
            raise LatexError(f"{token!r} is not understood in {''.join(self.tokens)}")
        if self.peek() == "_":
            self.next()
            name += "_" + "".join(self.group())
        if self.peek() == "^":
            # A power may belong to the name, as in \sigma^2 for a variance.
            place = self.at
            self.next()
            whole = f"{name}^{''.join(self.group())}"
            if squeeze(whole) in self.names:
                return self.powers(self.value(whole))
            self.at = place
        value = self.value(name)
        if callable(value):
            return self.powers(value(*self.arguments()))
        return self.powers(value)

    def value(self, name: str) -> Any:
        name = squeeze(name)
        if name in self.bound:
            return self.bound[name]
        if name in self.names:
            return eval(self.names[name], {**self.namespace, **self.bound})
        for table in (FUNCTIONS, CONSTANTS):
            if name in table:
                return table[name]
        raise LatexError(f"names says nothing of {name}")

    def powers(self, value: Any) -> Any:
        while self.peek() == "^":
            self.next()
            exponent = self.group()
            if exponent in (["\\top"], ["T"]) and "T" not in self.names:
                value = np.swapaxes(value, -1, -2)
            else:
                value = value ** self.inner(exponent)
        return value


def squeeze(name: str) -> str:
    """A name without spaces, and without braces around a subscript."""
    return re.sub(r"([_^])\{([^{}]*)\}", r"\1\2", name.replace(" ", "").replace("\\,", ""))


def sides(latex: str) -> list[str]:
    """What stands on either side of the equals signs that are in no brace."""
    found, depth = [""], 0
    for character in latex:
        depth += (character == "{") - (character == "}")
        if character == "=" and depth == 0:
            found.append("")
        else:
            found[-1] += character
    return found


def evaluate(latex: str, names: Mapping[str, str], namespace: dict[str, Any]) -> Any:
    """The value of an expression."""
    reader = Reader(latex, names, namespace)
    return reader.inner(reader.tokens)
