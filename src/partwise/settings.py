"""A setting is one typed field of a frozen dataclass: the same name in Python, TOML and as a flag.

`option` declares a field with its default and its help line; `build` makes the dataclass from plain
data and refuses an unknown name or a value of the wrong type, naming the nearest right one.
"""

import dataclasses
import difflib
import functools
import math
import sys
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from partwise.errors import ConfigError
from partwise.messages import Notice

T = TypeVar("T")

# What TOML, torch and safetensors can hold: 64 bits.
MOST = 2**63 - 1
# As many names as fit into one line.
FEW = 12


def option(default: T, help: str) -> T:
    """A dataclass field with `default` and a help line that names the unit."""
    return dataclasses.field(default=default, metadata={"help": help})


@dataclasses.dataclass(frozen=True)
class Option:
    """One field as a user meets it.

    Args:
        name: the field's name (`d_model`); the flag writes it with dashes.
        types: the plain types it may hold, e.g. `(int,)`, those of its choices among them.
        choices: values it may hold by name; with no `free` type, the only ones.
        free: the types of which it may hold any value.
        optional: whether None is a value.
        default: the value when nothing is said.
        help: the help line in English.
    """

    name: str
    types: tuple[type, ...]
    choices: tuple[object, ...]
    free: tuple[type, ...]
    optional: bool
    default: object
    help: str


def options(config: type[Any]) -> dict[str, Option]:
    """The fields of a settings dataclass by name, in their order."""
    return _options(typing.cast(typing.Hashable, config))


@functools.cache
def _options(config: type[Any]) -> dict[str, Option]:
    hints = get_type_hints(config)
    found = {}
    for field in dataclasses.fields(config):
        free: list[type] = []
        choices: list[object] = []
        optional = False
        hint = hints[field.name]
        members = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
        for member in members:
            if member is type(None):
                optional = True
            elif get_origin(member) is Literal:
                choices.extend(get_args(member))
            else:
                free.append(get_origin(member) or member)
        found[field.name] = Option(
            name=field.name,
            types=tuple(dict.fromkeys([*free, *map(type, choices)])),
            choices=tuple(choices),
            free=tuple(free),
            optional=optional,
            default=None if field.default is dataclasses.MISSING else field.default,
            help=field.metadata.get("help", ""),
        )
    return found


def nearest(name: str, names: typing.Iterable[str]) -> str | None:
    """The name that the user most likely meant, if any is close."""
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=0.5)
    return close[0] if close else None


def offer(name: str, names: typing.Iterable[str]) -> Notice:
    """What to say of a name that there is not: the one most likely meant, or the first of all."""
    known = list(names)
    meant = nearest(name, known)
    if meant is not None:
        return Notice("did you mean {name}?", name=meant)
    return Notice("choose {choices}", choices=", ".join(known[:FEW] + ["…"] * (len(known) > FEW)))


def checked(config: type[Any], name: str, value: object) -> Any:
    """`value` as field `name` of `config` holds it.

    An int is taken where a float is asked for; nothing else is converted.

    Raises:
        ConfigError: the value has the wrong type or is not one of the choices.
    """
    field = options(config)[name]
    if value is None and field.optional:
        return None
    if any(value == choice and type(value) is type(choice) for choice in field.choices):
        return value
    if type(value) in field.free:
        if type(value) is int and not -MOST <= value <= MOST:
            raise ConfigError(
                "{name}={value} is too big; a whole number goes up to {most:,}",
                name=name,
                # Python writes no number of thousands of digits, and nobody reads one.
                value=value if value.bit_length() < 200 else f"2^{value.bit_length() - 1}",
                most=MOST,
            )
        return value
    if float in field.free and type(value) is int:
        # Past the largest float an int has no float; every field refuses what is not finite.
        return (
            float(value)
            if abs(value) <= sys.float_info.max
            else math.inf
            if value > 0
            else -math.inf
        )
    if tuple in field.free and isinstance(value, list):
        return tuple(value)
    kinds: list[object] = [_kind(kind) for kind in field.free]
    if field.optional:
        kinds.append(Notice("none"))
    if field.choices:
        raise ConfigError(
            "{name}={value!r} is not a choice; choose {choices}",
            name=name,
            value=value,
            choices=_either([", ".join(map(str, field.choices)), *kinds]),
        )
    raise wrong_type(name, value, _either(kinds))


