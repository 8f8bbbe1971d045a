"""From what a learner typed to the tokens that the model reads, and each token's name to show."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from partwise.errors import TextError
from partwise.messages import Notice
from partwise.sampling.prompt import read_prompt
from partwise.text.tokenizers import Tokenizer


@dataclass(frozen=True)
class Label:
    """What a token is called on the screen.

    Args:
        id: the token.
        text: its text; empty where its bytes alone are no text.
        data: its bytes in hexadecimal, where they are part of a character only; else None.
    """

    id: int
    text: str
    data: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; `bytes` only where there is no text."""
        known: dict[str, Any] = {"id": self.id, "text": self.text}
        return known if self.data is None else {**known, "bytes": self.data}


@dataclass(frozen=True)
class Reading:
    """A text as the model reads it.

    Args:
        ids: token numbers, one at least.
        labels: the name of each.
        notices: what was changed.
    """

    ids: tuple[int, ...]
    labels: tuple[Label, ...]
    notices: tuple[Notice, ...]


def read_text(text: str, tokenizer: Tokenizer, *, vocab_size: int, most: int) -> Reading:
    """The tokens of `text`; of a longer text the last `most`.

    Characters that the vocabulary lacks are left out, and said; an empty text becomes the token
    that sampling starts from (see `read_prompt`).

    Args:
        text: any text, also none.
        tokenizer: the one that the model was trained with.
        vocab_size: the model's.
        most: tokens that are read at once.

    Raises:
        TextError: nothing is left of the text.
        SamplingError: the tokenizer has tokens that the model has not.
    """
    notices: list[Notice] = []
    whole = text.encode("utf-8", "ignore").decode("utf-8")
    if whole != text:
        notices.append(Notice("left out: halves of surrogate pairs, which are no characters"))
    text = whole
    read = read_prompt(text, tokenizer, vocab_size=vocab_size, context_length=None, unknown="skip")
    if text and not len(tokenizer.encode(text, unknown="skip")):
        raise TextError(
            "the tokenizer {name} knows none of these characters: {characters}; type what the "
            "model has seen",
            name=tokenizer.name,
            characters=next((one.values["characters"] for one in read.notices), repr(text[:5])),
        )
    notices += read.notices
    if not text:
        notices.append(Notice("without a text the model reads the token that sampling starts from"))
    ids = read.ids
    if len(ids) > most:
        notices.append(
            Notice(
                "the text has {tokens:,} tokens; shown are the last {most:,}, which the model "
                "reads at once",
                tokens=len(ids),
                most=most,
            )
        )
        ids = ids[-most:]
    return Reading(ids, labels(tokenizer, ids), tuple(notices))


def labels(tokenizer: Tokenizer, ids: Iterable[int]) -> tuple[Label, ...]:
    """The names of tokens, each by itself."""
    known: dict[int, Label] = {}
    return tuple(known.setdefault(one, label(tokenizer, one)) for one in map(int, ids))


def label(tokenizer: Tokenizer, token: int) -> Label:
    """The name of one token; a model may have more tokens than its tokenizer, which have none."""
    if not 0 <= token < tokenizer.vocab_size:
        return Label(token, "")
    try:
        once = tokenizer.decode_bytes([token])
        # Some tokenizers take the space off a text's first token, so the second one is looked at.
        twice = tokenizer.decode_bytes([token, token])
    except (KeyError, IndexError):
        # A vocabulary may have holes.
        return Label(token, "")
    data = twice[len(once) :] if twice.startswith(once) else once
    try:
        return Label(token, data.decode("utf-8"))
    except UnicodeDecodeError:
        return Label(token, "", data.hex())
