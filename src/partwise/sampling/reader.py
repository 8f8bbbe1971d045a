"""Reading on: texts that grow in step, and for each the scores of its next token.

A model without an end to its positions reads on for ever. Any other starts anew with the last half
of its context whenever that is full; with a cache and without one it has then read the same tokens,
so both give the same text.
"""

import torch
from torch import Tensor

from partwise.model.gpt import GPT


class Reader:
    """B texts, read in step.

    Args:
        model: in evaluation mode.
        texts: how many (B).
        cache: keep keys and values, so that a token costs one token and not the whole text.
    """

    def __init__(self, model: GPT, texts: int, cache: bool) -> None:
        self._model = model
        self._cache = model.new_cache(texts) if cache else None
        self._endless = model.config.past_context
        self._context = model.config.context_length
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
        # With a cache, an endless text needs no memory of what it was.
        if self._cache is None or not self._endless:
            ids = self._remember(ids)
        return self._model.logits(self._model.hidden(ids, self._cache)[:, -1])

    def _remember(self, new: Tensor) -> Tensor:
        """Add `new` to what was read, and return what the model must read now."""
        self._window = torch.cat((self._window, new), dim=1)
        if not self._endless and self._window.shape[1] > self._context:
            self._window = self._window[:, -max(1, self._context // 2) :]
            if self._cache is not None:
                self._cache.reset()
            return self._window
        return self._window if self._cache is None else new
