"""Streams what a model writes to standard output, and its remarks to standard error."""

import sys
from collections.abc import Callable

from partwise.cli.screen import harmless, is_terminal, remark, say
from partwise.model.gpt import GPT
from partwise.sampling.config import SampleConfig
from partwise.sampling.generate import generate
from partwise.text.tokenizers import Tokenizer


def speak(
    model: GPT, tokenizer: Tokenizer, prompt: str, config: SampleConfig, *, quiet: bool = False
) -> None:
    """Print one sample as it comes: the prompt, then what follows it.

    A terminal is protected from control characters in the text; a pipe gets the text as it is.
    """
    screen = is_terminal(sys.stdout)
    shown: Callable[[str], str] = harmless if screen else str
    pieces = generate(model, tokenizer, prompt, config)  # refuses a wrong prompt here
    say(shown(prompt), end="")
    last = prompt[-1:]
    for piece in pieces:
        if piece.notice is None:
            say(shown(piece.text), end="")
            last = piece.text[-1:] or last
        elif not quiet:
            remark(piece.notice)
    if screen and last != "\n":
        say()


def collect(
    model: GPT,
    tokenizer: Tokenizer,
    prompt: str,
    config: SampleConfig,
    *,
    report: Callable[[int, int], None],
) -> tuple[list[str], list[str]]:
    """All samples whole, each with the prompt before it, and the remarks.

    Args:
        model, tokenizer, prompt, config: as `generate` takes them.
        report: is told how many characters there are, and of how many; 0 when that is not known.
    """
    texts = [prompt] * config.count
    notices = []
    total = config.count * (config.char_limit or 0)
    done = 0
    for piece in generate(model, tokenizer, prompt, config):
        if piece.notice is not None:
            notices.append(str(piece.notice))
        texts[piece.index] += piece.text
        done += len(piece.text)
        report(done, total)
    return texts, notices
