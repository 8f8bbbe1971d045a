"""Translating: texts in, texts out, by an encoder-decoder or by a decoder alone."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from partwise.errors import SamplingError
from partwise.model.gpt import GPT
from partwise.model.seq2seq import Seq2Seq
from partwise.model.trace import evaluating
from partwise.sampling.beam import Writer, beam_search, greedy
from partwise.sampling.config import Unknown
from partwise.sampling.search_config import SearchConfig
from partwise.sampling.tokenizer import Tokenizer

# Texts that are translated together.
TOGETHER = 64

# As much of a text is shown in a message (characters).
SHOWN = 40


@dataclass(frozen=True)
class Marks:
    """The tokens beside the tokenizer's own.

    Args:
        pad: fills a short text up.
        start: stands before a target.
        end: closes a text.
    """

    pad: int
    start: int
    end: int


class PairWriter:
    """The decoder's side of an encoder-decoder, with the source read once.

    Args:
        model: in evaluation mode.
        source: (B, S), END after each text.
        capacity: most tokens of a target, START among them.
    """

    def __init__(self, model: Seq2Seq, source: Tensor, capacity: int) -> None:
        self._model = model
        self._cache = model.new_cache(source, capacity)

    def read(self, ids: Tensor) -> Tensor:
        """See `Writer`."""
        return self._model.decode(ids, cache=self._cache)[:, -1]

    def select(self, rows: Tensor) -> None:
        """See `Writer`."""
        self._cache.select(rows)


class RowWriter:
    """A decoder alone, which has source and target in one row.

    Args:
        model: in evaluation mode.
        texts: how many (B).
        capacity: most tokens of a row.
    """

    def __init__(self, model: GPT, texts: int, capacity: int) -> None:
        self._model = model
        self._cache = model.new_cache(texts, capacity)

    def read(self, ids: Tensor) -> Tensor:
        """See `Writer`."""
        hidden = self._model.hidden(ids, self._cache)
        return self._model.logits(hidden[:, -1])

    def select(self, rows: Tensor) -> None:
        """See `Writer`."""
        self._cache.select(rows)


def translate(
    model: Seq2Seq | GPT,
    tokenizer: Tokenizer,
    marks: Marks,
    texts: Sequence[str],
    config: SearchConfig,
    *,
    longest: int,
    unknown: Unknown = "refuse",
    report: Callable[[int, int], None] = lambda done, total: None,
) -> list[str]:
    """What each text means; an empty one means nothing.

    Texts of the same length are translated together, so that nothing is padded and a translation
    does not depend on its neighbours. The model is left in the mode it was in.

    Args:
        model: an encoder-decoder, or a decoder trained on rows of source START target END.
        tokenizer: the one that it was trained with.
        marks: the other tokens.
        texts: sources.
        config: how the best translation is looked for.
        longest: longest source and longest target (tokens, without START and END).
        unknown: what to do with characters that the tokenizer does not know.
        report: is told how many texts are done, of how many.

    Raises:
        TextError: a text has characters that the tokenizer does not know.
        SamplingError: a text is longer than the model reads.
    """
    encoded = [tuple(map(int, tokenizer.encode(text, unknown=unknown))) for text in texts]
    for text, ids in zip(texts, encoded, strict=True):
        if len(ids) > longest:
            raise SamplingError(
                "the text {text} has {tokens} tokens and the model reads {longest}; translate it "
                "sentence by sentence",
                text=repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}…"),
                tokens=len(ids),
                longest=longest,
            )
    done = [""] * len(texts)
    count = 0
    with evaluating(model):
        for places in _alike(encoded):
            targets = _search(model, marks, [encoded[place] for place in places], config, longest)
            for place, target in zip(places, targets, strict=True):
                decoder = tokenizer.stream()
                written = "".join(map(decoder.push, target))
                done[place] = written + decoder.finish()
            count += len(places)
            report(count, len(texts))
    return done


def _alike(encoded: Sequence[tuple[int, ...]]) -> Iterator[list[int]]:
    """Numbers of texts of the same length, not too many at once; of none that is empty."""
    by_length: dict[int, list[int]] = {}
    for place, ids in enumerate(encoded):
        if ids:
            by_length.setdefault(len(ids), []).append(place)
    for _, places in sorted(by_length.items()):
        for first in range(0, len(places), TOGETHER):
            yield places[first : first + TOGETHER]


def _search(
    model: Seq2Seq | GPT,
    marks: Marks,
    sources: Sequence[tuple[int, ...]],
    config: SearchConfig,
    longest: int,
) -> list[tuple[int, ...]]:
    most = min(longest, len(sources[0]) + config.longer_by)
    device = model.token_embedding.weight.device
    read = torch.tensor(sources, device=device)  # (B, S)
    start = torch.full((len(sources), 1), marks.start, device=device)
    writer: Writer
    if isinstance(model, Seq2Seq):
        end = torch.full_like(start, marks.end)
        writer, begin = PairWriter(model, torch.cat((read, end), dim=1), most + 1), start
    else:
        writer = RowWriter(model, len(sources), read.shape[1] + 1 + most)
        begin = torch.cat((read, start), dim=1)
    never = (marks.pad, marks.start)
    if config.beam == 1:
        return greedy(writer, begin, end=marks.end, never=never, longest=most)
    found = beam_search(
        writer,
        begin,
        end=marks.end,
        never=never,
        width=config.beam,
        alpha=config.length_penalty,
        longest=most,
    )
    return [best[0].ids for best in found]
