"""Every rung as the product trains it against a plain loop written from its definition."""

import dataclasses

import pytest
import torch
from torch import Tensor

from ladder.plain import Plain, loop
from partwise.ladder.config import LadderConfig
from partwise.ladder.plan import plan
from partwise.model.gpt import GPT
from partwise.text.batches import Batches, windows
from partwise.text.config import DataConfig
from partwise.text.prepare import Prepared, prepare
from partwise.training.data import Data
from partwise.training.events import Evaluated, Stepped
from partwise.training.loop import train

STEPS = 40


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp("text")
    words = "".join(f"{k * k % 97} is the rest of {k}\n" for k in range(600))
    (folder / "rests.txt").write_text(words, encoding="utf-8")
    return prepare(str(folder / "rests.txt"), DataConfig(), cache=folder)


@pytest.mark.parametrize("rung", [1, 2, 3, 4, 5, 6])
def test_a_rung_trains_like_a_plain_loop(rung: int, prepared: Prepared) -> None:
    (job,), _ = plan(LadderConfig(only=str(rung), steps=STEPS))
    model_config = dataclasses.replace(job.model, vocab_size=prepared.tokenizer.vocab_size)
    train_config = dataclasses.replace(
        job.train, log_every=1, dtype="float32", device="cpu", threads=1
    )
    if rung == 6:
        # Its parts in a size that a test can train; dropout draws differently in two programs.
        small = {"d_model": 48, "context_length": 16, "dropout": 0.0}
        model_config = dataclasses.replace(model_config, **small)
        train_config = dataclasses.replace(train_config, batch_size=8)
    torch.manual_seed(1)
    model = GPT(model_config)
    plain = Plain(
        rung,
        model_config.vocab_size,
        model_config.context_length,
        model_config.d_model,
        model_config.n_heads,
        model_config.n_layers,
    )
    plain.take({name: value.clone() for name, value in model.state_dict().items()})
    assert sum(p.numel() for p in plain.parameters()) == sum(p.numel() for p in model.parameters())

    batches = Batches(
        prepared.train, model_config.context_length, train_config.batch_size, train_config.seed
    )
    data = Data(batches, prepared.validation, windows, len(prepared.train))
    events = list(train(model, data, train_config))
    losses = [event.loss for event in events if isinstance(event, Stepped) and event.logged]

    def batch(step: int) -> tuple[Tensor, Tensor]:
        inputs, targets = batches.batch(step)
        return torch.from_numpy(inputs), torch.from_numpy(targets)

    expected = list(loop(plain, batch, STEPS, train_config.lr))
    assert losses == pytest.approx(expected, abs=2e-4)
    assert losses[-1] < losses[0] - 0.1

    (evaluated,) = [event for event in events if isinstance(event, Evaluated)]
    assert evaluated.val_loss == pytest.approx(whole_split(plain, prepared), abs=2e-4)


def whole_split(model: Plain, prepared: Prepared) -> float:
    """Every character of the split but the first, predicted once, the plain way."""
    ids = torch.from_numpy(prepared.validation[0 : len(prepared.validation)].astype("int64"))
    context = model.place.weight.shape[0]
    total = 0.0
    with torch.no_grad():
        for start in range(0, len(ids) - 1, context):
            targets = ids[start + 1 : start + context + 1]
            scores = model(ids[start : start + len(targets)][None])[0].log_softmax(-1)
            total -= scores[torch.arange(len(targets)), targets].sum().item()
    return total / (len(ids) - 1)
