"""What the cells of a lesson find: `from partwise.course.prelude import *`, then `use_model`.

np, math, pw                    NumPy, Python's math, and Partwise itself
model, config, weights          the chosen GPT (torch is loaded when it is first used), its shape,
                                and its weights as NumPy arrays by name
tokenizer, encode, decode       str -> ids (T,), and back
text, val_ids, train_ids        a text that it did not learn from, its ids, and some that it did
val_loss()                      the model's loss on that text; val_loss(other) another model's
observe(model, ids)             every value of one forward pass, by name
windows(ids, length)            rows of a text
show, plot                      pictures
lacking(part)                   a sentence about a part that the chosen model was built without
expect                          what checks are made of
"""

import math
import sys
from pathlib import Path

import numpy as np

import partwise as pw
from partwise.course.checking import Expect
from partwise.course.lacking import lacking
from partwise.course.learner import learned, observe, windows
from partwise.course.pictures import plot, show

__all__ = [
    "expect",
    "lacking",
    "math",
    "np",
    "observe",
    "plot",
    "pw",
    "show",
    "use_model",
    "windows",
]

expect = Expect()


def use_model(name: str | Path = "tiny") -> None:
    """Put the chosen model, and what goes with it, under the names above where this is called.

    Args:
        name: "tiny", "run:NAME" or a run folder.

    Raises:
        PartwiseError: there is no such run, or it has no checkpoint.
    """
    sys._getframe(1).f_globals.update(learned(name))
