"""Pairs of texts through the loop: padding counts for nothing, and resuming is exact."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from partwise.model.seq2seq import Seq2Seq
from partwise.model.seq2seq_config import Seq2SeqConfig
from partwise.text.pair_batches import EncodedPairs, InARow, PairBatches, PairWindows, SideBySide
from partwise.training.config import TrainConfig
from partwise.training.data import Data
from partwise.training.evaluate import evaluate
from partwise.training.events import Finished
from partwise.training.loop import train
from partwise.training.objective import IGNORED, Objective, counted, upload
from partwise.training.optim import build_optimizers
from partwise.training.step import make_step

MODEL = Seq2SeqConfig(
    vocab_size=13,
    context_length=12,
    n_encoder_layers=1,
    n_decoder_layers=1,
    d_model=8,
    n_heads=2,
    dropout=0.2,
    embedding_dropout=0.0,
)
TRAIN = TrainConfig(
    steps=12,
    batch_size=6,
    warmup_steps=3,
    eval_every=4,
    checkpoint_every=3,
    log_every=3,
    label_smoothing=0.1,
    dtype="float32",
    compile="off",
    schedule="inverse_sqrt",
)
LAYOUT = SideBySide(MODEL.pad, MODEL.start, MODEL.end)


@cache
def pairs(count: int = 20) -> EncodedPairs:
    random = np.random.default_rng(0)
    texts = [
        random.integers(0, MODEL.pad, random.integers(1, 10)).astype(np.int64)
        for _ in range(2 * count)
    ]
    return EncodedPairs(texts[::2], texts[1::2])


def data() -> Data:
    batches = PairBatches(pairs(), LAYOUT, TRAIN.batch_size, TRAIN.seed)
    return Data(batches, pairs(), PairWindows(LAYOUT), len(pairs()))


def new_model(config: Seq2SeqConfig = MODEL) -> Seq2Seq:
    torch.manual_seed(0)
    return Seq2Seq(config)


def by_hand(model: Seq2Seq) -> float:
    """Each pair on its own, without any padding."""
    model.eval()
    nats, count = 0.0, 0
    for source, target in zip(pairs().sources, pairs().targets, strict=True):
        read = torch.tensor([[*source, MODEL.end]])
        said = torch.tensor([[MODEL.start, *target]])
        wanted = torch.tensor([*target, MODEL.end])
        with torch.no_grad():
            nats += F.cross_entropy(model(read, said)[0], wanted, reduction="sum").item()
        count += len(wanted)
    return nats / count


@pytest.mark.parametrize("batch_size", [1, 3, 20])
def test_the_validation_loss_is_the_mean_over_real_tokens(batch_size: int) -> None:
    model = new_model()
    value = evaluate(
        model,
        pairs(),
        windows=PairWindows(LAYOUT),
        context_length=1,
        batch_size=batch_size,
    )
    assert value == pytest.approx(by_hand(model), rel=1e-5)


def test_a_batch_in_parts_weighs_each_part_by_its_real_tokens() -> None:
    inputs, targets = upload(data().train.batch(0), torch.device("cpu"))
    assert len({int(counted(part)) for part in torch.split(targets, 2)}) > 1
    gradients = []
    for parts in (1, 3):
        model = new_model(replace(MODEL, dropout=0.0))
        settings = replace(TRAIN, accumulation=parts, grad_clip=None)
        step = make_step(Objective(model), build_optimizers(model, settings), settings)
        update = step(inputs, targets, 1.0)
        gradients.append([update.loss, *(p.grad for p in model.parameters() if p.grad is not None)])
    for whole, summed in zip(*gradients, strict=True):
        assert torch.allclose(whole, summed, rtol=1e-4, atol=1e-6)


def test_a_target_that_is_ignored_has_no_gradient() -> None:
    model = new_model(replace(MODEL, dropout=0.0))
    inputs, targets = upload(data().train.batch(0), torch.device("cpu"))
    loss = Objective(model)(inputs, targets, 0.1)
    wider = F.pad(inputs, (0, 2), value=MODEL.pad)
    longer = F.pad(targets, (0, 2), value=IGNORED)
    assert torch.allclose(Objective(model)(wider, longer, 0.1), loss, rtol=1e-5)


def test_a_run_of_pairs_that_was_stopped_ends_in_the_same_bits(tmp_path: Path) -> None:
    def events(model: Seq2Seq, folder: Path, stop_at: int | None = None, **more: Any) -> Any:
        seen = 0

        def stop() -> bool:
            nonlocal seen
            seen += 1
            return stop_at is not None and seen > stop_at

        return list(train(model, data(), TRAIN, folder=folder, stop=stop, **more))

    whole = new_model()
    events(whole, tmp_path / "whole")
    parts = new_model()
    said: Iterator[Any] = iter(())
    for stop_at in (5, 4, None):
        parts = new_model()
        said = events(parts, tmp_path / "parts", stop_at, resume=True)
    finished = list(said)[-1]
    assert isinstance(finished, Finished)
    assert (finished.reason, finished.step) == ("steps", 12)
    for name, weight in whole.state_dict().items():
        assert torch.equal(weight, parts.state_dict()[name]), name


def test_epochs_are_counted_in_pairs() -> None:
    # 20 pairs in batches of 6: an epoch is 4 steps, whatever the lengths.
    batches = data().train
    seen = [
        tuple(row) for step in range(4) for row in batches.batch(step)[0].reshape(6, -1).tolist()
    ]
    assert len(seen) == 24
    assert len({str([i for i in row if i != MODEL.pad]) for row in seen}) == 20


def test_a_decoder_alone_is_asked_for_the_target_only() -> None:
    layout = InARow(MODEL.pad, MODEL.start, MODEL.end)
    inputs, targets = layout([np.array([1, 2])], [np.array([3, 4, 5])])
    assert inputs.tolist() == [[1, 2, MODEL.start, 3, 4, 5]]
    assert targets.tolist() == [[IGNORED, IGNORED, 3, 4, 5, MODEL.end]]
