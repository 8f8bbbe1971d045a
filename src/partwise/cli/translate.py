"""`partwise translate PAIRS` trains a translator; `partwise translate RUN --text "…"` asks it."""

import dataclasses
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from partwise.cli import flags
from partwise.cli.parser import Parser, Said
from partwise.cli.screen import progress, remark, say, table, visible
from partwise.cli.train import SHORT
from partwise.errors import UsageError
from partwise.messages import Notice, message
from partwise.model.seq2seq_config import Seq2SeqConfig
from partwise.model.seq2seq_presets import SEQ2SEQ_PRESETS
from partwise.sampling.search_config import SearchConfig
from partwise.settings import option
from partwise.text.pair_config import PairConfig
from partwise.training.config import TrainConfig
from partwise.translation.choices import fitted, usual

if TYPE_CHECKING:
    from partwise.translation.folder import Translation
    from partwise.translation.score import Score
    from partwise.translation.shape import Shape

# Held-out pairs that are shown at the end of a training.
SHOWN = 5

SYSTEMS = {
    "encoder-decoder": Notice("encoder-decoder"),
    "decoder-only": Notice("decoder-only model"),
    "copy": Notice("copying the source"),
}


@dataclass(frozen=True)
class TranslateFlags:
    """What `partwise translate` can be told beside the settings of model, training and pairs."""

    text: tuple[str, ...] = option((), "translate this with RUN; - reads lines of standard input")
    align: str | None = option(
        None, "also draw what the decoder looked at, as an SVG picture in this file"
    )
    layer: int | None = option(None, "decoder block whose weights are drawn, from 0; none: all")
    head: int | None = option(None, "head whose weights are drawn, from 0; none: all")
    score: bool = option(False, "score RUN on its held-out pairs")
    resume: bool = option(False, "go on with the training of RUN where it stopped")
    pairs: str | None = option(None, "with --resume: where the pairs are now, if they were moved")
    preset: str | None = option(None, "model to train; none: one that fits the pairs")
    decoder_only: bool = option(
        False, "train a decoder alone of the same size, on rows of source and target"
    )
    compare: bool = option(
        False, "train both, one after the other, and score them on the same held-out pairs"
    )
    name: str | None = option(None, "name of the run; none: made from the pairs and the date")
    runs_dir: str = option("runs", "folder that holds the runs")
    which: Literal["best", "last"] = option(
        "best", "the weights with the lowest validation loss, or the last ones"
    )
    quiet: bool = option(False, "print translations, or the run's folder, and nothing else")
    json: bool = option(False, "print JSON: one object, or an event a line while training")


def declare(parser: Parser) -> None:
    """PAIRS or RUN, and every setting."""
    begin = usual("")
    parser.place(
        "PAIRS|RUN",
        message(
            "a file with two columns and a tab between them, gettext:fr or another language, a "
            "task (reverse, sort, dates), or a trained translator's folder or name"
        ),
        folder=True,
    )
    parser.form(
        "PAIRS",
        message(
            "train on a file with two columns and a tab between them, on gettext:fr or another "
            "language, or on a task: reverse, sort, dates"
        ),
    )
    parser.form('RUN --text "…"', message("translate with a trained one"))
    parser.form("RUN --resume", message("train it on"))
    flags.add(
        parser,
        "",
        TranslateFlags,
        message("what to do"),
        known={"preset": tuple(SEQ2SEQ_PRESETS)},
    )
    flags.add(parser, "", SearchConfig, message("how the best translation is looked for"))
    flags.add(parser, "train", TrainConfig, message("training"), base=begin.train, short=SHORT)
    flags.add(
        parser,
        "model",
        Seq2SeqConfig,
        message("model"),
        base=begin.model,
        leave_out=["vocab_size"],
    )
    flags.add(parser, "data", PairConfig, message("pairs"))


