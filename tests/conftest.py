"""Every test speaks English and has a cache of its own session, whatever the machine."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

# A machine that is busy is no fault of the software.
settings.register_profile("partwise", deadline=None)
settings.load_profile("partwise")


@pytest.fixture(autouse=True, scope="session")
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PARTWISE_LANG", "en")
        patched.setenv("PARTWISE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
