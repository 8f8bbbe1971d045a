"""Text that ends before a stop string, let out as soon as it cannot be the beginning of one.

A sample ends where the first stop string is complete; of several that end at the same character the
longest counts. So the text does not depend on how it was cut into tokens.
"""

from collections.abc import Sequence


class StopScanner:
    """Holds back what may still turn out to be a stop string.

    Args:
        stop: the texts to stop at, none of them empty.
        limit: characters after which the text ends in any case; None for no limit.
    """

    def __init__(self, stop: Sequence[str] = (), limit: int | None = None) -> None:
        self._stop = tuple(stop)
        self._longest = max(map(len, self._stop), default=0)
        self._room = limit
        self._held = ""
        self.ended = limit == 0

    def push(self, text: str) -> str:
        """What may be shown now that `text` has come; sets `ended` at a stop or at the limit."""
        if self.ended:
            return ""
        full = self._room is not None and len(text) >= self._room
        if self._room is not None:
            text = text[: self._room]
            self._room -= len(text)
        held = self._held + text
        found = self._first_stop(held, len(self._held))
        if found is not None:
            self.ended, self._held = True, ""
            return held[:found]
        if full:
            # Nothing comes after the limit that could complete a stop string.
            self.ended, self._held = True, ""
            return held
        keep = self._possible_beginning(held)
        self._held = held[len(held) - keep :]
        return held[: len(held) - keep]

    def finish(self) -> str:
        """What was held back, now that nothing more comes."""
        held, self._held, self.ended = self._held, "", True
        return held

    def _first_stop(self, held: str, old: int) -> int | None:
        """Where the stop string starts that is complete first; `held[:old]` holds none."""
        ends = []
        for word in self._stop:
            start = held.find(word, max(0, old - len(word) + 1))
            if start >= 0:
                ends.append((start + len(word), start))
        return min(ends)[1] if ends else None

    def _possible_beginning(self, held: str) -> int:
        """Characters at the end of `held` that a stop string begins with; 0 for none."""
        for length in range(min(len(held), self._longest - 1), 0, -1):
            ending = held[-length:]
            if any(word.startswith(ending) for word in self._stop):
                return length
        return 0
