"""The text of a run: what is written down of it, and how it is opened again."""

import glob
from collections.abc import Callable
from pathlib import Path

from partwise.errors import RunError, TextError
from partwise.messages import Notice
from partwise.run.record import Record, TextRecord
from partwise.text.corpora import NAMES
from partwise.text.prepare import Prepared, Progress, prepare
from partwise.text.tokenfile import TokenView
from partwise.text.tokenizers import Tokenizer


def text_record(asked: str, prepared: Prepared) -> TextRecord:
    """What `run.toml` says of a text that the user named `asked`."""
    return TextRecord(
        asked=asked,
        spec=prepared.spec,
        name=prepared.name,
        fingerprint=_fingerprint(prepared.train),
        validation_fingerprint=_fingerprint(prepared.validation),
        tokenizer=prepared.tokenizer.name,
        tokenizer_fingerprint=prepared.tokenizer.fingerprint,
        train_tokens=len(prepared.train),
        validation_tokens=len(prepared.validation),
    )


def prepare_again(
    record: Record,
    tokenizer: Tokenizer,
    *,
    run: Path,
    text: str | None,
    cache: Path,
    offline: bool,
    progress: Progress | None,
    announce: Callable[[Notice], None],
) -> Prepared:
    """The text of a run once more, from the cache or anew.

    Args:
        record: the run's.
        tokenizer: the run's.
        run: its folder.
        text: where the text is now; None: where it was.
        cache: folder for prepared texts.
        offline: never download a corpus.
        progress: is told how far it is prepared (bytes done, of all).
        announce: is told before anything is downloaded.

    Raises:
        RunError: the text is gone, or is no longer the one that the run learns.
    """
    known = record.text
    try:
        prepared = prepare(
            text or known.spec,
            record.data,
            cache=cache,
            tokenizer=tokenizer,
            offline=offline,
            progress=progress,
            announce=announce,
        )
    except TextError as error:
        raise RunError(
            "the text of {run} cannot be opened again: {reason}; put it back, or say where it is "
            "with --text",
            run=run,
            reason=error,
        ) from error
    found = text_record(known.asked, prepared)
    for name in ("fingerprint", "validation_fingerprint"):
        recorded, here = getattr(known, name), getattr(found, name)
        if recorded != here:
            raise RunError(
                "the text {spec} has changed since {run} began: its fingerprint is {here} and was "
                "{recorded}; bring the old text back, or start a new run",
                spec=prepared.spec,
                run=run,
                here=here[:12],
                recorded=recorded[:12],
            )
    return prepared


def absolute(spec: str | None) -> str | None:
    """A text that can be opened from any folder: paths are made absolute, other names stay."""
    if spec is None or spec == "-" or spec.startswith("corpus:"):
        return spec
    if Path(spec).exists() or glob.has_magic(spec):
        return str(Path(spec).expanduser().absolute())
    return f"corpus:{spec}" if spec in NAMES else spec


def _fingerprint(view: TokenView) -> str:
    return view.file.header.text_fingerprint
