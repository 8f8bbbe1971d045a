"""The rungs written out once more, as plainly as a lecture would, to hold the product against.

Nothing here uses the product's model, loss, optimizer or loop: one module a part, separate matrices
for every head, torch's own AdamW in a loop of ten lines.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Head(nn.Module):
    """softmax(q kᵀ / √size, looking back only) v."""

    def __init__(self, width: int, size: int, context: int, dropout: float) -> None:
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.key = nn.Linear(width, size, bias=False)
        self.query = nn.Linear(width, size, bias=False)
        self.value = nn.Linear(width, size, bias=False)
        self.register_buffer("past", torch.tril(torch.ones(context, context)))

    def forward(self, x: Tensor) -> Tensor:
        time = x.shape[1]
        k, q, v = self.key(x), self.query(x), self.value(x)
        scores = q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5
        scores = scores.masked_fill(self.past[:time, :time] == 0, float("-inf"))  # type: ignore[index]
        weights: Tensor = self.drop(F.softmax(scores, dim=-1))
        return weights @ v


class Heads(nn.Module):
    """Heads side by side, then a projection where the rung has one."""

    def __init__(
        self, width: int, heads: int, context: int, projection: bool, dropout: float
    ) -> None:
        super().__init__()
        self.heads = nn.ModuleList(
            Head(width, width // heads, context, dropout) for _ in range(heads)
        )
        self.proj = nn.Linear(width, width) if projection else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        joined: Tensor = self.proj(torch.cat([head(x) for head in self.heads], dim=-1))
        return joined


class Plain(nn.Module):
    """One rung, 1 to 6, in the sizes given; dropout on attention weights and sublayer outputs."""

    def __init__(
        self,
        rung: int,
        vocab: int,
        context: int,
        width: int,
        heads: int,
        layers: int,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.rung = rung
        self.drop = nn.Dropout(dropout)
        self.token = nn.Embedding(vocab, width)
        self.place = nn.Embedding(context, width)
        self.attend = nn.ModuleList(
            Heads(width, heads, context, rung >= 2, dropout) for _ in range(layers)
        )
        self.think = nn.ModuleList()
        if rung == 3:
            self.think.append(nn.Sequential(nn.Linear(width, width), nn.ReLU()))
        elif rung >= 4:
            for _ in range(layers):
                up, down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
                self.think.append(nn.Sequential(up, nn.ReLU(), down))
        norms = 2 * layers + 1 if rung >= 5 else 0
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(norms))
        self.head = nn.Linear(width, vocab)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.token(ids) + self.place(torch.arange(ids.shape[1]))
        if self.rung <= 3:
            x = self.attend[0](x)
            if self.rung == 3:
                x = self.think[0](x)
        elif self.rung == 4:
            for attend, think in zip(self.attend, self.think, strict=True):
                x = x + attend(x)
                x = x + think(x)
        else:
            for layer, (attend, think) in enumerate(zip(self.attend, self.think, strict=True)):
                x = x + self.drop(attend(self.norms[2 * layer](x)))
                x = x + self.drop(think(self.norms[2 * layer + 1](x)))
            x = self.norms[-1](x)
        logits: Tensor = self.head(x)
        return logits

    def take(self, weights: dict[str, Tensor]) -> None:
        """The product's weights, each where it belongs."""
        width = self.token.weight.shape[1]

        def put(module: nn.Module, name: str) -> None:
            module.load_state_dict(
                {
                    key.rsplit(".", 1)[1]: weights[key]
                    for key in weights
                    if key.startswith(name + ".")
                }
            )

        put(self.token, "token_embedding")
        put(self.place, "position_embedding")
        put(self.head, "head")
        for layer, attend in enumerate(self.attend):
            qkv = weights[f"blocks.{layer}.attention.qkv.weight"]
            size = width // len(attend.heads)  # type: ignore[arg-type,union-attr]
            for number, head in enumerate(attend.heads):  # type: ignore[arg-type,union-attr]
                rows = slice(number * size, (number + 1) * size)
                for which, part in enumerate(("query", "key", "value")):
                    matrix = qkv[which * width : (which + 1) * width][rows]
                    getattr(head, part).load_state_dict({"weight": matrix})
            if self.rung >= 2:
                put(attend.proj, f"blocks.{layer}.attention.projection")  # type: ignore[arg-type,union-attr]
        for layer, think in enumerate(self.think):
            put(think[0], f"blocks.{layer}.feedforward.up")  # type: ignore[index]
            if self.rung >= 4:
                put(think[2], f"blocks.{layer}.feedforward.down")  # type: ignore[index]
        if self.rung >= 5:
            for layer in range(len(self.attend)):
                put(self.norms[2 * layer], f"blocks.{layer}.norm1")
                put(self.norms[2 * layer + 1], f"blocks.{layer}.norm2")
            put(self.norms[-1], "final_norm")


def loop(
    model: nn.Module,
    batch: Callable[[int], tuple[Tensor, Tensor]],
    steps: int,
    lr: float,
    optimizer: torch.optim.Optimizer | None = None,
    first: int = 0,
) -> Iterator[float]:
    """The loss of every step; one that goes on gives the optimizer and the steps done before."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=lr)
    for step in range(first, steps):
        inputs, targets = batch(step)
        logits = model(inputs)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        yield loss.item()
