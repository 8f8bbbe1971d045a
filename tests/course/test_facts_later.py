"""Figures that lessons 06.8 to 08 state in their prose, computed or read again."""

from pathlib import Path

import numpy as np
import torch

from partwise.ladder.rungs import changes, rung
from partwise.ladder.statistics import t_quantile
from partwise.model.gpt import GPT
from partwise.model.parameters import count_parameters, parameters_by_part
from partwise.model.presets import preset
from partwise.run import Run

ROOT = Path(__file__).parents[2]


def count(name: str) -> int:
    return count_parameters(preset(name))


# --- 06.8: blocks skipped, repeated, reversed -----------------------------------------------------


def test_a_last_block_is_missed_less_than_a_first_one(tiny: Path) -> None:
    run = Run.open(tiny)
    model, tokenizer = run.model(), run.tokenizer()
    from partwise.course.learner import learned

    text = learned("tiny")["text"]
    ids = torch.tensor(tokenizer.encode(text).astype(np.int64))[: 48 * 100].view(-1, 48)

    def loss(order: list[int]) -> float:
        other = GPT(model.config)
        other.load_state_dict(model.state_dict())
        other.blocks = torch.nn.ModuleList(other.blocks[i] for i in order)
        with torch.no_grad():
            logits = other.eval()(ids[:, :-1])
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).item()

    whole = loss([0, 1, 2, 3])
    assert 0 < loss([0, 1, 2]) - whole < 0.3
    assert 0 < loss([0, 1, 2, 3, 3]) - whole < 0.3
    assert loss([1, 2, 3]) - whole > 1
    assert loss([3, 2, 1, 0]) > 0.9 * np.log(tokenizer.vocab_size)


# --- 06.9: sizes ----------------------------------------------------------------------------------


def test_sizes() -> None:
    assert count("gpt3-175b") // count("gpt2") == 1403
    assert round(6 * count("gpt3-175b") * 300e9 / 1e23, 2) == 3.14
    usual = [preset(name).head_size for name in ("gpt2", "gpt2-xl", "gpt3-175b", "llama-65b")]
    assert all(64 <= size <= 128 for size in usual)
    assert preset("palm-540b").head_size == 256
    llama = preset("llama2-70b")
    assert llama.n_heads // llama.key_value_heads == 8


# --- 06.10 and 07: rung 6 -------------------------------------------------------------------------


def test_rung_six() -> None:
    here = rung(6)
    assert len(changes(rung(5), here)) == 7
    assert count("ladder-6") > 10 * 1_003_854
    steps_an_epoch = 1_003_854 / (here.train.batch_size * here.model.context_length)
    assert here.train.steps is not None and 81 < here.train.steps / steps_an_epoch < 82


# --- 06.11: what docs/translate.md measured -------------------------------------------------------


def test_translators() -> None:
    told = (ROOT / "docs" / "translate.md").read_text(encoding="utf-8")
    lesson = next(ROOT.glob("src/partwise/course/lessons/06_11_*.py")).read_text(encoding="utf-8")
    assert "7,640 to" in told and "7640 对" in lesson and "7,640 pairs" in lesson
    for name in ("encoder-decoder, 2", "decoder-only model"):
        row = next(line for line in told.split("\n") if line.startswith(f"| {name}"))
        bleu = row.split("|")[3].strip(" *")
        assert lesson.count(bleu) == 2, bleu


# --- 06.12: eight seeds ---------------------------------------------------------------------------


def test_eight_seeds_are_those_of_the_picture() -> None:
    picture = (ROOT / "docs" / "ladder.svg").read_text(encoding="utf-8")
    steps = ["−0.130 ± 0.004", "−0.019 ± 0.005", "−0.167 ± 0.005", "−0.020 ± 0.003"]
    lesson = next(ROOT.glob("src/partwise/course/lessons/06_12_*.py")).read_text(encoding="utf-8")
    t = t_quantile(0.975, 7)
    assert round(t, 2) == 2.36
    for step in steps:
        assert step in picture and lesson.count(step) == 2
        mean, error = (float(part.replace("−", "-")) for part in step.split(" ± "))
        assert abs(mean) > t * error


# --- 06.13 and 08 ---------------------------------------------------------------------------------


def test_shares_and_tokens_a_parameter() -> None:
    parts = parameters_by_part(preset("gpt2"))
    assert round(100 * parts["feedforward"] / sum(parts.values()), 1) == 45.5
    assert 0.3 < parts["embedding"] / sum(parts.values()) < 1 / 3
    assert 300e9 / count("gpt3-175b") < 2 < 20 < 1.4e12 / count("llama-65b") < 22
    assert round(5000 * 64 * 256 / count("ladder-6"), 1) == 7.6
    assert round(1.48 / np.log(2), 2) == 2.14
