"""The ladder: prices every part of a Transformer. `partwise.ladder(…)` climbs it."""

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """A package that can be called: `partwise.ladder` is both, whichever was imported first."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from partwise.ladder.api import ladder

        return ladder(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
