"""Speaking: read the prompt, then again and again choose the next token and read it too.

logits = model(prompt)
repeat: token = choose(logits); show its text; logits = model(token)
"""

import copy
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from partwise.errors import CompilerError, SamplingError
from partwise.messages import Notice
from partwise.model.cache import KVCache
from partwise.model.gpt import GPT
from partwise.model.guarantees import excluded
from partwise.model.trace import evaluating
from partwise.sampling.choose import choose, likeliest, penalise
from partwise.sampling.config import SampleConfig, SampleDtype
from partwise.sampling.draws import Draws
from partwise.sampling.native import STEP, Held, NativeStep, is_plain
from partwise.sampling.prompt import Prompt, end_of_text, read_prompt
from partwise.sampling.reader import Reader
from partwise.sampling.stops import StopScanner
from partwise.sampling.tokenizer import Tokenizer

# A character has at most 4 bytes. A model that has given far more tokens than that without filling
# its characters gives only tokens without text, and would go on for ever.
TOKENS_A_CHARACTER = 8

# Tokens from which a text is long: the compiler wins back its two seconds, and rounding the
# matrices is worth it.
LONG = 2000

# Texts at once up to which the compiled step serves; more fill the products of a library.
MOST_TEXTS = 8

# Tokens that the compiled step says at once: few at first, and no more than one waits for gladly.
FIRST_BLOCK, LARGEST_BLOCK, BLOCK_SECONDS = 4, 64, 0.05


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
    with evaluating(model):
        chooser = Chooser(config, prompt, tokenizer.vocab_size, _device(model))
        caching = config.cache and no_cache is None
        reader = Reader(model, config.count, caching)
        native, about = native_step(model, reader.cache, config, chooser)
        if about is not None:
            yield Piece(0, "", about)
        if native is None and config.dtype != "auto":
            reader = Reader(held_in(model, config.dtype), config.count, caching)
        first = torch.tensor([prompt.ids] * config.count, device=_device(model))  # (B, T)
        for step, tokens in enumerate(_said(reader, chooser, native, first), start=1):
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


def _said(
    reader: Reader, chooser: "Chooser", native: NativeStep | None, first: Tensor
) -> Iterator[list[int]]:
    """The token of each text, step after step without end.

    Args:
        reader: has read nothing yet.
        chooser: of the texts.
        native: says many tokens a call, as far as the cache reaches; none: every one by itself.
        first: what is read first (B, T).
    """
    new = first
    size = FIRST_BLOCK
    while True:
        new = chooser.next(reader.read(new))  # (B, 1)
        yield new[:, 0].tolist()
        while native is not None and reader.room != 0:
            began = time.perf_counter()
            limits = [limit for limit in (size, reader.room, native.pace.most) if limit is not None]
            steps = min(limits)
            said = native(new, chooser.uniforms(steps))  # (steps, B)
            # What the texts end with is read by the next call.
            reader.follow(torch.cat((new, said[:-1].T), dim=1))
            new = said[-1:].T
            if time.perf_counter() - began < BLOCK_SECONDS:
                size = min(2 * size, LARGEST_BLOCK)
            yield from said.tolist()


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
        self._device = device
        self._draws = Draws(config.seed, config.count, device)
        self._seen: Tensor | None = None
        if config.repetition_penalty != 1:
            self._seen = torch.zeros(config.count, vocab_size, dtype=torch.bool, device=device)
            self._seen[:, list(prompt.ids)] = True

    @property
    def choices(self) -> int:
        """Tokens that may be chosen, the first of the model's vocabulary."""
        return self._vocab_size

    @property
    def seen(self) -> Tensor | None:
        """(B, choices) bool, the tokens that occurred, where that matters."""
        return self._seen

    def uniforms(self, steps: int) -> Tensor:
        """The numbers that decide the next choices, (steps, B), for whoever makes them instead."""
        if self._config.takes_likeliest:
            return torch.empty(steps, self._config.count, device=self._device)
        return self._draws.several(steps)

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


def native_step(
    model: GPT, cache: KVCache | None, config: SampleConfig, chooser: Chooser
) -> tuple[NativeStep | None, Notice | None]:
    """The compiled step where it serves, and in one line what is worth saying of it.

    It serves a model of this package's own parts, in float32 on the CPU and with a cache. A long
    text is said from matrices in bfloat16, unless `dtype` says otherwise: half the memory to read
    for each token. What is read at once, such as the prompt, is read in float32.

    Args:
        model: the model.
        cache: of the texts; none: they are read without one.
        config: how tokens are drawn.
        chooser: whose choices the step makes.
    """
    usual = ("cpu", torch.float32)
    numbers = (*model.parameters(), *model.buffers())
    plain = all((each.device.type, each.dtype) == usual for each in numbers) and is_plain(model)
    if cache is None or not plain or config.count > MOST_TEXTS:
        return None, _without_int8(config)
    limits = [limit for limit in (config.tokens, config.char_limit) if limit is not None]
    long = min(limits) >= LONG
    asked = config.dtype in ("bfloat16", "int8")
    if not (long or asked) and STEP.kept() is None:
        # The compiler takes longer than it would win.
        return None, None
    held: Held = "bfloat16" if long else "float32"
    if config.dtype != "auto":
        held = config.dtype
    choices = (chooser.choices, chooser.seen)
    try:
        step = NativeStep(STEP.library(), model, cache, config, *choices, held=held)
    except (CompilerError, OSError) as error:
        # A file system may forbid that programs are loaded from it.
        notice = Notice(
            "sampling operation by operation, several times slower: {reason}", reason=str(error)
        )
        return None, _without_int8(config) or (notice if long or asked else None)
    if held == "float32" or asked:
        return step, None
    return step, Notice(
        "matrices in bfloat16: a long text is read from half the memory (--dtype float32)"
    )


def _without_int8(config: SampleConfig) -> Notice | None:
    if config.dtype != "int8":
        return None
    return Notice(
        "the weights stay as they are: int8 is for up to {most} samples of a float32 model on a "
        "CPU, with a cache and a C compiler",
        most=MOST_TEXTS,
    )


def held_in(model: GPT, dtype: SampleDtype) -> GPT:
    """The model with its weights in `dtype`: itself where they are so already, else a copy.

    Only the compiled step knows int8; without it the weights stay as they are.
    """
    wanted = {"float32": torch.float32, "bfloat16": torch.bfloat16}.get(dtype)
    if wanted is None or all(weight.dtype == wanted for weight in model.parameters()):
        return model
    return copy.deepcopy(model).to(wanted)


def _device(model: GPT) -> torch.device:
    return model.token_embedding.weight.device
