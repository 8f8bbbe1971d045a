"""The training loop: one generator, read from top to bottom, that tells what happens as events.

Nothing is remembered between steps but weights, optimizer memory and counters: the batch and the
dropout of a step follow from (seed, step). That is why a run that was killed and resumed ends in
the same bits as one that was not, and why evaluating, logging or sampling in between changes
nothing.
"""

import math
import time
from collections.abc import Callable, Generator
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import Tensor, nn

from partwise.errors import RunError
from partwise.machine import keep_freed, pick_device, pick_precision
from partwise.model.gpt import GPT
from partwise.storage import sweep
from partwise.training.checkpoint import has_checkpoints, load_latest, save
from partwise.training.compiling import (
    by_gradient,
    choose_compile,
    compile_parts,
    compile_step,
    foretell,
    suits_whole_step,
)
from partwise.training.config import TrainConfig
from partwise.training.data import Data
from partwise.training.evaluate import evaluate, never, time_evaluation
from partwise.training.events import Event, Reason, Said, Saved, Started, Stepped
from partwise.training.failure import bad_weight, not_finite
from partwise.training.objective import Objective, upload
from partwise.training.optim import trained
from partwise.training.pieces import about_pieces, check_short, cut
from partwise.training.plan import Pace, check_ends, check_parts, fitted, foreseen, shortened
from partwise.training.precision import Precision
from partwise.training.schedule import rate
from partwise.training.state import State
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
) -> Generator[Event, None, None]:
    """Train `model` in place until the first limit of `config` is met.

    On the CPU the same settings, thread count and version of torch give the same bits, however
    often the run was interrupted; a limit in minutes, which depends on the clock, aside. On a GPU
    the same random numbers are drawn, but sums may be taken in another order.

    With `ema_decay` the model ends with the averaged weights, which are the ones that were judged.

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
        RunError: the folder holds another run, or its checkpoint does not fit the model.
        StorageError: a checkpoint cannot be read or written.
        TrainingError: a loss, gradient or weight is no longer finite.
    """
    began = clock()
    check_ends(config)
    check_short(config, data.train.context_length)
    if isinstance(model, GPT):
        check_parts(config, model.config)
    if folder is not None and not resume and has_checkpoints(folder):
        raise RunError(
            "{folder} already holds a run; resume it, or give another folder", folder=folder
        )
    threads_before = torch.get_num_threads()
    was_training = model.training
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    try:
        # --- Set up -----------------------------------------------------------------------------
        device = pick_device(config.device)
        keep_freed(device.type == "cpu")
        rows = config.batch_size // config.accumulation
        widths = [part.in_features for part in model.modules() if isinstance(part, nn.Linear)]
        dtype, reason_for_dtype = pick_precision(
            config.dtype,
            device,
            rows=rows * data.train.context_length,
            width=min(widths, default=None),
        )
        yield Said(reason_for_dtype)
        model.to(device)
        model.train()
        state = State(model, config, Precision(device, dtype))
        objective = Objective(model, state.precision)
        step = make_step(objective, state.optimizers, config)

        # --- Go on from a checkpoint --------------------------------------------------------------
        saved_at = None
        if folder is not None and resume:
            sweep(folder / "checkpoints")
            checkpoint, notices = load_latest(folder)
            for notice in notices:
                yield Said(notice)
            if checkpoint is not None:
                state.restore(checkpoint)
                saved_at = checkpoint.step
        progress = state.progress
        began -= progress.seconds

        # --- Compile, once and before anything depends on it --------------------------------------
        tokens_per_step = data.train.batch_size * data.train.context_length
        limit = foreseen(config, data.train_tokens, tokens_per_step)
        total = limit[0] if limit else progress.planned_total
        context_length = data.train.context_length
        length = progress.pieces(total, config, context_length)
        batch = upload(data.train.batch(progress.step), device)
        inputs, targets = cut(*batch, length)
        steps = limit[0] if limit else None
        compiling, about_compiling = False, None
        in_c = by_gradient(objective, config, data, steps)
        if not in_c or suits_whole_step(objective, config, inputs.shape):
            compiling, about_compiling = choose_compile(
                *(model, config, data),
                device=device,
                dtype=dtype,
                step=progress.step,
                total=steps,
            )
        in_c = in_c and not compiling
        if about_compiling is not None and not in_c:
            yield Said(about_compiling)
        compile_seconds = 0.0
        if compiling:
            soon = foretell(objective, config, inputs)
            if soon is not None:
                yield Said(soon)
            step, about_compiling, compile_seconds = compile_step(
                *(step, objective, state.optimizers, config, inputs, targets),
                *([batch] if length is not None else []),
                clock=clock,
            )
            if about_compiling is not None:
                yield Said(about_compiling)

        about_parts = compile_parts(objective, state.optimizers, config, data, steps, in_c)
        if about_parts is not None:
            yield Said(about_parts)

        # --- Say what begins ----------------------------------------------------------------------
        budget = None if config.minutes is None else 60 * config.minutes
        yield Started(
            step=progress.step,
            total=total,
            parameters=sum(parameter.numel() for _, parameter in trained(model)),
            tokens_per_step=tokens_per_step,
            device=str(device),
            dtype=state.precision.name,
            compiled=objective.compiled,
            threads=torch.get_num_threads(),
            resumed=saved_at is not None,
            compile_seconds=compile_seconds,
        )
        changes = state.changes(objective)
        if changes is not None:
            yield Said(changes)
        for notice in shortened(limit[0], config) if limit else []:
            yield Said(notice)
        learned = isinstance(model, GPT) and model.config.position == "learned"
        about_texts = about_pieces(config, context_length, learned=learned)
        if about_texts is not None:
            yield Said(about_texts)

        batches = data.ahead(data.train, progress.step)
        save_every = config.checkpoint_every or config.eval_every
        pace = Pace()
        unread: list[Tensor] = []  # losses that are still on the device
        broken: tuple[int, float] | None = None  # the step and the loss that are not finite
        told_at, told_tokens = clock(), progress.tokens

        while True:
            if broken is not None:
                yield progress.finished("not_finite")
                raise not_finite(objective, inputs, *broken, config)

            # --- Is it over? ----------------------------------------------------------------------
            paused_at = clock()
            progress.seconds = paused_at - began
            reason: Reason | None = progress.ended(config, limit)
            # The last evaluation belongs to the minutes; the first step is taken in any case.
            spent = progress.seconds + pace.evaluation
            if budget is not None and spent >= budget and progress.step > 0:
                reason = reason or "minutes"
            if stop():
                reason = "interrupted"

            # --- Evaluate -------------------------------------------------------------------------
            is_best = False
            due = progress.step % config.eval_every == 0 or reason not in (None, "interrupted")
            evaluating = due and progress.step != progress.evaluated_at
            if evaluating:
                # In windows as long as what is read now; in whole ones at the end.
                judged = context_length
                if reason is None:
                    judged = progress.pieces(total, config, context_length) or judged
                with state.average.in_place() if state.average else nullcontext():
                    val_loss = evaluate(
                        model,
                        data.validation,
                        windows=data.windows,
                        context_length=judged,
                        batch_size=objective.evaluated_rows or rows * context_length // judged,
                        limit=config.eval_tokens,
                        objective=objective,
                        stop=stop,
                    )
                    if val_loss is None:
                        reason = "interrupted"
                    elif not math.isfinite(val_loss):
                        broken = progress.step, val_loss
                        continue
                    else:
                        is_best = progress.judge(val_loss)
                        progress.seconds = clock() - began
                        # Yielded while the averaged weights are in place: whoever samples now hears
                        # what was judged.
                        yield progress.evaluated(is_best)
                        reason = reason or progress.ended(config, limit)
                model.train()

            # --- Save -----------------------------------------------------------------------------
            due = reason is not None or progress.step % save_every == 0
            due = is_best or (due and progress.step != saved_at)
            if due and folder is not None and progress.step > 0:
                progress.take(unread)
                # A loss shows a bad weight one step late, and such weights must not be kept.
                if bad_weight(model) is not None:
                    broken = progress.step, progress.loss
                    continue
                progress.seconds = clock() - began
                path = save(
                    folder,
                    state.checkpoint(objective),
                    is_best=is_best,
                    keep=config.keep_checkpoints,
                )
                saved_at = progress.step
                yield Saved(progress.step, path)

            # --- End ------------------------------------------------------------------------------
            if reason is not None:
                if state.average is not None:
                    state.average.settle()
                progress.seconds = clock() - began
                yield progress.finished(reason)
                return

            # --- How many steps fit into the minutes? ---------------------------------------------
            if evaluating:
                pace.evaluation = clock() - paused_at
            if budget is not None and limit is None:
                elapsed = clock() - began
                if pace.due(progress.step, elapsed, budget, evaluating):
                    if not pace.evaluation:
                        pace.evaluation = time_evaluation(objective, data, config, clock)
                    first = progress.planned_total is None
                    progress.planned_total = pace.total(
                        progress.step, clock() - began, budget, config.eval_every
                    )
                    for notice in fitted(progress.planned_total, config) if first else []:
                        yield Said(notice)

            # --- One step -------------------------------------------------------------------------
            stepped_from = clock()
            told_at += stepped_from - paused_at  # the speed that is told is that of steps
            total = limit[0] if limit else progress.planned_total
            logged = (progress.step + 1) % config.log_every == 0
            before, length = length, progress.pieces(total, config, context_length)
            if length != before:
                pace.renew(progress.step)
            inputs, targets = cut(*upload(next(batches), device), length)
            seed_step(device, config.seed, progress.step)
            update = step(inputs, targets, rate(progress.step, total, config), measure=logged)
            if not update.applied:
                broken = progress.step + 1, update.loss.item()
                continue
            progress.step += 1
            progress.tokens += tokens_per_step
            unread.append(update.loss)
            if state.average is not None:
                state.average.update(progress.step)

            # --- Tell -----------------------------------------------------------------------------
            if logged or clock() - told_at >= _HEARTBEAT:
                progress.take(unread)
                if not math.isfinite(progress.loss) or state.precision.exhausted:
                    broken = progress.step, progress.loss
                    continue
                now = clock()
                progress.seconds = now - began
                yield Stepped(
                    step=progress.step,
                    loss=progress.loss,
                    lr=state.optimizers[0].param_groups[0]["lr"],
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
        keep_freed(False)
        model.train(was_training)
        if isinstance(model, GPT):
            model.use_lean(False)
