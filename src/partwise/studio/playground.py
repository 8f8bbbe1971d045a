"""Sampling as it happens: pieces of text to the tab that asked, until it says stop."""

import asyncio
import threading
import time
from collections.abc import Mapping
from typing import Any

from partwise.errors import PartwiseError, UsageError
from partwise.messages import use_language
from partwise.sampling.config import SampleConfig
from partwise.settings import build
from partwise.studio.answers import field
from partwise.studio.hub import Tab
from partwise.studio.models import Models
from partwise.studio.socket import Answer
from partwise.studio.state import State

# Samples at once, characters of each, and of a prompt.
COUNT = 16
LENGTH = 200_000
PROMPT = 100_000

# Pieces are put together for this long before they are sent (seconds).
PAUSE = 0.03


class Playground:
    """What is being sampled, by tab.

    Args:
        state: of the studio.
    """

    def __init__(self, state: State) -> None:
        self._models = Models(state)
        self._stops: dict[tuple[Tab, str], threading.Event] = {}

    def answers(self) -> dict[str, Answer]:
        """What is done with a tab's messages."""
        return {"sample.start": self.start, "sample.stop": self.stop}

    async def start(self, tab: Tab, sent: dict[str, Any]) -> None:
        """Begin a sample; what the tab samples already is stopped."""
        ask, model = field(sent, "ask", str), field(sent, "model", str)
        prompt = field(sent, "prompt", str, "")
        settings = field(sent, "settings", dict, {})
        config = _settings(settings, prompt)
        await self.gone(tab)
        stop = self._stops[tab, ask] = threading.Event()
        loop = asyncio.get_running_loop()

        def tell(told: dict[str, Any]) -> None:
            loop.call_soon_threadsafe(tab.send, {**told, "ask": ask})

        async def work() -> None:
            try:
                await asyncio.to_thread(self._sample, tab, model, prompt, config, stop, tell)
            except Exception as error:
                tab.fault(error, {"ask": ask})
            finally:
                # A tab may have asked again by the same name meanwhile.
                if self._stops.get((tab, ask)) is stop:
                    del self._stops[tab, ask]
                    tab.tasks.pop(f"sample-{ask}", None)

        tab.tasks[f"sample-{ask}"] = asyncio.create_task(work())

    async def stop(self, tab: Tab, sent: dict[str, Any]) -> None:
        """End a sample."""
        stop = self._stops.get((tab, field(sent, "ask", str)))
        if stop is not None:
            stop.set()

    async def gone(self, tab: Tab) -> None:
        """End all that a tab samples."""
        for (whose, _), stop in list(self._stops.items()):
            if whose is tab:
                stop.set()

    def _sample(
        self,
        tab: Tab,
        id: str,
        prompt: str,
        config: SampleConfig,
        stop: threading.Event,
        tell: Any,
    ) -> None:
        from partwise.sampling.generate import generate

        with use_language(tab.language):
            try:
                model, tokenizer = self._models.load(id)
                begun = sent = time.monotonic()
                texts: dict[int, str] = {}
                whole = [""] * config.count

                def flush() -> None:
                    for index, text in sorted(texts.items()):
                        tell({"type": "sample.piece", "index": index, "text": text})
                    texts.clear()

                for piece in generate(model, tokenizer, prompt, config):
                    if stop.is_set():
                        break
                    if piece.notice is not None:
                        tell({"type": "sample.notice", "text": str(piece.notice)})
                        continue
                    texts[piece.index] = texts.get(piece.index, "") + piece.text
                    whole[piece.index] += piece.text
                    if time.monotonic() - sent > PAUSE:
                        flush()
                        sent = time.monotonic()
                flush()
                seconds = time.monotonic() - begun
                tokens = sum(len(tokenizer.encode(text, unknown="skip")) for text in whole)
            except PartwiseError as error:
                tell({"type": "error", "message": str(error)})
                return
            tell(
                {
                    "type": "sample.done",
                    "tokens": tokens,
                    "characters": sum(map(len, whole)),
                    "seconds": round(seconds, 3),
                    "stopped": stop.is_set(),
                }
            )


def _settings(settings: Mapping[str, Any], prompt: str) -> SampleConfig:
    """The sampling that a page asks for, within what a page can show.

    Raises:
        ConfigError: a setting makes no sense.
        UsageError: it is more than a page can show.
    """
    config = build(SampleConfig, settings)
    longest = max(config.char_limit or 0, config.tokens or 0)
    if config.count > COUNT or longest > LENGTH or len(prompt) > PROMPT:
        raise UsageError(
            "a page shows up to {count} samples of {length:,} characters; `partwise sample` writes "
            "more",
            count=COUNT,
            length=LENGTH,
        )
    return config
