"""Flags made from settings: each field of a dataclass is a flag of the same name.

`--model.d-model 256` says `ModelConfig(d_model=256)`. What is typed is collected as overrides and
laid over the rest: defaults < preset or recipe < `--config FILE.toml` < flags.
"""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from partwise.cli.parser import Parser, Said
from partwise.errors import ConfigError, StorageError, UsageError
from partwise.messages import message
from partwise.settings import Option, build, offer, options, parse
from partwise.storage import read_small

T = TypeVar("T")

# More words than this are not listed in a help line.
FEW = 16


def add(
    parser: Parser,
    prefix: str,
    config: type[Any],
    heading: str,
    *,
    base: object | None = None,
    defaults: bool = True,
    short: Mapping[str, str] | None = None,
    leave_out: Sequence[str] = (),
    known: Mapping[str, Iterable[str]] | None = None,
) -> None:
    """Give `parser` a flag for each field of `config`.

    Args:
        parser: the command's parser.
        prefix: `model` makes `--model.d-model`; "" makes `--d-model`.
        config: the settings dataclass.
        heading: the group's heading, in the reader's language.
        base: the settings whose values are shown as defaults; the dataclass's own when None.
        defaults: whether defaults are shown; not where what is not said stays as it was.
        short: field -> one more way to write its flag.
        leave_out: fields that this command does not offer.
        known: field -> words that a shell may complete, where other words are taken too; the help
            lists them when they are few.
    """
    for name, field in options(config).items():
        if name in leave_out:
            continue
        switch = _is_switch(prefix, field)
        default = field.default if base is None else getattr(base, name)
        shown = default if defaults else None
        words = tuple((known or {}).get(name, ()))
        names = [_flag(prefix, name, off=switch and field.default is True)]
        if short and name in short:
            names.insert(0, short[name])
        parser.flag(
            _key(prefix, name),
            names,
            _help(field, shown, switch, words),
            value="" if switch else _value(field),
            choices=words or _choices(field),
            group=heading,
        )


def overrides(said: Said, prefix: str, config: type[Any]) -> dict[str, Any]:
    """Field -> value, for the fields of `config` that the command line named.

    Raises:
        UsageError: a word that its field cannot hold; the flag is named as it was typed.
    """
    found: dict[str, Any] = {}
    for name, field in options(config).items():
        typed = said.words.get(_key(prefix, name))
        if typed is None:
            continue
        flag, word = typed[-1]
        if _is_switch(prefix, field):
            found[name] = not field.default
        elif tuple in field.types:
            # Each time the flag is typed adds one word, which may hold commas.
            found[name] = tuple(word for _, word in typed)
        else:
            found[name] = _parsed(config, name, flag, word)
    return found


def given(said: Said, prefix: str, config: type[T]) -> T:
    """The settings that the command line alone describes."""
    return build(config, overrides(said, prefix, config))


def layered(config: type[T], base: T, *layers: Mapping[str, object]) -> T:
    """`base` changed by each layer in turn; later ones win."""
    together: dict[str, object] = {}
    for layer in layers:
        together.update(layer)
    return build(config, together, base)


def read_config(
    path: str, sections: Mapping[str, type[Any]], ignored: Sequence[str] = ()
) -> dict[str, dict[str, Any]]:
    """Section -> field -> value, from a TOML file such as a run's `run.toml`.

    Args:
        path: the file.
        sections: table's name -> the dataclass that it fills.
        ignored: tables of a run folder that are a record, not a setting.

    Raises:
        UsageError: no such file.
        ConfigError: the file is not TOML, or names what does not exist.
    """
    try:
        read = tomllib.loads(read_small(Path(path)).decode("utf-8"))
    except StorageError as problem:
        raise UsageError(
            "--config={path} cannot be read ({reason}); give the path of a TOML file",
            path=path,
            reason=problem,
        ) from None
    # TOMLDecodeError and UnicodeDecodeError are ValueErrors; brackets in brackets without end.
    except (ValueError, RecursionError) as problem:
        raise ConfigError(
            "{path} is not a TOML file: {reason}", path=path, reason=" ".join(str(problem).split())
        ) from None
    found: dict[str, dict[str, Any]] = {name: {} for name in sections}
    for table, values in read.items():
        if table in ignored:
            continue
        if table not in sections or not isinstance(values, dict):
            raise ConfigError(
                "{path} has {table!r}, but its settings stand in tables; {offer}",
                path=path,
                table=table,
                offer=offer(f"[{table}]", [f"[{known}]" for known in sections]),
            )
        known = options(sections[table])
        for name, value in values.items():
            if name not in known:
                raise ConfigError(
                    "{path}: [{table}] has no setting {name!r}; {offer}",
                    path=path,
                    table=table,
                    name=name,
                    offer=offer(name, known),
                )
            # TOML has no None; the word stands for it, as on the command line.
            absent = value == "none" and known[name].optional
            found[table][name] = None if absent and "none" not in known[name].choices else value
    return found


def _parsed(config: type[Any], name: str, flag: str, word: str) -> Any:
    try:
        return parse(config, name, word)
    except ConfigError as mistake:
        raise UsageError(mistake.template, **{**mistake.values, "name": flag}) from None


def _key(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def _flag(prefix: str, name: str, *, off: bool = False) -> str:
    # `from_` is the field of `--from`, a word that Python keeps for itself.
    return "--" + ("no-" if off else "") + _key(prefix, name).rstrip("_").replace("_", "-")


def _is_switch(prefix: str, field: Option) -> bool:
    # `--json` alone for a command's own flags; `--model.causal false` where TOML has the same name.
    return not prefix and bool in field.types and not field.optional


def _choices(field: Option) -> tuple[str, ...]:
    if bool in field.types:
        return ("true", "false")
    return tuple(map(str, field.choices))


def _value(field: Option) -> str:
    if field.choices or str in field.types or tuple in field.types:
        return "NAME" if field.choices else "TEXT"
    if bool in field.types:
        return "true|false"
    return "X" if float in field.types else "N"


def _help(field: Option, default: object, switch: bool, known: Sequence[str]) -> str:
    text = message(field.help)
    choices = _choices(field) if field.choices else known
    if 0 < len(choices) <= FEW:
        text = message("{text}; one of {choices}", text=text, choices=", ".join(choices))
    if switch or default is None or default == ():
        return text
    shown = str(default).lower() if isinstance(default, bool) else _number(default)
    return message("{text} (default {value})", text=text, value=shown)


def _number(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:_}" if isinstance(value, int) and value >= 1_000_000 else str(value)
