"""All that a run is between two steps: weights, optimizer memory, running mean, counters.

Nothing else is carried over, so a checkpoint of it is the whole run.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from partwise.messages import Notice
from partwise.training.average import Average
from partwise.training.checkpoint import Checkpoint, load_weights, weights_of
from partwise.training.config import MACHINE_FIELDS, RECORD_FIELDS, TrainConfig
from partwise.training.objective import Objective
from partwise.training.optim import build_optimizers, pack, unpack
from partwise.training.precision import Precision
from partwise.training.progress import Progress

# Settings that change neither a weight nor when the learning rate falls, or that are recorded as
# what came of them ("auto" is the same only where it means the same).
_HARMLESS = {
    "target_loss",
    "patience",
    "eval_every",
    "eval_tokens",
    *MACHINE_FIELDS,
    *RECORD_FIELDS,
}


class State:
    """A model in training.

    Args:
        model: the model, on the device where it is trained.
        config: the settings.
        precision: what its matrix products are computed in.
    """

    def __init__(self, model: nn.Module, config: TrainConfig, precision: Precision) -> None:
        self.model = model
        self.config = config
        self.precision = precision
        self.optimizers = build_optimizers(model, config)
        self.average = None if config.ema_decay is None else Average(model, config.ema_decay)
        self.progress = Progress()
        self._before: Mapping[str, Any] | None = None

    def checkpoint(self, objective: Objective) -> Checkpoint:
        """This moment, to be saved before the next step changes it."""
        weights = weights_of(self.model)
        tensors, plain = pack(self.model, self.optimizers)
        scaler = self.precision.scaler
        return Checkpoint(
            step=self.progress.step,
            weights=weights,
            averaged=None if self.average is None else {**weights, **self.average.tensors()},
            optimizer=tensors,
            state={
                "progress": dataclasses.asdict(self.progress),
                "optimizer": plain,
                "scaler": None if scaler is None else scaler.state_dict(),
                "settings": dataclasses.asdict(self.config),
                "circumstances": circumstances(objective),
            },
        )

    def restore(self, checkpoint: Checkpoint) -> None:
        """Be again what `checkpoint` was.

        Raises:
            RunError: it belongs to another model or optimizer.
        """
        load_weights(self.model, checkpoint.weights)
        unpack(self.model, self.optimizers, checkpoint.optimizer, checkpoint.state["optimizer"])
        if self.average is not None:
            # A run that kept no mean so far starts one here.
            self.average.load(checkpoint.averaged or checkpoint.weights)
        scaler = checkpoint.state["scaler"]
        if self.precision.scaler is not None and scaler is not None:
            self.precision.scaler.load_state_dict(scaler)
        self.progress = Progress(**checkpoint.state["progress"])
        before, now = checkpoint.state["settings"].get("minutes"), self.config.minutes
        if before != now and self.progress.planned_total is not None:
            # Until it is measured how many steps fill the new minutes: as many more as they are, so
            # that the rate does not jump back to its peak.
            planned = round(self.progress.planned_total * now / before) if before and now else None
            self.progress.planned_total = planned
        self._before = checkpoint.state

    def changes(self, objective: Objective) -> Notice | None:
        """What is not as it was when the checkpoint was written, if that can change the result."""
        if self._before is None:
            return None
        settings = dataclasses.asdict(self.config)
        now = {name: value for name, value in settings.items() if name not in _HARMLESS}
        now.update(circumstances(objective))
        before = {**self._before["settings"], **self._before["circumstances"]}
        changed = [
            f"{name} {before[name]} → {value}"
            for name, value in now.items()
            if name in before and before[name] != value
        ]
        if not changed:
            return None
        return Notice(
            "resumed with {changes}: from here on the run differs from one that never stopped",
            changes=", ".join(changed),
        )


def circumstances(objective: Objective) -> dict[str, Any]:
    """What, besides the settings, decides the last bits of a result."""
    return {
        "torch": torch.__version__,
        "device": objective.device.type,
        "dtype": objective.precision.name,
        "compiled": objective.compiled,
        "in_c": objective.in_c,
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
    }
