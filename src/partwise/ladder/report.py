"""The report: one HTML file that needs no network, no script and no font.

It reads on a phone, on paper, in the dark and by a screen reader: beside every picture stand its
numbers. What is written in it comes from the figures of the ladder alone; published values appear
only as reference lines and diamonds with their source, and only for the text they belong to.
"""

import math
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources

from partwise.ladder import pictures
from partwise.ladder.parts import label as part_label
from partwise.ladder.pictures import Records, loss, signed, with_error
from partwise.ladder.rungs import (
    PUBLISHED_CORPUS,
    PUBLISHED_SOURCE,
    Rung,
    changes,
    definition,
    written,
)
from partwise.ladder.table import Group, LadderTable
from partwise.messages import language, message


def report(table: LadderTable, records: Records, rungs: Sequence[Rung], extra: str = "") -> str:
    """The whole page, in the reader's language.

    Args:
        table: the figures.
        records: run name -> curves and sample.
        rungs: the definitions of all rungs.
        extra: more sections as HTML, such as the depth experiments.
    """
    by_number = {rung.number: rung for rung in rungs}
    title = _title(table)
    body = [
        f"<header><h1>{escape(title)}</h1>{_lead(table)}</header><main>",
        section(
            message("The ladder"),
            _table(table) + _verdicts(table) + _failures(table) + _costs(table),
        ),
        section(message("Loss curves"), _curves(table, records)),
        section(message("What each part bought"), _waterfall(table)),
        section(message("Parameters"), figure(pictures.parameters(table))),
        section(message("Training against validation"), _gaps(table, records)),
        _variants(table),
        _knock_outs(table),
        extra,
        section(message("Rung by rung"), _rung_by_rung(table, records, by_number)),
        section(message("How this was measured"), _method(table)),
        "</main>",
    ]
    lang = "zh-Hans" if language() == "zh" else "en"
    style = resources.files("partwise.ladder").joinpath("report.css").read_text(encoding="utf-8")
    return (
        f'<!doctype html>\n<html lang="{lang}"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        # The page may load nothing at all, and says so to the browser.
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(title)}</title><style>{style}</style></head><body>"
        + "".join(body)
        + "</body></html>\n"
    )


def paragraph(words: str, kind: str = "") -> str:
    """A paragraph of plain text."""
    mark = f' class="{kind}"' if kind else ""
    return f"<p{mark}>{escape(words)}</p>"


def grid(
    headings: Sequence[str],
    rows: Iterable[tuple[str, Sequence[str]]],
    caption: str,
    numbers: Iterable[int] = (),
) -> str:
    """A table that scrolls sideways by itself on a narrow page.

    Args:
        headings: one a column.
        rows: each a CSS class (or "") and its cells, escaped here; the first one names the row.
        caption: what the table holds.
        numbers: the columns that hold numbers.
    """
    right = set(numbers)
    head = "".join(
        f'<th scope="col"{_right(place in right)}>{escape(words)}</th>'
        for place, words in enumerate(headings)
    )
    lines = []
    for kind, cells in rows:
        first = f'<th scope="row">{escape(cells[0])}</th>'
        rest = "".join(
            f"<td{_right(place in right)}>{escape(cell)}</td>"
            for place, cell in enumerate(cells[1:], start=1)
        )
        lines.append(f"<tr{f' class={chr(34)}{kind}{chr(34)}' if kind else ''}>{first}{rest}</tr>")
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(caption)}">'
        f"<table><caption><span>{escape(caption)}</span></caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def figure(picture: str, words: str = "") -> str:
    """A picture and what to say of it."""
    caption = f"<figcaption>{escape(words)}</figcaption>" if words else ""
    return f"<figure>{picture}{caption}</figure>"


def section(heading: str, inside: str) -> str:
    """A section of the page with its heading."""
    return f"<section><h2>{escape(heading)}</h2>{inside}</section>"


def _right(yes: bool) -> str:
    return ' class="n"' if yes else ""


def _title(table: LadderTable) -> str:
    if table.corpus == PUBLISHED_CORPUS:
        return message("What each part of a Transformer buys")
    return message("What each part of a Transformer buys, on {corpus}", corpus=table.corpus)


