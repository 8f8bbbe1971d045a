"""Which picture of the report shows what: the ladder's figures turned into lines and bars."""

import math
from collections.abc import Callable, Mapping, Sequence

from partwise.ladder import charts
from partwise.ladder.charts import Bar, Line
from partwise.ladder.record import Record
from partwise.ladder.statistics import Difference
from partwise.ladder.table import Group, LadderTable, Silenced
from partwise.messages import message

WIDE, NARROW = 860, 340

Records = Mapping[str, Record]


def both(draw: Callable[[int], str]) -> str:
    """A wide and a narrow drawing; the style sheet shows the one that fits."""
    return f'<div class="wide">{draw(WIDE)}</div><div class="narrow">{draw(NARROW)}</div>'


def loss(value: float) -> str:
    """A loss as the tables show it: three decimals."""
    return f"{value:.3f}"


def signed(value: float) -> str:
    """A difference with its sign: −0.182, +0.021."""
    return f"{value:+.3f}".replace("-", "\N{MINUS SIGN}")


def with_error(difference: Difference) -> str:
    """`−0.182 ± 0.008`, the second number the standard error; without it where there is none."""
    if difference.standard_error is None:
        return signed(difference.mean)
    return f"{signed(difference.mean)} ± {difference.standard_error:.3f}"


def mean_curve(group: Group, records: Records, what: str) -> tuple[tuple[float, float], ...]:
    """Mean over the seeds of one curve, at the steps that every seed has.

    Args:
        group: the rung or variant.
        records: run name -> record.
        what: `validation` or `training`.
    """
    tracks = [dict(getattr(records[row.run], what)) for row in group.rows if row.run in records]
    if not tracks:
        return ()
    steps = sorted(set.intersection(*(set(track) for track in tracks)))
    means = ((step, math.fsum(track[step] for track in tracks) / len(tracks)) for step in steps)
    return tuple((float(step), mean) for step, mean in means if math.isfinite(mean))


def loss_curves(table: LadderTable, records: Records) -> str:
    """Validation loss by step, one line a rung, published values as dashed lines."""
    lines = []
    for group in table.rungs:
        points = mean_curve(group, records, "validation")
        if points:
            name = f"{group.name} {loss(points[-1][1])}"
            lines.append(
                Line(name, points, group.rung, group.published, band=_band(group, records))
            )
    description = message(
        "Mean loss over the whole validation split against training steps, one line for each rung"
    )
    return both(
        lambda width: charts.curves(
            lines,
            width=width,
            height=420 if width == WIDE else 320,
            title=message("Validation loss of each rung"),
            description=description,
            x_label=message("steps"),
            y_label=message("validation loss (nats a token)"),
        )
    )


def _band(group: Group, records: Records) -> tuple[tuple[float, float, float], ...]:
    tracks = [dict(records[row.run].validation) for row in group.rows if row.run in records]
    if len(tracks) < 2:
        return ()
    steps = sorted(set.intersection(*(set(track) for track in tracks)))
    return tuple(
        (float(step), min(t[step] for t in tracks), max(t[step] for t in tracks)) for step in steps
    )


def waterfall(table: LadderTable) -> str:
    """What each part bought: from one rung's loss to the next one's."""
    return both(lambda width: waterfall_of_width(table, width))


def waterfall_of_width(table: LadderTable, width: int) -> str:
    """The same, one drawing of that width (pixels)."""
    rows = []
    for group in table.rungs:
        here = group.val_loss.mean
        step, below = table.step(group), table.below(group)
        label = f"{group.rung} {group.name}"
        if step is None or below is None or not step.seeds:
            rows.append(Bar(label, here, here, loss(here), "quiet", reference=group.published))
            continue
        # The bar ends at this rung's mean over all its seeds, and so does the next one begin.
        kind = {"lower": "good", "higher": "bad"}.get(step.verdict, "quiet")
        if step.verdict == "one seed":
            kind = "good" if step.mean < 0 else "bad"
        note = with_error(step)
        if step.verdict == "noise":
            note = message("{difference}, within noise", difference=note)
        low = high = None
        if step.low is not None and step.high is not None:
            low, high = here - (step.mean - step.low), here + (step.high - step.mean)
        start = below.val_loss.mean
        rows.append(Bar(label, start, here, note, kind, low, high, group.published))
    return charts.bars(
        rows,
        width=width,
        title=message("What each part bought"),
        description=message(
            "One bar a rung, from the loss of the rung below to its own; to the left is better"
        ),
        axis=message("validation loss (nats a token)"),
        joined=True,
    )


