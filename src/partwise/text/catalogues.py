"""Parallel texts that Python packages ship: the gettext catalogues of their user interfaces.

`gettext:fr` joins the French catalogues of the packages below. The files are read where pip put
them, and none of the packages' code is run.
"""

import re
import struct
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from partwise.errors import TextError
from partwise.messages import Notice
from partwise.settings import offer
from partwise.storage.faults import reading
from partwise.text.interface_text import clean
from partwise.text.pairs import Pair, Pairs, unique

PREFIX = "gettext:"

# Large interfaces, translated into many languages by people.
PACKAGES = (
    "django",
    "django-allauth",
    "django-cms",
    "django-oscar",
    "sphinx",
    "wagtail",
    "wtforms",
)

# JupyterLab's translations come as one package for each language.
LANGUAGE_PACK = re.compile(
    r"jupyterlab[-_.]language[-_.]pack[-_.]([a-z]{2,3})[-_.]([a-z]{2})", re.IGNORECASE
)

# Languages that packages call by several names, the best known first.
OTHER_NAMES = {
    "zh": ("zh_hans", "zh_cn"),
    "zh_hans": ("zh_hans", "zh_cn"),
    "zh_cn": ("zh_hans", "zh_cn"),
    "zh_hant": ("zh_hant", "zh_tw"),
    "zh_tw": ("zh_hant", "zh_tw"),
    "pt": ("pt", "pt_pt"),
    "no": ("nb", "no", "nb_no", "no_no"),
    "nb": ("nb", "no", "nb_no", "no_no"),
}

_MAGIC = 0x950412DE


def catalogue_pairs(language: str) -> Pairs:
    """The texts of interfaces in `language`, and their English originals.

    Args:
        language: as gettext names it, such as "fr" or "pt_BR".

    Raises:
        TextError: no package is installed, or none speaks the language.
    """
    wanted = language.replace("-", "_").lower()
    found: list[Pair] = []
    counts: dict[str, int] = {}
    missing: list[str] = []
    spoken: set[str] = set()
    for name in (*PACKAGES, *_language_packs(wanted)):
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            missing.append(name)
            continue
        catalogues = _catalogues(package)
        spoken |= set(catalogues)
        before = len(found)
        for path in catalogues.get(_spoken(wanted, catalogues), ()):
            for original, translation in read_catalogue(path):
                pair = clean(original, translation)
                if pair is not None:
                    found.append((pair[1], pair[0]))
        if len(found) > before:
            counts[f"{name} {package.version}"] = len(found) - before
    pairs = unique(found)
    if not pairs:
        raise _refused(language, missing, spoken)
    notices = [
        Notice(
            "{pairs} pairs from the catalogues of {packages}",
            pairs=f"{len(pairs):,}",
            packages=", ".join(counts),
        )
    ]
    if missing:
        notices.append(
            Notice(
                "not installed, and so not among them: {packages} (pip install "
                '"partwise[translate]")',
                packages=", ".join(missing),
            )
        )
    return Pairs(f"gettext-{wanted}", f"{PREFIX}{wanted}", pairs, tuple(notices))


def read_catalogue(path: Path) -> Iterator[Pair]:
    """The originals and translations of a compiled catalogue (`.mo`), plurals on their own.

    Args:
        path: the file.

    Raises:
        TextError: it is not a catalogue, or is torn.

    Source: the GNU gettext manual, section 10.3, "The Format of GNU MO Files".
    """
    with reading(path):
        data = path.read_bytes()
    try:
        order = "<" if struct.unpack_from("<I", data)[0] == _MAGIC else ">"
        magic, _, count, originals, translations = struct.unpack_from(f"{order}5I", data)
        if magic != _MAGIC:
            raise ValueError("magic number")
        for i in range(count):
            original, translation = (
                _text(data, *struct.unpack_from(f"{order}2I", data, table + 8 * i))
                for table in (originals, translations)
            )
            # A context stands before the original; the empty original holds the file's header.
            original = original.rpartition("\x04")[2]
            if original:
                yield from _forms(original.split("\0"), translation.split("\0"))
    except (struct.error, ValueError) as error:
        raise TextError(
            "{path} is not a gettext catalogue; install its package again", path=path
        ) from error


def _text(data: bytes, length: int, place: int) -> str:
    if place + length > len(data):
        raise ValueError("torn")
    return data[place : place + length].decode("utf-8")


def _forms(originals: list[str], translations: list[str]) -> Iterator[Pair]:
    """The singular and its first translation, the plural and its last."""
    yield originals[0], translations[0]
    if len(originals) > 1 and len(translations) > 1:
        yield originals[-1], translations[-1]


def _language_packs(language: str) -> list[str]:
    """Installed packages that hold JupyterLab's interface in `language`."""
    found = set()
    for package in metadata.distributions():
        name = str(package.name)
        match = LANGUAGE_PACK.fullmatch(name)
        if match and _is(f"{match[1]}_{match[2]}".lower(), language):
            found.add(name)
    return sorted(found)


def _catalogues(package: metadata.Distribution) -> dict[str, list[Path]]:
    """Language -> the catalogues that a package has for it, in the order of their paths."""
    found: dict[str, list[Path]] = {}
    for file in sorted(package.files or (), key=str):
        parts = file.parts
        if file.suffix == ".mo" and len(parts) >= 3 and parts[-2] == "LC_MESSAGES":
            language = parts[-3].replace("-", "_").lower()
            found.setdefault(language, []).append(Path(str(file.locate())))
    return found


def _spoken(wanted: str, known: dict[str, list[Path]]) -> str:
    """What a package calls a language: by its own name if it can, else by a region's."""
    names = OTHER_NAMES.get(wanted, (wanted, f"{wanted}_{wanted}"))
    found = [name for name in names if name in known]
    found += sorted(name for name in known if _is(name, wanted))
    return found[0] if found else wanted


def _is(name: str, wanted: str) -> bool:
    """Whether a package's name for a language, such as `ja_jp`, means the one that is wanted."""
    if wanted in OTHER_NAMES:
        return name in OTHER_NAMES[wanted]
    return name == wanted or ("_" not in wanted and name.split("_")[0] == wanted)


def _refused(language: str, missing: list[str], spoken: set[str]) -> TextError:
    if len(missing) == len(PACKAGES):
        return TextError(
            "{corpus} is made of the catalogues of {packages}, and none of them is installed: pip "
            'install "partwise[translate]"',
            corpus=f"{PREFIX}{language}",
            packages=", ".join(PACKAGES),
        )
    return TextError(
        "no installed catalogue speaks {language!r}; {offer}",
        language=language,
        offer=offer(language.lower(), sorted(spoken)),
    )
