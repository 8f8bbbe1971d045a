"""The compiled step says what the model says operation by operation, whatever its parts."""

import subprocess
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from compilers import COMPILER, needs_compiler
from configurations import CONFIGURATIONS, name, randomise
from torch import nn
from torch.nn import functional as F

from partwise.errors import SamplingError
from partwise.machine import library as libraries
from partwise.machine.facts import cpu_features
from partwise.machine.library import _FLAGS, HEADERS, Source
from partwise.model.config import FeedForwardKind, ModelConfig, Position
from partwise.model.gpt import GPT
from partwise.model.trace import evaluating
from partwise.sampling import generate as generating
from partwise.sampling.choose import choose
from partwise.sampling.config import SampleConfig, SampleDtype
from partwise.sampling.generate import complete, generate
from partwise.sampling.native import (
    _KNOWN,
    STEP,
    Held,
    NativeStep,
    Pace,
    Way,
    in_bytes,
    is_plain,
    kept_in,
)
from partwise.text.char import CharTokenizer

LETTERS = "\nabcdefghij"


@pytest.fixture
def compiled() -> Iterator[Path]:
    """The library, as short texts use it only where it is kept."""
    yield STEP.library()


@pytest.fixture
def none_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generating, "step_library", lambda *_: (None, None))


def made(config: ModelConfig) -> tuple[GPT, CharTokenizer]:
    model = GPT(config)
    randomise(model)
    return model, CharTokenizer(LETTERS[: config.vocab_size])


WAYS = [
    SampleConfig(chars=40, greedy=True),
    SampleConfig(chars=40, count=3),
    SampleConfig(chars=30, temperature=1.5, top_k=4, min_p=0.02, count=2),
    SampleConfig(chars=30, temperature=1.2, top_p=0.8, repetition_penalty=1.3, seed=5),
]


