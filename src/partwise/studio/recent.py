"""What was used last, as much of it as a stated size allows: every memory that requests fill."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


def _one(value: object) -> float:
    return 1


class Recent(Generic[Key, Value]):
    """Values by key; what was not used for longest goes first, and the newest always stays.

    Args:
        most: what all of them may hold together, in the unit of `size_of`.
        size_of: what one holds; without it each counts 1.
    """

    def __init__(self, most: float, size_of: Callable[[Value], float] = _one) -> None:
        self._most = most
        self._size_of = size_of
        self._kept: OrderedDict[Key, Value] = OrderedDict()
        self._lock = threading.RLock()

    def get(self, key: Key) -> Value | None:
        """The value, which is now the one used last; None where there is none."""
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key]

    def put(self, key: Key, value: Value) -> Value:
        """Keep a value, and forget others until all fit."""
        with self._lock:
            self._kept[key] = value
            self._kept.move_to_end(key)
            while len(self._kept) > 1 and sum(map(self._size_of, self._kept.values())) > self._most:
                self._kept.popitem(last=False)
            return value

    def get_or(self, key: Key, make: Callable[[], Value]) -> Value:
        """The value, made where there is none; two who ask at once may both make it."""
        known = self.get(key)
        return self.put(key, make()) if known is None else known

    def items(self) -> list[tuple[Key, Value]]:
        """All of them, the one used last at the end."""
        with self._lock:
            return list(self._kept.items())

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._kept.clear()

    def __len__(self) -> int:
        return len(self._kept)
