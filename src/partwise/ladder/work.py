"""What one process of a ladder does: train one job as an ordinary run, then measure it.

Everything is told as plain data that fits into a line of JSON, so that it is the same whether the
work is done here or in another process (see `pool.py`).
"""

import dataclasses
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from partwise.errors import PartwiseError, TrainingError
from partwise.ladder import depth
from partwise.ladder.deep import to_plain
from partwise.ladder.jobs import Job, reference
from partwise.ladder.knockout import knock_out
from partwise.ladder.place import Place
from partwise.ladder.record import Record, write_record
from partwise.ladder.table import Row
from partwise.machine import describe, pick_device, pick_precision
from partwise.model.gpt import GPT
from partwise.model.parameters import count_parameters
from partwise.run import Run
from partwise.sampling.config import SampleConfig
from partwise.sampling.generate import complete
from partwise.storage import cache_folder
from partwise.text.batches import Batches, windows
from partwise.text.config import DataConfig
from partwise.text.prepare import Prepared, prepare
from partwise.text.tokenfile import TokenView
from partwise.training.data import Data
from partwise.training.evaluate import evaluate
from partwise.training.events import Evaluated, Finished, Said, Started, Stepped
from partwise.training.loop import train
from partwise.training.objective import Objective, upload
from partwise.training.precision import Precision

Stop = Callable[[], bool]
Message = dict[str, Any]

# The classic estimate: this many random batches of the validation split.
ESTIMATE_BATCHES = 200
SAMPLE_CHARS = 400

# Tokens that go through the model at once when nothing is trained.
TOKENS_AT_ONCE = 16_384

# Steps that an estimate of the time takes; the first ones, slower than all others, do not count.
TIMED_STEPS, UNCOUNTED_STEPS, TIMED_TOKENS = 5, 2, 8192


def carry_out(task: Message, place: Place, stop: Stop) -> Iterator[Message]:
    """Do one task and tell what happens.

    Args:
        task: `{"task": "train" | "time" | "silence", "job": …}`, or `{"task": "depth"}`.
        place: where and on what.
        stop: asked often; True saves and ends.

    Yields:
        Messages with a `kind`: `moved`, `said`, `timed`, `silenced`, `stack`, `racer`; the last one
        is `done`, `interrupted` or `failed` (with `reason`, and whether it is `fatal` for the whole
        ladder).
    """
    doing = {"train": _train, "time": _time, "silence": _silence}
    try:
        if task["task"] == "depth":
            yield from _depth(place, stop)
        else:
            yield from doing[task["task"]](Job.from_plain(task["job"]), place, stop)
    except TrainingError as error:
        # The loss of this variant is no longer a number; the others are none the worse.
        yield {"kind": "failed", "reason": str(error), "fatal": False}
    except PartwiseError as error:
        yield {"kind": "failed", "reason": str(error), "fatal": True}


def _train(job: Job, place: Place, stop: Stop) -> Iterator[Message]:
    prepared = prepare(place.text, DataConfig(), cache=cache_folder(), offline=place.offline)
    runs = Path(place.folder) / "runs"
    if (runs / job.run).exists():
        run = dataclasses.replace(Run.open(runs / job.run), prepared=prepared)
    else:
        run = Run.create(
            runs, job.run, place.text, job.model, job.train, DataConfig(), prepared=prepared
        )
    finished: Finished | None = None
    validation: dict[int, float] = {}
    training: dict[int, float] = {}
    total = job.train.steps or 0
    for line in run.metrics():
        if line.get("event") == "evaluation" and line.get("val_loss") is not None:
            validation[line["step"]] = line["val_loss"]
        elif line.get("event") == "step" and line.get("loss") is not None:
            training[line["step"]] = line["loss"]
    train_loss = val_loss = None
    for event in run.train(resume=True, stop=stop, offline=place.offline):
        if isinstance(event, Started):
            # What was logged after the checkpoint that we go on from is logged again.
            validation = {step: loss for step, loss in validation.items() if step <= event.step}
            training = {step: loss for step, loss in training.items() if step <= event.step}
            total = event.total or total
            yield _moved(event.step, total, None, None, 0.0)
        elif isinstance(event, Stepped):
            train_loss = event.loss
            if event.logged:
                training[event.step] = event.loss
            yield _moved(event.step, total, train_loss, val_loss, event.seconds)
        elif isinstance(event, Evaluated):
            val_loss = event.val_loss
            validation[event.step] = event.val_loss
            yield _moved(event.step, total, train_loss, val_loss, event.seconds)
        elif isinstance(event, Said) and job.wide:
            yield {"kind": "said", "text": str(event.notice)}
        elif isinstance(event, Finished):
            finished = event
    if finished is None or finished.reason == "interrupted":
        yield {"kind": "interrupted"}
        return
    record = measure(run, job, prepared, finished, validation, training)
    write_record(run.path, record)
    yield {"kind": "done", "machine": describe()}


