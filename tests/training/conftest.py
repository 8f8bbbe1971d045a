"""Training asks how fast this CPU is; here it is told, and nothing is measured or cached."""

import pytest

from partwise.machine import Measured, choices


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "measured", lambda: Measured(1e11, 4e11, 1e10, 1))
