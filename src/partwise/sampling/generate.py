"""Speaking: read the prompt, then again and again choose the next token and read it too.

logits = model(prompt)
repeat: token = choose(logits); show its text; logits = model(token)
"""

import copy
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from partwise.errors import CompilerError, SamplingError
from partwise.messages import Notice
from partwise.model.gpt import GPT
from partwise.model.guarantees import excluded
from partwise.model.trace import evaluating
from partwise.sampling.choose import choose, likeliest, penalise
from partwise.sampling.config import SampleConfig, SampleDtype
from partwise.sampling.draws import Draws
from partwise.sampling.native import STEP, Held, NativeStep, is_plain, kept_in, loaded
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
    caching = config.cache and no_cache is None
    # The compiled step itself rounds what it reads.
    exact = held_in(model, config.dtype) if config.dtype == "float32" else model
    library, about = step_library(exact, config, caching)
    model = exact if library is not None else held_in(model, config.dtype)
    if about is not None:
        yield Piece(0, "", about)
    with evaluating(model):
        chooser = Chooser(config, prompt, tokenizer.vocab_size, _device(model))
        held = held_by_step(config)
        dtype = None if library is None else kept_in(held)
        reader = Reader(model, config.count, caching, dtype)
        native = None
        if library is not None and reader.cache is not None:
            choices = (chooser.choices, chooser.seen)
            native = NativeStep(library, model, reader.cache, config, *choices, held=held)
        first = torch.tensor([prompt.ids] * config.count, device=_device(model))  # (B, T)
        step = 0
        for said in _said(reader, chooser, native, first):
            rows = (said if last is None else said[: last - step]).tolist()  # (steps, B)
            good = next((n for n, row in enumerate(rows) if min(row) < 0), len(rows))
            step += good
            for index, voice in enumerate(voices):
                text = voice.say([row[index] for row in rows[:good]], last=step == last)
                if text:
                    yield Piece(index, text)
            if all(voice.ended for voice in voices):
                return
            if good < len(rows):
                raise SamplingError(
                    "the model's scores are not numbers after {tokens} tokens; its training "
                    "diverged or its weights are damaged: sample an earlier checkpoint",
                    tokens=len(prompt.ids) + step,
                )


def _said(
    reader: Reader, chooser: "Chooser", native: NativeStep | None, first: Tensor
) -> Iterator[Tensor]:
    """The tokens of the texts, without end: (steps, B), of several steps where they come at once.

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
        yield new.T
        while native is not None and (native.reads or reader.room != 0):
            began = time.perf_counter()
            if reader.room == 0:
                new = reader.anew(new)  # (B, T)
            room = None if reader.room is None else reader.room + 1 - new.shape[1]
            limits = [limit for limit in (size, room, native.pace.most) if limit is not None]
            steps = min(limits)
            said = native(new, chooser.uniforms(steps))  # (steps, B)
            # What the texts end with is read by the next call.
            reader.follow(torch.cat((new, said[:-1].T), dim=1))
            new = said[-1:].T
            if steps == size and time.perf_counter() - began < BLOCK_SECONDS:
                size = min(2 * size, LARGEST_BLOCK)
            yield said


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

    def say(self, tokens: list[int], last: bool) -> str:
        """The text that may be shown now; all that is left if they are the `last` ones."""
        if self.ended:
            return ""
        ends = self._end is not None and self._end in tokens
        if self._end is not None and ends:
            tokens = tokens[: tokens.index(self._end)]
        text = self._scanner.push("".join(map(self._decoder.push, tokens)))
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


def step_library(
    model: GPT, config: SampleConfig, caching: bool
) -> tuple[Path | None, Notice | None]:
    """The compiled step where it serves, and in one line what is worth saying of it.

    It serves a model of this package's own parts, in float32 on the CPU and with a cache.

    Args:
        model: the model.
        config: how tokens are drawn.
        caching: keys and values are kept.
    """
    reason = _unserved(model, config, caching)
    asked = config.dtype in ("bfloat16", "int8")
    if reason is None and not (asked or is_long(config)) and STEP.kept() is None:
        # The compiler takes longer than it would win.
        return None, None
    said: Notice | str | None = reason
    if reason is None:
        try:
            return loaded(STEP.library()), _about(config)
        except (CompilerError, OSError) as error:
            # A file system may forbid that programs are loaded from it.
            said = str(error)
    if config.dtype == "int8":
        return None, Notice("the weights stay as they are, not in int8: {reason}", reason=said)
    if reason is None and (asked or is_long(config)):
        return None, Notice(
            "sampling operation by operation, several times slower: {reason}", reason=said
        )
    return None, None


def _unserved(model: GPT, config: SampleConfig, caching: bool) -> Notice | None:
    """Why no compiled step can say this model's tokens, if none can."""
    if not caching:
        return Notice("that is for sampling with a cache")
    if config.count > MOST_TEXTS:
        return Notice("that is for up to {most} samples", most=MOST_TEXTS)
    numbers = (*model.parameters(), *model.buffers())
    usual = ("cpu", torch.float32)
    if not all((each.device.type, each.dtype) == usual for each in numbers):
        return Notice("that is for a model in float32 on a CPU")
    return None if is_plain(model) else Notice("that is for a model of the usual parts alone")


def is_long(config: SampleConfig) -> bool:
    """Whether so much is asked for that the compiler's time, and rounding matrices, pay."""
    limits = [limit for limit in (config.tokens, config.char_limit) if limit is not None]
    return min(limits) >= LONG


def held_by_step(config: SampleConfig) -> Held:
    """What the compiled step holds matrices in.

    A long text is said from bfloat16, unless `dtype` says otherwise: half the memory to read for
    each token. Keys and values are then in bfloat16 too, also where matrices are in int8. The
    prompt is read by the matrices in float32.
    """
    if config.dtype != "auto":
        return config.dtype
    return "bfloat16" if is_long(config) else "float32"


def _about(config: SampleConfig) -> Notice | None:
    if config.dtype == "auto" and held_by_step(config) == "bfloat16":
        return Notice(
            "matrices in bfloat16: a long text is read from half the memory (--dtype float32)"
        )
    return None


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
