"""Looking at a translator at work: which tokens of the source it looked at for each it wrote."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from partwise.errors import RunError
from partwise.model.alignment import alignment
from partwise.model.seq2seq import Seq2Seq
from partwise.sampling.search_config import SearchConfig
from partwise.text.tokenizers import Tokenizer
from partwise.training.checkpoint import Which
from partwise.translation.building import marks
from partwise.translation.folder import Translation
from partwise.translation.picture import alignment_svg


@dataclass(frozen=True)
class Looked:
    """What the decoder looked at while it wrote.

    Args:
        written: the translation.
        source: the tokens it read, END last.
        target: the tokens it wrote, END last.
        weights: a row a token of `target`, over the tokens of `source`; each sums to 1.
    """

    written: str
    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: tuple[tuple[float, ...], ...]


def alignment_picture(
    run: Translation,
    text: str,
    *,
    layer: int | None = None,
    head: int | None = None,
    config: SearchConfig | None = None,
    which: Which = "best",
) -> tuple[str, str]:
    """A translation of `text`, and an SVG of what the decoder looked at; arguments as `look`."""
    seen = look(run, text, layer=layer, head=head, config=config, which=which)
    return seen.written, alignment_svg(
        seen.weights, seen.source, seen.target, f"{text} → {seen.written}"
    )


def look(
    run: Translation,
    text: str,
    *,
    layer: int | None = None,
    head: int | None = None,
    config: SearchConfig | None = None,
    which: Which = "best",
) -> Looked:
    """Translate `text` and see what the decoder looked at for each token that it wrote.

    Args:
        run: the translator.
        text: in the language of the sources.
        layer, head: whose weights; none: the mean of all.
        config: how the best translation is looked for; None: beam search.
        which: its best weights by validation loss, or the last ones.

    Raises:
        RunError: the model is a decoder alone, which has no cross-attention, or has no such layer
            or head.
        TextError, SamplingError: see `Translation.translate`.
    """
    model, tokenizer = run.model(which), run.tokenizer()
    if not isinstance(model, Seq2Seq):
        raise RunError(
            "{run} is a decoder alone and has no cross-attention to look at; train an "
            "encoder-decoder",
            run=run.path,
        )
    for what, value, count in (
        ("layer", layer, model.config.n_decoder_layers),
        ("head", head, model.config.n_heads),
    ):
        if value is not None and not 0 <= value < count:
            raise RunError(
                "{what}={value} is none of the {count} that {run} has; give 0 to {last}",
                what=what,
                value=value,
                count=count,
                run=run.path,
                last=count - 1,
            )
    (written,) = run.translate([text], config, which=which)
    known = marks(model.config)
    read = [*map(int, tokenizer.encode(text)), known.end]
    # The first token is written after START, END after the last one.
    said = [known.start, *map(int, tokenizer.encode(written))]
    weights = alignment(model, torch.tensor([read]), torch.tensor([said]), layer=layer, head=head)
    return Looked(
        written,
        source=(*_shown(tokenizer, read[:-1]), "END"),
        target=(*_shown(tokenizer, said[1:]), "END"),
        weights=tuple(tuple(row) for row in weights[0].tolist()),
    )


def _shown(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """Each token as it looks in the text, a space as ␣."""
    return [tokenizer.decode([one]).replace(" ", "␣") for one in ids]
