"""What the areas of the studio share: where things are kept, and who is let in."""

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from partwise.messages import Language, language
from partwise.storage import cache_folder, data_folder
from partwise.studio.hub import Hub, Tab
from partwise.studio.recent import Recent

STATIC = Path(__file__).parent / "static"

# Models that are kept in memory.
MODELS = 2


def _token() -> str:
    return secrets.token_urlsafe(24)


@dataclass
class State:
    """One running studio.

    Args:
        root: the folder of runs.
        ladders: the folder of ladders.
        data: what the learner made: progress and texts.
        cache: what can be made again.
        host, port: where it listens.
        token: the secret of the address; who knows it is let in.
        static: the built pages.
        language: what is spoken until a page says otherwise.
        kernel_memory: most memory of a kernel (bytes); None: what suits this machine.
        hub: the tabs that are open.
        jobs: the trainings that pages have started.
        first_looks: called with a tab and a channel that it begins to watch.
        loaded, loading: models that are kept in memory, and who may load one now.
    """

    root: Path = Path("runs")
    ladders: Path = Path("ladders")
    data: Path = field(default_factory=data_folder)
    cache: Path = field(default_factory=cache_folder)
    host: str = "127.0.0.1"
    port: int = 0
    token: str = field(default_factory=_token, repr=False)
    static: Path = STATIC
    language: Language = field(default_factory=language)
    kernel_memory: int | None = None
    hub: Hub = field(default_factory=Hub)
    jobs: Any = None
    first_looks: list[Callable[[Tab, str], None]] = field(default_factory=list)
    loaded: Recent[Any, Any] = field(default_factory=lambda: Recent(MODELS), repr=False)
    loading: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def address(self) -> str:
        """The address that lets its reader in."""
        return f"http://{self.host}:{self.port}/?token={self.token}"

    @property
    def cookie(self) -> str:
        """The cookie's name: cookies know no ports, so studios beside each other need several."""
        return f"partwise-{self.port}"

    @cached_property
    def hosts(self) -> frozenset[str]:
        """What the Host header of a request to this studio says."""
        return frozenset(f"{name}:{self.port}" for name in ("127.0.0.1", "localhost", "[::1]"))
