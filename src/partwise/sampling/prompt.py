"""From a prompt to the tokens that the model reads first, and what the reader is told of it."""

from dataclasses import dataclass

from partwise.errors import SamplingError, TextError
from partwise.messages import Notice
from partwise.sampling.config import Unknown
from partwise.sampling.tokenizer import EndsText, Tokenizer


@dataclass(frozen=True)
class Prompt:
    """A prompt as the model reads it.

    Args:
        ids: token numbers, at least one.
        notices: what was changed, for the reader.
    """

    ids: tuple[int, ...]
    notices: tuple[Notice, ...]


def read_prompt(
    prompt: str,
    tokenizer: Tokenizer,
    *,
    vocab_size: int,
    context_length: int | None,
    unknown: Unknown = "refuse",
) -> Prompt:
    """The tokens of `prompt`; of a prompt longer than the context, the last that fit.

    An empty prompt becomes one token where a text may begin: a newline when the vocabulary has one,
    else the end-of-text token, else token 0.

    Args:
        prompt: any text, also none.
        tokenizer: the one that the model was trained with.
        vocab_size: the model's.
        context_length: tokens that the model reads at once; None when there is no limit.
        unknown: what to do with characters that the vocabulary lacks.

    Raises:
        TextError: characters that the vocabulary lacks, with unknown="refuse".
        SamplingError: the tokenizer has tokens that the model has not.
    """
    if tokenizer.vocab_size > vocab_size:
        raise SamplingError(
            "the tokenizer has {tokenizer} tokens and the model {model}; sample with the tokenizer "
            "that the model was trained with",
            tokenizer=tokenizer.vocab_size,
            model=vocab_size,
        )
    notices: tuple[Notice, ...] = ()
    try:
        ids = tuple(map(int, tokenizer.encode(prompt, unknown="refuse"))) if prompt else ()
    except TextError as error:
        if unknown == "refuse":
            raise
        ids = tuple(map(int, tokenizer.encode(prompt, unknown="skip")))
        left_out = error.values.get("characters", "")
        notices = (
            Notice(
                "left out, as the model never saw them: {characters}",
                characters=left_out,
            ),
        )
    if not ids:
        return Prompt((first_token(tokenizer),), notices)
    if context_length is not None and len(ids) > context_length:
        notice = Notice(
            "the prompt has {tokens} tokens and the model reads {context} at once; it reads the "
            "last {context}",
            tokens=len(ids),
            context=context_length,
        )
        return Prompt(ids[-context_length:], (*notices, notice))
    return Prompt(ids, notices)


def first_token(tokenizer: Tokenizer) -> int:
    """Where a text without a prompt starts: newline, else end of text, else token 0."""
    newline = tokenizer.encode("\n", unknown="skip")
    if len(newline):
        # Some tokenizers put a token for the beginning of a text before it.
        token = int(newline[-1])
        decoder = tokenizer.stream()
        if decoder.push(token) + decoder.finish() == "\n":
            return token
    end = end_of_text(tokenizer)
    return 0 if end is None else end


def end_of_text(tokenizer: Tokenizer) -> int | None:
    """The special token that ends a text, or None."""
    return tokenizer.end_of_text if isinstance(tokenizer, EndsText) else None