def parameters(table: LadderTable) -> str:
    """Parameters of each rung on a logarithmic axis."""
    rows = [
        Bar(
            f"{group.rung} {group.name}",
            0,
            group.parameters,
            f"{group.parameters:,}",
            f"c{group.rung}",
        )
        for group in table.rungs
    ]
    return both(
        lambda width: charts.bars(
            rows,
            width=width,
            title=message("Parameters of each rung"),
            description=message("One bar a rung on a logarithmic axis"),
            axis=message("parameters"),
            log=True,
        )
    )


def gap(group: Group, records: Records) -> str:
    """Training against validation loss of one rung, with the lowest validation loss marked."""
    training = mean_curve(group, records, "training")
    validation = mean_curve(group, records, "validation")
    if not training or not validation:
        return ""
    # The first batches stand far above everything else and would flatten the rest.
    training = tuple(point for point in training if point[0] >= validation[0][0]) or training
    lowest = min(validation, key=lambda point: point[1])
    return charts.curves(
        [
            Line(message("training"), training, group.rung, dashed=True),
            Line(message("validation"), validation, group.rung),
        ],
        width=NARROW,
        height=200,
        title=message("Training against validation loss, rung {rung}", rung=group.rung),
        description=message(
            "The dashed line is the mean loss of the training batches, the full one the whole "
            "validation split; the lowest validation loss is at step {step}",
            step=f"{lowest[0]:,.0f}",
        ),
        x_label=message("steps"),
        y_label=message("rung {rung}: {name}", rung=group.rung, name=group.name),
        mark=(lowest[0], message("lowest")),
    )


def overfits(group: Group, records: Records) -> float | None:
    """The step from which the validation loss only got worse, or None where it still falls.

    A rise within one standard deviation of the seeds, or 0.01 where one seed has none, is no rise.
    """
    points = mean_curve(group, records, "validation")
    if len(points) < 2:
        return None
    lowest = min(points, key=lambda point: point[1])
    rise = points[-1][1] - lowest[1]
    return lowest[0] if rise > max(0.01, group.val_loss.sd or 0.0) else None


def differences(named: Sequence[tuple[str, Difference]], title: str) -> str:
    """One bar a variant: its difference to its rung with the 95 % interval."""
    rows = []
    for label, difference in named:
        if not difference.seeds or not math.isfinite(difference.mean):
            continue
        kind = {"lower": "good", "higher": "bad"}.get(difference.verdict, "quiet")
        if difference.verdict == "one seed":
            kind = "good" if difference.mean < 0 else "bad"
        rows.append(
            Bar(
                label,
                0,
                difference.mean,
                with_error(difference),
                kind,
                difference.low,
                difference.high,
            )
        )
    return _from_zero(rows, title)


def silenced(found: Sequence[Silenced], label: Callable[[str], str], title: str) -> str:
    """One bar a silenced part: how much the loss rises without it."""
    rows = [
        Bar(
            label(one.part),
            0,
            one.difference,
            signed(one.difference),
            "bad" if one.difference > 0 else "good",
        )
        for one in found
    ]
    return _from_zero(rows, title)


def _from_zero(rows: list[Bar], title: str) -> str:
    return both(
        lambda width: charts.bars(
            rows,
            width=width,
            title=title,
            description=message("Differences in validation loss; to the left is better"),
            axis=message("difference in validation loss (nats a token)"),
            zero=True,
        )
    )
