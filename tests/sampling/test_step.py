"""The compiled step at the edges: of the C language, of the draws, and of the models it serves."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from compilers import COMPILER, needs_compiler
from configurations import randomise
from torch import Tensor, nn

from partwise.machine.library import HEADERS
from partwise.model.config import ModelConfig
from partwise.model.feedforward import FeedForward
from partwise.model.gpt import GPT
from partwise.sampling import generate as generating
from partwise.sampling.config import SampleConfig
from partwise.sampling.generate import complete
from partwise.sampling.native import STEP, NativeStep
from partwise.text.char import CharTokenizer

LETTERS = "\nabcdefghij"

USUAL = ModelConfig(
    vocab_size=11,
    context_length=24,
    n_layers=2,
    d_model=16,
    n_heads=2,
    norm="batchnorm",
    feedforward="relu2",
    position="alibi",
    tie_embeddings=False,
)

# Any undefined behaviour ends it by a signal.
PROGRAM = """
#include "step.c"

int main(void) {
    const float odd[] = {NAN,   -NAN,   INFINITY, -INFINITY, 3e38f, -3e38f,
                         88.5f, -87.5f, 1e-42f,   0,         1};
    for (int i = 0; i < 11; i++) {
        float found = exponential(odd[i]), wanted = expf(odd[i]);
        if (isnan(found) != isnan(wanted)) return 1;
        if (fabsf(odd[i]) < 80 && fabsf(found - wanted) > 1e-6f * wanted) return 2;
    }
    const double temperatures[] = {1e-6, 1, 3e38}, penalties[] = {1, 1e-6, 1e6};
    uint8_t seen[11] = {0, 1, 1, 0, 1, 1, 1};
    for (int i = 0; i < 9; i++)
        for (int top_k = 0; top_k < 3; top_k++) {
            Choice choice = {.choices = 11, .top_k = top_k, .temperature = temperatures[i % 3],
                             .top_p = top_k ? 0.5 : 1, .penalty = penalties[i / 3]};
            Candidate order[11];
            for (int from = 0; from < 9; from++) {
                float scores[11];
                memcpy(scores, odd, sizeof scores);
                for (int k = 0; k < from; k++) scores[k] = -1;
                int64_t token = choose(&choice, scores, seen, 1, order);
                if (from < 2 && token != -1) return 3;
                if (from > 4 && (token < 0 || token > 10)) return 4;
            }
        }
    return 0;
}
"""


def model_of(config: ModelConfig) -> GPT:
    model = GPT(config)
    randomise(model)
    return model.eval()


def texts(model: GPT, config: SampleConfig, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """By the compiled step where it serves, and by the model's own code."""
    tokenizer = CharTokenizer(LETTERS)
    found = [complete(model, tokenizer, "abca", config)]
    with monkeypatch.context() as patched:
        patched.setattr(generating, "step_library", lambda *_: (None, None))
        found.append(complete(model, tokenizer, "abca", config))
    return found


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One number for each call of the compiled step."""
    STEP.library()
    made: list[int] = []
    say = NativeStep.__call__

    def counted(self: NativeStep, *given: Tensor) -> Tensor:
        made.append(1)
        return say(self, *given)

    monkeypatch.setattr(NativeStep, "__call__", counted)
    return made


@needs_compiler
def test_numbers_out_of_range_and_none_at_all_are_within_the_language(tmp_path: Path) -> None:
    assert COMPILER is not None
    source, program = tmp_path / "edges.c", tmp_path / "edges"
    source.write_text(PROGRAM, encoding="utf-8")
    words = ["-std=gnu11", "-O1", "-w", "-pthread", f"-I{STEP.file.parent}", f"-I{HEADERS}"]
    sanitize = "-fsanitize=undefined,float-cast-overflow"
    words += [sanitize, "-fsanitize-undefined-trap-on-error", str(source), "-o", str(program)]
    made = subprocess.run([COMPILER, *words, "-lm"], capture_output=True, text=True, check=False)
    if "sanitize" in made.stderr:
        pytest.skip("this compiler looks for no undefined behaviour")
    assert made.returncode == 0, made.stderr
    assert subprocess.run([program], check=False).returncode == 0


@needs_compiler
@pytest.mark.parametrize("temperature", [1e-300, 1e8, 1e30, 1e300])
@pytest.mark.parametrize(("top_k", "top_p"), [(3, None), (None, 0.3), (4, 0.5), (2**63 - 1, 0.9)])
def test_the_same_tokens_at_any_temperature(
    calls: list[int],
    monkeypatch: pytest.MonkeyPatch,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
) -> None:
    config = SampleConfig(chars=20, temperature=temperature, top_k=top_k, top_p=top_p)
    native, plain = texts(model_of(USUAL), config, monkeypatch)
    assert calls
    assert native == plain
    assert len(native[0]) == 20


@needs_compiler
@pytest.mark.parametrize("greedy", [True, False])
def test_tensors_made_elsewhere_by_default_are_not_given_to_the_step(
    calls: list[int], monkeypatch: pytest.MonkeyPatch, greedy: bool
) -> None:
    model, config = model_of(USUAL), SampleConfig(chars=20, greedy=greedy)
    expected, _ = texts(model, config, monkeypatch)
    with torch.device("meta"):
        assert complete(model, CharTokenizer(LETTERS), "abca", config) == expected
    assert calls


def fewer_blocks(model: GPT) -> None:
    model.blocks = model.blocks[:1]


def wider(model: GPT) -> None:
    model.blocks[1].feedforward = FeedForward(16, 200, "relu2")


def more_tokens(model: GPT) -> None:
    model.token_embedding = nn.Embedding(500, 16)
    model.head = nn.Linear(16, 500, bias=False)


def no_feedforward(model: GPT) -> None:
    model.blocks[0].add_module("feedforward", None)


def torchs_norm(model: GPT) -> None:
    model.final_norm = nn.LayerNorm(16)


def own_forward(model: GPT) -> None:
    assert model.final_norm is not None
    model.final_norm.__dict__["forward"] = torch.zeros_like


class Elsewhere(nn.Parameter):
    """Numbers that may lie anywhere, as those of a distributed tensor."""


def subclass(model: GPT) -> None:
    assert isinstance(model.head, nn.Linear)
    model.head.weight = Elsewhere(model.head.weight.detach())


@needs_compiler
@pytest.mark.parametrize(
    "change",
    [
        *(fewer_blocks, wider, more_tokens, no_feedforward, torchs_norm, own_forward),
        subclass,
    ],
)
def test_a_model_that_was_changed_is_left_to_its_own_code(
    calls: list[int], monkeypatch: pytest.MonkeyPatch, change: Callable[[GPT], None]
) -> None:
    """The step's room is made for the sizes that the settings say."""
    model, config = model_of(USUAL), SampleConfig(chars=8)
    assert complete(model, CharTokenizer(LETTERS), "abca", config)
    assert calls
    calls.clear()
    change(model)
    native, plain = texts(model.eval(), config, monkeypatch)
    assert not calls
    assert native == plain
