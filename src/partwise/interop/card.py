"""The model card: what a model is and what it learned, for whoever finds the folder."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from partwise.messages import message


@dataclass(frozen=True)
class Card:
    """What the card says.

    Args:
        title: the model's name.
        model_type: its form, such as "gpt2".
        licence: as the hub names licences, such as "apache-2.0"; "unknown" where nobody said.
        details: what the hub is told beside it, such as "license_name" and "license_link".
        base: name of the imported model that it comes from, or empty.
        sizes: what is counted -> how much of it.
        training: what was learned and how -> the value; empty for a model that only came through.
        notices: what other programs make of it.
        legal: names of the licence and notice files that come with it.
        version: of Partwise.
    """

    title: str
    model_type: str
    licence: str
    base: str
    sizes: Mapping[str, object]
    training: Mapping[str, object]
    notices: Sequence[object]
    legal: Sequence[str]
    version: str
    tags: Sequence[str] = field(default=("partwise",))
    details: Mapping[str, str] = field(default_factory=dict)


def written(card: Card) -> str:
    """The card as Markdown, its first lines as the hub reads them."""
    head = {
        "license": card.licence,
        **card.details,
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": [*card.tags, card.model_type],
    }
    # JSON is YAML too, so no name can break out of its line.
    lines = ["---", *(f"{key}: {json.dumps(head[key], ensure_ascii=False)}" for key in head), "---"]
    lines += ["", f"# {_one_line(card.title)}", ""]
    if card.training:
        lines.append(
            message("A model of the form {form}, trained with Partwise {version}", **_made_by(card))
        )
    else:
        lines.append(
            message("A model of the form {form}, written by Partwise {version}", **_made_by(card))
        )
    if card.base:
        base = _one_line(card.base)
        lines.append("")
        lines.append(message("It comes from the model {base}; see what that asks for", base=base))
    if card.training:
        lines += ["", "## " + message("What it learned"), "", *_table(card.training)]
    lines += ["", "## " + message("Size"), "", *_table(card.sizes)]
    lines += ["", "## " + message("Use"), "", *_USE]
    lines += ["", *(f"- {notice}" for notice in card.notices)]
    lines += ["", "## " + message("Licence"), "", _licence(card), ""]
    return "\n".join(lines)


_USE = (
    "```python",
    "from transformers import AutoModelForCausalLM, AutoTokenizer",
    "",
    'tokenizer = AutoTokenizer.from_pretrained(".")',
    'model = AutoModelForCausalLM.from_pretrained(".")',
    "```",
)


def _made_by(card: Card) -> dict[str, str]:
    return {"form": card.model_type, "version": card.version}


def _licence(card: Card) -> str:
    if card.legal:
        files = ", ".join(f"`{name}`" for name in card.legal)
        return message("{licence}; see {files}", licence=card.licence, files=files)
    if card.licence == "unknown":
        return message("unknown: whoever trained it says which")
    return card.licence


def _table(rows: Mapping[str, object]) -> list[str]:
    cells = [f"| {name} | {_one_line(str(value))} |" for name, value in rows.items()]
    return ["| | |", "|---|---|", *cells]


def _one_line(text: str) -> str:
    """A text that cannot break out of its line or its cell."""
    plain = "".join(char if char.isprintable() else " " for char in text)
    for sign in ("\\", "|", "`", "<", "[", "*", "_", "#"):
        plain = plain.replace(sign, "\\" + sign)
    return plain
