"""How far a run has come: all of its state that is neither weights nor optimizer memory."""

from dataclasses import dataclass

import torch
from torch import Tensor

from partwise.training.config import TrainConfig
from partwise.training.events import Evaluated, Finished, Reason
from partwise.training.pieces import piece_length


@dataclass
class Progress:
    """The counters of a run; a checkpoint keeps them, and every number survives JSON exactly.

    Args:
        step: steps done.
        tokens: tokens trained on.
        seconds: training time, counted across resumes.
        val_loss: the last validation loss (nats a token).
        best_val_loss: the lowest one.
        best_step: the step that it was measured at.
        stale: evaluations since then.
        evaluated_at: the step of the last evaluation.
        planned_total: steps that were planned to fill the asked-for minutes.
        whole_from: the step from which texts are whole; None while pieces of them are read.
        loss_sum: sum of the training losses since the last logged step.
        loss_count: their number.
    """

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    val_loss: float | None = None
    best_val_loss: float | None = None
    best_step: int | None = None
    stale: int = 0
    evaluated_at: int = 0
    planned_total: int | None = None
    whole_from: int | None = None
    loss_sum: float = 0.0
    loss_count: int = 0

    @property
    def loss(self) -> float:
        """Mean training loss since the last logged step (nats a token); NaN before the next one."""
        return self.loss_sum / self.loss_count if self.loss_count else float("nan")

    def take(self, losses: list[Tensor]) -> None:
        """Take losses off the device and out of the list; the only moment when the host waits."""
        if losses:
            # One by one: the sum must not depend on how many were waiting.
            for loss in torch.stack(losses).tolist():
                self.loss_sum += loss
            self.loss_count += len(losses)
            losses.clear()

    def pieces(self, total: int | None, config: TrainConfig, context_length: int) -> int | None:
        """Tokens of the pieces that the next step reads; None: whole texts, from here to the end.

        Where a plan for minutes grows, no run goes back to pieces.

        Args:
            total: steps of the whole run, where they are known.
            config: the settings.
            context_length: tokens of a whole text.
        """
        length = piece_length(self.step, total, config, context_length)
        if length is None and self.whole_from is None:
            self.whole_from = self.step
        return length if self.whole_from is None else None

    def judge(self, val_loss: float) -> bool:
        """Take in a validation loss; True when it is the best so far."""
        self.val_loss = val_loss
        self.evaluated_at = self.step
        if self.best_val_loss is not None and val_loss >= self.best_val_loss:
            self.stale += 1
            return False
        self.best_val_loss, self.best_step, self.stale = val_loss, self.step, 0
        return True

    def ended(self, config: TrainConfig, limit: tuple[int, Reason] | None) -> Reason | None:
        """The limit that is met now, apart from the minutes on the clock."""
        if limit is not None and self.step >= limit[0]:
            return limit[1]
        if self.planned_total is not None and limit is None and self.step >= self.planned_total:
            return "minutes"
        target = config.target_loss
        if target is not None and self.val_loss is not None and self.val_loss <= target:
            return "target_loss"
        if config.patience is not None and self.stale >= config.patience:
            return "patience"
        return None

    def evaluated(self, is_best: bool) -> Evaluated:
        """The event that tells what `judge` took in."""
        assert self.val_loss is not None
        assert self.best_val_loss is not None
        assert self.best_step is not None
        return Evaluated(
            step=self.step,
            val_loss=self.val_loss,
            best_val_loss=self.best_val_loss,
            best_step=self.best_step,
            is_best=is_best,
            tokens=self.tokens,
            seconds=self.seconds,
        )

    def finished(self, reason: Reason) -> Finished:
        """The event that ends a run here."""
        return Finished(
            reason=reason,
            step=self.step,
            tokens=self.tokens,
            seconds=self.seconds,
            val_loss=self.val_loss,
            best_val_loss=self.best_val_loss,
            best_step=self.best_step,
        )
