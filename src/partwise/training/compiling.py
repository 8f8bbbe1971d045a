"""Whether the training step, or parts of it, are compiled; and compiling them.

On a CPU the loss and its gradient are C code, where that serves. Else torch's compiler may make it,
which takes as long as a short run, and speeds up what lies between the matrix products: much of a
narrow model and little of a wide one. So what it compiles is a narrow model in a run that is surely
long. How long a run is follows from what its matrices multiply and what this CPU multiplies at
best: not from a clock that runs along, so that the same settings choose the same each time.
"""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from partwise.errors import CompilerError
from partwise.machine import compile_check, peak_flops
from partwise.machine.library import compiled_together
from partwise.messages import Notice
from partwise.model import compiled_attention, compiled_gradient
from partwise.model.compiled_gradient import CompiledGradient
from partwise.model.gpt import GPT
from partwise.training import compiled_muon
from partwise.training.config import TrainConfig
from partwise.training.data import Data
from partwise.training.muon import Muon
from partwise.training.objective import Objective, first_line
from partwise.training.step import Step
from partwise.training.whole_step import (
    WholeStep,
    is_kept,
    is_small,
    unsuited,
    watched,
    whole_step,
)

# Training time from which a CPU compiles (seconds); the compiler takes about a minute.
LONG = 300.0

# The same for a wide model in bfloat16, of whose step less is spared.
LONG_IF_WIDE = 1800.0

# Training time from which C code is compiled; that takes two seconds, once a machine, and spares
# about half of a narrow model's step (benchmarks/parts.py). A run takes a few times longer than is
# foreseen.
LONG_FOR_PARTS = 1.0

# Width of the residual stream up to which a CPU compiles what C code does not serve. Measured with
# torch 2.13 on one core of a Xeon: compiled steps of `small` (width 128) took half as long, those
# of a stack of width 384 took 1.2 times as long. In bfloat16 the latter took a twentieth less,
# which was before attention in C stood between such products; with dropout that was not measured.
NARROW = 128

# Batches that are looked at to see whether all have one shape.
LOOKED_AT = 4


def choose_compile(
    model: nn.Module,
    config: TrainConfig,
    data: Data,
    *,
    device: torch.device,
    dtype: torch.dtype,
    step: int,
    total: int | None,
) -> tuple[bool, Notice | None]:
    """Whether to compile, and in one line why.

    Args:
        model: what is trained.
        config: the settings.
        data: the batches.
        device: where it is trained.
        dtype: what matrix products are computed in.
        step: steps done.
        total: steps of the whole run, where they can be foreseen.

    Returns:
        The choice, and its reason; None where the settings made it, or where it is the usual one.
    """
    if config.compile != "auto":
        return config.compile == "on", None
    shapes = {data.train.batch(step + ahead)[0].shape for ahead in range(LOOKED_AT)}
    if len(shapes) > 1:
        return False, Notice(
            "not compiled: batches differ in shape, and each shape would be compiled anew"
        )
    if device.type == "cuda":
        return True, None
    if device.type != "cpu" or not isinstance(model, GPT) or dtype == torch.float16:
        return False, Notice("not compiled: here that is done when it is asked for (compile=on)")
    parts = model.config
    width = parts.d_model
    drops = parts.dropout or parts.attention_dropout or parts.embedding_dropout
    if width > NARROW and (drops or dtype != torch.bfloat16):
        return False, Notice(
            "not compiled: on a CPU a width of {width} gains little by it (compile=on)",
            width=width,
        )
    left = None if total is None else total - step
    seconds = shortest(model, config, data, dtype=dtype, steps=left)
    if seconds is None:
        return False, Notice(
            "not compiled: the compiler takes a while itself, and how long the run is cannot be "
            "foreseen (compile=on)"
        )
    enough = LONG if width <= NARROW else LONG_IF_WIDE
    if seconds < enough:
        return False, Notice(
            "not compiled: the compiler takes a while itself, which pays in runs from "
            "{enough:.0f} minutes on (compile=on)",
            enough=enough / 60,
        )
    return True, Notice(
        "compiling: that takes about a minute, which {minutes:,.0f} minutes or more of training "
        "win back (compile=off)",
        minutes=seconds / 60,
    )


def shortest(
    model: nn.Module, config: TrainConfig, data: Data, *, dtype: torch.dtype, steps: int | None
) -> float | None:
    """Seconds that `steps` steps take at least, or the minutes of `config`, if they are fewer.

    6 operations for each token and each weight of a linear layer, at this CPU's measured peak; what
    else a step does comes on top.

    Returns:
        None where neither steps nor minutes are known, or nothing was measured in `dtype`.

    Source: Kaplan et al. 2020, "Scaling Laws for Neural Language Models", section 2.1.
    """
    limits = [] if config.minutes is None else [60 * config.minutes]
    peak = peak_flops(torch.device("cpu"), dtype)
    if steps is not None and peak is not None:
        weights = sum(m.weight.numel() for m in model.modules() if isinstance(m, nn.Linear))
        tokens = steps * data.train.batch_size * data.train.context_length
        limits.append(6 * weights * tokens / peak)
    return min(limits, default=None)


class Compiled(NamedTuple):
    """What came of compiling.

    Args:
        step: the step to take.
        notice: one line about it; None where nothing is worth saying.
        seconds: what it took.
    """

    step: Step
    notice: Notice | None
    seconds: float


