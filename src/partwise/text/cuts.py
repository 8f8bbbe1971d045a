"""Where a long text may be cut so that encoding its pieces gives the tokens of the whole.

A tokenizer first splits a text into words and never makes a token across two of them. All the
splitting rules in use, from GPT-2's on, end a word between a letter or digit and the white space
that follows it; rules that keep words apart from punctuation also end one before that.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

# The last letter or digit before white space, or else before plain punctuation. An apostrophe is
# not in it: some rules keep "don't" whole. Nor are marks, which belong to the letter before them.
_BEFORE_SPACE = re.compile(r"[^\W_](?=[ \n\r\t\u3000])")
_BEFORE_PUNCTUATION = re.compile(r"[^\W_](?=[.,;:!?、。，；：！？])")

# As far back as a place to cut is looked for (characters).
REACH = 4096

# A stretch without any such place is cut all the same when it is this long (characters).
LONGEST = 1 << 22


def pieces(texts: Iterable[str], size: int, keep_whole: Sequence[str] = ()) -> Iterator[str]:
    """The joined `texts` in pieces of about `size` characters, cut between words.

    Args:
        texts: the text, block by block.
        size: length of a piece (characters); longer only where there is no place to cut.
        keep_whole: strings that are never cut, nor cut off from what surrounds them.
    """
    rest = ""
    wanted = size
    # So that a string to keep whole is always in sight.
    margin = max(map(len, keep_whole), default=1)
    for text in texts:
        rest += text
        start = 0
        while len(rest) - start > wanted + margin:
            place = cut(rest, start + wanted, start, keep_whole)
            if place is None and wanted < LONGEST:
                wanted = min(2 * wanted, LONGEST)
                continue
            place = start + wanted if place is None else place
            yield rest[start:place]
            start = place
            wanted = size
        rest = rest[start:]
    if rest:
        yield rest


def cut(text: str, stop: int, start: int = 0, keep_whole: Sequence[str] = ()) -> int | None:
    """The last place to cut `text` at or before `stop`, not far from it; None if there is none.

    Args:
        text: the text; `text[stop]` must exist.
        stop: the last place that is considered.
        start: no place at or before it is considered.
        keep_whole: strings that are never cut, nor cut off from what surrounds them.
    """
    begin = max(start, stop - REACH)
    for rule in (_BEFORE_SPACE, _BEFORE_PUNCTUATION):
        for match in reversed(list(rule.finditer(text, begin, stop + 1))):
            place = match.end()
            if place > start and not any(
                whole in text[max(place - len(whole), 0) : place + len(whole)]
                for whole in keep_whole
            ):
                return place
    return None
