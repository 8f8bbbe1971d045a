"""What a long training will take on this machine, said before it begins."""

import math

from partwise.ladder.jobs import Job
from partwise.messages import Notice, message

# The rung that a recipe is offered beside, and how long it must take (seconds).
HIGHEST = 6
LONG = 900.0


def seconds(job: Job, step: float, evaluation: float, done: int = 0) -> float:
    """Steps and evaluations that are left, times what each takes.

    Args:
        job: the training.
        step: seconds a step, measured.
        evaluation: seconds for the whole validation split, measured on a part of it.
        done: steps that are trained already.
    """
    left = max(0, (job.train.steps or 0) - done)
    return left * step + math.ceil(left / job.train.eval_every) * evaluation


def notice(job: Job, step: float, evaluation: float, done: int = 0) -> Notice:
    """The line that says it; see `seconds`."""
    return Notice(
        "rung {rung}, {name}: {step} s a step here, so its {left:,} steps take about {time}; "
        "Ctrl+C saves, and the same command goes on",
        rung=job.rung,
        name=job.name,
        step=f"{step:.3g}",
        left=max(0, (job.train.steps or 0) - done),
        time=duration(seconds(job, step, evaluation, done)),
    )


def quicker(job: Job, step: float, evaluation: float, done: int, corpus: str) -> Notice | None:
    """A recipe that is no rung, offered beside a long rung 6; None where that is not long.

    Args:
        job, step, evaluation, done: see `seconds`.
        corpus: the text's name.
    """
    if job.rung < HIGHEST or seconds(job, step, evaluation, done) < LONG:
        return None
    return Notice(
        "another recipe, which is no rung of this ladder, comes as low within minutes: "
        "partwise train {corpus} --recipe fast",
        corpus=corpus,
    )


def duration(seconds: float) -> str:
    """A time as one says it: 40 seconds, 12 minutes, 6.1 hours."""
    if seconds < 90:
        return message("{number} seconds", number=f"{seconds:.0f}")
    if seconds < 90 * 60:
        return message("{number} minutes", number=f"{seconds / 60:.0f}")
    return message("{number} hours", number=f"{seconds / 3600:.1f}")
