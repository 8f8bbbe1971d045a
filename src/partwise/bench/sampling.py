"""Sampling speed: one sequence of tokens, with the key-value cache and without."""

import time
from dataclasses import replace

import torch

from partwise.bench.cases import Case
from partwise.messages import Notice
from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT
from partwise.model.presets import preset
from partwise.sampling.config import SampleConfig
from partwise.sampling.generate import LONG, complete
from partwise.text.byte import ByteTokenizer


def sampling_cases(seconds: float) -> list[Case]:
    """Tokens a second from the `small` and the lecture's last model.

    Args:
        seconds: length of one measurement.
    """
    cases = []
    for name in ("small", "ladder-6"):
        tokenizer = ByteTokenizer()
        model = replace(preset(name), vocab_size=tokenizer.vocab_size)
        for cache in (False, True):
            label = Notice("{model}, without a cache", model=name)
            if cache:
                label = Notice("{model}, with a cache", model=name)
            cases.append(
                Case(
                    f"sampling {name}",
                    label,
                    "tokens/s",
                    _Measurement(model, tokenizer, cache, seconds),
                    baseline=not cache,
                )
            )
        chosen = Notice("{model}, as it chooses for {tokens:,} tokens", model=name, tokens=LONG)
        in_int8 = Notice("{model}, in int8, {tokens:,} tokens", model=name, tokens=LONG)
        long = SampleConfig(tokens=LONG)
        for label, config in ((chosen, long), (in_int8, replace(long, dtype="int8"))):
            measure = _Measurement(model, tokenizer, True, seconds, config)
            cases.append(Case(f"sampling {name}", label, "tokens/s", measure))
    return cases


class _Measurement:
    """Samples whole stretches of the context's length until the time is up."""

    def __init__(
        self,
        model: ModelConfig,
        tokenizer: ByteTokenizer,
        cache: bool,
        seconds: float,
        config: SampleConfig | None = None,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.config = config or SampleConfig(tokens=model.context_length, cache=cache)
        self.seconds = seconds

    def __call__(self) -> float:
        torch.manual_seed(1)
        gpt = GPT(self.model).eval()
        config = self.config
        stretch = config.tokens or 0
        tokens, began = 0, time.perf_counter()
        while True:
            complete(gpt, self.tokenizer, "\n", config)
            tokens += stretch
            spent = time.perf_counter() - began
            if spent >= self.seconds:
                return tokens / spent
