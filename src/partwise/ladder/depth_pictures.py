"""Pictures of the depth experiments, and their section of the report."""

import math
from collections.abc import Callable, Sequence
from functools import partial

from partwise.ladder.charts import Line, curves
from partwise.ladder.deep import Depth, Racer, Stack, StackNorm
from partwise.ladder.pictures import both, loss
from partwise.ladder.report import figure, grid, paragraph, section
from partwise.messages import message


def depth_section(depth: Depth) -> str:
    """The report's section: gradients, tokens and what blocks add, by layer; and the race."""
    parts = [
        paragraph(
            message(
                "A stack of {layers} blocks before any training reads a text once, forward and "
                "backward. Full lines have the residual connection, dashed ones have not.",
                layers=max((len(one.gradient) for one in depth.stacks), default=0),
            )
        )
    ]
    for initialisation in dict.fromkeys(one.initialisation for one in depth.stacks):
        found = [one for one in depth.stacks if one.initialisation == initialisation]
        heading = message("Initialisation {name}", name=initialisation)
        pictures = (
            both(partial(gradient_picture, found)),
            both(partial(similarity_picture, found)),
            both(partial(contribution_picture, found)),
        )
        parts.append(f"<h3>{heading}</h3>" + "".join(map(figure, pictures)))
        parts.append(_table(found, heading))
    if depth.racers:
        words = message(
            "Trained alike from the same start but for the place of the norms, at a constant rate "
            "without warm-up and clipping."
        )
        parts.append(figure(both(partial(race_picture, depth.racers)), words))
        rows = [
            (
                "",
                [
                    f"{one.initialisation}, {_norm_name(one.norm)}",
                    loss(one.steps[-1][1]) if one.steps else "",
                    "" if one.val_loss is None else loss(one.val_loss),
                ],
            )
            for one in depth.racers
        ]
        headings = [message("stack"), message("training loss"), message("validation loss")]
        caption = message("A short race: pre-norm against post-norm")
        parts.append(grid(headings, rows, caption, (1, 2)))
    return section(message("What depth does before any training"), "".join(parts))


def _table(found: Sequence[Stack], caption: str) -> str:
    layers = len(found[0].gradient)
    places = (0, layers // 2 - 1, layers - 1)
    headings = [
        message("stack"),
        *(message("gradient, layer {layer}", layer=place + 1) for place in places),
        message("similarity, layer {layer}", layer=layers),
        message("loss"),
    ]
    rows = [
        (
            "",
            [
                name(one.residual, one.norm),
                *(_few(one.gradient[place]) for place in places),
                _few(one.similarity[-1], "{:.3f}"),
                _few(one.loss, "{:.2f}"),
            ],
        )
        for one in found
    ]
    return grid(headings, rows, caption, range(1, len(headings)))


def _few(value: float, form: str = "{:.2g}") -> str:
    return form.format(value) if math.isfinite(value) else message("overflow")


def name(residual: bool, norm: StackNorm) -> str:
    """A stack's switches in words."""
    norms = {
        "none": message("no norm"),
        "pre": message("pre-norm"),
        "post": message("post-norm"),
    }
    if residual:
        return message("{norm}, residual", norm=norms[norm])
    return message("{norm}, no residual", norm=norms[norm])


def gradient_picture(found: Sequence[Stack], width: int, height: int = 320) -> str:
    """Gradient size by layer, on a logarithmic axis; zeros and overflows have no point."""
    return curves(
        _lines(found, lambda one: one.gradient, positive=True),
        width=width,
        height=height,
        title=message("Gradient size by layer"),
        description=message(
            "The norm of the loss's gradient with respect to each block's output, before training"
        ),
        x_label=message("layer"),
        y_label=message("gradient norm"),
        y_log=True,
    )


def similarity_picture(found: Sequence[Stack], width: int, height: int = 320) -> str:
    """Token similarity by layer as an SVG."""
    return curves(
        _lines(found, lambda one: one.similarity, positive=False),
        width=width,
        height=height,
        title=message("Token similarity by layer"),
        description=message("The mean cosine between two tokens of a text, before training"),
        x_label=message("layer"),
        y_label=message("mean cosine"),
    )


def contribution_picture(found: Sequence[Stack], width: int, height: int = 320) -> str:
    """What each block adds beside the stream that enters it, on a logarithmic axis."""
    return curves(
        _lines([one for one in found if one.residual], lambda one: one.contribution, positive=True),
        width=width,
        height=height,
        title=message("What a block adds beside the stream"),
        description=message(
            "The size of what each block adds over the size of the residual stream that enters it"
        ),
        x_label=message("layer"),
        y_label=message("added / stream"),
        y_log=True,
    )


def race_picture(found: Sequence[Racer], width: int, height: int = 320) -> str:
    """The race's training losses as an SVG."""
    lines = [
        Line(
            name=f"{one.initialisation}, {_norm_name(one.norm)}",
            points=tuple((float(step), loss) for step, loss in one.steps if math.isfinite(loss)),
            colour=place + 1,
            dashed=one.norm == "post",
        )
        for place, one in enumerate(found)
    ]
    return curves(
        lines,
        width=width,
        height=height,
        title=message("A short race: pre-norm against post-norm"),
        description=message("Training loss of deep stacks that differ in their norms' place alone"),
        x_label=message("step"),
        y_label=message("training loss (nats)"),
    )


def _norm_name(norm: StackNorm) -> str:
    return message("pre-norm") if norm == "pre" else message("post-norm")


def _lines(
    found: Sequence[Stack], values: Callable[[Stack], tuple[float, ...]], positive: bool
) -> list[Line]:
    lines = []
    for place, one in enumerate(found):
        points = tuple(
            (float(layer + 1), value)
            for layer, value in enumerate(values(one))
            if math.isfinite(value) and (value > 0 or not positive)
        )
        lines.append(
            Line(name(one.residual, one.norm), points, place % 6 + 1, dashed=not one.residual)
        )
    return lines
