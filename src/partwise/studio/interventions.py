"""What happens if one token is another, or a part is silent: a trained model, and no training."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from partwise.errors import ConfigError, PartwiseError, TextError
from partwise.ladder.knockout import silenced
from partwise.ladder.table import LadderTable, read_table
from partwise.model.config import ModelConfig
from partwise.model.flops import forward_flops
from partwise.model.gpt import GPT
from partwise.studio.lens import check_position, streams
from partwise.studio.reading import Reading, labels
from partwise.studio.tensors import block_of, feedforward_input
from partwise.studio.traces import Traced, trace_ids
from partwise.text.batches import windows
from partwise.text.tokenfile import TokenView
from partwise.training.data import Batch, View
from partwise.training.evaluate import evaluate

# Operations that one measured loss may cost: about half a second on two cores.
MOST_OPERATIONS = 2 * 10**10

# Tokens that a loss is measured on, at most.
MOST_TOKENS = 16_384

# Tokens that go through the model at once.
AT_ONCE = 4096

# A kind of part -> the variants of a rung that are trained without it.
WITHOUT = {
    "attention": ("without attention",),
    "feedforward": ("without feedforward",),
    "norms": ("without norm", "without layernorm"),
    "final_norm": ("without final-norm",),
    "positions": ("without position",),
    "residual": ("without residual",),
    "mask": ("without mask",),
    "projection": ("without projection",),
}


@dataclass(frozen=True)
class Perturbed:
    """What moved when one token was exchanged.

    Args:
        position: the token's place, from 0.
        before, after: the token that stood there, and the one that stands there now.
        stream: |x' - x| / |x| of each token, in the embedding and after each block (L + 1, T).
        output: half the sum of |p' - p| over the vocabulary, of each token's prediction (T,): 0
            where nothing moved, 1 where the two predictions share nothing.
        attention: |y' - y| of each token (T,) in what the first block's attention gives.
        feedforward: the same of its feed-forward layer when its input is changed at `position`
            alone. Either is None where the block has none.
    """

    position: int
    before: int
    after: int
    stream: Tensor
    output: Tensor
    attention: Tensor | None
    feedforward: Tensor | None

    @property
    def leaks(self) -> int:
        """Tokens before the exchanged one whose prediction moved: none with a causal mask."""
        return int((self.output[: self.position] > 0).sum())


def perturb(traced: Traced, position: int, token: int) -> Perturbed:
    """Exchange one token of a traced text, read it again, and compare.

    Args:
        traced: the text as it is.
        position: which token, from 0.
        token: what stands there instead.

    Raises:
        ConfigError: there is no such place or token.
    """
    check_position(traced, position)
    if not 0 <= token < traced.config.vocab_size:
        raise ConfigError(
            "there is no token {token}; the vocabulary has {vocab_size}, from 0",
            token=token,
            vocab_size=traced.config.vocab_size,
        )
    ids = (*traced.ids[:position], token, *traced.ids[position + 1 :])
    reading = Reading(ids, labels(traced.tokenizer, ids), ())
    other = trace_ids(traced.model, traced.tokenizer, reading)
    pairs = zip(streams(traced), streams(other), strict=True)
    moved = [(y - x).norm(dim=-1) / x.norm(dim=-1).clamp_min(1e-12) for x, y in pairs]
    before, after = (each.values["logits"].softmax(dim=-1) for each in (traced, other))
    attention = None
    if "block.0.attention" in traced.values:
        attention = _apart(*(each.values["block.0.attention"] for each in (traced, other)))
    block = block_of(traced, 0)
    feedforward = None
    if block.feedforward is not None:
        h = feedforward_input(traced, 0)
        changed = h.clone()
        changed[position] = feedforward_input(other, 0)[position]
        feedforward = _apart(_through(block.feedforward, h), _through(block.feedforward, changed))
    output = (after - before).abs().sum(dim=-1) / 2
    return Perturbed(
        position, traced.ids[position], token, torch.stack(moved), output, attention, feedforward
    )


@dataclass(frozen=True)
class Measure:
    """The loss of a model on one sample of a text, the same each time.

    Args:
        model: a twin of its own (see `traces.twin`): it is changed while a part is silent.
        batches: the sample.
        name: what the text is called.
    """

    model: GPT
    batches: tuple[Batch, ...]
    name: str

    @property
    def tokens(self) -> int:
        """Tokens that are predicted."""
        return sum(targets.size for _, targets in self.batches)

    def loss(self, silent: Iterable[str] = ()) -> float:
        """Mean nats a token, with some parts silent at once.

        Args:
            silent: names as in `knockout.parts`.

        Raises:
            ConfigError: the model has no such part.
        """
        with ExitStack() as stack:
            for part in dict.fromkeys(silent):
                stack.enter_context(silenced(self.model, part))
            found = evaluate(
                self.model,
                (),
                windows=self._windows,
                context_length=self.model.config.context_length,
                batch_size=1,
            )
        assert found is not None
        return found

    def _windows(
        self, view: View, context_length: int, batch_size: int, limit: int | None = None
    ) -> Iterator[Batch]:
        yield from self.batches


def measure_on(model: GPT, view: TokenView, name: str) -> Measure:
    """A measure on a sample of a validation text, spread evenly, as large as half a second allows.

    Args:
        model: a twin of its own.
        view: the text.
        name: what it is called.

    Raises:
        TextError: it is too short to predict anything.
    """
    context = model.config.context_length
    limit = measured_tokens(model.config)
    rows = max(1, AT_ONCE // context)
    found = tuple(windows(view, context, rows, limit))
    return Measure(model, _some(found), name)


def measure_typed(model: GPT, ids: Iterable[int], name: str) -> Measure:
    """A measure on a text that was typed.

    Args:
        model: a twin of its own.
        ids: its tokens; of a longer text the first ones.
        name: what it is called.

    Raises:
        TextError: it is too short to predict anything.
    """
    context = model.config.context_length
    known = np.array(list(ids)[: measured_tokens(model.config) + 1], np.int64)
    starts = range(0, len(known) - 1, context)
    pieces = [known[start : start + context + 1] for start in starts]
    return Measure(model, _some(tuple((one[None, :-1], one[None, 1:]) for one in pieces)), name)


def measured_tokens(config: ModelConfig) -> int:
    """How many tokens a loss is measured on: what half a second allows, one context at least."""
    each = sum(forward_flops(config, config.context_length).values())
    return max(config.context_length, min(MOST_TOKENS, MOST_OPERATIONS // each))


def trained_without(ladders: Path) -> list[dict[str, Any]]:
    """What ladders say of models that were trained without a part: newest ladder first.

    Returns:
        Of each: `ladder`, `corpus`, `rung`, `part` (as in `WITHOUT`), `with` and `without` (mean
        losses, nats a token), `difference` and `seeds`. The highest rung of a ladder that has a
        variant speaks for it. Folders that hold no ladder are passed over.
    """
    paths = ladders.glob("*/ladder.json") if ladders.is_dir() else ()
    found: list[dict[str, Any]] = []
    for path in sorted(paths, key=lambda one: one.stat().st_mtime, reverse=True):
        try:
            found += _without(read_table(path))
        except PartwiseError:
            continue
    return found


def _without(table: LadderTable) -> Iterator[dict[str, Any]]:
    for part, variants in WITHOUT.items():
        groups = [group for group in table.groups if group.variant in variants]
        for group in sorted(groups, key=lambda one: -one.rung)[:1]:
            whole, step = table.below(group), table.step(group)
            if whole is not None and step is not None:
                yield {
                    "ladder": table.folder.name,
                    "corpus": table.corpus,
                    "rung": group.rung,
                    "name": group.name,
                    "part": part,
                    "with": whole.val_loss.mean,
                    "without": group.val_loss.mean,
                    "difference": step.mean,
                    "seeds": len(group.rows),
                }


def _some(batches: tuple[Batch, ...]) -> tuple[Batch, ...]:
    if not any(targets.size for _, targets in batches):
        raise TextError("the text has no token to predict; give two or more")
    return batches


def _apart(x: Tensor, y: Tensor) -> Tensor:
    moved: Tensor = (y - x).norm(dim=-1)
    return moved


def _through(module: nn.Module, x: Tensor) -> Tensor:
    weight = next(module.parameters())
    with torch.no_grad():
        y: Tensor = module(x.to(weight.device, weight.dtype))
    return y.float().cpu()