def _lead(table: LadderTable) -> str:
    rungs = table.rungs
    lines = []
    if rungs:
        first, last = rungs[0], rungs[-1]
        lines.append(
            paragraph(
                message(
                    "Rung {first} to rung {last} on {corpus}: the validation loss goes from {high} "
                    "to {low} nats a token.",
                    first=first.rung,
                    last=last.rung,
                    corpus=table.corpus,
                    high=loss(first.val_loss.mean),
                    low=loss(last.val_loss.mean),
                ),
                "lead",
            )
        )
    if table.corpus != PUBLISHED_CORPUS:
        lines.append(
            paragraph(
                message(
                    "These figures belong to {corpus}. Published values exist for tiny Shakespeare "
                    "alone, so none are shown.",
                    corpus=table.corpus,
                ),
                "notice",
            )
        )
    whole = [group for group in rungs if group.rows[0].steps != 5000]
    if whole:
        lines.append(
            paragraph(
                message(
                    "Trained for {steps} steps instead of 5,000: these are not the ladder's "
                    "figures.",
                    steps=", ".join(sorted({f"{group.rows[0].steps:,}" for group in whole})),
                ),
                "notice",
            )
        )
    return "".join(lines)


def _table(table: LadderTable) -> str:
    shows_published = any(group.published is not None for group in table.groups)
    headings = [
        message("rung"),
        message("validation loss"),
        message("difference ± standard error"),
        message("sd"),
        message("best"),
        message("seeds"),
    ]
    if shows_published:
        headings.append(message("published (reference)"))
    rows = []
    for group in table.groups:
        step = table.step(group)
        kind = "" if group.variant is None else "variant"
        label = f"{group.rung} {group.name}" if group.variant is None else group.variant
        cells = [
            label,
            loss(group.val_loss.mean),
            "" if step is None else with_error(step),
            "" if group.val_loss.sd is None else f"{group.val_loss.sd:.3f}",
            loss(group.best_val_loss.mean),
            str(len(group.rows)),
        ]
        if shows_published:
            reference = group.variant is None and group.published is not None
            cells.append(f"{group.published:.2f}" if reference else "")
        rows.append((kind, cells))
    caption = message("Each rung and variant, mean over its seeds (nats a token)")
    return grid(headings, rows, caption, range(1, len(headings)))


def _costs(table: LadderTable) -> str:
    headings = [
        message("rung"),
        message("training loss"),
        message("200 batches"),
        message("parameters"),
        message("steps"),
        message("seconds"),
    ]
    rows = []
    for group in table.groups:
        kind = "" if group.variant is None else "variant"
        label = f"{group.rung} {group.name}" if group.variant is None else group.variant
        cost = [
            label,
            loss(group.train_loss.mean),
            loss(group.estimate.mean),
            f"{group.parameters:,}",
            f"{group.rows[0].steps:,}",
            f"{group.seconds:,.1f}",
        ]
        rows.append((kind, cost))
    caption = message("What it cost, and other views of its loss")
    return grid(headings, rows, caption, range(1, len(headings)))


def _verdicts(table: LadderTable) -> str:
    lines = []
    for group in table.rungs:
        step, below = table.step(group), table.below(group)
        if step is not None and below is not None:
            lines.append(
                message(
                    "{below} to {name}: {difference} ({verdict})",
                    below=below.name,
                    name=group.name,
                    difference=with_error(step),
                    verdict=step,
                )
            )
    return _bullets(lines)


def _failures(table: LadderTable) -> str:
    lines = []
    for failure in table.failures:
        label = f"{failure.rung} {failure.name}"
        if failure.variant is not None:
            label += f", {failure.variant}"
        lines.append(
            message(
                "{which}, seed {seed}, has no figure: {reason}",
                which=label,
                seed=failure.seed,
                reason=failure.reason,
            )
        )
    return _bullets(lines)


