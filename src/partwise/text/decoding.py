"""What bytes each token of a `tokenizer.json` stands for."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True)
class Pieces:
    """The text of ids is the join of their pieces, less some spaces at its beginning.

    Args:
        piece: token id -> its bytes; none for an id without a token.
        strip: spaces left out at the beginning, at most.
    """

    piece: Callable[[int], bytes]
    strip: int


def pieces_of(value: Mapping[str, Any], vocabulary: Mapping[str, int]) -> Pieces | None:
    """The pieces of a tokenizer, or None if a token's text depends on its neighbours.

    Two families have pieces: byte-level ones (GPT-2, LLaMA 3 and most others), and those that write
    a space as U+2581 and a lone byte as <0x0A> (SentencePiece, LLaMA 1 and 2).

    Args:
        value: the tokenizer.json.
        vocabulary: token -> id, with added tokens.
    """
    added = {str(token["content"]) for token in value.get("added_tokens") or ()}
    steps = _steps(value.get("decoder"))
    kinds = [step.get("type") for step in steps]
    if kinds == ["ByteLevel"]:
        alphabet = {character: byte for byte, character in enumerate(byte_alphabet())}

        def text_of(token: str) -> bytes:
            # An added token is written as it is read in the text, in no byte's guise.
            if token not in added and all(character in alphabet for character in token):
                return bytes(alphabet[character] for character in token)
            return token.encode("utf-8")

        strip = 0
    elif kinds and set(kinds) <= {"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"}:
        spaces = {"\u2581"} if "Metaspace" in kinds else set()
        strip = 0
        for step in steps:
            if step["type"] == "Metaspace":
                strip = 0 if step.get("prepend_scheme") == "never" else 1
            elif step["type"] == "Strip":
                if step.get("content") != " " or step.get("stop"):
                    return None
                strip = int(step.get("start", 0))
            elif step["type"] == "Replace":
                pattern = step.get("pattern", {}).get("String")
                if pattern is None or step.get("content") != " ":
                    return None
                spaces.add(pattern)
        falls_back = "ByteFallback" in kinds

        def text_of(token: str) -> bytes:
            byte = _BYTE.fullmatch(token) if falls_back else None
            if byte:
                return bytes((int(byte[1], 16),))
            for space in spaces:
                token = token.replace(space, " ")
            return token.encode("utf-8")

    else:
        return None
    table = {id: text_of(token) for token, id in vocabulary.items()}
    return Pieces(lambda id: table.get(int(id), b""), strip)


def byte_alphabet() -> str:
    """The 256 characters that stand for bytes in a byte-level vocabulary (GPT-2's table).

    Bytes that print as Latin-1 stand for themselves; the others follow in order from U+0100 on.
    """
    printed = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = (byte for byte in range(0x100) if byte not in printed)
    table = {byte: chr(byte) for byte in printed}
    table.update({byte: chr(0x100 + place) for place, byte in enumerate(others)})
    return "".join(table[byte] for byte in range(0x100))


def _steps(decoder: Any) -> list[dict[str, Any]]:
    if not isinstance(decoder, dict):
        return []
    if decoder.get("type") == "Sequence":
        return [step for inner in decoder.get("decoders", ()) for step in _steps(inner)]
    return [decoder]
