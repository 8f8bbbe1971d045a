"""Where an imported model came from: its small files, which go with it wherever it goes."""

import json
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
    for name, data in files.items():
        if name.lower() != "readme.md":
            continue
        lines = data.decode("utf-8", "replace").lstrip("\ufeff").splitlines()
        if not lines or lines[0].strip() != "---":
            return None
        for line in lines[1:]:
            if line.strip() == "---":
                return None
            key, _, value = line.partition(":")
            if key == "license":
                return value.strip().strip("'\"") or None
    return None


def special_ids(files: Mapping[str, bytes]) -> dict[str, Any]:
    """The ids of special tokens that the model's own config.json names."""
    try:
        config = json.loads(files.get("config.json", b"{}"))
    except ValueError:
        return {}
    names = ("bos_token_id", "eos_token_id", "pad_token_id")
    return {name: config[name] for name in names if name in config}
