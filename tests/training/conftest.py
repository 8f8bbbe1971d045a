"""Training asks how fast this CPU is; here it is told, and nothing is measured or cached."""

import pytest

from partwise.machine import Measured, choices, peaks


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Measured(1e11, 4e11, 1e10, 1)
    monkeypatch.setattr(choices, "measured", lambda: found)
    monkeypatch.setattr(peaks, "measured", lambda: found)
    monkeypatch.setattr(choices, "autocast_ratio", lambda rows, width: 2.0)
