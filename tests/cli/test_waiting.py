"""How long threads wait awake: little, unless the user says otherwise."""

import os
import subprocess
import sys

import pytest

from partwise.cli.waiting import LOOKS, wait_briefly

NAMES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


@pytest.fixture(autouse=True)
def unsaid(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        # Set first, so that what a test leaves there is taken away again.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def test_a_thread_soon_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    wait_briefly()
    assert "GOMP_SPINCOUNT" not in os.environ
    monkeypatch.setattr("platform.machine", lambda: "AMD64")
    wait_briefly()
    assert os.environ["GOMP_SPINCOUNT"] == LOOKS
    assert "OMP_WAIT_POLICY" not in os.environ


@pytest.mark.parametrize(("name", "value"), [("OMP_WAIT_POLICY", "active"), ("GOMP_SPINCOUNT", "")])
def test_what_the_user_said_holds(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    wait_briefly()
    assert {each: os.environ[each] for each in NAMES if each in os.environ} == {name: value}


@pytest.mark.parametrize("said", [None, "77"])
def test_openmp_is_told_before_torch_is_loaded(said: str | None) -> None:
    """GNU's OpenMP lists what it goes by as it is loaded, which is once."""
    script = "from partwise.cli import main; main(['--version']); import torch"
    told = {} if said is None else {"GOMP_SPINCOUNT": said}
    listed = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **told, "OMP_DISPLAY_ENV": "verbose"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert listed.returncode == 0, listed.stderr
    if "GOMP_SPINCOUNT" not in listed.stderr:
        pytest.skip("this torch is not built with GNU's OpenMP, or no processor of x86")
    assert f"GOMP_SPINCOUNT = '{said or LOOKS}'" in listed.stderr