def _bullets(lines: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>" if lines else ""


def _curves(table: LadderTable, records: Records) -> str:
    words = message(
        "Each line is the mean over the seeds; the shade reaches from the lowest to the highest of "
        "them."
    )
    if any(group.published is not None for group in table.rungs):
        words += " " + message(
            "Dashed lines are published values for reference, not results: {source}.",
            source=PUBLISHED_SOURCE,
        )
    return figure(pictures.loss_curves(table, records), words)


def _waterfall(table: LadderTable) -> str:
    words = message(
        "A bar goes from the loss of the rung below to the loss of its own rung. The whisker is "
        "the 95 % interval of the paired difference; a grey bar is within noise."
    )
    if any(group.published is not None for group in table.rungs):
        words += " " + message("Diamonds mark the published values for reference.")
    return figure(pictures.waterfall(table), words)


def _gaps(table: LadderTable, records: Records) -> str:
    drawn = "".join(
        figure(picture)
        for picture in (pictures.gap(group, records) for group in table.rungs)
        if picture
    )
    lines = []
    for group in table.rungs:
        between = group.val_loss.mean - group.train_loss.mean
        turn = pictures.overfits(group, records)
        words = (
            message(
                "{name}: validation is {gap} above training at the end.",
                name=group.name,
                gap=f"{between:.3f}",
            )
            if between >= 0
            else message(
                "{name}: validation is {gap} below training at the end.",
                name=group.name,
                gap=f"{-between:.3f}",
            )
        )
        if turn is not None:
            words += " " + message(
                "Overfitting starts near step {step}: from there the validation loss rises.",
                step=f"{turn:,.0f}",
            )
        lines.append(f"<li>{escape(words)}</li>")
    return f'<div class="multiples">{drawn}</div><ul>{"".join(lines)}</ul>'


def _variants(table: LadderTable) -> str:
    parts = []
    for rung in table.rungs:
        named = []
        for group in table.variants_of(rung.rung):
            step = table.step(group)
            if step is not None:
                named.append((group.variant or "", step))
        if not named:
            continue
        heading = message("Rung {rung}, {name}", rung=rung.rung, name=rung.name)
        drawn = pictures.differences(named, heading)
        verdicts = "".join(
            f"<li>{escape(f'{label}: {with_error(step)} ({step})')}</li>" for label, step in named
        )
        parts.append(f"<h3>{escape(heading)}</h3>{figure(drawn)}<ul>{verdicts}</ul>")
    if not parts:
        return ""
    intro = message(
        "Each variant was trained from the start with the same seeds as its rung. To the right of "
        "0 it is worse than its rung."
    )
    return section(
        message("Trained without, or with something else"), paragraph(intro) + "".join(parts)
    )


def _knock_outs(table: LadderTable) -> str:
    parts = []
    models = sorted({(one.rung, one.seed) for one in table.silenced})
    for rung, seed in models:
        found = [one for one in table.silenced if (one.rung, one.seed) == (rung, seed)]
        heading = message("Rung {rung}, seed {seed}", rung=rung, seed=seed)
        drawn = pictures.silenced(found, part_label, heading)
        rows = [
            ("", [part_label(one.part), loss(one.val_loss), signed(one.difference)])
            for one in found
        ]
        cells = grid(
            [message("silenced"), message("validation loss"), message("difference")],
            rows,
            heading,
            (1, 2),
        )
        words = escape(message("the same as a table"))
        folded = f"<details><summary>{words}</summary>{cells}</details>"
        parts.append(f"<h3>{escape(heading)}</h3>{figure(drawn)}{folded}")
    if not parts:
        return ""
    intro = message(
        "The trained model with one part silenced: attention, feed-forward or a head adds zero, a "
        "norm passes its input on, positions are zero. Nothing is trained again."
    )
    return section(message("Removed after training"), paragraph(intro) + "".join(parts))


def _rung_by_rung(table: LadderTable, records: Records, rungs: dict[int, Rung]) -> str:
    return "".join(
        _one_rung(group, records, rungs[group.rung], rungs.get(group.rung - 1))
        for group in table.rungs
        if group.rung in rungs
    )


def _one_rung(group: Group, records: Records, rung: Rung, below: Rung | None) -> str:
    heading = f"{rung.number} {rung.name}"
    if below is None:
        pairs = "  ".join(f"{name}={written(value)}" for name, value in definition(rung))
        difference = f"<pre>{escape(pairs)}</pre>"
    else:
        difference = f"<pre>{escape(chr(10).join(map(str, changes(below, rung))))}</pre>"
    text = next((records[row.run].sample for row in group.rows if row.run in records), "")
    sample = ""
    if text:
        caption = message("A sample of what it writes, seed {seed}", seed=group.rows[0].seed)
        sample = f'<p class="soft">{escape(caption)}</p><pre>{escape(text.strip(chr(10)))}</pre>'
    return (
        f'<div class="rung-head"><h3>{escape(heading)}</h3>{paragraph(str(rung.adds))}</div>'
        f"{difference}{sample}"
    )


def _method(table: LadderTable) -> str:
    words = [
        message(
            "The validation loss is the mean over the whole validation split, in evaluation mode: "
            "consecutive windows, the last short one included, every token but the first predicted "
            "once. The last weights are shown, and the best evaluation beside them."
        ),
        message(
            "Every rung is trained with the same seeds, and differences are taken seed by seed. An "
            "interval is the mean difference ± the 97.5 % point of Student's t with n − 1 degrees "
            "of freedom times sd / √n. It holds one comparison at a time: of twenty steps that "
            "change nothing, about one falls outside its interval."
        ),
        message(
            "“200 batches” is the classic estimate, the mean of 200 random validation batches; it "
            "has noise of its own and is shown for comparison."
        ),
    ]
    facts = [(message("text"), table.corpus)]
    facts += [(name, _plain(value)) for name, value in table.machine.items()]
    facts += list(table.versions.items())
    pairs = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts)
    return "".join(map(paragraph, words)) + f"<dl>{pairs}</dl>"


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_plain(inner)}" for name, inner in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    if isinstance(value, float):
        return f"{value:,.4g}" if math.isfinite(value) else str(value)
    return "none" if value is None else str(value)
