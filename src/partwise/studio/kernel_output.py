"""What a cell has shown: Jupyter's messages turned into what a page draws."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Told = dict[str, Any]

PICTURES = ("image/png", "image/jpeg", "image/svg+xml")


@dataclass
class Shown:
    """What a cell has shown since it was run last.

    Args:
        outputs: each as `output_of` makes it.
        done: how it ended, as a message; None while it runs.
        size: characters of all outputs.
    """

    outputs: list[Told] = field(default_factory=list)
    done: Told | None = None
    size: int = 0

    def add(self, output: Told) -> None:
        """Add an output; text that goes on is one output."""
        self.size += sum(len(value) for value in output.values() if isinstance(value, str))
        last = self.outputs[-1] if self.outputs else {}
        if output["kind"] == "stream" == last.get("kind") and output["name"] == last["name"]:
            self.outputs[-1] = {**last, "text": last["text"] + output["text"]}
        else:
            self.outputs.append(output)


def output_of(kind: str, content: Mapping[str, Any]) -> Told | None:
    """What IPython sends, as a page shows it; None for what no page shows.

    Args:
        kind: the message's type, such as "stream" or "display_data".
        content: the message's content.
    """
    if kind == "stream":
        return {"kind": "stream", "name": content["name"], "text": content["text"]}
    if kind == "error":
        return {
            "kind": "error",
            "name": content["ename"],
            "value": content["evalue"],
            "line": content.get("line"),
            "traceback": content["traceback"],
        }
    if kind not in ("display_data", "execute_result", "update_display_data"):
        return None
    data = content["data"]
    for mime in PICTURES:
        if mime in data:
            picture = data[mime]
            if mime == "image/svg+xml":
                picture = base64.b64encode(picture.encode("utf-8")).decode("ascii")
            return {"kind": "image", "mime": mime, "data": picture.replace("\n", "")}
    if "text/html" in data:
        return {"kind": "html", "html": data["text/html"]}
    return {"kind": "text", "text": data.get("text/plain", "")}
