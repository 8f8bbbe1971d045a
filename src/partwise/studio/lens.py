"""What the model would say: the next token, and what each layer would say if it were the last.

softmax(head(final_norm(x_l))) for the residual stream x_l after layer l (the "logit lens").

Source: nostalgebraist (2020), "interpreting GPT: the logit lens".
"""

import math
from typing import Any

import torch
from torch import Tensor

from partwise.errors import ConfigError
from partwise.studio.reading import labels
from partwise.studio.traces import Traced

# Operations that one view may cost: about a tenth of a second on two cores.
MOST_OPERATIONS = 3 * 10**9


def streams(traced: Traced) -> list[Tensor]:
    """The residual stream before the first block and after each, (T, d_model) each."""
    names = ["embedding", *(f"block.{i}.output" for i in range(traced.config.n_layers))]
    return [traced.values[name] for name in names]


@torch.no_grad()
def read_out(traced: Traced, x: Tensor) -> Tensor:
    """log softmax over the tokenizer's tokens, of streams as if the last layer had given them.

    Args:
        traced: whose final norm and output layer serve.
        x: (rows, d_model).

    Returns:
        (rows, tokens of the tokenizer).
    """
    weight = traced.model.token_embedding.weight
    x = x.to(weight.device, weight.dtype)
    if traced.model.final_norm is not None:
        x = traced.model.final_norm(x)
    logits = traced.model.logits(x)
    return logits[:, : traced.scored].float().cpu().log_softmax(dim=-1)


def lens(traced: Traced, position: int, count: int = 5) -> dict[str, Any]:
    """What each layer would have the model say after one token.

    Args:
        traced: the trace.
        position: of the token, from 0.
        count: likeliest tokens to name.

    Returns:
        `position`; `target`, the token that does follow, or None at the end; `layers`, the first
        being the embedding: of each `top` (token and probability), `target` (its probability and
        rank from 1, or None) and `entropy` (nats); `losses`, each layer's mean loss over the whole
        text (nats a token), or None where that would take long.

    Raises:
        ConfigError: there is no such token.
    """
    check_position(traced, position)
    x = torch.stack([layer[position] for layer in streams(traced)])  # (L + 1, d_model)
    scores = read_out(traced, x)
    target = traced.ids[position + 1] if position + 1 < len(traced.ids) else None
    layers = []
    for row in scores:
        told = None
        if target is not None and target < traced.scored:
            rank = 1 + int((row > row[target]).sum())
            told = {"probability": _finite(row[target].exp()), "rank": rank}
        top = _top(traced, row, count)
        layers.append({"top": top, "target": told, "entropy": _entropy(row)})
    return {
        "position": position,
        "target": None if target is None else labels(traced.tokenizer, [target])[0].as_dict(),
        "layers": layers,
        "losses": losses(traced),
    }


def lens_grid(traced: Traced, first: int, count: int) -> dict[str, Any]:
    """The likeliest token of each layer after each of several tokens.

    Args:
        traced: the trace.
        first: the first token, from 0.
        count: how many; as many are answered as take a moment.

    Returns:
        `first`, `count`, and `layers`: of each layer (the first being the embedding) a list of
        token, probability and whether it is the one that follows (None at the text's end).

    Raises:
        ConfigError: there is no such token.
    """
    check_position(traced, first)
    rows = traced.config.n_layers + 1
    fits = max(1, MOST_OPERATIONS // (2 * rows * _width(traced)))
    count = max(1, min(count, fits, len(traced.ids) - first))
    found = []
    for layer in streams(traced):
        best = read_out(traced, layer[first : first + count]).max(dim=-1)
        named = labels(traced.tokenizer, best.indices.tolist())
        cells = []
        for place, (label, score) in enumerate(zip(named, best.values, strict=True), first + 1):
            right = traced.ids[place] == label.id if place < len(traced.ids) else None
            chance = _finite(score.exp())
            cells.append({"token": label.as_dict(), "probability": chance, "right": right})
        found.append(cells)
    return {"first": first, "count": count, "layers": found}


def losses(traced: Traced) -> list[float | None] | None:
    """Each layer's mean loss over the text (nats a token); None where it would take long."""
    after = torch.tensor(traced.ids[1:])
    rows = (traced.config.n_layers + 1) * len(after)
    if not len(after) or 2 * rows * _width(traced) > MOST_OPERATIONS:
        return None
    if int(after.max()) >= traced.scored:
        return None
    found = []
    for layer in streams(traced):
        scores = read_out(traced, layer[:-1])
        found.append(_finite(-scores.gather(1, after[:, None]).mean()))
    return found


def surprise(traced: Traced) -> list[float | None]:
    """-log p of each token after the first, by the model's own logits (nats)."""
    logits = traced.values["logits"][:-1]
    after = torch.tensor(traced.ids[1:])
    if not len(after):
        return []
    picked = logits.gather(1, after[:, None])[:, 0]
    return [_finite(value) for value in logits.logsumexp(dim=-1) - picked]


def next_tokens(traced: Traced, position: int, count: int = 60) -> dict[str, Any]:
    """The likeliest tokens after one, with their logits; the temperature is the page's matter.

    Args:
        traced: the trace.
        position: of the token, from 0.
        count: how many.

    Returns:
        `top` (token and logit), `scored` (how many tokens may come next, the row's first ones), and
        `target`, the token that does follow, or None.

    Raises:
        ConfigError: there is no such token.
    """
    check_position(traced, position)
    row = traced.values["logits"][position, : traced.scored]
    best = row.topk(min(count, len(row)))
    named = labels(traced.tokenizer, best.indices.tolist())
    target = traced.ids[position + 1] if position + 1 < len(traced.ids) else None
    return {
        "top": [
            {"token": label.as_dict(), "logit": _finite(value)}
            for label, value in zip(named, best.values, strict=True)
        ],
        "scored": traced.scored,
        "target": target,
    }


def _top(traced: Traced, row: Tensor, count: int) -> list[dict[str, Any]]:
    best = row.topk(min(count, len(row)))
    named = labels(traced.tokenizer, best.indices.tolist())
    return [
        {"token": label.as_dict(), "probability": _finite(value)}
        for label, value in zip(named, best.values.exp(), strict=True)
    ]


def _entropy(row: Tensor) -> float | None:
    chances = row.double().exp()
    return _finite(-(chances * row.double().where(chances > 0, 0)).sum())


def check_position(traced: Traced, position: int) -> None:
    """Refuse a place where the text has no token.

    Raises:
        ConfigError: there is no such token.
    """
    if not 0 <= position < len(traced.ids):
        raise ConfigError(
            "token {position} is not in the text of {tokens}",
            position=position + 1,
            tokens=len(traced.ids),
        )


def _width(traced: Traced) -> int:
    return traced.config.d_model * traced.config.vocab_size


def _finite(value: Tensor) -> float | None:
    number = value.item()
    return number if math.isfinite(number) else None