def foretell(objective: Objective, config: TrainConfig, inputs: Tensor) -> Notice | None:
    """What to say before `compile_step`, where that takes long; arguments as there."""
    model = objective.model
    if not is_small(objective, inputs.shape) or unsuited(objective, config) is not None:
        return None
    if not isinstance(model, GPT) or is_kept(model, config, inputs.shape):
        return None
    return Notice("compiling: each step becomes one function, which takes up to a minute, once")


def compile_step(
    usual: Step,
    objective: Objective,
    optimizers: Sequence[torch.optim.Optimizer],
    config: TrainConfig,
    inputs: Tensor,
    targets: Tensor,
    *others: tuple[Tensor, Tensor],
    clock: Callable[[], float] = time.perf_counter,
) -> Compiled:
    """Compile a small model's step as a whole, and of other models the loss and its gradient.

    Args:
        usual: the step of many operations, which is taken where the compiler fails.
        objective: the loss, eager so far.
        optimizers: what `build_optimizers` made, with the memory of a resumed run.
        config: the settings.
        inputs, targets: a batch (B, T).
        others: one of each other shape that will come.
        clock: seconds that compiling is counted in.
    """
    start = clock()
    step = usual
    check = compile_check(objective.device.type)
    notice: Notice | None = check.reason
    if check.works and is_small(objective, inputs.shape):
        notice = unsuited(objective, config)
        if notice is None:
            try:
                step = whole_step(objective, optimizers, config, usual, inputs.shape)
                notice = _about(step)
            # What a missing or broken compiler raises is not documented and differs by platform.
            except Exception as error:
                notice = Notice(
                    "not compiled: the compiler failed ({reason}); training goes on without it",
                    reason=first_line(error),
                )
    elif check.works:
        for given, expected in ((inputs, targets), *others):
            rows = len(given) // config.accumulation
            notice = objective.compile(given[:rows], expected[:rows], config.label_smoothing)
            if notice is not None:
                break
    return Compiled(step, notice, clock() - start)


def by_gradient(objective: Objective, config: TrainConfig, data: Data, total: int | None) -> bool:
    """Whether C code serves for a step's loss and gradient as a whole (`gradient.c`).

    A function of the settings and of the machine, so that a run that goes on computes as it began;
    such a run is told compile=on or off where it was auto, which tells C code no more than auto.

    Args:
        objective: the loss of a model that is not compiled.
        config: the settings.
        data: the batches.
        total: steps of the whole run, where they can be foreseen.
    """
    model, dtype = objective.model, objective.precision.dtype
    if objective.device.type != "cpu" or not isinstance(model, GPT) or dtype == torch.float16:
        return False
    if config.compile == "on" or config.label_smoothing > 0 or config.accumulation > 1:
        return False
    served = compiled_gradient.serves(model.config, dtype) and compiled_gradient.is_plain(model)
    return served and not watched(model) and _is_long(model, config, data, total)


def suits_whole_step(objective: Objective, config: TrainConfig, shape: torch.Size) -> bool:
    """Whether the compiler would make one function of a step, optimizer and all, which is faster
    for a small model than its gradient in C.

    Args:
        objective, config: as for `by_gradient`.
        shape: of a batch, (B, T).
    """
    return is_small(objective, shape) and unsuited(objective, config) is None


def _is_long(model: GPT, config: TrainConfig, data: Data, total: int | None) -> bool:
    seconds = shortest(model, config, data, dtype=torch.float32, steps=total)
    return seconds is not None and seconds >= LONG_FOR_PARTS


def compile_parts(
    objective: Objective,
    optimizers: Sequence[torch.optim.Optimizer],
    config: TrainConfig,
    data: Data,
    total: int | None,
    whole: bool,
) -> Notice | None:
    """Let a GPT on a CPU compute by C code where that serves, and else in few passes over memory.

    Args:
        objective, config, data, total: as for `by_gradient`.
        optimizers: what `build_optimizers` made.
        whole: what `by_gradient` said.

    Returns:
        In one line what was done, where it is worth saying.
    """
    model = objective.model
    on_cpu = objective.device.type == "cpu" and objective.precision.dtype != torch.float16
    if not isinstance(model, GPT) or not on_cpu or objective.compiled:
        return None
    model.use_lean(True)
    if not _is_long(model, config, data, total):
        return None
    muons = [optimizer for optimizer in optimizers if isinstance(optimizer, Muon)]
    attends = not whole and compiled_attention.serves(model.config)
    try:
        muon, gradient, attention = compiled_together(
            compiled_muon.SOURCE if muons else None,
            compiled_gradient.SOURCE if whole else None,
            compiled_attention.SOURCE if attends else None,
        )
        dtype = objective.precision.dtype
        if gradient is not None and not compiled_gradient.computes_in(gradient, dtype):
            gradient = None
            if compiled_attention.serves(model.config):
                attention = compiled_attention.SOURCE.library()
        if attention is not None:
            compiled_attention.loaded(attention)
        if muon is not None:
            compiled_muon.loaded(muon)
    # A file system may forbid that programs are loaded from it.
    except (CompilerError, OSError) as error:
        return Notice(
            "training goes operation by operation, which takes longer: {reason}", reason=str(error)
        )
    model.use_lean(True, attention)
    for optimizer in muons:
        optimizer.use_library(muon)
    if gradient is None:
        return None
    objective.use_gradient(CompiledGradient(model, gradient, dtype))
    return Notice("the loss and its gradient are one function of C, compiled for this processor")


def _about(step: WholeStep) -> Notice:
    if step.seconds == 0.0:
        return Notice("compiled: each step is one function, which is kept from an earlier run")
    return Notice(
        "compiled: each step is one function; that took {seconds:.0f} s and is kept for other runs",
        seconds=step.seconds,
    )
