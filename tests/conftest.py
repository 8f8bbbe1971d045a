"""Every test speaks English and has a cache of its own session, whatever the machine."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from partwise.cli.waiting import wait_briefly

# A machine that is busy is no fault of the software.
settings.register_profile("partwise", deadline=None)
settings.load_profile("partwise")


# Before torch is loaded, which tests do.
wait_briefly()


# A shell starts what runs in its background with interrupts ignored, and children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PARTWISE_LANG", "en")
        patched.setenv("PARTWISE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def tiny(surroundings: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The course's tiny model in this process's cache, trained once for all processes together."""
    from partwise.course.tiny import make_tiny, tiny_folder

    mine = tiny_folder()
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared-cache"
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PARTWISE_CACHE", str(shared))
        trained = make_tiny()
    if not mine.exists():
        shutil.copytree(trained, mine)
    return mine


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--slow-browser",
        action="store_true",
        help="a browser with a quarter of the processor, whose requests take half a second: "
        "tests that do not wait for what they read fail",
    )
