"""`partwise data`: look at a text as a model will see it, and at what is prepared already."""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from partwise.cli import flags
from partwise.cli.parser import Parser, Said
from partwise.cli.screen import progress, remark, say, table, visible
from partwise.errors import UsageError
from partwise.messages import message
from partwise.settings import option
from partwise.text.config import DataConfig

if TYPE_CHECKING:
    from partwise.text.prepare import Prepared

FIRST = 200
SHOWN = 200


@dataclass(frozen=True)
class DataFlags:
    """What `partwise data` can be told beside how a text is cut."""

    offline: bool = option(False, "never download anything")
    all: bool = option(False, "with remove: everything that is prepared")
    json: bool = option(False, "print one JSON object instead of lines")


def declare(parser: Parser) -> None:
    """`partwise data TEXT`, `partwise data list`, `partwise data remove NAME …`."""
    texts = message(
        "a file, a folder, a glob, - for standard input, or a corpus: shakespeare (offline), "
        "tinyshakespeare"
    )
    parser.place("TEXT", texts)
    parser.place("NAME", "", many=True)
    parser.form("TEXT", message("look at a text: {texts}", texts=texts))
    parser.form("list", message("list the texts that are prepared"))
    parser.form("remove NAME …", message("delete prepared texts by name or mark"))
    flags.add(parser, "", DataFlags, message("what to do"))
    flags.add(parser, "data", DataConfig, message("text"), short={"errors": "--errors"})


def run(said: Said) -> int:
    """Look, list or remove.

    Raises:
        UsageError: no text is named, or too many words.
    """
    asked = flags.given(said, "", DataFlags)
    verb, *rest = said.places or [""]
    if verb == "remove":
        return _remove(rest, asked)
    if verb == "list" and not rest:
        return _list(asked)
    if not verb:
        raise UsageError(
            "name a text to look at: {texts}",
            texts=message(
                "a file, a folder, a glob, - for standard input, or a corpus: shakespeare "
                "(offline), tinyshakespeare"
            ),
        )
    if rest:
        raise UsageError(
            "{command} does not know what {word!r} is for; see `{command} --help`",
            command="partwise data",
            word=rest[0],
        )
    config = flags.layered(DataConfig, DataConfig(), flags.overrides(said, "data", DataConfig))
    return _look(verb, config, asked)


def _look(text: str, config: DataConfig, asked: DataFlags) -> int:
    from partwise.storage import cache_folder
    from partwise.text.prepare import prepare

    with progress(message("preparing"), quiet=asked.json) as report:
        prepared = prepare(
            text,
            config,
            cache=cache_folder(),
            offline=asked.offline,
            progress=report,
            announce=remark,
        )
    if asked.json:
        say(json.dumps(_as_json(prepared), ensure_ascii=False, indent=2))
        return 0
    for notice in prepared.summary:
        say(visible(str(notice)))
    total = len(prepared.train) + len(prepared.validation)
    tokenizer = prepared.tokenizer
    rows = [
        (message("text"), prepared.name),
        (message("tokenizer"), tokenizer.name),
        (message("vocabulary"), f"{tokenizer.vocab_size:,}"),
        (message("training part"), _share(len(prepared.train), total)),
        (message("validation part"), _share(len(prepared.validation), total)),
        (message("begins"), _first(prepared)),
    ]
    if tokenizer.unit == "characters":
        known = tokenizer.decode(range(min(SHOWN, tokenizer.vocab_size)))
        rows.insert(3, (message("characters"), known))
    rows.append((message("prepared in"), str(prepared.train.file.folder)))
    table((), rows)
    return 0


def _list(asked: DataFlags) -> int:
    from partwise.storage import cache_folder
    from partwise.text.kept import kept

    found = kept(cache_folder())
    if asked.json:
        report = [
            {
                "mark": each.mark,
                "text": each.text,
                "tokenizer": each.tokenizer,
                "tokens": each.tokens,
                "bytes": each.bytes,
                "folder": str(each.folder),
            }
            for each in found
        ]
        say(json.dumps({"schema": 1, "prepared": report}, ensure_ascii=False, indent=2))
    elif not found:
        say(message("nothing is prepared yet"))
    else:
        table(
            [message("mark"), message("text"), message("tokenizer"), message("tokens"), "MB"],
            [(e.mark, e.text, e.tokenizer, f"{e.tokens:,}", f"{e.bytes / 1e6:.1f}") for e in found],
            right=[3, 4],
        )
    return 0


def _remove(words: list[str], asked: DataFlags) -> int:
    from partwise.storage import cache_folder
    from partwise.text.kept import kept, remove

    cache = cache_folder()
    if asked.all:
        words = [each.mark for each in kept(cache)]
    elif not words:
        raise UsageError("name what to remove, or --all; `partwise data list` shows what there is")
    for word in words:
        for each in remove(cache, word):
            say(
                message(
                    "removed {text} ({tokenizer}, {tokens:,} tokens)",
                    text=visible(each.text),
                    tokenizer=each.tokenizer,
                    tokens=each.tokens,
                )
            )
    return 0


def _as_json(prepared: "Prepared") -> dict[str, Any]:
    return {
        "schema": 1,
        "text": prepared.name,
        "spec": prepared.spec,
        "text_fingerprint": prepared.text_fingerprint,
        "tokenizer": prepared.tokenizer.name,
        "tokenizer_fingerprint": prepared.tokenizer.fingerprint,
        "vocab_size": prepared.tokenizer.vocab_size,
        "train_tokens": len(prepared.train),
        "validation_tokens": len(prepared.validation),
        "first": _first(prepared),
        "folder": str(prepared.train.file.folder),
        "notices": [str(notice) for notice in prepared.summary],
    }


def _first(prepared: "Prepared") -> str:
    return prepared.tokenizer.decode(prepared.train[:FIRST].tolist())[:FIRST]


def _share(tokens: int, total: int) -> str:
    return message("{tokens:,} tokens ({share:.0%})", tokens=tokens, share=tokens / max(1, total))