def run(said: Said) -> int:
    """Train, or translate.

    Raises:
        UsageError: nothing is named, or flags that do not go together.
    """
    asked = flags.given(said, "", TranslateFlags)
    search = flags.given(said, "", SearchConfig)
    if not said.places:
        raise UsageError(
            "name the PAIRS to learn, or the RUN to translate with: {what}",
            what=message(
                "a file with two columns and a tab between them, gettext:fr or another language, "
                "a task (reverse, sort, dates), or a trained translator's folder or name"
            ),
        )
    named = said.places[0]
    needs_run = asked.text or asked.score or asked.resume or asked.align is not None
    if not needs_run and not _is_run(named, asked.runs_dir):
        return _train(named, asked, search, said)

    from partwise.run import find
    from partwise.translation.folder import Translation

    found = Translation.open(find(named, asked.runs_dir))
    changes = flags.overrides(said, "train", TrainConfig)
    if asked.resume:
        return _resume(found, asked, search, changes)
    changes |= flags.overrides(said, "model", Seq2SeqConfig)
    changes |= flags.overrides(said, "data", PairConfig)
    if changes or asked.preset is not None or asked.compare or asked.decoder_only:
        raise UsageError(
            "{run} is trained already; go on with --resume, or name the pairs for a new one",
            run=found.path,
        )
    if asked.align is not None:
        return _align(found, asked, search)
    if asked.score:
        return _score([found], asked, search)
    if not asked.text:
        raise UsageError(
            'say what to translate: partwise translate {run} --text "…", or --text - for standard '
            "input",
            run=found.path,
        )
    return _translate(found, asked, search)


def resumed(
    path: Path, changes: dict[str, Any], *, pairs: str | None, quiet: bool, as_json: bool
) -> int:
    """`partwise resume RUN`, of a translator.

    Args:
        path: its folder.
        changes: settings of its training that are others from here on.
        pairs: where the pairs are now, if they were moved.
        quiet, as_json: as the flags say.

    Returns:
        The exit status.
    """
    from partwise.translation.folder import Translation

    asked = TranslateFlags(resume=True, pairs=pairs, quiet=quiet, json=as_json)
    return _resume(Translation.open(path), asked, SearchConfig(), changes)


def _is_run(name: str, runs_dir: str) -> bool:
    """Whether a folder of runs, or a path, holds a run of that name, and no file is meant."""
    if Path(name).is_file():
        return False
    return any((folder / "run.toml").is_file() for folder in (Path(name), Path(runs_dir) / name))


def _train(pairs: str, asked: TranslateFlags, search: SearchConfig, said: Said) -> int:
    changes = {
        "model": flags.overrides(said, "model", Seq2SeqConfig),
        "train": flags.overrides(said, "train", TrainConfig),
    }
    begin = usual(pairs, asked.preset)
    model = flags.layered(Seq2SeqConfig, begin.model, changes["model"])
    train = flags.layered(TrainConfig, begin.train, changes["train"])
    data = flags.given(said, "data", PairConfig)

    # Everything that was said makes sense; only now is torch worth its second.
    from partwise.run.places import require_place
    from partwise.text.pair_prepare import prepare_pairs
    from partwise.translation.shape import decoder_alone, longest, with_vocabulary

    second = None if asked.name is None else f"{asked.name}-decoder-only"
    for name in (asked.name, second if asked.compare else None):
        require_place(name, asked.runs_dir)
    prepared = prepare_pairs(pairs, data, longest=longest(model))
    two = with_vocabulary(model, prepared.tokenizer.vocab_size)
    assert isinstance(two, Seq2SeqConfig)
    shapes: list[tuple[str | None, Shape]] = [(asked.name, two)]
    if asked.decoder_only:
        shapes = [(asked.name, decoder_alone(two))]
    elif asked.compare:
        shapes.append((second, decoder_alone(two)))

    from partwise.translation.folder import Translation

    made = []
    for name, shape in shapes:
        settings, notices = fitted(train, set(changes["train"]), begin.name, shape)
        one = Translation.create(
            asked.runs_dir, name, pairs, shape, settings, data, prepared=prepared
        )
        made.append(one)
        status = _watch(one, asked, notices, resume=False)
        if status is not None:
            return status
    return _score(made, asked, search, after_training=True)


def _resume(
    found: "Translation", asked: TranslateFlags, search: SearchConfig, changes: dict[str, Any]
) -> int:
    settings = flags.layered(TrainConfig, found.record.train, changes) if changes else None
    status = _watch(found, asked, [], resume=True, settings=settings)
    return _score([found], asked, search, after_training=True) if status is None else status


def _watch(
    one: "Translation",
    asked: TranslateFlags,
    notices: Sequence[Notice],
    *,
    resume: bool,
    settings: TrainConfig | None = None,
) -> int | None:
    """Draw a training; the exit status if it was interrupted, else None."""
    from partwise.cli.follow import watch
    from partwise.cli.view import Opened
    from partwise.training.events import Said as Line

    interrupted, status = watch(
        Opened(one.name, one.path),
        lambda stop: one.train(resume, stop, settings=settings, pairs=asked.pairs),
        [Line(notice) for notice in notices],
        quiet=asked.quiet,
        as_json=asked.json,
    )
    if not interrupted:
        return None
    if asked.quiet:
        say(one.path)
    elif not asked.json:
        say(message("go on with: partwise translate {run} --resume", run=one.path))
    return status


