"""Speaking: read the prompt, then again and again choose the next token and read it too.

logits = model(prompt)
repeat: token = choose(logits); show its text; logits = model(token)
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from partwise.errors import SamplingError
from partwise.messages import Notice
from partwise.model.gpt import GPT
from partwise.model.guarantees import excluded
from partwise.model.trace import evaluating
from partwise.sampling.choose import choose, likeliest, penalise
from partwise.sampling.config import SampleConfig, SampleDtype
from partwise.sampling.draws import Draws
from partwise.sampling.prompt import Prompt, end_of_text, read_prompt
from partwise.sampling.reader import Reader
from partwise.sampling.stops import StopScanner
from partwise.sampling.tokenizer import Tokenizer

# A character has at most 4 bytes. A model that has given far more tokens than that without filling
# its characters gives only tokens without text, and would go on for ever.
TOKENS_A_CHARACTER = 8


@dataclass(frozen=True)
class Piece:
    """Some text of one sample, as it comes.

    Args:
        index: which sample, from 0.
        text: characters that follow the sample's earlier pieces; never half of one.
        notice: something to tell the reader, in a piece without text.
    """

    index: int
    text: str
    notice: Notice | None = None


def generate(
    model: GPT, tokenizer: Tokenizer, prompt: str = "", config: SampleConfig | None = None
) -> Iterator[Piece]:
    """Text that follows `prompt`, piece by piece; the pieces of several samples are interleaved.

    The same seed gives the same text, with the cache or without it, and sample i is the same
    however many there are (up to the rounding of products of another size). torch's own random
    numbers stay untouched, and the model is left in the mode it had once the last piece is taken.

    Args:
        model: any GPT, on any device.
        tokenizer: the one that it was trained with.
        prompt: what the text starts with; it is not repeated. Without one a text starts after a
            newline, see `read_prompt`.
        config: how tokens are drawn and where the text ends.

    Raises:
        TextError: the prompt has characters that the vocabulary lacks.
        SamplingError: the tokenizer is not the model's, or the model's scores are not numbers.
    """
    config = SampleConfig() if config is None else config
    read = read_prompt(
        prompt,
        tokenizer,
        vocab_size=model.config.vocab_size,
        context_length=None if model.config.past_context else model.config.context_length,
        unknown=config.unknown,
    )
    # A generator of its own, so that what is wrong with the prompt is raised here and now.
    return _pieces(model, tokenizer, read, config)


def complete(
    model: GPT, tokenizer: Tokenizer, prompt: str = "", config: SampleConfig | None = None
) -> list[str]:
    """The whole text of each sample, without the prompt; see `generate`."""
    texts = [""] * (1 if config is None else config.count)
    for piece in generate(model, tokenizer, prompt, config):
        texts[piece.index] += piece.text
    return texts


def _pieces(
    model: GPT, tokenizer: Tokenizer, prompt: Prompt, config: SampleConfig
) -> Iterator[Piece]:
    for notice in prompt.notices:
        yield Piece(0, "", notice)
    no_cache = excluded("cached", model.config) if config.cache else None
    if no_cache is not None:
        yield Piece(0, "", Notice("sampling without a cache: {reason}", reason=no_cache))
    last = config.tokens
    if config.char_limit is not None:
        enough = TOKENS_A_CHARACTER * config.char_limit
        last = enough if last is None else min(last, enough)
    voices = [Voice(tokenizer, prompt, config) for _ in range(config.count)]
    if last == 0:
        return
    model = held_in(model, config.dtype)
    with evaluating(model):
        chooser = Chooser(config, prompt, tokenizer.vocab_size, _device(model))
        reader = Reader(model, config.count, config.cache and no_cache is None)
        new = torch.tensor([prompt.ids] * config.count, device=_device(model))  # (B, T)
        step = 0
        while True:
            new = chooser.next(reader.read(new))  # (B, 1)
            step += 1
            tokens = new[:, 0].tolist()
            if min(tokens) < 0:
                raise SamplingError(
                    "the model's scores are not numbers after {tokens} tokens; its training "
                    "diverged or its weights are damaged: sample an earlier checkpoint",
                    tokens=len(prompt.ids) + step - 1,
                )
            for index, voice in enumerate(voices):
                text = voice.say(tokens[index], last=step == last)
                if text:
                    yield Piece(index, text)
            if all(voice.ended for voice in voices):
                return


class Voice:
    """One sample's text: tokens in, characters out that no stop string can take back.

    Args:
        tokenizer: whose tokens they are.
        prompt: what the text goes on from.
        config: where the text ends.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Prompt, config: SampleConfig) -> None:
        self._decoder = tokenizer.stream(prompt.ids)
        self._scanner = StopScanner(config.stop, config.char_limit)
        self._end = end_of_text(tokenizer)

    @property
    def ended(self) -> bool:
        """Whether nothing more is said, whatever comes."""
        return self._scanner.ended

    def say(self, token: int, last: bool) -> str:
        """The text that may be shown now; all that is left if `token` is the `last` one."""
        if self.ended:
            return ""
        ends = token == self._end
        text = "" if ends else self._scanner.push(self._decoder.push(token))
        if (ends or last) and not self.ended:
            text += self._scanner.push(self._decoder.finish())
            text += self._scanner.finish()
        return text


class Chooser:
    """The next token of each sample, by one configuration.

    Args:
        config: how tokens are drawn.
        prompt: what was read first; its tokens count as having occurred.
        vocab_size: the tokenizer's; a model may have more rows, which stand for nothing.
        device: where the model is.
    """

    def __init__(
        self, config: SampleConfig, prompt: Prompt, vocab_size: int, device: torch.device
    ) -> None:
        self._config = config
        self._vocab_size = vocab_size
        self._draws = Draws(config.seed, config.count, device)
        self._seen: Tensor | None = None
        if config.repetition_penalty != 1:
            self._seen = torch.zeros(config.count, vocab_size, dtype=torch.bool, device=device)
            self._seen[:, list(prompt.ids)] = True

    @torch.inference_mode()
    def next(self, logits: Tensor) -> Tensor:
        """Token ids (B, 1) for logits (B, V); -1 where the logits are not numbers."""
        config = self._config
        logits = logits[:, : self._vocab_size]
        if self._seen is not None:
            logits = penalise(logits, self._seen, config.repetition_penalty)
        if config.takes_likeliest:
            ids = likeliest(logits)
        else:
            ids = choose(
                logits,
                self._draws.next(),
                temperature=config.temperature,
                top_k=config.top_k,
                top_p=config.top_p,
                min_p=config.min_p,
            )
        new = ids[:, None]  # (B, 1)
        if self._seen is not None:
            self._seen.scatter_(1, new.clamp(min=0), True)
        return new


def held_in(model: GPT, dtype: SampleDtype) -> GPT:
    """The model with its weights in `dtype`: itself where they are so already, else a copy."""
    wanted = {"float32": torch.float32, "bfloat16": torch.bfloat16}.get(dtype)
    if wanted is None or all(weight.dtype == wanted for weight in model.parameters()):
        return model
    return copy.deepcopy(model).to(wanted)


def _device(model: GPT) -> torch.device:
    return model.token_embedding.weight.device
