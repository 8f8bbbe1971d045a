"""How long a run is: limits that are known as steps, and steps that fit into the minutes."""

from partwise.errors import ConfigError
from partwise.messages import Notice
from partwise.model.config import ModelConfig
from partwise.model.guarantees import excluded
from partwise.training.config import TrainConfig
from partwise.training.events import Reason
from partwise.training.pieces import check_short
from partwise.training.schedule import warmup_steps


def check_ends(config: TrainConfig) -> None:
    """Refuse a training that never ends, or whose schedule does not know how long it is.

    Raises:
        ConfigError: no limit is set, or only such as cannot be foreseen.
    """
    known = (config.steps, config.epochs, config.tokens, config.minutes)
    if all(limit is None for limit in known):
        if config.target_loss is None and config.patience is None:
            raise ConfigError(
                "nothing ends this training; give steps, epochs, tokens, minutes, target_loss or "
                "patience"
            )
        if config.schedule not in ("constant", "inverse_sqrt"):
            raise ConfigError(
                "schedule={schedule} needs to know how long the training is; also give steps, "
                "epochs, tokens or minutes, or set schedule=constant",
                schedule=config.schedule,
            )
        if config.short_context is not None:
            raise ConfigError(
                "short_context={value} needs to know how long the training is; also give steps, "
                "epochs, tokens or minutes",
                value=config.short_context,
            )


def check_parts(config: TrainConfig, model: ModelConfig) -> None:
    """Refuse parts that do not add up to the whole: of a batch, or of a text.

    Raises:
        ConfigError: the model mixes the texts of a batch, or its context is no multiple of the
            texts that are read first.
    """
    check_short(config, model.context_length)
    reason = excluded("accumulation", model) if config.accumulation > 1 else None
    if reason is not None:
        raise ConfigError(
            "accumulation={accumulation} would train another model than the whole batch "
            "({reason}); give accumulation=1, or another norm",
            accumulation=config.accumulation,
            reason=reason,
        )


def foreseen(
    config: TrainConfig, train_tokens: int, tokens_per_step: int
) -> tuple[int, Reason] | None:
    """The first of the limits that can be counted in steps, and its name.

    Args:
        config: the settings.
        train_tokens: tokens of the training part.
        tokens_per_step: of all texts of a batch.

    Returns:
        Steps and the limit they come from, or None when only minutes or a loss end the run.
    """
    limits: list[tuple[int, Reason]] = []
    if config.steps is not None:
        limits.append((config.steps, "steps"))
    if config.epochs is not None:
        # Rounded up, and at least one step: asked-for epochs are read in full.
        limits.append((_ceil(config.epochs * train_tokens, tokens_per_step), "epochs"))
    if config.tokens is not None:
        limits.append((_ceil(config.tokens, tokens_per_step), "tokens"))
    return min(limits, key=lambda limit: limit[0]) if limits else None


def _ceil(tokens: float, tokens_per_step: int) -> int:
    return max(1, int(-(-tokens // tokens_per_step)))


def shortened(total: int, config: TrainConfig) -> list[Notice]:
    """What to say of a warm-up that is shorter than was asked for."""
    given = warmup_steps(total, config)
    if given == config.warmup_steps:
        return []
    return [
        Notice(
            "warmup_steps={asked} is more than half of {total} steps; warming up over {given}",
            asked=config.warmup_steps,
            total=total,
            given=given,
        )
    ]


def fitted(total: int, config: TrainConfig) -> list[Notice]:
    """What to say once the minutes were found to be `total` steps long."""
    assert config.minutes is not None
    fits = Notice(
        "about {steps} steps fit into {minutes:g} minutes",
        steps=total,
        # The dial's rest of a minute has three places, which no machine keeps.
        minutes=round(config.minutes, 1) if config.minutes >= 1 else float(f"{config.minutes:.2g}"),
    )
    return [fits, *shortened(total, config)]


class Pace:
    """What a step and an evaluation take on this machine, measured as the run goes.

    The first steps of a process are slower (memory is laid out, caches are cold) and do not count.
    """

    _UNCOUNTED = 2

    def __init__(self) -> None:
        self._steps = -self._UNCOUNTED
        self._seconds = 0.0
        self._again_at = 0
        self.evaluation = 0.0

    def stepped(self, seconds: float) -> None:
        """A step took this long, with all that was done between it and the next one."""
        self._steps += 1
        if self._steps > 0:
            self._seconds += seconds

    def renew(self, step: int) -> None:
        """Steps take another time from here on: plan again as soon as that is known."""
        self._steps, self._seconds = -self._UNCOUNTED, 0.0
        self._again_at = step

    def due(self, step: int, elapsed: float, budget: float, evaluated: bool) -> bool:
        """Whether it is time to plan, for the first time or again.

        The first time is when 2 % of the minutes went into steps, or a tenth of them into anything.
        Again after each evaluation, which shows what it takes, and each time that half of the steps
        that were left are done, so that a machine that slows down near the end is noticed in time.
        """
        measured = self._steps >= 2 and (self._seconds >= 0.02 * budget or elapsed >= 0.1 * budget)
        return measured and (evaluated or step >= self._again_at)

    def total(self, step: int, elapsed: float, budget: float, eval_every: int) -> int:
        """Steps of a run that ends `budget` seconds after it began; measures anew from here.

        Args:
            step: steps done.
            elapsed: training time so far (seconds).
            budget: the training time to fill (seconds).
            eval_every: steps between evaluations.
        """
        # The last evaluation comes after the last step.
        left = budget - elapsed - self.evaluation
        each = self._seconds / self._steps + self.evaluation / eval_every
        self._steps, self._seconds = 0, 0.0
        more = max(1, int(left / each))
        self._again_at = step + max(4, more // 2)
        return step + more
