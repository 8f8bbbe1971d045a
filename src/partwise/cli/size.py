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
from partwise.model.sizing import Size, Workload, size
from partwise.settings import option, plain


@dataclass(frozen=True)
class SizeFlags:
    """What `partwise size` can be told beside the model and its workload."""

    compare: bool = option(False, "the models side by side, one figure a line")
    diff: bool = option(False, "the settings in which two models differ, one a line")
    runs_dir: str = option("runs", "folder that holds the runs")
    json: bool = option(False, "print one JSON object instead of lines")


def declare(parser: Parser) -> None:
    """Models by name, settings that change them, and what they are to do."""
    names = (*preset_names(), *ALIASES)
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


def run(said: Said) -> int:
    """Size, compare or tell the difference.

    Raises:
        UsageError: the wrong number of models for what is asked.
    """
    asked = flags.given(said, "", SizeFlags)
    workload = flags.given(said, "", Workload)
    changes = flags.overrides(said, "model", ModelConfig)
    names = said.places or (["small"] if changes else [])
    models = {
        name: flags.layered(ModelConfig, _model(name, asked.runs_dir), changes) for name in names
    }
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


def _model(name: str, runs_dir: str) -> ModelConfig:
    """The model of a preset, or of a run by its folder or name."""
    if name in preset_names() or name in ALIASES:
        return preset(name)
    if Path(name).is_dir() or (Path(runs_dir) / name).is_dir():
        from partwise.run import Run, find

        return Run.open(find(name, runs_dir)).record.model
    return preset(name)


def _speed_here(workload: Workload) -> dict[str, float]:
    if workload.accelerator is not None:
        return {}
    from partwise.machine import measured

    speed = measured()
    flops = speed.bfloat16_flops if workload.dtype == "bfloat16" else speed.float32_flops
    return {"here_flops": flops, "here_bandwidth": speed.memory_bandwidth}


def _show_presets(*, as_json: bool) -> None:
    found = {name: preset(name) for name in preset_names()}
    if as_json:
        presets = [
            {"name": name, "parameters": count_parameters(model), "model": plain(model)}
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
            f"{count_parameters(model):,}",
            model.n_layers,
            model.d_model,
            model.n_heads,
            f"{model.context_length:,}",
            f"{model.vocab_size:,}",
        )
        for name, model in found.items()
    ]
    table(headings, rows, right=range(1, 7))


def _show_difference(models: Mapping[str, ModelConfig], names: list[str], *, as_json: bool) -> None:
    left, right = (plain(models[name]) for name in names)
    differing = [name for name in left if left[name] != right[name]]
    if as_json:
        found = {name: [left[name], right[name]] for name in differing}
        report = {"schema": 1, "models": names, "differences": found}
        say(json.dumps(report, ensure_ascii=False, indent=2))
    elif differing:
        table(["", *names], [(name, _word(left[name]), _word(right[name])) for name in differing])
    else:
        say(message("they do not differ"))


def _show(name: str, found: Size) -> None:
    say(name)
    for block in (parts(found), work(found), memory(found), time(found)):
        table((), [line for line in block if line[1] not in ("0", "0 B")], right=[1])
        say()
    for notice in found.notices():
        say(notice)


def _show_side_by_side(sizes: Mapping[str, Size]) -> None:
    columns = [[*parts(each), *work(each), *memory(each), *time(each)] for each in sizes.values()]
    # The same lines for each model, so that they can be laid side by side.
    rows = [(lines[0][0], *(value for _, value in lines)) for lines in zip(*columns, strict=True)]
    table(["", *sizes], rows, right=range(1, len(sizes) + 1))


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