def measure(
    run: Run,
    job: Job,
    prepared: Prepared,
    finished: Finished,
    validation: dict[int, float],
    training: dict[int, float],
) -> Record:
    """The figures of a run that is trained.

    Args:
        run: its folder.
        job: what it is.
        prepared: its text.
        finished: the last event of its training.
        validation, training: its curves, step -> loss.
    """
    model, objective = _ready(run)
    assert finished.val_loss is not None and finished.best_val_loss is not None
    context = model.config.context_length
    train_loss = whole_loss(model, prepared.train, objective, limit=len(prepared.validation))
    row = Row(
        rung=job.rung,
        name=job.name,
        variant=job.variant,
        seed=job.seed,
        steps=finished.step,
        seconds=finished.seconds,
        tokens_per_second=finished.tokens / max(finished.seconds, 1e-9),
        parameters=count_parameters(model.config),
        train_loss=train_loss,
        val_loss=finished.val_loss,
        best_val_loss=finished.best_val_loss,
        estimate=classic_estimate(
            objective, prepared.validation, context, job.train.batch_size, job.seed
        ),
        published=reference(job, prepared.name),
        run=job.run,
    )
    # Temperature 1: the model's own distribution, as the lecture samples from it.
    drawn = SampleConfig(temperature=1.0, chars=SAMPLE_CHARS, seed=job.seed)
    (sample,) = complete(model, prepared.tokenizer, "", drawn)
    return Record(row, tuple(sorted(validation.items())), tuple(sorted(training.items())), sample)


