"""A `config.json` read field by field, each with its type; what is wrong is named."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from partwise.errors import InteropError
from partwise.messages import Notice
from partwise.storage import read_small, refuse_pickle

T = TypeVar("T", int, float, str, bool)


class _Required:
    """No default: the field must be there."""


REQUIRED = _Required()

_KINDS: dict[type, Notice] = {
    int: Notice("a whole number"),
    float: Notice("a number"),
    bool: Notice("true or false"),
    str: Notice("a text"),
    dict: Notice("a table"),
    list: Notice("a list"),
}


class Fields:
    """The fields of one JSON object.

    A field may have several names, old and new; the first that is there and not null counts.

    Args:
        values: the object.
        path: its file, for messages.
        within: the field of the file that the object is, if it is not the whole of it.
    """

    def __init__(self, values: Mapping[str, Any], path: Path, within: str = "") -> None:
        self.values = values
        self.path = path
        self._within = within

    def get(self, kind: type[T], *names: str, default: "T | _Required" = REQUIRED) -> T:
        """The field's value.

        Args:
            kind: its type; a whole number also stands for a float.
            *names: the field's names.
            default: the value when it is absent.

        Raises:
            InteropError: it is absent without a default, or of another type.
        """
        found = self.optional(kind, *names)
        if found is not None:
            return found
        if isinstance(default, _Required):
            raise InteropError(
                "{path} does not say {field}; it is not the config.json of a whole model: get the "
                "folder again",
                path=self.path,
                field=self.label(names[0]),
            )
        return default

    def optional(self, kind: type[T], *names: str) -> T | None:
        """The field's value, or None where it is absent or null; see `get`."""
        name, value = self._first(names)
        if value is None:
            return None
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise self._wrong(name, value, kind)
        return value

    def table(self, *names: str) -> "Fields | None":
        """The object that a field holds, or None where it is absent or null."""
        name, value = self._first(names)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self._wrong(name, value, dict)
        return Fields(value, self.path, self.label(name))

    def words(self, *names: str) -> list[str] | None:
        """The list that a field holds, or None where it is absent or null."""
        name, value = self._first(names)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self._wrong(name, value, list)
        return [str(each) for each in value]

    def refuse(self, name: str, known: object, value: object = None) -> InteropError:
        """The error for a value of which our GPT has no counterpart.

        Args:
            name: the field.
            known: what it may be.
            value: what it is; None: what the file says.
        """
        value = self.values.get(name) if value is None else value
        return InteropError(
            "{path} has {field}={value}, for which Partwise's GPT has no part; it takes {known}",
            path=self.path,
            field=self.label(name),
            value=json.dumps(value, ensure_ascii=False)[:80],
            known=known,
        )

    def label(self, name: str) -> str:
        """The field's name, with the field that it stands in."""
        return f"{self._within}.{name}" if self._within else name

    def _first(self, names: tuple[str, ...]) -> tuple[str, Any]:
        for name in names:
            if self.values.get(name) is not None:
                return name, self.values[name]
        return names[0], None

    def _wrong(self, name: str, value: object, kind: type) -> InteropError:
        return InteropError(
            "{path} has {field}={value}, which should be {wanted}; get the folder again",
            path=self.path,
            field=self.label(name),
            value=json.dumps(value, ensure_ascii=False)[:80],
            wanted=_KINDS[kind],
        )


def read_object(path: Path) -> Fields:
    """The JSON object in a file.

    Raises:
        InteropError: it is not one.
        StorageError: the file cannot be read, or is a pickle.
    """
    refuse_pickle(path)
    data = read_small(path)
    try:
        value = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InteropError(
            "{path} is torn or not JSON ({reason}); get the folder again",
            path=path,
            reason=" ".join(str(error).split()),
        ) from error
    if not isinstance(value, dict):
        raise InteropError("{path} is not a JSON object; get the folder again", path=path)
    return Fields(value, path)
