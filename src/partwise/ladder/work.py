"""What one process of a ladder does: train one job as an ordinary run, then measure it.

Everything is told as plain data that fits into a line of JSON, so that it is the same whether the
work is done here or in another process (see `pool.py`).
"""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from partwise.errors import PartwiseError, RunError, TrainingError, is_out_of_memory
from partwise.ladder.figures import classic_estimate, ready, whole_loss
from partwise.ladder.jobs import Job, reference
from partwise.ladder.place import Place
from partwise.ladder.plan import corpus_of
from partwise.ladder.probes import measure_stacks, race_one, silence, time_steps
from partwise.ladder.record import Record, write_record
from partwise.ladder.table import Row
from partwise.machine import describe
from partwise.messages import message
from partwise.model.parameters import count_parameters
from partwise.run import Run
from partwise.sampling.config import SampleConfig
from partwise.sampling.generate import complete
from partwise.storage import cache_folder
from partwise.text.config import DataConfig
from partwise.text.prepare import Prepared, prepare
from partwise.training.events import Evaluated, Finished, Said, Started, Stepped
from partwise.training.whole_step import compile_evaluations

Stop = Callable[[], bool]
Message = dict[str, Any]

# Length of the text that a trained rung writes for the report.
SAMPLE_CHARS = 400


def carry_out(task: Message, place: Place, stop: Stop) -> Iterator[Message]:
    """Do one task and tell what happens.

    Args:
        task: `{"task": "train" | "time" | "silence", "job": …}`, `{"task": "stacks"}`, or
            `{"task": "race", "norm": …, "initialisation": …}`.
        place: where and on what.
        stop: asked often; True saves and ends.

    Yields:
        Messages with a `kind`: `moved`, `said`, `timed`, `silenced`, `stack`, `racer`; the last one
        is `done`, `interrupted` or `failed` (with `reason`, and whether it is `fatal` for the whole
        ladder).
    """
    doing = {"train": _train, "time": time_steps, "silence": silence}
    try:
        if task["task"] == "stacks":
            yield from measure_stacks(place, stop)
        elif task["task"] == "race":
            yield from race_one(task, place, stop)
        else:
            yield from doing[task["task"]](Job.from_plain(task["job"]), place, stop)
    except TrainingError as error:
        # The loss of this variant is no longer a number; the others are none the worse.
        yield {"kind": "failed", "reason": str(error), "fatal": False}
    except PartwiseError as error:
        yield {"kind": "failed", "reason": str(error), "fatal": True}
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        # One that is too big leaves the others the memory that they need.
        reason = message(
            "the memory of this machine is not enough; a smaller batch_size, context_length or "
            "model would do"
        )
        yield {"kind": "failed", "reason": reason, "fatal": False}


def _train(job: Job, place: Place, stop: Stop) -> Iterator[Message]:
    runs = Path(place.folder) / "runs"
    if (runs / job.run).exists():
        run = Run.open(runs / job.run)
        # Only the text that it began with lets it go on.
        prepared = run.reopen_text(place.text, offline=place.offline)
        run = dataclasses.replace(run, prepared=prepared)
    else:
        prepared = prepare(place.text, DataConfig(), cache=cache_folder(), offline=place.offline)
        if place.fingerprint not in ("", prepared.text_fingerprint):
            raise RunError(
                "the text {spec} was changed while the ladder learns it; start again when it stays "
                "as it is",
                spec=place.text,
            )
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
    model, objective = ready(run)
    if run.record.resolved is not None and run.record.resolved.compiled:
        compile_evaluations(objective)
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
        published=reference(job, corpus_of(prepared)),
        run=job.run,
    )
    # Temperature 1: the model's own distribution, as the lecture samples from it.
    drawn = SampleConfig(temperature=1.0, chars=SAMPLE_CHARS, seed=job.seed)
    (sample,) = complete(model, prepared.tokenizer, "", drawn)
    return Record(row, tuple(sorted(validation.items())), tuple(sorted(training.items())), sample)


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
