"""The pairs of a translator: what is written down of them, and how they are opened again."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from partwise.errors import PartwiseError, RunError
from partwise.text.pair_prepare import PreparedPairs, prepare_pairs
from partwise.text.pairs import Pair
from partwise.text.tokenizers import Tokenizer
from partwise.translation.record import PairsRecord, TranslationRecord
from partwise.translation.shape import Shape, longest, parameters


def pairs_record(asked: str, prepared: PreparedPairs, model: Shape) -> PairsRecord:
    """What `run.toml` says of pairs that the user named `asked`."""
    return PairsRecord(
        asked=asked,
        spec=prepared.spec,
        name=prepared.name,
        fingerprint=prepared.fingerprint,
        tokenizer=prepared.tokenizer.name,
        tokenizer_fingerprint=prepared.tokenizer.fingerprint,
        train_pairs=prepared.train.count,
        validation_pairs=prepared.validation.count,
        test_pairs=len(prepared.test),
        parameters=parameters(model),
        test_mark=hashlib.sha256(held_out_file(prepared.test)).hexdigest(),
    )


def held_out_file(pairs: Sequence[Pair]) -> bytes:
    """Held-out pairs as the run folder keeps them: one a line, a tab between the two texts."""
    return "".join(f"{source}\t{target}\n" for source, target in pairs).encode("utf-8")


def prepare_again(
    record: TranslationRecord, tokenizer: Tokenizer, *, run: Path, pairs: str | None
) -> PreparedPairs:
    """The pairs of a translator once more.

    Args:
        record: the translator's.
        tokenizer: the translator's.
        run: its folder.
        pairs: where the pairs are now; None: where they were.

    Raises:
        RunError: the pairs are gone, or are no longer the ones that it learns.
    """
    known = record.text
    try:
        prepared = prepare_pairs(
            pairs or known.spec, record.data, longest=longest(record.model), tokenizer=tokenizer
        )
    except PartwiseError as error:
        raise RunError(
            "the pairs of {run} cannot be opened again: {reason}; put them back, or say where they "
            "are with --pairs",
            run=run,
            reason=error,
        ) from error
    if prepared.fingerprint != known.fingerprint:
        raise RunError(
            "the pairs {spec} have changed since {run} began: their fingerprint is {here} and was "
            "{recorded}; bring the old ones back, or start a new run",
            spec=prepared.spec,
            run=run,
            here=prepared.fingerprint[:12],
            recorded=known.fingerprint[:12],
        )
    return prepared