def _score(
    made: Sequence["Translation"],
    asked: TranslateFlags,
    search: SearchConfig,
    *,
    after_training: bool = False,
) -> int:
    """Score translators on the same held-out pairs, beside copying."""
    from partwise.translation.score import unscored

    rows: list[Score] = []
    for one in made:
        with progress(message("translating"), quiet=asked.quiet or asked.json) as report:
            own, copy = one.score(search, which=asked.which, report=report)
        rows.append(own)
    rows.append(copy)
    last = made[0]
    if asked.json:
        runs = [str(one.path) for one in made]
        scores = [dataclasses.asdict(score) for score in rows]
        say(
            json.dumps(
                {"event": "scored", "runs": runs, "search": vars(search), "scores": scores},
                ensure_ascii=False,
            )
        )
        return 0
    if asked.quiet and after_training:
        for one in made:
            say(one.path)
        return 0
    say()
    table(
        [message("translated by"), "BLEU", "chrF", message("exact")],
        [_row(score) for score in rows],
        right=[1, 2, 3],
    )
    reason = unscored()
    if reason is not None:
        remark(reason)
    elif rows[0].signature is not None:
        say(
            message(
                "{pairs} held-out pairs, beam of {beam}; sacreBLEU {signature}",
                pairs=f"{rows[0].pairs:,}",
                beam=search.beam,
                signature=rows[0].signature,
            )
        )
    _show_some(last)
    say(message('translate with: partwise translate {run} --text "…"', run=last.path))
    return 0


def _row(score: "Score") -> list[str]:
    numbers = ["-" if value is None else f"{value:.1f}" for value in (score.bleu, score.chrf)]
    return [str(SYSTEMS[score.system]), *numbers, f"{score.exact:.1%}"]


def _show_some(one: "Translation") -> None:
    """A few held-out sources with their translation and the given one, of middling length."""
    pairs = one.test_pairs()
    order = sorted(range(len(pairs)), key=lambda place: len(pairs[place][0]))
    step = max(1, len(order) // (SHOWN + 1))
    written = one.translations()
    for place in order[step::step][:SHOWN]:
        source, given = pairs[place]
        say()
        say(f"  {visible(source)}")
        say(f"  → {visible(written[place])}")
        if written[place] != given:
            say(message("    given: {text}", text=visible(given)))
    say()


def _translate(found: "Translation", asked: TranslateFlags, search: SearchConfig) -> int:
    lines = _lines(asked.text)
    with progress(message("translating"), quiet=asked.quiet or asked.json) as report:
        written = found.translate(lines, search, which=asked.which, report=report)
    if asked.json:
        both = [{"source": a, "translation": b} for a, b in zip(lines, written, strict=True)]
        say(json.dumps({"schema": 1, "run": str(found.path), "texts": both}, ensure_ascii=False))
        return 0
    for line in written:
        say(line)
    return 0


def _align(found: "Translation", asked: TranslateFlags, search: SearchConfig) -> int:
    from partwise.storage import try_output, write_output
    from partwise.translation.looking import alignment_picture

    lines = _lines(asked.text)
    if len(lines) != 1:
        raise UsageError(
            "--align draws one text and {count} are given; give one with --text", count=len(lines)
        )
    assert asked.align is not None
    if not asked.align or Path(asked.align).is_dir():
        raise UsageError("--align={path} is a folder; give the name of a file", path=asked.align)
    try_output(Path(asked.align))
    written, picture = alignment_picture(
        found, lines[0], layer=asked.layer, head=asked.head, config=search, which=asked.which
    )
    write_output(Path(asked.align), picture.encode("utf-8"))
    if asked.json:
        report = {"schema": 1, "run": str(found.path), "translation": written, "out": asked.align}
        say(json.dumps(report, ensure_ascii=False))
        return 0
    say(written)
    if not asked.quiet:
        remark(message("the picture is in {path}", path=asked.align))
    return 0


def _lines(texts: Sequence[str]) -> list[str]:
    """What to translate; each line of standard input where that is asked for.

    Raises:
        UsageError: standard input is not UTF-8.
    """
    found: list[str] = []
    for text in texts:
        if text != "-":
            found.append(text)
            continue
        try:
            piped = sys.stdin.buffer.read().decode("utf-8-sig")
        except UnicodeDecodeError as problem:
            raise UsageError(
                "standard input is not UTF-8 at byte {place:,}; save it as UTF-8",
                place=problem.start,
            ) from problem
        found += piped.splitlines()
    return found
