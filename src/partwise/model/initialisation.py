"""How weights start: with signals of a sensible size, and the same for the same seed."""

import math

from torch import nn

from partwise.model.config import Initialisation
from partwise.model.ngram import NgramTable


def initialise(
    model: nn.Module,
    scheme: Initialisation,
    *,
    std: float = 0.02,
    n_layers: int = 1,
    tied: bool = False,
) -> None:
    """Draw every matrix and embedding anew from torch's random numbers; other weights stay.

    | scheme | matrix | residual projection | embedding | bias |
    |---|---|---|---|---|
    | torch | U(±1/√inputs) | the same | N(0, 1) | U(±1/√inputs) |
    | normal | N(0, std) | the same | N(0, std) | 0 |
    | gpt2 | N(0, std) | N(0, std / √(2 n_layers)) | N(0, std) | 0 |
    | fan_in | N(0, 1/√inputs) | the same | N(0, 1), tied N(0, 1/√width) | 0 |
    | zero_projection | N(0, 1/√inputs) | 0, as an output layer of its own | as fan_in | 0 |

    The residual projections are the matrices that write into the residual stream
    (`attention.projection`, `feedforward.down`); a tied embedding is also the output layer's
    matrix, and starts as one. N-gram tables start at zero in every scheme, so that a model with
    them starts as the one without.

    Args:
        model: its modules are named as in `GPT`.
        scheme: one of the above.
        std: of "normal" and "gpt2".
        n_layers: number of blocks.
        tied: whether the token embedding is the output layer too.

    Source: torch's nn.Linear and nn.Embedding; Radford et al. (2019), section 2.3 (gpt2); LeCun
    et al. (1998), section 4.6 (fan_in); Zhang, Dauphin and Ma (2019) (zero_projection).
    """
    if scheme == "torch":
        return
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            residual = name.endswith(("attention.projection", "feedforward.down"))
            spread = std
            if scheme == "gpt2" and residual:
                spread = std / math.sqrt(2 * n_layers)
            elif scheme in ("fan_in", "zero_projection"):
                spread = 1 / math.sqrt(module.in_features)
            if scheme == "zero_projection" and (residual or name == "head"):
                nn.init.zeros_(module.weight)
            else:
                nn.init.normal_(module.weight, std=spread)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding) and not isinstance(module, NgramTable):
            spread = std
            if scheme in ("fan_in", "zero_projection"):
                spread = 1 / math.sqrt(module.embedding_dim) if tied else 1.0
            nn.init.normal_(module.weight, std=spread)
