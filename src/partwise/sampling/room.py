"""Whether as many samples as are asked for have room, before any is begun."""

from partwise.errors import SamplingError
from partwise.machine import memory_bytes
from partwise.model.config import ModelConfig
from partwise.model.memory import cache_bytes

# A float32 for each logit of a sample's next token, and copies of them on the way to the draw.
LOGITS = 4 * 4


def require_room(model: ModelConfig, count: int) -> None:
    """Check that this machine's memory holds `count` samples that are drawn at once.

    Raises:
        SamplingError: it does not; the line says how many it would hold.
    """
    each = cache_bytes(model, 1, model.context_length, "float32") + LOGITS * model.vocab_size
    memory = memory_bytes()
    if memory is not None and count * each > memory:
        raise SamplingError(
            "count={count} samples at once take {needed} GB and this machine has {memory} GB of "
            "memory; give {most:,} or fewer",
            count=f"{count:,}",
            needed=f"{count * each / 1e9:,.1f}",
            memory=f"{memory / 1e9:,.1f}",
            most=max(1, memory // each // 2),
        )
