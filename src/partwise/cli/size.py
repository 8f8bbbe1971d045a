"""`partwise size`: what a model costs, before anything is trained."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from partwise.cli import flags
from partwise.cli.figures import memory, parts, time, work
from partwise.cli.parser import Parser, Said
from partwise.cli.screen import say, table
from partwise.errors import UsageError
from partwise.messages import message
from partwise.model.accelerators import ACCELERATORS
from partwise.model.config import ModelConfig
from partwise.model.parameters import count_parameters
from partwise.model.presets import ALIASES, preset, preset_names
from partwise.model.seq2seq_config import Seq2SeqConfig
from partwise.model.seq2seq_parameters import seq2seq_parameters
from partwise.model.seq2seq_presets import SEQ2SEQ_PRESETS, seq2seq_preset
from partwise.model.sizing import Size, Workload, size
from partwise.settings import nearest, option, options, plain

Shape = ModelConfig | Seq2SeqConfig

# What an encoder-decoder has and a GPT has not.
ENCODER = ("n_encoder_layers", "share_embeddings")

# A figure of a part that a model has not.
NOTHING = ("0", "0 B")


@dataclass(frozen=True)
class SizeFlags:
    """What `partwise size` can be told beside the model and its workload."""

    compare: bool = option(False, "the models side by side, one figure a line")
    diff: bool = option(False, "the settings in which two models differ, one a line")
    runs_dir: str = option("runs", "folder that holds the runs")
    json: bool = option(False, "print one JSON object instead of lines")


def declare(parser: Parser) -> None:
    """Models by name, settings that change them, and what they are to do."""
    names = (*preset_names(), *ALIASES, *SEQ2SEQ_PRESETS)
    parser.place("PRESET_OR_RUN", "", many=True, choices=names)
    parser.form("PRESET_OR_RUN …", message("presets and runs; without any, all presets are listed"))
    parser.form("--compare A B …", message("the models side by side, one figure a line"))
    parser.form("--diff A B", message("the settings in which two models differ, one a line"))
    flags.add(parser, "", SizeFlags, message("what to do"))
    # The table ignores case, spaces and dashes; a shell wants a word without spaces.
    chips = [name.replace(" ", "-") for name in ACCELERATORS]
    flags.add(
        parser,
        "",
        Workload,
        message("what the model is to do, and on what"),
        known={"accelerator": chips},
    )
    flags.add(parser, "model", ModelConfig, message("changes to the model"), defaults=False)
    flags.add(
        parser,
        "model",
        Seq2SeqConfig,
        message("changes to an encoder-decoder, besides those that it has in common"),
        defaults=False,
        leave_out=tuple(options(ModelConfig)),
    )


def run(said: Said) -> int:
    """Size, compare or tell the difference.

    Raises:
        UsageError: the wrong number of models for what is asked.
    """
    asked = flags.given(said, "", SizeFlags)
    workload = flags.given(said, "", Workload)
    names = said.places or (["small"] if _changes(said, ModelConfig) else [])
    models = {name: _changed(said, _model(name, asked.runs_dir)) for name in names}
    if asked.diff:
        if len(names) != 2:
            raise UsageError("--diff needs two models, and {count} are named", count=len(names))
        _show_difference(models, names, as_json=asked.json)
        return 0
    if not names:
        _show_presets(as_json=asked.json)
        return 0
    speed = _speed_here(workload)
    sizes = {name: size(model, workload, **speed) for name, model in models.items()}
    if asked.json:
        found = [{"schema": 1, "name": name, **each.as_dict()} for name, each in sizes.items()]
        several = {"schema": 1, "models": found}
        say(json.dumps(several if len(found) > 1 else found[0], ensure_ascii=False, indent=2))
    elif asked.compare:
        _show_side_by_side(sizes)
    else:
        for number, (name, each) in enumerate(sizes.items()):
            if number:
                say()
            _show(name, each)
    return 0


def _model(name: str, runs_dir: str) -> Shape:
    """The model of a preset, or of a run by its folder or name."""
    if name in preset_names() or name in ALIASES:
        return preset(name)
    if name in SEQ2SEQ_PRESETS:
        return seq2seq_preset(name)
    if Path(name).is_dir() or (Path(runs_dir) / name).is_dir():
        from partwise.run import Run, find
        from partwise.run.record import TRANSLATION, kind_of

        path = find(name, runs_dir)
        if kind_of(path) == TRANSLATION:
            from partwise.translation.record import read_translation

            return read_translation(path).model
        return Run.open(path).record.model
    near = nearest(name.lower(), SEQ2SEQ_PRESETS)
    return seq2seq_preset(name) if near in SEQ2SEQ_PRESETS else preset(name)


def _changes(said: Said, kind: type[Shape]) -> dict[str, object]:
    """What the command line changes; settings that such a model has not are among it, as None."""
    typed = {name.removeprefix("model.") for name in said.words if name.startswith("model.")}
    foreign = dict.fromkeys(sorted(typed - set(options(kind))))
    return {**foreign, **flags.overrides(said, "model", kind)}


def _changed(said: Said, model: Shape) -> Shape:
    if isinstance(model, Seq2SeqConfig):
        return flags.layered(Seq2SeqConfig, model, _changes(said, Seq2SeqConfig))
    return flags.layered(ModelConfig, model, _changes(said, ModelConfig))


def _speed_here(workload: Workload) -> dict[str, float]:
    if workload.accelerator is not None:
        return {}
    from partwise.machine import measured

    speed = measured()
    flops = speed.bfloat16_flops if workload.dtype == "bfloat16" else speed.float32_flops
    return {"here_flops": flops, "here_bandwidth": speed.memory_bandwidth}


def _show_presets(*, as_json: bool) -> None:
    found: dict[str, Shape] = {name: preset(name) for name in preset_names()}
    found.update(SEQ2SEQ_PRESETS)
    if as_json:
        presets = [
            {"name": name, "parameters": _count(model), "model": plain(model)}
            for name, model in found.items()
        ]
        say(json.dumps({"schema": 1, "presets": presets}, ensure_ascii=False, indent=2))
        return
    headings = [
        message("preset"),
        message("parameters"),
        message("layers"),
        message("width"),
        message("heads"),
        message("context"),
        message("vocabulary"),
    ]
    rows = [
        (
            name,
            f"{_count(model):,}",
            _layers(model),
            model.d_model,
            model.n_heads,
            f"{model.context_length:,}",
            f"{model.vocab_size:,}",
        )
        for name, model in found.items()
    ]
    table(headings, rows, right=range(1, 7))


def _count(model: Shape) -> int:
    if isinstance(model, Seq2SeqConfig):
        return sum(seq2seq_parameters(model).values())
    return count_parameters(model)


def _layers(model: Shape) -> str:
    if isinstance(model, Seq2SeqConfig):
        return f"{model.n_encoder_layers} + {model.n_decoder_layers}"
    return str(model.n_layers)


def _show_difference(models: Mapping[str, Shape], names: list[str], *, as_json: bool) -> None:
    alike = len({type(model) for model in models.values()}) == 1
    left, right = (plain(models[name]) if alike else _as_decoder(models[name]) for name in names)
    # What only one of them has, such as the layers of an encoder, is null in the other.
    differing = [
        name for name in dict.fromkeys([*left, *right]) if left.get(name) != right.get(name)
    ]
    if as_json:
        found = {name: [left.get(name), right.get(name)] for name in differing}
        report = {"schema": 1, "models": names, "differences": found}
        say(json.dumps(report, ensure_ascii=False, indent=2))
    elif differing:
        rows = [(name, _word(left.get(name)), _word(right.get(name))) for name in differing]
        table(["", *names], rows)
    else:
        say(message("they do not differ"))


def _as_decoder(model: Shape) -> dict[str, object]:
    """A model's settings in the words of a GPT's: of an encoder-decoder, its decoder's and more."""
    if isinstance(model, ModelConfig):
        return plain(model)
    own = {name: value for name, value in plain(model).items() if name in ENCODER}
    return {**plain(model.decoder), **own}


def _show(name: str, found: Size) -> None:
    say(name)
    for block in (parts(found), work(found), memory(found), time(found)):
        table((), [line for line in block if line[1] not in NOTHING], right=[1])
        say()
    for notice in found.notices():
        say(notice)


def _show_side_by_side(sizes: Mapping[str, Size]) -> None:
    columns = [[*parts(each), *work(each), *memory(each), *time(each)] for each in sizes.values()]
    # The same lines for each model, so that they can be laid side by side.
    rows = [(lines[0][0], *(value for _, value in lines)) for lines in zip(*columns, strict=True)]
    there = [row for row in rows if any(value not in NOTHING for value in row[1:])]
    table(["", *sizes], there, right=range(1, len(sizes) + 1))


def _word(value: object) -> str:
    if value is None:
        return "–"
    return str(value).lower() if isinstance(value, bool) else str(value)
