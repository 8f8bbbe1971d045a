"""Where an imported model came from: its small files, which go with it wherever it goes."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from partwise.errors import InteropError
from partwise.storage.faults import reading

# Names, or their beginnings, in lower case.
LEGAL = ("license", "licence", "notice", "copying", "copyright", "use_policy", "patents")
KEPT = (
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "readme.md",
)
LARGEST = 8_000_000  # bytes; none of these is ever that large


def is_legal(name: str) -> bool:
    """Whether a file of this name holds a licence or a notice."""
    return name.lower().startswith(LEGAL)


def files_of_origin(folder: Path) -> dict[str, bytes]:
    """Name -> content of the files that belong to an imported model beside its weights.

    They are copied wherever the model goes, so that none may be a link to something else of the
    reader's; the hub's cache, which keeps its files so, is known.

    Raises:
        InteropError: one is a link that leads out of the folder.
        StorageError: one cannot be read.
    """
    found = {}
    with reading(folder):
        for path in sorted(folder.iterdir()):
            wanted = is_legal(path.name) or path.name.lower() in KEPT
            if wanted and path.is_file() and path.stat().st_size <= LARGEST:
                _require_inside(path, folder)
                found[path.name] = path.read_bytes()
    return found


def _require_inside(path: Path, folder: Path) -> None:
    target = path.resolve()
    in_cache = target.parent.name == "blobs" and target.parent.parent.name.startswith("models--")
    if not in_cache and not target.is_relative_to(folder.resolve()):
        raise InteropError(
            "{path} is a link that leads out of its folder, to {target}, and would be copied with "
            "the model; put the file itself there",
            path=path,
            target=target,
        )


def licence_of(files: Mapping[str, bytes]) -> str | None:
    """The licence that the model card of an imported model names, or None."""
    named = _card(files).get("license", [])
    return named[0] if named else None


def licence_details(files: Mapping[str, bytes]) -> dict[str, str]:
    """What that card says of a licence which the hub has no name for: its own name and place."""
    card = _card(files)
    return {name: card[name][0] for name in ("license_name", "license_link") if card.get(name)}


def _card(files: Mapping[str, bytes]) -> dict[str, list[str]]:
    """The plain fields at the head of a model card, each with its value or its list of them."""
    found: dict[str, list[str]] = {}
    data = next((data for name, data in files.items() if name.lower() == "readme.md"), b"")
    lines = data.decode("utf-8", "replace").lstrip("\ufeff").splitlines()
    if not lines or lines[0].strip() != "---":
        return {}
    values: list[str] = []
    for line in lines[1:]:
        if line.strip() == "---":
            return found
        item = re.fullmatch(r"\s*-\s+(.*)", line)
        key, colon, value = line.partition(":")
        if item is not None:
            value = item[1]
        elif colon and key == key.strip():
            values = found.setdefault(key, [])
        else:
            continue
        # A list may stand in one line too, and a remark behind its value.
        plain = re.sub(r"\s+#.*", "", value).strip()
        words = plain.strip("[]").split(",") if plain.startswith("[") else [plain]
        values += [word.strip(" \t'\"") for word in words if word.strip(" \t'\"")]
    return {}


def special_ids(files: Mapping[str, bytes]) -> dict[str, Any]:
    """The ids of special tokens that the model's own config.json names."""
    try:
        config = json.loads(files.get("config.json", b"{}"))
    except ValueError:
        return {}
    names = ("bos_token_id", "eos_token_id", "pad_token_id")
    return {name: config[name] for name in names if name in config}
