"""Other models for the lessons, beside the tiny one."""

from pathlib import Path

import pytest

from partwise.model.config import ModelConfig
from partwise.model.presets import preset
from partwise.run import Run
from partwise.text.config import DataConfig
from partwise.training.config import TrainConfig


def hardly_trained(root: Path, name: str, model: ModelConfig) -> Path:
    """A run of a few steps, in a folder of its own."""
    train = TrainConfig(
        steps=12, batch_size=8, warmup_steps=2, eval_every=12, eval_tokens=512, sample_chars=0,
        device="cpu", dtype="float32", compile="off", threads=1,
    )  # fmt: skip
    text = root / "novel.txt"
    text.write_text(
        "Once there was a small model. It read, and it wrote.\n" * 400, encoding="utf-8"
    )
    run = Run.create(root, name, str(text), model, train, DataConfig())
    for _ in run.train():
        pass
    return run.path


@pytest.fixture(scope="session")
def modern(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another model that a learner may pick: rotary, RMSNorm, tied, no biases, hardly trained."""
    model = ModelConfig(
        context_length=48,
        n_layers=3,
        d_model=48,
        n_heads=6,
        n_kv_heads=3,
        qk_norm=True,
        qkv_bias=False,
        projection_bias=False,
        feedforward="swiglu",
        feedforward_bias=False,
        norm="rmsnorm",
        norm_bias=False,
        position="rotary",
    )
    return hardly_trained(tmp_path_factory.mktemp("modern"), "modern", model)


@pytest.fixture(scope="session")
def lowest(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ladder's first rung: one head, a context of 8, and none of the other parts."""
    return hardly_trained(tmp_path_factory.mktemp("lowest"), "lowest", preset("ladder-1"))