def whole_loss(
    model: GPT, view: TokenView, objective: Objective | None = None, limit: int | None = None
) -> float:
    """Mean loss over a view in consecutive windows, every token but the first predicted once.

    Args:
        model: the model.
        view: the tokens.
        objective: its loss in another precision; None: float32.
        limit: about this many tokens only, in windows spread evenly over the view.
    """
    context = model.config.context_length
    found = evaluate(
        model,
        view,
        windows=windows,
        context_length=context,
        batch_size=max(1, TOKENS_AT_ONCE // context),
        limit=limit,
        objective=objective,
    )
    assert found is not None
    return found


@torch.no_grad()
def classic_estimate(
    objective: Objective, view: TokenView, context_length: int, batch_size: int, seed: int
) -> float:
    """Mean loss of 200 random batches of `view`, in evaluation mode; shown beside the figure.

    Source: Karpathy, 2023, "Let's build GPT", its `estimate_loss`.
    """
    batches = Batches(view, context_length, batch_size, seed)
    objective.model.eval()
    losses = [
        objective(*upload(batches.batch(step), objective.device)).item()
        for step in range(ESTIMATE_BATCHES)
    ]
    return statistics.fmean(losses)


def _time(job: Job, place: Place, stop: Stop) -> Iterator[Message]:
    """A few steps and a piece of an evaluation, for an estimate of the whole."""
    prepared = prepare(place.text, DataConfig(), cache=cache_folder(), offline=place.offline)
    model_config = dataclasses.replace(job.model, vocab_size=prepared.tokenizer.vocab_size)
    config = dataclasses.replace(
        job.train,
        steps=TIMED_STEPS,
        eval_every=TIMED_STEPS,
        eval_tokens=TIMED_TOKENS,
        log_every=1,
        sample_chars=0,
        tensorboard=False,
        wandb=None,
    )
    context = model_config.context_length
    batches = Batches(prepared.train, context, config.batch_size, config.seed)
    data = Data(batches, prepared.validation, windows, len(prepared.train))
    ends: list[float] = []
    evaluation = 0.0
    for event in train(GPT(model_config), data, config, stop=stop):
        if isinstance(event, Stepped) and event.logged:
            ends.append(event.seconds)
        elif isinstance(event, Evaluated):
            evaluation = event.seconds - ends[-1]
    if len(ends) <= UNCOUNTED_STEPS:
        yield {"kind": "interrupted"}
        return
    step = (ends[-1] - ends[UNCOUNTED_STEPS - 1]) / (len(ends) - UNCOUNTED_STEPS)
    whole = evaluation * max(1.0, len(prepared.validation) / TIMED_TOKENS)
    yield {"kind": "timed", "step": step, "evaluation": whole}
    yield {"kind": "done"}


def _silence(job: Job, place: Place, stop: Stop) -> Iterator[Message]:
    """A trained run with each part silenced in turn."""
    if job.train.threads is not None:
        torch.set_num_threads(job.train.threads)
    prepared = prepare(place.text, DataConfig(), cache=cache_folder(), offline=place.offline)
    run = Run.open(Path(place.folder) / "runs" / job.run)
    model, objective = _ready(run)

    def loss() -> float:
        return whole_loss(model, prepared.validation, objective)

    whole = loss()
    for part, found in knock_out(model, loss):
        yield {"kind": "silenced", "part": part, "val_loss": found, "difference": found - whole}
        if stop():
            yield {"kind": "interrupted"}
            return
    yield {"kind": "done"}


def _depth(place: Place, stop: Stop) -> Iterator[Message]:
    """Deep stacks at initialisation, then the race."""
    prepared = prepare(place.text, DataConfig(), cache=cache_folder(), offline=place.offline)
    vocab_size = prepared.tokenizer.vocab_size

    def data(context_length: int, batch_size: int, seed: int) -> Data:
        batches = Batches(prepared.train, context_length, batch_size, seed)
        return Data(batches, prepared.validation, windows, len(prepared.train))

    stack = dataclasses.replace(depth.STACK, vocab_size=vocab_size)
    inputs, targets = data(stack.context_length, depth.TEXTS, 1).train.batch(0)
    ids = torch.from_numpy(np.concatenate([inputs, targets[:, -1:]], axis=1))
    for found in depth.stacks(base=stack, ids=ids):
        yield {"kind": "stack", "stack": to_plain(found)}
        if stop():
            yield {"kind": "interrupted"}
            return
    racer = dataclasses.replace(depth.RACER, vocab_size=vocab_size)
    for raced in depth.race(data, base=racer, stop=stop):
        if stop():
            yield {"kind": "interrupted"}
            return
        yield {"kind": "racer", "racer": to_plain(raced)}
    yield {"kind": "done"}


def _ready(run: Run) -> tuple[GPT, Objective]:
    """A run's last weights on its device, and its loss in the precision of its training."""
    resolved = run.record.resolved
    device = pick_device("cpu" if resolved is None else resolved.device)
    dtype, _ = pick_precision("float32" if resolved is None else resolved.dtype, device)
    model = run.model("last", str(device))
    return model, Objective(model, Precision(device, dtype))


def _moved(
    step: int, steps: int, train_loss: float | None, val_loss: float | None, seconds: float
) -> Message:
    return {
        "kind": "moved",
        "step": step,
        "steps": steps,
        "train_loss": train_loss,
        "val_loss": val_loss,
        "seconds": seconds,
    }
