"""The words of a user interface without its machinery: markup, placeholders, accelerators."""

import html
import re

from partwise.text.pairs import Pair, sense

# Longer texts are help pages, and far fewer (characters).
LONGEST = 200

_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_ACCELERATOR = re.compile(r"\s*\(&\w\)|(?<![\w&])&(?=\w)")
_CODE = re.compile(r"`{1,2}|\*\*|:\w+:(?=`)")
_ADDRESS = re.compile(r"https?://|www\.|@\w+\.")
# %(name)s, %s, %1$s, {name}, {0:>5}, ${name}, %name%
_PLACEHOLDER = re.compile(
    r"%\((?P<a>\w+)\)[#0\- +]?\d*(?:\.\d+)?[a-z]"
    r"|%(?:(?P<b>\d)\$)?[sdifrx](?!\w)"
    r"|\$?\{(?P<c>[^{}]*)\}"
    r"|%(?P<d>\w+)%"
)

_NUMBER = re.compile(r"\{\d+\}")


def clean(original: str, translation: str) -> Pair | None:
    """The two as a person would read them, or None where they would teach nothing.

    Tags, backquotes and the & of accelerators go; placeholders become {1}, {2}, … in both, the same
    number for the same name. Left out are texts that are not words, addresses, long ones, ones
    whose two sides are the same, and ones whose placeholders or lengths do not match.

    Args:
        original, translation: as a catalogue holds them.
    """
    names: dict[str, str] = {}
    first, second = (_plain(text, names) for text in (original, translation))
    if set(_NUMBER.findall(first)) != set(_NUMBER.findall(second)):
        return None
    for text in (first, second):
        words = _PLACEHOLDER.sub("", text)
        if not 0 < len(text) <= LONGEST or not any(map(str.isalpha, words)):
            return None
        if _ADDRESS.search(text) or ("_" in text and " " not in text):
            return None
    if sense(first) == sense(second):
        return None
    short, long = sorted((len(first), len(second)))
    return None if long > 20 + 3 * short else (first, second)


def _plain(text: str, names: dict[str, str]) -> str:
    text = _TAG.sub(" ", text)
    text = html.unescape(text)
    text = _CODE.sub("", _TAG.sub(" ", text))
    text = _ACCELERATOR.sub("", text)
    unnamed = 0

    def numbered(match: re.Match[str]) -> str:
        nonlocal unnamed
        name = next((group for group in match.groups() if group is not None), None)
        if not name:
            name = f"#{unnamed}"
            unnamed += 1
        return names.setdefault(name.split(":")[0].split("!")[0], f"{{{len(names) + 1}}}")

    text = _PLACEHOLDER.sub(numbered, text).replace("%%", "%")
    return " ".join(text.split()).replace(" .", ".").replace(" ,", ",")
