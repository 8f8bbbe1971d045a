"""Byte-pair encoding, and every other tokenizer that a `tokenizer.json` describes.

Byte-pair encoding starts from the 256 bytes and makes a token of the pair of neighbours that is
most frequent in the text, again and again, until there are as many tokens as asked for (Sennrich,
Haddow and Birch, 2016; on bytes: Radford et al., 2019, section 2.2).
"""

import functools
import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from partwise.errors import TextError
from partwise.text.byte import utf8
from partwise.text.char import unknown_characters
from partwise.text.cuts import pieces
from partwise.text.decoding import Pieces, byte_alphabet, pieces_of
from partwise.text.dtypes import dtype_for
from partwise.text.stream import HeldStream, StreamDecoder, Utf8Stream

# Text that one call of the library encodes, in PIECES parts in parallel (characters).
PIECE = 1 << 16
PIECES = 32

# Text that is encoded in one piece when a tokenizer's text cannot be cut, at most (characters).
UNCUT = 1 << 24

# Text on which cutting is tried, and how finely (characters).
TRIAL = 1 << 17
TRIAL_PIECE = 1 << 12

_END_OF_TEXT = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eot_id|>")


class BPETokenizer:
    """A tokenizer of the `tokenizers` library, from its JSON.

    Args:
        source: the content of a tokenizer.json.
        label: what a message calls it.
        special_tokens: read the names of special tokens in a text as those tokens; otherwise they
            are ordinary text.

    Raises:
        TextError: the JSON does not describe a tokenizer.
    """

    unit = "tokens"

    def __init__(
        self, source: str, *, label: str = "tokenizer.json", special_tokens: bool = False
    ) -> None:
        try:
            self._value: dict[str, Any] = json.loads(source)
            self._rust = _build(self._value, special_tokens)
        except Exception as error:
            # The library raises Exception itself, with the reason as its text.
            raise TextError(
                "{label} cannot be used: {reason}; give one that the tokenizers library wrote",
                label=label,
                reason=str(error).splitlines()[0] if str(error) else type(error).__name__,
            ) from error
        self._source = source
        self.special_tokens = special_tokens
        vocabulary = self._rust.get_vocab(with_added_tokens=True)
        if not vocabulary:
            raise TextError("{label} has no tokens; give one with a vocabulary", label=label)
        self.vocab_size = max(vocabulary.values()) + 1
        self.name = f"{self._value['model']['type'].lower()}-{self.vocab_size}"
        self._pieces: Pieces | None = pieces_of(self._value, vocabulary)
        # Character -> whether it has tokens, as far as it was asked for; see `_require_known`.
        self._kept: dict[str, bool] = {}

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the JSON, whatever its layout (64 hex digits)."""
        plain = json.dumps(self._value, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(plain.encode("ascii")).hexdigest()

    @functools.cached_property
    def end_of_text(self) -> int | None:
        """The special token that stands between texts, if there is one."""
        special = {
            token["content"]: int(token["id"])
            for token in self._value.get("added_tokens") or ()
            if token.get("special")
        }
        return next((special[name] for name in _END_OF_TEXT if name in special), None)

    @functools.cached_property
    def unknown(self) -> int | None:
        """The token that stands for whatever has none of its own, if there is one."""
        model = self._value["model"]
        if model.get("unk_id") is not None:
            return int(model["unk_id"])
        found: int | None = self._rust.token_to_id(model.get("unk_token") or "")
        return found

    def with_special_tokens(self, read: bool) -> "BPETokenizer":
        """The same tokenizer, reading the names of special tokens or not."""
        if read == self.special_tokens:
            return self
        return BPETokenizer(self._source, special_tokens=read)

    def encode(
        self, text: str, *, unknown: Literal["refuse", "skip"] = "refuse"
    ) -> npt.NDArray[np.int64]:
        """The ids of `text`; nothing is put before or after it.

        Args:
            text: any text.
            unknown: refuse half of a surrogate pair, or leave it out, and so with characters for
                which a tokenizer has no token at all; one with a token for the unknown reads that.

        Returns:
            ids, (tokens,).

        Raises:
            TextError: the text holds such a character and `unknown` is "refuse", or the tokenizer
                cannot cut it.
        """
        plain = utf8(text, unknown).decode("utf-8")
        if unknown == "refuse":
            self._require_known(plain)
        with self._cutting():
            return np.array(self._rust.encode(plain, add_special_tokens=False).ids, np.int64)

    @contextmanager
    def _cutting(self) -> Iterator[None]:
        """Turn what the library says of a text that it cannot cut into one line."""
        try:
            yield
        except Exception as error:
            raise TextError(
                "the tokenizer {name} cannot cut this text ({reason}); train on a text that it "
                "knows, or begin with another model",
                name=self.name,
                reason=" ".join(str(error).split()) or type(error).__name__,
            ) from error

    @functools.cached_property
    def _bytewise(self) -> bool:
        """Whether a text is turned into its bytes before it is cut."""
        steps = [self._value.get("normalizer"), self._value.get("pre_tokenizer")]
        return '"ByteLevel"' in json.dumps(steps)

    @functools.cached_property
    def _drops(self) -> bool:
        """Whether a character without a token is left out in silence, as only some BPEs do."""
        model = self._value["model"]
        if model["type"] != "BPE" or model.get("unk_token") or model.get("byte_fallback"):
            return False
        return not (self._bytewise and all(byte in model["vocab"] for byte in byte_alphabet()))

    def _require_known(self, text: str) -> None:
        """Check that no character of a text would be left out of its tokens.

        Where words are cut apart first, white space between them may be.

        Raises:
            TextError: some would; the line names them.
        """
        if not self._drops:
            return
        apart = self._value.get("pre_tokenizer") is not None and not self._bytewise
        for character in set(text) - self._kept.keys():
            ids = self._rust.encode(character, add_special_tokens=False).ids
            whole = self.decode_bytes(ids) == utf8(character, "skip") if self._bytewise else ids
            self._kept[character] = bool(whole) or (apart and character.isspace())
        lost = [character for character in set(text) if not self._kept[character]]
        if lost:
            raise unknown_characters(self.name, sorted(map(ord, lost)))

    def encode_blocks(
        self, texts: Iterable[str], *, unknown: Literal["refuse", "skip"] = "refuse"
    ) -> Iterator[npt.NDArray[Any]]:
        """The ids of the joined `texts`, block by block, in the narrowest dtype.

        The text is cut between words (see `cuts`) and encoded in parallel. Whether a tokenizer
        permits that is tried on the beginning of the text first. Where it does not, the whole text
        is encoded at once.

        Raises:
            TextError: the text cannot be cut and is too long to be encoded at once.
        """
        texts = iter(texts)
        head = list(_head(texts, TRIAL))
        texts = itertools.chain(head, texts)
        dtype = dtype_for(self.vocab_size)
        if not self._permits_cuts("".join(head)):
            whole = ""
            for text in texts:
                whole += text
                if len(whole) > UNCUT:
                    raise TextError(
                        "the tokenizer {name} makes other tokens when a text is cut, and more than "
                        "{most:,} characters cannot be encoded at once; give a shorter text or "
                        "another tokenizer",
                        name=self.name,
                        most=UNCUT,
                    )
            yield self.encode(whole, unknown=unknown).astype(dtype)
            return
        parts = pieces(texts, PIECE, self._recognised)
        rust = self._rust
        while batch := list(itertools.islice(parts, PIECES)):
            if unknown == "refuse":
                for text in batch:
                    self._require_known(text)
            # Only the text's beginning gets the space that some tokenizers put before it.
            for some, cutter in ((batch[:1], rust), (batch[1:], self._inner)):
                with self._cutting():
                    encodings = cutter.encode_batch_fast(some, add_special_tokens=False)
                for encoding in encodings:
                    yield np.array(encoding.ids, dtype)
            rust = self._inner

    @functools.cached_property
    def _inner(self) -> tokenizers.Tokenizer:
        value = {
            **self._value,
            "normalizer": _without_prefix(self._value.get("normalizer")),
            "pre_tokenizer": _without_prefix(self._value.get("pre_tokenizer")),
        }
        return _build(value, self.special_tokens)

    @functools.cached_property
    def _recognised(self) -> tuple[str, ...]:
        """The added tokens that are looked for in a text before it is split into words."""
        return tuple(
            token["content"]
            for token in self._value.get("added_tokens") or ()
            if self.special_tokens or not token.get("special")
        )

    def _permits_cuts(self, text: str) -> bool:
        text = text[:TRIAL]
        parts = list(pieces([text], TRIAL_PIECE, self._recognised))
        if not parts:
            return True
        with self._cutting():
            cut = [self._rust.encode(parts[0], add_special_tokens=False).ids]
            cut += [self._inner.encode(part, add_special_tokens=False).ids for part in parts[1:]]
            whole: list[int] = self._rust.encode(text, add_special_tokens=False).ids
        return list(itertools.chain.from_iterable(cut)) == whole

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`, special tokens included, with U+FFFD for bytes that are not UTF-8."""
        if self._pieces is None:
            text: str = self._rust.decode(list(map(int, ids)), skip_special_tokens=False)
            return text
        return self.decode_bytes(ids).decode("utf-8", "replace")

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes that `ids` stand for."""
        if self._pieces is None:
            return self.decode(ids).encode("utf-8")
        data = b"".join(map(self._pieces.piece, ids))
        spaces = len(data) - len(data.lstrip(b" "))
        return data[min(spaces, self._pieces.strip) :]

    def stream(self, after: Iterable[int] = ()) -> StreamDecoder:
        """A decoder for ids that arrive one at a time, behind those of `after`."""
        if self._pieces is None:
            return HeldStream(self.decode, after)
        return Utf8Stream(self._pieces.piece, strip=self._pieces.strip, after=after)

    def to_json(self) -> str:
        """The tokenizer.json."""
        return self._source


def learn_bpe(texts: Iterable[str], vocab_size: int) -> BPETokenizer:
    """A byte-level BPE learned on a text; it gives every string back exactly.

    Args:
        texts: the text, block by block.
        vocab_size: tokens, the 256 bytes included; a short text may give fewer.
    """
    rust = tokenizers.Tokenizer(models.BPE())
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    rust.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    rust.train_from_iterator(pieces(texts, PIECE), trainer)
    return BPETokenizer(rust.to_str())


def _build(value: dict[str, Any], special_tokens: bool) -> tokenizers.Tokenizer:
    plain = {**value, "truncation": None, "padding": None}
    if value["model"].get("dropout"):
        # Dropped merges are for another kind of training; here the same text has the same tokens.
        plain["model"] = {**value["model"], "dropout": None}
    rust = tokenizers.Tokenizer.from_str(json.dumps(plain))
    rust.encode_special_tokens = not special_tokens
    return rust


def _without_prefix(step: Any) -> Any:
    """A normalizer or pre-tokenizer without the space that it puts before the text."""
    if not isinstance(step, dict):
        return step
    kind = step.get("type")
    if kind == "Prepend":
        return None
    if kind == "ByteLevel":
        return {**step, "add_prefix_space": False}
    if kind == "Metaspace":
        return {**step, "prepend_scheme": "never", "add_prefix_space": False}
    for name in ("normalizers", "pretokenizers"):
        if name in step:
            kept = [inner for each in step[name] if (inner := _without_prefix(each)) is not None]
            return {**step, name: kept}
    return step


def _head(texts: Iterator[str], size: int) -> Iterator[str]:
    """Blocks of `texts` until there are `size` characters."""
    for text in texts:
        yield text
        size -= len(text)
        if size <= 0:
            return
