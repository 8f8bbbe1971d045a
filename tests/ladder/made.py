"""A ladder's figures made up for tests of what is done with them."""

from pathlib import Path

from partwise.ladder.record import Record
from partwise.ladder.rungs import published, rung
from partwise.ladder.table import LadderTable, Row, Silenced

LOSSES = {1: 2.40, 2: 2.27, 3: 2.26, 4: 2.09, 5: 2.07}

SAMPLE = "\nKING <b>RICHARD</b>:\n& \"so\" 'on' </pre><script>alert(1)</script>\n"


def row(number: int, seed: int, variant: str | None, loss: float, corpus: str) -> Row:
    words = "" if variant is None else "-" + variant.replace(" ", "-")
    return Row(
        rung=number,
        name=rung(number).name,
        variant=variant,
        seed=seed,
        steps=5000,
        seconds=3.0 * number,
        tokens_per_second=1e5,
        parameters=7553 * number,
        train_loss=loss - 0.05,
        val_loss=loss,
        best_val_loss=loss - 0.001,
        estimate=loss + 0.004,
        published=None if variant else published(number, corpus),
        run=f"rung-{number}{words}-seed-{seed}",
    )


def record(one: Row) -> Record:
    steps = range(500, 5001, 500)
    return Record(
        row=one,
        validation=tuple((step, one.val_loss + 1 - step / 5000) for step in steps),
        training=tuple((step, one.train_loss + 1.1 - step / 5000) for step in steps),
        sample=SAMPLE,
    )


def ladder(
    corpus: str = "tinyshakespeare",
    seeds: int = 3,
    variants: dict[str, float] | None = None,
    silenced: tuple[Silenced, ...] = (),
) -> tuple[LadderTable, dict[str, Record]]:
    """Rungs 1 to 5, and variants of rung 5 by what they lose or gain."""
    rows = []
    for seed in range(1, seeds + 1):
        # Seeds differ by 0.02, and the step between two rungs hardly: that is what pairing is for.
        luck = 0.02 * seed
        for number, loss in LOSSES.items():
            rows.append(row(number, seed, None, loss + luck + 0.001 * (seed * number % 3), corpus))
        for variant, change in (variants or {}).items():
            rows.append(row(5, seed, variant, LOSSES[5] + luck + change, corpus))
    table = LadderTable(
        corpus=corpus,
        folder=Path("ladders/made"),
        machine={"cpu": "<cpu & co>", "cores": 2, "gpu": None},
        versions={"partwise": "0.1.0"},
        rows=tuple(rows),
        silenced=silenced,
    )
    return table, {one.run: record(one) for one in rows}