@needs_compiler
@pytest.mark.parametrize("config", CONFIGURATIONS, ids=name)
def test_the_same_tokens_in_float32(
    config: ModelConfig, compiled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokenizer = made(config)
    calls: list[int] = []
    say = NativeStep.__call__

    def counted(self: NativeStep, *given: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return say(self, *given)

    monkeypatch.setattr(NativeStep, "__call__", counted)
    texts = [complete(model, tokenizer, "abca", way) for way in WAYS]
    assert bool(calls) is config.causal
    monkeypatch.setattr(generating, "step_library", lambda *_: (None, None))
    assert texts == [complete(model, tokenizer, "abca", way) for way in WAYS]


@needs_compiler
@pytest.mark.parametrize("held", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("texts", [1, 2, 3])
def test_threads_and_company_change_nothing(compiled: Path, held: Held, texts: int) -> None:
    """Nor in the last bit: the keys and values are the same too."""
    config = ModelConfig(vocab_size=11, n_layers=2, d_model=192, n_heads=3, context_length=64)
    model, _ = made(config)
    uniforms = torch.rand(60, 3, generator=seeded())[:, :texts]
    said, caches = [], []
    for threads, of in ((1, texts), (2, texts), (5, texts), (2, 1)):
        cache = model.new_cache(of, dtype=kept_in(held))
        warm = SampleConfig(count=of, temperature=99.0)
        step = NativeStep(compiled, model, cache, warm, 11, None, held=held)
        step.pace = Pace([Way(threads, guessing=False)])
        said.append(step(torch.arange(of)[:, None], uniforms[:, :of])[:, :1])
        caches.append(torch.stack([*cache.keys, *cache.values])[:, :1, :, :60])
    assert all(torch.equal(said[0], other) for other in said)
    assert all(torch.equal(caches[0], other) for other in caches)
    assert len(set(said[0].flatten().tolist())) > 3


@needs_compiler
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_a_text_is_the_same_in_company_past_its_context(compiled: Path, dtype: SampleDtype) -> None:
    config = ModelConfig(
        vocab_size=11,
        context_length=17,
        n_layers=2,
        d_model=64,
        n_heads=2,
        tie_embeddings=False,
        init_std=0.3,
    )
    torch.manual_seed(0)
    model, tokenizer = GPT(config).eval(), CharTokenizer(LETTERS)
    alone, *others = (
        complete(model, tokenizer, "abc", SampleConfig(chars=200, count=count, dtype=dtype))
        for count in (1, 2, 8)
    )
    assert all(alone == texts[:1] for texts in others)
    assert len(set(alone[0])) > 3


@needs_compiler
def test_threads_that_sleep_at_once_are_woken(surroundings: None) -> None:
    library = replace(STEP, flags=(*STEP.flags, "-DAWAKE=0")).library()
    config = ModelConfig(vocab_size=11, n_layers=2, d_model=192, n_heads=3, context_length=200)
    model, _ = made(config)
    said = []
    for threads in (1, 2, 5):
        cache = model.new_cache(1)
        step = NativeStep(library, model, cache, SampleConfig(temperature=99.0), 11, None)
        step.pace = Pace([Way(threads, guessing=False)])
        said.append(step(torch.tensor([[1]]), torch.rand(190, 1, generator=seeded())))
    assert all(torch.equal(said[0], other) for other in said)


@needs_compiler
@pytest.mark.parametrize("held", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("ngram", [1, 3])
@pytest.mark.parametrize("threads", [1, 3])
def test_guesses_come_true_and_change_nothing(
    compiled: Path, held: Held, ngram: int, threads: int
) -> None:
    config = ModelConfig(
        vocab_size=11,
        n_layers=2,
        d_model=192,
        n_heads=3,
        context_length=400,
        position="rotary",
        ngram=ngram,
    )
    model, _ = made(config)
    said, caches = [], []
    sampling = SampleConfig(temperature=0.5, repetition_penalty=1.01)
    for guessing in (False, True):
        seen = torch.zeros(1, 11, dtype=torch.bool)
        cache = model.new_cache(1, dtype=kept_in(held))
        step = NativeStep(compiled, model, cache, sampling, 11, seen, held=held)
        step.pace = Pace([Way(threads, guessing)])
        said.append(step(torch.tensor([[1]]), torch.rand(380, 1, generator=seeded())))
        caches.append([tensor[:, :, :380] for tensor in (*cache.keys, *cache.values)])
    assert torch.equal(*said)
    assert all(map(torch.equal, *caches))
    assert all(step._guesses.took), "not every number of guesses was read"
    assert min(step._guesses.less) < 0, "few guesses came true"


@needs_compiler
@pytest.mark.parametrize("held", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("length", [2, 16, 60])
@pytest.mark.parametrize("position", ["learned", "rotary", "alibi"])
def test_what_is_read_at_once_is_read_as_token_after_token(
    compiled: Path, held: Held, threads: int, length: int, position: Position
) -> None:
    config = ModelConfig(
        vocab_size=11,
        n_layers=2,
        d_model=192,
        n_heads=3,
        context_length=100,
        position=position,
        ngram=3,
        window=None if position == "learned" else 20,
    )
    model, _ = made(config)
    ids = torch.randint(11, (1, length), generator=seeded())
    said, caches = [], []
    for size in (1, length):
        cache = model.new_cache(1, dtype=kept_in(held))
        step = NativeStep(compiled, model, cache, SampleConfig(greedy=True), 11, None, held=held)
        step.pace = Pace([Way(threads, guessing=True)])
        for new in ids.split(size, dim=1):
            said.append(step(new, torch.rand(1, 1)))
            cache.take(new)
        said[-1] = step(said[-1], torch.rand(30, 1))
        caches.append([*cache.keys, *cache.values])
    assert torch.equal(said[-1], said[length - 1])
    assert all(map(torch.equal, *caches))


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(1)


@needs_compiler
@pytest.mark.parametrize("held", ["bfloat16", "int8"])
def test_rounded_matrices_cost_less_than_5_thousandths_of_a_nat(held: Held) -> None:
    """Matrices, keys and values; what meets int8 has 16 bits, far nearer than int8 is."""
    torch.manual_seed(1)
    ids = torch.randint(11, (1, 400), generator=seeded()).cumsum(1) % 11  # steps of 0..10
    ids[:, 1::2] = (ids[:, ::2] * 3 + 1) % 11  # every second token follows from the one before
    model = GPT(ModelConfig(vocab_size=11, context_length=64, n_layers=2, d_model=64, n_heads=2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def loss(dtype: torch.dtype | None = None) -> torch.Tensor:
        rows = ids[0, : 6 * 64].view(6, 64)
        cache = None if dtype is None else model.new_cache(6, dtype=dtype)
        return F.cross_entropy(model(rows[:, :-1], cache).flatten(0, 1), rows[:, 1:].flatten())

    for _ in range(60):
        optimizer.zero_grad()
        torch.autograd.backward(loss())
        optimizer.step()
    with torch.no_grad():
        exact = loss()
        for part in model.modules():
            if isinstance(part, nn.Linear):
                rounds(part, held)
        assert 0 < abs(loss(torch.bfloat16) - exact) < 0.005
    assert exact < 2.0


@needs_compiler
@pytest.mark.parametrize("held", ["bfloat16", "int8"])
@pytest.mark.parametrize("width", [64, 96, 40])
@pytest.mark.parametrize("texts", [1, 3])
def test_it_says_what_the_rounded_matrices_say(
    compiled: Path, held: Held, width: int, texts: int
) -> None:
    """Beside torch. Where columns are no whole blocks of 64, int8 holds a matrix in bfloat16."""
    config = ModelConfig(
        vocab_size=11,
        n_layers=2,
        d_model=width,
        n_heads=2,
        context_length=200,
        tie_embeddings=False,  # a tied head is rounded, and the embedding is not
    )
    torch.manual_seed(1)
    model = GPT(config).eval()
    step = NativeStep(
        compiled, model, model.new_cache(texts), SampleConfig(count=texts), 11, None, held=held
    )
    new, uniforms = torch.arange(texts)[:, None] + 1, torch.rand(150, texts, generator=seeded())
    said = step(new, uniforms)
    for part in model.modules():
        if isinstance(part, nn.Linear):
            rounds(part, held)
    with torch.no_grad():
        logits = model(torch.cat((new, said.T[:, :-1]), dim=1))  # (B, T, V)
    temperature = SampleConfig().temperature
    wanted = [
        choose(logits[:, place], uniforms[place], temperature=temperature) for place in range(150)
    ]
    # Sums in another order may fall on the other side of the middle between two in bfloat16.
    assert (said == torch.stack(wanted)).float().mean() > 0.97
    assert len(set(said.flatten().tolist())) > 3


def rounds(part: nn.Linear, held: Held) -> None:
    """Round a matrix as the compiled step holds it, and what meets it where that is rounded too."""
    if held == "bfloat16" or part.in_features % 64:
        part.weight.data = part.weight.data.bfloat16().float()
        part.register_forward_pre_hook(lambda _, given: (given[0].bfloat16().float(),))
    else:
        part.weight.data = rounded_to_int8(part.weight.data)


def rounded_to_int8(weight: torch.Tensor) -> torch.Tensor:
    """What stands for it in the compiled step."""
    rows, columns = weight.shape
    numbers, scales = in_bytes(weight)
    assert numbers.dtype == torch.int8 and numbers.abs().max() <= 127
    return (numbers.view(rows, -1, 64).float() * scales[..., None]).view(rows, columns)


@needs_compiler
@pytest.mark.parametrize("config", [c for c in CONFIGURATIONS[::4] if c.causal], ids=name)
def test_keys_and_values_in_bfloat16_are_rounded_as_torch_rounds_them(
    config: ModelConfig, compiled: Path
) -> None:
    """One token by the step, beside the model's own code on the same cache."""
    model, _ = made(config)
    ids = torch.randint(config.vocab_size, (2, 5), generator=seeded())
    caches = [model.new_cache(2, dtype=torch.bfloat16) for _ in range(2)]
    with torch.inference_mode(), evaluating(model):
        for cache in caches:
            model(ids[:, :4], cache)
        logits = model(ids[:, 4:], caches[0])[:, -1, : config.vocab_size]
        greedy = SampleConfig(count=2, greedy=True)
        step = NativeStep(compiled, model, caches[1], greedy, config.vocab_size, None)
        said = step(ids[:, 4:], torch.zeros(1, 2))
    assert said[0].tolist() == logits.argmax(dim=-1).tolist()
    for number in range(config.n_layers if config.attention else 0):
        for of in ("keys", "values"):
            wanted, found = (getattr(cache, of)[number][:, :, :5] for cache in caches)
            assert found.dtype == torch.bfloat16
            # Sums in another order may fall on the other side of the middle between two.
            torch.testing.assert_close(found, wanted, rtol=2**-7, atol=1e-5 if not number else 2e-2)


@needs_compiler
@pytest.mark.parametrize("feedforward", ["gelu", "gelu_tanh"])
def test_activations_are_those_of_torch(compiled: Path, feedforward: FeedForwardKind) -> None:
    """The keys of a second layer tell what the first one's feed-forward layer gave."""
    config = ModelConfig(
        vocab_size=997, n_layers=2, d_model=32, n_heads=1, context_length=8, feedforward=feedforward
    )
    model, _ = made(config)
    ids = torch.arange(997)[:, None]
    with torch.no_grad():
        for factor in (0.1, 1.0, 30.0):
            for block in model.blocks:
                assert block.feedforward is not None
                block.feedforward.up.weight *= factor
            wanted, found = model.new_cache(997), model.new_cache(997)
            model(ids, wanted)
            step = NativeStep(compiled, model, found, SampleConfig(count=997), 997, None)
            step(ids, torch.rand(1, 997))
            of_wanted, of_found = (cache.keys[1][:, :, 0] for cache in (wanted, found))
            size = of_wanted.abs().max()
            assert (of_found - of_wanted).abs().max() < 2e-6 * size


@pytest.mark.parametrize("size", [1e-20, 1.0, 1e20])
def test_int8_is_off_by_half_a_step_at_most(size: float) -> None:
    weight = torch.randn(5, 192, generator=seeded()) * size
    weight[1, 64:128] = 0
    weight[2, :64] = weight[2, :64].sign() * size
    off = (rounded_to_int8(weight) - weight).abs().view(5, 3, 64)
    steps = weight.abs().view(5, 3, 64).amax(dim=2) / 127
    assert bool((off <= 0.501 * steps[..., None]).all()) and off.max() > 0.3 * steps.max()
    assert not off[1, 1].any()
    for bad in (torch.nan, torch.inf):
        weight[0, 3] = bad
        assert not rounded_to_int8(weight)[0, :64].isfinite().any()


def test_where_int8_does_not_serve_the_weights_stay_and_that_is_said() -> None:
    model, tokenizer = made(CONFIGURATIONS[0])
    plain = SampleConfig(chars=20, cache=False)
    asked = replace(plain, dtype="int8")
    said = list(generate(model, tokenizer, "ab", asked))
    assert ["int8" in str(piece.notice) for piece in said if piece.notice] == [True]
    assert complete(model, tokenizer, "ab", asked) == complete(model, tokenizer, "ab", plain)


@needs_compiler
@pytest.mark.parametrize(
    ("dtype", "held"),
    [("float32", "float32"), ("bfloat16", None), ("int8", None), ("auto", None)],
)
def test_a_model_in_bfloat16_is_said_from_its_copy_in_float32_where_that_is_asked(
    monkeypatch: pytest.MonkeyPatch, compiled: Path, dtype: SampleDtype, held: Held | None
) -> None:
    model, tokenizer = made(CONFIGURATIONS[0])
    took, caches = [], []
    place, new_cache = NativeStep._matrix, GPT.new_cache

    def noted(self: NativeStep, part: nn.Linear | None) -> object:
        took.append(self._held)
        return place(self, part)

    def counted(self: GPT, *given: Any, **how: Any) -> Any:
        caches.append(1)
        return new_cache(self, *given, **how)

    monkeypatch.setattr(NativeStep, "_matrix", noted)
    monkeypatch.setattr(GPT, "new_cache", counted)
    assert complete(model.bfloat16(), tokenizer, "ab", SampleConfig(chars=9, dtype=dtype))[0]
    assert set(took) == ({held} if held else set())
    assert len(caches) == 1


@needs_compiler
def test_a_call_takes_no_longer_than_one_waits_gladly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not the calls before were short because they tried a way."""
    model, tokenizer = made(replace(CONFIGURATIONS[0], context_length=500))
    now, sizes = [0.0], []
    say = NativeStep.__call__

    def slow(self: NativeStep, new: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
        now[0] += 0.003 * len(uniforms)
        sizes.append(len(uniforms))
        return say(self, new, uniforms)

    monkeypatch.setattr(NativeStep, "__call__", slow)
    monkeypatch.setattr(generating.time, "perf_counter", lambda: now[0])
    complete(model, tokenizer, "ab", SampleConfig(tokens=400, dtype="int8"))
    assert max(sizes) == 32 and sizes[:3] == [4, 8, 16]


@needs_compiler
def test_a_long_text_is_read_from_bfloat16_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = made(CONFIGURATIONS[0])
    monkeypatch.setattr(generating, "LONG", 20)
    held = []
    place = NativeStep._matrix

    def noted(self: NativeStep, part: nn.Linear | None) -> object:
        held.append(self._held)
        return place(self, part)

    monkeypatch.setattr(NativeStep, "_matrix", noted)
    for config, expected in [
        (SampleConfig(chars=20), "bfloat16"),
        (SampleConfig(chars=20, dtype="float32"), "float32"),
        (SampleConfig(chars=20, tokens=10), "float32"),
        (SampleConfig(chars=5, dtype="bfloat16"), "bfloat16"),
        (SampleConfig(chars=5, dtype="int8"), "int8"),
    ]:
        held.clear()
        said = [str(piece.notice) for piece in generate(model, tokenizer, "ab", config)]
        assert set(held) == {expected}
        # Said only where nobody asked for it.
        chosen = config.dtype == "auto" and expected == "bfloat16"
        assert any("bfloat16" in line for line in said) is chosen


@needs_compiler
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("held", ["float32", "bfloat16", "int8"])
def test_scores_that_are_not_numbers_are_refused(compiled: Path, held: Held, bad: float) -> None:
    model, tokenizer = made(
        ModelConfig(vocab_size=11, context_length=16, n_layers=1, d_model=64, n_heads=2)
    )
    cache = model.new_cache(1)
    with torch.no_grad():
        model.token_embedding.weight[1, 5] = bad
    step = NativeStep(compiled, model, cache, SampleConfig(), 11, None, held=held)
    assert step(torch.tensor([[1]]), torch.rand(5, 1))[0].item() == -1
    with pytest.raises(SamplingError, match="not numbers"):
        complete(model, tokenizer, "ab")


def targets() -> list[tuple[str, ...]]:
    """Ways to compile for processors with less than this one, which it can run as well."""
    known = cpu_features().split()
    wanted = {"": "", "avx2": "-mavx2 -mfma", "avx512bw": "-mavx512f -mavx512bw -mfma"}
    return [tuple(flags.split()) for name, flags in wanted.items() if not name or name in known]


@needs_compiler
@pytest.mark.parametrize("target", targets(), ids=" ".join)
@pytest.mark.parametrize("held", ["float32", "bfloat16", "int8"])
def test_a_processor_that_can_do_less_says_the_same(
    compiled: Path, tmp_path: Path, target: tuple[str, ...], held: Held
) -> None:
    """Its sums differ in last bits at most: whether a product and a sum are fused.

    Keys and values in float32, as a last bit may round to another number of bfloat16.
    """
    other = tmp_path / "step.so"
    given = [
        *_FLAGS,
        *target,
        "-Wno-psabi",
        f"-I{HEADERS}",
        str(STEP.file),
        "-lm",
        "-o",
        str(other),
    ]
    subprocess.run([str(COMPILER), *given], check=True)
    config = ModelConfig(vocab_size=11, n_layers=2, d_model=64, n_heads=2, context_length=200)
    model, _ = made(config)
    said, caches = [], []
    for library in (compiled, other):
        cache = model.new_cache(3)
        step = NativeStep(library, model, cache, SampleConfig(count=3), 11, None, held=held)
        said.append(step(torch.tensor([[1], [2], [3]]), torch.rand(150, 3, generator=seeded())))
        caches.append(torch.stack([*cache.keys, *cache.values])[:, :, :, :150])
    assert torch.equal(*said)
    torch.testing.assert_close(*caches, rtol=1e-3, atol=1e-3)


@needs_compiler
@pytest.mark.parametrize("temperature", [1e-50, 1.0, 1e30])
def test_every_draw_is_a_token_and_the_same(compiled: Path, temperature: float) -> None:
    """Also the largest number that is drawn, 1, which must reach the last token."""
    config = ModelConfig(vocab_size=997, context_length=64, n_layers=1, d_model=8, n_heads=1)
    model = GPT(config).eval()
    randomise(model)
    cache = model.new_cache(1)
    asked = SampleConfig(temperature=temperature)
    step = NativeStep(compiled, model, cache, asked, 997, None)
    said = step(torch.tensor([[1]]), torch.ones(60, 1))[:, 0]  # (steps,)
    assert said.min() >= 0
    read = torch.cat((torch.tensor([1]), said[:-1]))
    with torch.no_grad():
        logits = model(read[None])[0]
    expected = choose(logits, torch.ones(60), temperature=temperature)
    assert (said == expected).float().mean() > 0.9  # rounding may decide between the last tokens


@needs_compiler
def test_a_stop_string_and_the_end_of_a_text_end_it_within_a_block(compiled: Path) -> None:
    model, tokenizer = made(CONFIGURATIONS[0])
    whole = complete(model, tokenizer, "ab", SampleConfig(chars=60))[0]
    stop = whole[17:20]
    cut = complete(model, tokenizer, "ab", SampleConfig(chars=60, stop=(stop,)))[0]
    assert cut == whole[: whole.index(stop)]
    assert complete(model, tokenizer, "ab", SampleConfig(tokens=13))[0] == whole[:13]


def test_other_parts_and_listeners_are_left_to_the_models_own_code() -> None:
    model, _ = made(CONFIGURATIONS[0])
    assert is_plain(model)
    handle = model.blocks[0].register_forward_hook(lambda *_: None)
    assert not is_plain(model)
    handle.remove()

    class Other(nn.Linear):
        pass

    model.blocks[0].add_module("feedforward", Other(2, 2))
    assert not is_plain(model)


def test_every_setting_of_a_model_was_considered() -> None:
    """A new one has to be followed in step.c, or named as one that changes nothing here."""
    assert {field.name for field in fields(ModelConfig)} <= set(_KNOWN.split())


def test_without_a_compiler_it_is_said_for_a_long_text_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PARTWISE_CACHE", str(tmp_path))
    monkeypatch.setattr(libraries, "COMPILERS", ("no-such-compiler",))
    monkeypatch.setattr(generating, "LONG", 20)
    model, tokenizer = made(replace(CONFIGURATIONS[0], n_layers=1))
    lines = {
        chars: [p for p in generate(model, tokenizer, "ab", SampleConfig(chars=chars)) if p.notice]
        for chars in (10, 20)
    }
    assert lines[10] == []
    assert "there is no C compiler here" in str(lines[20][0].notice)


def test_a_library_that_may_not_be_loaded_is_done_without(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "sample.so"
    broken.write_bytes(b"no library")
    monkeypatch.setattr(Source, "library", lambda _: broken)
    monkeypatch.setattr(generating, "LONG", 20)
    model, tokenizer = made(replace(CONFIGURATIONS[0], n_layers=1))
    pieces = list(generate(model, tokenizer, "ab", SampleConfig(chars=20)))
    assert "operation by operation" in str(pieces[0].notice)
    assert len("".join(piece.text for piece in pieces)) == 20


def test_the_way_that_is_faster_now_is_taken() -> None:
    many, one = Way(4, guessing=False), Way(1, guessing=False)
    pace, taken = Pace([many, one]), []
    for call in range(120):
        taken.append(pace.way)
        slow = call >= 60 or call == 20  # once by chance, then for good
        pace.took(taken[-1], {many: 5.0 if slow else 1.0, one: 2.0}[taken[-1]])
    assert taken[:6] == [many, one] * 3
    assert taken[6:16] == [many] * 10
    assert taken[17:30] == [many] * 13
    assert taken[70:80] == [one] * 10
    assert many in taken[80:]
    assert Pace([one]).way == one


def test_a_way_that_may_be_slow_is_tried_for_few_tokens() -> None:
    many, one = Way(4, guessing=False), Way(1, guessing=False)
    pace = Pace([many, one])
    for call in range(100):
        tried = pace.way is not many or call < 6
        assert pace.most == (Pace.TRIED if tried else None)
        pace.took(pace.way, {many: 1.0, one: 2.0}[pace.way])
    assert Pace([one]).most is None