def wrong_type(name: str, value: object, wanted: object) -> ConfigError:
    """What to raise of a value that is not of the kind that is `wanted`."""
    return ConfigError(
        "{name}={value!r} has the wrong type; give {wanted}", name=name, value=value, wanted=wanted
    )


def _either(kinds: list[object]) -> object:
    return functools.reduce(lambda a, b: Notice("{one} or {other}", one=a, other=b), kinds)


def _kind(kind: type) -> Notice:
    if kind is int:
        return Notice("a whole number")
    if kind is float:
        return Notice("a number")
    if kind is bool:
        return Notice("true or false")
    return Notice("a text") if kind is str else Notice("a list")


def check(config: object) -> None:
    """Hold every field of a settings object to its type; call it first in `__post_init__`."""
    for name in options(type(config)):
        value = getattr(config, name)
        right = checked(type(config), name, value)
        if right is not value:
            object.__setattr__(config, name, right)


def at_least_one(config: object, *names: str) -> None:
    """Refuse a number below 1 in these fields of a settings object; None is let through."""
    for name in names:
        value = getattr(config, name)
        if value is not None and value < 1:
            raise ConfigError("{name}={value} is too small; give 1 or more", name=name, value=value)


def above_zero(config: object, *names: str) -> None:
    """Refuse what is not a finite number above 0 in these fields; None is let through."""
    for name in names:
        value = getattr(config, name)
        if value is not None and not 0 < value < math.inf:
            raise ConfigError(
                "{name}={value} must be a finite number above 0", name=name, value=value
            )


def not_negative(config: object, *names: str) -> None:
    """Refuse a number below 0 in these fields; None is let through."""
    for name in names:
        value = getattr(config, name)
        if value is not None and value < 0:
            raise ConfigError("{name}={value} is negative; give 0 or more", name=name, value=value)


def share(config: object, *names: str) -> None:
    """Refuse what is not from 0 to below 1 in these fields; None is let through."""
    for name in names:
        value = getattr(config, name)
        if value is not None and not 0 <= value < 1:
            raise ConfigError(
                "{name}={value} is not a share; give 0 or more and less than 1",
                name=name,
                value=value,
            )


def parse(config: type[Any], name: str, word: str) -> Any:
    """The value that `word`, typed on a command line, means for field `name`.

    Raises:
        ConfigError: the word cannot be read as the field's type.
    """
    field = options(config)[name]
    lowered = word.lower()
    value: object = word
    if field.optional and lowered == "none" and "none" not in field.choices:
        value = None
    elif bool in field.types and lowered in ("true", "on", "yes", "false", "off", "no"):
        value = lowered in ("true", "on", "yes")
    elif tuple in field.types:
        value = tuple(part for part in word.split(",") if part)
    elif str not in field.types or word not in field.choices:
        for kind in (int, float):
            if kind in field.types:
                try:
                    value = kind(word.replace("_", ""))
                    break
                except ValueError:
                    continue
    return checked(config, name, value)


def build(config: type[T], values: Mapping[str, object], base: T | None = None) -> T:
    """The settings object that plain data describes.

    Args:
        config: the frozen dataclass.
        values: field name -> value, as TOML or JSON gives them; TOML has no null and writes "none".
        base: the settings that `values` change; the defaults when None.

    Raises:
        ConfigError: an unknown name, a wrong type, or a combination the dataclass refuses.
    """
    known = options(config)
    for name in values:
        if name not in known:
            raise ConfigError(
                "there is no setting {name!r} in {config}; {offer}",
                name=name,
                config=config.__name__,
                offer=offer(name, known),
            )
    converted = {
        name: checked(config, name, _unwritten(known[name], value))
        for name, value in values.items()
    }
    if base is None:
        return config(**converted)
    return typing.cast(T, dataclasses.replace(typing.cast(Any, base), **converted))


def plain(config: object) -> dict[str, Any]:
    """The fields of a settings object as TOML can hold them; `build` turns them back."""
    values = {name: getattr(config, name) for name in options(type(config))}
    return {name: _written(value) for name, value in values.items()}


def _written(value: object) -> object:
    if value is None:
        return "none"
    return list(value) if isinstance(value, tuple) else value


def _unwritten(field: Option, value: object) -> object:
    return None if value == "none" and field.optional and "none" not in field.choices else value
