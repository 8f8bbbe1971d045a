"""Reading on: texts that grow in step, and for each the scores of its next token.

A model without an end to its positions reads on for ever. Any other starts anew with the last
tokens whenever its context is full; with a cache and without one it has then read the same tokens,
so both give the same text.
"""

import torch
from torch import Tensor

from partwise.model.cache import KVCache
from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT

# Tokens of an endless text that are read at once: the mask of a whole book would not fit memory.
CHUNK = 512


class Reader:
    """B texts, read in step.

    Args:
        model: in evaluation mode.
        texts: how many (B).
        cache: keep keys and values, so that a token costs one token and not the whole text.
        dtype: what they are kept in; none: the model's.
    """

    def __init__(
        self, model: GPT, texts: int, cache: bool, dtype: torch.dtype | None = None
    ) -> None:
        self._model = model
        self._cache = model.new_cache(texts, dtype=dtype) if cache else None
        self._endless = model.config.past_context
        self._context = model.config.context_length
        self._reach = reach(model.config)
        device = model.token_embedding.weight.device
        self._window = torch.empty(texts, 0, dtype=torch.int64, device=device)

    @torch.inference_mode()
    def read(self, ids: Tensor) -> Tensor:
        """The scores of the token that follows `ids`.

        Args:
            ids: (B, T) int64, what comes next in each text; at first at most context_length tokens,
                unless the model's positions have no end.

        Returns:
            (B, vocab_size).
        """
        if self._cache is None or not self._endless:
            ids = self._remember(ids)
            chunks = [ids]
        else:
            # What the cache has forgotten is out of sight for ever.
            chunks = list(torch.split(ids, CHUNK, dim=1))
        for chunk in chunks:
            hidden = self._model.hidden(chunk, self._cache)
        return self._model.logits(hidden[:, -1])

    @property
    def cache(self) -> KVCache | None:
        """The keys and values of the texts."""
        return self._cache

    @property
    def room(self) -> int | None:
        """Tokens that can be read on before the window starts anew; None: without end."""
        return None if self._endless else self._context - self._window.shape[1]

    def anew(self, new: Tensor) -> Tensor:
        """The window starts anew: what is to be read and followed then, and (B, 1) `new` last."""
        ids = self._remember(new)
        self._window = ids[:, :0]
        return ids

    def follow(self, ids: Tensor) -> None:
        """Count `ids` (B, T) as read: their keys and values are in the cache already."""
        assert self._cache is not None
        self._cache.take(ids)
        if not self._endless:
            self._window = torch.cat((self._window, ids), dim=1)

    def _remember(self, new: Tensor) -> Tensor:
        """Add `new` to what was read, and return what the model must read now."""
        self._window = torch.cat((self._window, new), dim=1)
        if self._endless:
            self._window = self._window[:, -self._reach :]
        elif self._window.shape[1] > self._context:
            self._window = self._window[:, -kept(self._context) :]
            if self._cache is not None:
                self._cache.reset()
            return self._window
        return self._window if self._cache is None else new


def kept(context_length: int) -> int:
    """The last tokens that a full context starts anew with: a quarter of it, and 64 if half allows.

    They are read again, which for half a context costs a fifth of all sampling.

    Args:
        context_length: tokens that the model reads at once.
    """
    return max(1, context_length // 4, min(context_length // 2, 64))


def reach(config: ModelConfig) -> int:
    """The last tokens that can change the next one's scores, where a window hides the others.

    A block lets a token see window - 1 tokens before it, and they saw as many before them; the
    first of all may stand for an n-gram.
    """
    if config.window is None:
        return config.context_length
    return config.n_layers * (config.window - 1) + config.ngram
