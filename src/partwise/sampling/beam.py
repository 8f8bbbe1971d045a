"""Beam search: several unfinished texts are followed at once, and the best finished one is taken.

score(text) = log P(text) / lp(text),  lp(text) = ((5 + length) / 6)^alpha

A text's length counts its END. Without the penalty, alpha = 0, short texts win: each token more
makes a text less likely.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from partwise.errors import SamplingError


class Writer(Protocol):
    """R texts that grow in step."""

    def read(self, ids: Tensor) -> Tensor:
        """Take in `ids` (R, T), and score what follows each text (R, vocab_size)."""

    def select(self, rows: Tensor) -> None:
        """Go on with these texts only, in this order; one may be taken several times (R',)."""


@dataclass(frozen=True)
class Found:
    """A finished text.

    Args:
        ids: its tokens, without END.
        log_probability: of its tokens and END (nats).
        score: the same over the length penalty.
    """

    ids: tuple[int, ...]
    log_probability: float
    score: float


@dataclass(frozen=True)
class _Alive:
    ids: tuple[int, ...]
    log_probability: float


def length_penalty(length: int, alpha: float) -> float:
    """((5 + length) / 6)^alpha.

    Args:
        length: tokens, END among them.
        alpha: 0 or more.

    Source: Wu et al. (2016), equation 14, without its coverage.
    """
    return float(((5 + length) / 6) ** alpha)


@torch.inference_mode()
def greedy(
    writer: Writer, begin: Tensor, *, end: int, never: Sequence[int] = (), longest: int
) -> list[tuple[int, ...]]:
    """Always the likeliest token, until END.

    Args:
        writer: B texts.
        begin: what it reads first (B, T).
        end: the token that closes a text.
        never: tokens that are not written.
        longest: most tokens that are written, END not among them.

    Returns:
        The tokens of each text, without END.

    Raises:
        SamplingError: the scores are not numbers.
    """
    written: list[list[int]] = [[] for _ in range(begin.shape[0])]
    ended = [longest == 0] * len(written)
    ids = begin
    while not all(ended):
        logits = _numbers(writer.read(ids), max(map(len, written)))
        logits[:, list(never)] = -math.inf
        ids = logits.argmax(-1, keepdim=True)  # (B, 1)
        for row, token in enumerate(ids[:, 0].tolist()):
            if not ended[row] and token != end:
                written[row].append(token)
            ended[row] = ended[row] or token == end or len(written[row]) == longest
    return [tuple(text) for text in written]


@torch.inference_mode()
def beam_search(
    writer: Writer,
    begin: Tensor,
    *,
    end: int,
    never: Sequence[int] = (),
    width: int,
    alpha: float = 0.6,
    longest: int,
) -> list[list[Found]]:
    """The finished texts of a beam, the best first.

    In each step all continuations of a text's `width` unfinished beginnings are compared. Those
    that end with END, and are among the `width` best, are finished; the `width` best others go on.
    It is over when none that goes on can become better than the best that is finished, or when
    `width` are finished and none that goes on is better as it stands. A text of `longest` tokens
    must end.

    Args:
        writer: B texts.
        begin: what it reads first (B, T).
        end: the token that closes a text.
        never: tokens that are not written.
        width: unfinished beginnings of each text; with 1 the text is that of `greedy`.
        alpha: the power of the length penalty, 0 or more.
        longest: most tokens that are written, END not among them.

    Returns:
        For each text, its finished ones in the order of their scores; one at least.

    Raises:
        SamplingError: the scores are not numbers.

    Source: Wu et al. (2016), section 7.
    """
    texts = begin.shape[0]
    finished: list[list[Found]] = [[] for _ in range(texts)]
    beams: dict[int, list[_Alive]] = {text: [_Alive((), 0.0)] for text in range(texts)}
    logits = writer.read(begin)  # one row a beginning, text by text
    length = 0
    while beams:
        chances = _numbers(logits, length).float().log_softmax(-1)
        chances[:, list(never)] = -math.inf
        if length == longest:
            others = chances[:, end].clone()
            chances.fill_(-math.inf)
            chances[:, end] = others
        length += 1
        penalty = length_penalty(length, alpha)
        last_penalty = length_penalty(longest + 1, alpha)
        rows: list[int] = []
        tokens: list[int] = []
        going_on: dict[int, list[_Alive]] = {}
        first_row = 0
        for text, alive in beams.items():
            own = chances[first_row : first_row + len(alive)]
            ends, best = _continued(alive, own, end, width)
            for beginning in ends:
                value = beginning.log_probability
                finished[text].append(Found(beginning.ids, value, value / penalty))
            top = max((found.score for found in finished[text]), default=-math.inf)
            likeliest = best[0][1].log_probability if best else -math.inf
            hopeless = likeliest / last_penalty <= top
            # A model that is sure of one text fills the beam with bad ends of all others: as many
            # as `width` are no reason to stop while something better is still being written.
            enough = len(finished[text]) >= width and likeliest / penalty <= top
            if not hopeless and not enough:
                going_on[text] = [beginning for _, beginning in best]
                rows += [first_row + row for row, _ in best]
                tokens += [beginning.ids[-1] for _, beginning in best]
            first_row += len(alive)
        beams = going_on
        if beams:
            writer.select(torch.tensor(rows, device=begin.device))
            logits = writer.read(torch.tensor(tokens, device=begin.device)[:, None])
    for found in finished:
        found.sort(key=lambda each: -each.score)
    return finished


def _numbers(logits: Tensor, length: int) -> Tensor:
    if not bool(logits.amax(-1).isfinite().all()):
        raise SamplingError(
            "the model's scores are not numbers after {tokens} tokens; its training diverged or "
            "its weights are damaged: sample an earlier checkpoint",
            tokens=length,
        )
    return logits


def _continued(
    alive: Sequence[_Alive], chances: Tensor, end: int, width: int
) -> tuple[list[_Alive], list[tuple[int, _Alive]]]:
    """The best continuations of one text's beginnings.

    Returns:
        Those that end now, and those that go on with the number of the beginning they continue.
    """
    before = torch.tensor([one.log_probability for one in alive], device=chances.device)
    total = before[:, None] + chances  # (beginnings, vocab_size)
    # Each beginning can end in one way, so that twice the width leaves `width` that go on.
    values, places = total.flatten().topk(min(2 * width, total.numel()))
    ends: list[_Alive] = []
    best: list[tuple[int, _Alive]] = []
    for rank, (value, place) in enumerate(zip(values.tolist(), places.tolist(), strict=True)):
        if value == -math.inf:
            break
        row, token = divmod(place, chances.shape[1])
        if token == end:
            if rank < width:
                ends.append(_Alive(alive[row].ids, value))
        elif len(best) < width:
            best.append((row, _Alive((*alive[row].ids, token), value)))
    return ends, best
