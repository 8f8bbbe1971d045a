"""The encoder: blocks in which every token of the source sees every other one."""

from torch import Tensor, nn

from partwise.model.block import Block, Observe, Sight
from partwise.model.config import ModelConfig
from partwise.model.norm import make_norm


class Encoder(nn.Module):
    """memory = final_norm(block_N(… block_1(embedded source))), each block attending both ways.

    The blocks are those of the GPT, without its causal mask.

    Args:
        config: `Seq2SeqConfig.encoder`.

    Source: Vaswani et al. (2017), section 3.1.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layers))
        self.final_norm = None
        if config.final_norm:
            self.final_norm = make_norm(
                config.norm, config.d_model, config.norm_eps, config.norm_bias
            )

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        rotation: tuple[Tensor, Tensor] | None = None,
        observe: Observe | None = None,
    ) -> Tensor:
        """Read a source.

        Args:
            x: its embeddings (B, S, d_model).
            mask: (B, S), true for tokens, false for padding; each row has a token. None: no
                padding.
            rotation: cos and sin of rotary positions.
            observe: is given each value by its name, "block.0.attention" and so on.

        Returns:
            The memory (B, S, d_model); what stands at padding means nothing.
        """
        seen = None if mask is None else mask[:, None, None]  # (B, 1, 1, S)
        sight = Sight(seen, False, rotation, None)
        for layer, block in enumerate(self.blocks):
            x = block(x, sight, layer, observe)
        if self.final_norm is not None:
            x = self.final_norm(x)
            if observe is not None:
                observe("final_norm", x)
        return x
