"""The KV cache: what each layer said about the tokens so far, so that the next one is cheap.

Keys and values of a token never change once it is read, so each new token needs only its own. All
memory is taken at the start. With a sliding window whose positions have no end, the memory is a
ring of `window` slots: token p stands in slot p mod window, and the text may go on for ever.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from partwise.errors import SamplingError
from partwise.model.config import ModelConfig


class KVCache:
    """Static memory for the keys and values of `batch_size` texts, read in step.

    It serves inference: no gradient flows through what it holds.

    Args:
        config: the model's.
        batch_size: texts at once (B).
        capacity: longest text (tokens), at most context_length; none: that. A ring needs none.
        device: where the model is.
        dtype: the number format of keys and values.

    Raises:
        SamplingError: the model is not causal, or the capacity is above its context length.
    """

    def __init__(
        self,
        config: ModelConfig,
        batch_size: int = 1,
        capacity: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if not config.causal:
            raise SamplingError(
                "a model with causal=false looks at later tokens too, so nothing of it can be kept "
                "in a cache; sample without a cache"
            )
        capacity = config.context_length if capacity is None else capacity
        self.ring = config.past_context
        if not self.ring and not 1 <= capacity <= config.context_length:
            raise SamplingError(
                "capacity={capacity} must be from 1 to context_length={context_length}",
                capacity=capacity,
                context_length=config.context_length,
            )
        self.batch_size = batch_size
        self.capacity = None if self.ring else capacity
        self.slots = config.window if self.ring and config.window is not None else capacity
        shape = (batch_size, config.key_value_heads, self.slots, config.head_size)
        layers = config.n_layers if config.attention else 0
        self.keys = [torch.zeros(shape, device=device, dtype=dtype) for _ in range(layers)]
        self.values = [torch.zeros(shape, device=device, dtype=dtype) for _ in range(layers)]
        # A tensor, so that a compiled decoding step is the same graph at every length.
        self.position = torch.zeros((), dtype=torch.int64, device=device)
        # The last tokens, for n-gram embeddings; -1 where there was none yet.
        self.recent = torch.full((batch_size, config.ngram - 1), -1, device=device)

    @property
    def length(self) -> int:
        """Tokens seen so far."""
        return int(self.position)

    def reset(self) -> None:
        """Forget every token; the memory stays."""
        self.position.zero_()
        self.recent.fill_(-1)

    def select(self, rows: Tensor) -> None:
        """Go on with these texts only, in this order; one may be taken several times.

        Args:
            rows: numbers of texts (B',), int64.
        """
        self.batch_size = rows.shape[0]
        self.keys = [keys[rows] for keys in self.keys]
        self.values = [values[rows] for values in self.values]
        self.recent = self.recent[rows]

    def take(self, ids: Tensor) -> None:
        """Count the tokens `ids` (B, T) as seen; their keys and values are here."""
        self.position += ids.shape[1]
        if self.recent.shape[1]:
            tokens = torch.cat((self.recent, ids), dim=1)
            self.recent.copy_(tokens[:, -self.recent.shape[1] :])

    def begin(self, ids: Tensor) -> "Step":
        """Make ready for the tokens `ids` (B, T); `Step.finish` counts them as seen.

        Raises:
            SamplingError: another number of texts than the cache was made for, or no room.
        """
        batch, length = ids.shape
        if batch != self.batch_size:
            raise SamplingError(
                "a cache for {batch_size} texts was given {batch}; make one for {batch}",
                batch_size=self.batch_size,
                batch=batch,
            )
        start = None
        # Reading the count would split a compiled graph; there the caller sees to the room.
        if not torch.compiler.is_compiling():
            start = self.length
            if self.capacity is not None and start + length > self.capacity:
                raise SamplingError(
                    "{total} tokens do not fit a cache of {capacity}; reset it and read the last "
                    "{capacity} or fewer",
                    total=start + length,
                    capacity=self.capacity,
                )
        new = torch.arange(length, device=ids.device)
        positions = self.position + new
        slot = torch.arange(self.slots, device=ids.device)
        if not self.ring:
            end = self.slots if start is None else start + length
            return Step(self, ids, start, positions, positions, slot[:end], end, join=False)
        # The last position that the ring holds when it is read: itself, if it can be written first.
        join = length > 1
        last = self.position - 1 if join else self.position
        held = last - (last - slot) % self.slots  # (slots,): below 0 where nothing was written yet
        filled = self.slots if start is None else min(self.slots, start if join else start + 1)
        seen = held[:filled]
        if join:
            seen = torch.cat((seen, positions))
        written = positions[-self.slots :] % self.slots
        return Step(self, ids, start, positions, written, seen, filled, join)


@dataclass(slots=True)
class Step:
    """One reading of T new tokens, the same for every layer.

    Args:
        cache: whose step this is.
        ids: the new tokens (B, T).
        start: tokens seen before, or none where only a tensor knows (in a compiled graph).
        positions: of the new tokens (T,).
        written: the slots that the last of them go to.
        seen: positions of the keys that attention gets (S,), below 0 where there is none.
        filled: slots that attention gets.
        join: attention gets the slots as they were, followed by the new keys; else the new keys
            are written first and the slots are all.
    """

    cache: KVCache
    ids: Tensor
    start: int | None
    positions: Tensor
    written: Tensor
    seen: Tensor
    filled: int
    join: bool

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store what `layer` says about the new tokens.

        Args:
            layer: from 0.
            keys, values: (B, kv_heads, T, head_size).

        Returns:
            Keys and values of all tokens that can be seen, (B, kv_heads, S, head_size).
        """
        return (
            self._extend(self.cache.keys[layer], keys),
            self._extend(self.cache.values[layer], values),
        )

    def _extend(self, memory: Tensor, new: Tensor) -> Tensor:
        kept = new.detach()[:, :, -self.written.shape[0] :].to(memory.dtype)
        if self.join:
            joined = torch.cat((memory[:, :, : self.filled].to(new.dtype), new), dim=2)
            memory.index_copy_(2, self.written, kept)
            return joined
        memory.index_copy_(2, self.written, kept)
        return memory[:, :, : self.filled].to(new.dtype)

    def finish(self) -> None:
        """Count the new tokens as seen."""
        self.cache.take(self.ids)
