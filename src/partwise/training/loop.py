"""The training loop: one generator, read from top to bottom, that tells what happens as events.

Nothing is remembered between steps but weights, optimizer memory and counters: the batch and the
dropout of a step follow from (seed, step). That is why a run that was killed and resumed ends in
the same bits as one that was not, and why evaluating, logging or sampling in between changes
nothing.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from partwise.machine import compile_check, pick_device, pick_precision
from partwise.messages import Notice
from partwise.storage import sweep
from partwise.training.average import Average
from partwise.training.checkpoint import Checkpoint, load_latest, load_weights, save, weights_of
from partwise.training.config import TrainConfig
from partwise.training.data import Data
from partwise.training.evaluate import evaluate, never
from partwise.training.events import (
    Evaluated,
    Event,
    Finished,
    Reason,
    Said,
    Saved,
    Started,
    Stepped,
)
from partwise.training.failure import bad_weight, not_finite
from partwise.training.objective import Objective, upload
from partwise.training.optim import build_optimizers, pack, trained, unpack
from partwise.training.plan import Pace, check_ends, foreseen
from partwise.training.precision import Precision
from partwise.training.progress import Progress
from partwise.training.schedule import rate, warmup_steps
from partwise.training.step import make_step, seed_step

# Seconds between two signs of life when steps are slow.
_HEARTBEAT = 1.0


def train(
    model: nn.Module,
    data: Data,
    config: TrainConfig,
    *,
    folder: Path | None = None,
    resume: bool = False,
    stop: Callable[[], bool] = never,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Event]:
    """Train `model` in place until the first limit of `config` is met.

    On the CPU the same settings, thread count and version of torch give the same bits, however
    often the run was interrupted; a limit in minutes, which depends on the clock, aside. On a GPU
    the same random numbers are drawn, but sums may be taken in another order.

    Args:
        model: ids (B, T) -> logits (B, T, vocab_size); its weights are taken as they are.
        data: training batches and validation tokens.
        config: the settings.
        folder: the run folder that checkpoints go to; None keeps none. Only one process may train
            in it at a time, which the caller sees to.
        resume: go on from the folder's newest whole checkpoint, if it has one.
        stop: asked before every step and every batch of an evaluation; once it returns True the
            state is saved and the run ends as "interrupted".
        clock: seconds that training time is counted in.

    Yields:
        What happens; the last event is a Finished.

    Raises:
        ConfigError: the settings have no end, or this machine cannot honour them.
        RunError, StorageError: a checkpoint does not fit the model, or cannot be read or written.
        TrainingError: a loss, gradient or weight is no longer finite.
    """
    began = clock()
    check_ends(config)
    threads_before = torch.get_num_threads()
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    try:
        # --- Set up -----------------------------------------------------------------------------
        device = pick_device(config.device)
        dtype, reason_for_dtype = pick_precision(config.dtype, device)
        yield Said(reason_for_dtype)
        precision = Precision(device, dtype)
        model.to(device)
        model.train()
        optimizers = build_optimizers(model, config)
        average = None if config.ema_decay is None else Average(model, config.ema_decay)
        objective = Objective(model, precision)
        step = make_step(objective, optimizers, config)
        progress = Progress()

        # --- Go on from a checkpoint --------------------------------------------------------------
        saved_at = None
        if folder is not None and resume:
            sweep(folder / "checkpoints")
            checkpoint, notices = load_latest(folder)
            for notice in notices:
                yield Said(notice)
            if checkpoint is not None:
                load_weights(model, checkpoint.weights)
                state = checkpoint.state
                unpack(model, optimizers, checkpoint.optimizer, state["optimizer"])
                if average is not None and checkpoint.averaged is not None:
                    average.load(checkpoint.averaged)
                if precision.scaler is not None and state["scaler"] is not None:
                    precision.scaler.load_state_dict(state["scaler"])
                progress = Progress(**state["progress"])
                saved_at = progress.step
        began -= progress.seconds

        # --- Compile, once and before anything depends on it --------------------------------------
        rows = config.batch_size // config.accumulation
        inputs, targets = upload(data.train.batch(progress.step), device)
        if config.compile == "on" or (config.compile == "auto" and device.type == "cuda"):
            check = compile_check(device.type)
            failed: Notice | None = check.reason
            if check.works:
                failed = objective.compile(inputs[:rows], targets[:rows], config.label_smoothing)
            if failed is not None:
                yield Said(failed)

        limit = foreseen(config, data)
        budget = None if config.minutes is None else 60 * config.minutes
        tokens_per_step = data.train.batch_size * data.train.context_length
        save_every = config.checkpoint_every or config.eval_every
        batches = data.ahead(data.train, progress.step)
        pace = Pace()
        unread: list[Tensor] = []
        told_at, told_tokens = clock(), progress.tokens
        yield Started(
            step=progress.step,
            total=limit[0] if limit else progress.planned_total,
            parameters=sum(parameter.numel() for _, parameter in trained(model)),
            tokens_per_step=tokens_per_step,
            device=str(device),
            dtype=precision.name,
            compiled=objective.compiled,
            threads=torch.get_num_threads(),
            resumed=saved_at is not None,
        )
        if limit is not None and warmup_steps(limit[0], config) < config.warmup_steps:
            yield Said(
                Notice(
                    "warmup_steps={asked} is more than half of {total} steps; warming up over "
                    "{given}",
                    asked=config.warmup_steps,
                    total=limit[0],
                    given=warmup_steps(limit[0], config),
                )
            )

        while True:
            # --- Is it over? ----------------------------------------------------------------------
            paused_at = clock()
            progress.seconds = paused_at - began
            reason: Reason | None = progress.ended(config, limit)
            if budget is not None and progress.seconds + pace.evaluation >= budget:
                reason = reason or "minutes"
            if stop():
                reason = "interrupted"

            # --- Evaluate -------------------------------------------------------------------------
            is_best = False
            due = progress.step % config.eval_every == 0 or reason not in (None, "interrupted")
            evaluating = due and progress.step != progress.evaluated_at
            if evaluating:
                _read(unread, progress)
                with average.in_place() if average else nullcontext():
                    val_loss = evaluate(
                        model,
                        data.validation,
                        windows=data.windows,
                        context_length=data.train.context_length,
                        batch_size=rows,
                        limit=config.eval_tokens,
                        objective=objective,
                        stop=stop,
                    )
                    if val_loss is None:
                        reason = "interrupted"
                    elif not math.isfinite(val_loss):
                        yield _finished("not_finite", progress)
                        raise not_finite(objective, inputs, progress.step, val_loss, config)
                    else:
                        is_best = progress.judge(val_loss)
                        progress.seconds = clock() - began
                        # Yielded while the averaged weights are in place: whoever samples now hears
                        # what was judged.
                        yield _evaluated(progress, is_best)
                model.train()
                reason = reason or progress.ended(config, limit)

            # --- Save -----------------------------------------------------------------------------
            due = reason is not None or progress.step % save_every == 0
            if (
                folder is not None
                and progress.step > 0
                and (is_best or (due and progress.step != saved_at))
            ):
                _read(unread, progress)
                if bad_weight(model) is not None:
                    yield _finished("not_finite", progress)
                    raise not_finite(objective, inputs, progress.step, progress.mean, config)
                progress.seconds = clock() - began
                checkpoint = _checkpoint(model, optimizers, average, precision, progress, config)
                path = save(folder, checkpoint, is_best=is_best, keep=config.keep_checkpoints)
                saved_at = progress.step
                yield Saved(progress.step, path)

            if reason is not None:
                progress.seconds = clock() - began
                yield _finished(reason, progress)
                return
            if evaluating:
                pace.evaluation = clock() - paused_at

            # --- How many steps fit into the minutes ----------------------------------------------
            if budget is not None and limit is None:
                elapsed = clock() - began
                planned = progress.planned_total
                if pace.ready(elapsed, budget) and (planned is None or evaluating):
                    if planned is None:
                        pace.evaluation = _time_evaluation(objective, data, config, rows, clock)
                    progress.planned_total = pace.total(
                        progress.step, clock() - began, budget, config.eval_every
                    )

            # --- One step -------------------------------------------------------------------------
            stepped_from = clock()
            total = limit[0] if limit else progress.planned_total
            multiplier = rate(progress.step, total, config)
            logged = (progress.step + 1) % config.log_every == 0
            inputs, targets = upload(next(batches), device)
            seed_step(device, config.seed, progress.step)
            update = step(inputs, targets, multiplier, measure=logged)
            if not update.applied:
                loss = update.loss.item()
                yield _finished("not_finite", progress)
                raise not_finite(objective, inputs, progress.step + 1, loss, config)
            progress.step += 1
            progress.tokens += tokens_per_step
            unread.append(update.loss)
            if average is not None:
                average.update(progress.step)

            # --- Tell -----------------------------------------------------------------------------
            now = clock()
            if logged or now - told_at >= _HEARTBEAT:
                _read(unread, progress)
                if not math.isfinite(progress.loss_sum):
                    yield _finished("not_finite", progress)
                    raise not_finite(objective, inputs, progress.step, progress.mean, config)
                now = clock()
                progress.seconds = now - began
                yield Stepped(
                    step=progress.step,
                    loss=progress.mean,
                    lr=optimizers[0].param_groups[0]["lr"],
                    grad_norm=None if update.grad_norm is None else update.grad_norm.item(),
                    tokens=progress.tokens,
                    seconds=progress.seconds,
                    tokens_per_second=(progress.tokens - told_tokens) / max(now - told_at, 1e-9),
                    total=total,
                    logged=logged,
                )
                told_at, told_tokens = now, progress.tokens
                if logged:
                    progress.loss_sum, progress.loss_count = 0.0, 0
            pace.stepped(clock() - stepped_from)
    finally:
        torch.set_num_threads(threads_before)


def _read(unread: list[Tensor], progress: Progress) -> None:
    """Take the losses of the last steps off the device; the only moment when the host waits."""
    if unread:
        for loss in torch.stack(unread).tolist():
            progress.loss_sum += loss
        progress.loss_count += len(unread)
        unread.clear()


def _evaluated(progress: Progress, is_best: bool) -> Evaluated:
    assert progress.val_loss is not None
    assert progress.best_val_loss is not None
    assert progress.best_step is not None
    return Evaluated(
        step=progress.step,
        val_loss=progress.val_loss,
        best_val_loss=progress.best_val_loss,
        best_step=progress.best_step,
        is_best=is_best,
        tokens=progress.tokens,
        seconds=progress.seconds,
    )


def _finished(reason: Reason, progress: Progress) -> Finished:
    return Finished(
        reason=reason,
        step=progress.step,
        tokens=progress.tokens,
        seconds=progress.seconds,
        val_loss=progress.val_loss,
        best_val_loss=progress.best_val_loss,
        best_step=progress.best_step,
    )


def _checkpoint(
    model: nn.Module,
    optimizers: list[torch.optim.Optimizer],
    average: Average | None,
    precision: Precision,
    progress: Progress,
    config: TrainConfig,
) -> Checkpoint:
    weights = weights_of(model)
    tensors, plain = pack(model, optimizers)
    state: dict[str, Any] = {
        "progress": dataclasses.asdict(progress),
        "optimizer": plain,
        "scaler": None if precision.scaler is None else precision.scaler.state_dict(),
        "config": dataclasses.asdict(config),
    }
    return Checkpoint(
        step=progress.step,
        weights=weights,
        averaged=None if average is None else {**weights, **average.tensors()},
        optimizer=tensors,
        state=state,
    )


def _time_evaluation(
    objective: Objective, data: Data, config: TrainConfig, rows: int, clock: Callable[[], float]
) -> float:
    """Seconds that an evaluation takes, from two batches of it."""
    tokens = min(len(data.validation), config.eval_tokens or len(data.validation))
    sample = min(tokens, 2 * rows * data.train.context_length)
    start = clock()
    evaluate(
        objective.model,
        data.validation,
        windows=data.windows,
        context_length=data.train.context_length,
        batch_size=rows,
        limit=sample,
        objective=objective,
    )
    return (clock() - start) * tokens / sample
