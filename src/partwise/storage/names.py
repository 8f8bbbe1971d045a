"""Names of folders that every system accepts, Windows included."""

import re
import unicodedata

from partwise.errors import ConfigError

_LONGEST = 120
_RESERVED = {"con", "prn", "aux", "nul", "conin$", "conout$"} | {
    f"{port}{number}" for port in ("com", "lpt") for number in "0123456789¹²³"
}
_FORBIDDEN = re.compile(r'[<>:"/\\|?*\x00-\x1f\x7f\ud800-\udfff]')


def safe_name(name: str) -> str:
    """`name` as a folder may be called everywhere (composed Unicode: é is one character).

    Raises:
        ConfigError: some system refuses it; the line names the rule and a name that would do.
    """
    composed = unicodedata.normalize("NFC", name)
    choice = cleaned(composed)
    if not composed.strip(" ."):
        raise ConfigError("the name {name!r} is empty; {choice} would do", name=name, choice=choice)
    bad = _FORBIDDEN.search(composed)
    if bad:
        raise ConfigError(
            "the name {name!r} has {character!r} in it, which not every system permits; {choice} "
            "would do",
            name=name,
            character=bad.group(),
            choice=choice,
        )
    if composed != composed.strip(" ") or composed.endswith(".") or composed[0] in ".-":
        raise ConfigError(
            "the name {name!r} begins with a space, dot or dash, or ends with a space or dot; "
            "{choice} would do",
            name=name,
            choice=choice,
        )
    if composed.split(".")[0].strip().lower() in _RESERVED:
        raise ConfigError(
            "the name {name!r} is reserved on Windows; {choice} would do", name=name, choice=choice
        )
    size = len(composed.encode("utf-8"))
    if size > _LONGEST:
        raise ConfigError(
            "the name {name!r} is {size} bytes long and {longest} is the most; {choice} would do",
            name=name[:20] + "…",
            size=size,
            longest=_LONGEST,
            choice=choice,
        )
    return composed


def cleaned(text: str) -> str:
    """The safe name nearest to any text: `my/novel?` becomes `my-novel`."""
    name = _FORBIDDEN.sub("-", unicodedata.normalize("NFC", text))
    name = re.sub(r"\s+", " ", name)
    while len(name.encode("utf-8")) > _LONGEST:
        name = name[:-1]
    name = name.strip(" .-") or "run"
    if name.split(".")[0].strip().lower() in _RESERVED:
        name = f"run-{name}"[:_LONGEST].rstrip(" .-")
    return name
