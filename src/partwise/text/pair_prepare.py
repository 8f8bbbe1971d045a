"""From a name or a file to encoded pairs: opened, made unique, split, cut into tokens."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from partwise.errors import TextError
from partwise.messages import Notice
from partwise.text.byte import ByteTokenizer
from partwise.text.catalogues import PREFIX, catalogue_pairs
from partwise.text.char import CharTokenizer
from partwise.text.pair_batches import EncodedPairs
from partwise.text.pair_config import PairConfig
from partwise.text.pairs import Pair, Pairs, Split, read_pairs, split, unique
from partwise.text.tasks import TASKS, task_pairs
from partwise.text.tokenizers import Tokenizer


@dataclass(frozen=True)
class PreparedPairs:
    """Pairs, ready to train on.

    Args:
        name: short name.
        spec: opens the same pairs from any folder.
        fingerprint: SHA-256 of all pairs.
        tokenizer: for both texts.
        train, validation: as token numbers.
        test: as texts.
        summary: lines for the reader.
    """

    name: str
    spec: str
    fingerprint: str
    tokenizer: Tokenizer
    train: EncodedPairs
    validation: EncodedPairs
    test: tuple[Pair, ...]
    summary: tuple[Notice, ...]


def open_pairs(spec: str, config: PairConfig) -> Pairs:
    """The pairs that a user names.

    Args:
        spec: a file of two columns, `gettext:fr` (see `catalogues`), or a task (see `tasks`).
        config: which columns, and which way round.

    Raises:
        TextError: there is no such thing, or it cannot be used.
    """
    if spec in TASKS:
        found = Pairs(spec, spec, task_pairs(spec, config.task_pairs))
    elif spec.startswith(PREFIX):
        found = catalogue_pairs(spec.removeprefix(PREFIX))
    else:
        path = Path(spec).expanduser()
        if not path.is_file():
            raise TextError(
                "there are no pairs {spec}; give a file with two columns, gettext:fr or another "
                "language, or a task: {tasks}",
                spec=spec,
                tasks=", ".join(TASKS),
            )
        read = read_pairs(path, config)
        kept = unique(read)
        notices = []
        if len(kept) < len(read):
            notices.append(
                Notice(
                    "{count} of {all} pairs say what an earlier one says; left out",
                    count=f"{len(read) - len(kept):,}",
                    all=f"{len(read):,}",
                )
            )
        found = Pairs(path.stem, str(path.absolute()), kept, tuple(notices))
    if config.swap:
        swapped = tuple((target, source) for source, target in found.pairs)
        found = replace(found, pairs=swapped)
    return found


def prepare_pairs(
    spec: str,
    config: PairConfig,
    *,
    longest: int,
    tokenizer: Tokenizer | None = None,
) -> PreparedPairs:
    """Pairs in tokens, in three parts.

    Args:
        spec: what `open_pairs` takes.
        config: columns, tokenizer and shares.
        longest: longest text (tokens); pairs with a longer one are left out.
        tokenizer: one that is there already; None: as `config` says.

    Raises:
        TextError: the pairs cannot be used, or too few are left.
    """
    pairs = open_pairs(spec, config)
    parts = split(pairs.pairs, config, pairs.name)
    notices = list(pairs.notices)
    if tokenizer is None:
        tokenizer, about = _tokenizer(pairs, parts, config)
        notices += about
    kept = [
        _that_fit(part, tokenizer, longest) for part in (parts.train, parts.validation, parts.test)
    ]
    counts = [len(part) for part, _ in kept]
    left_out = len(pairs.pairs) - sum(counts)
    if not all(counts):
        raise TextError(
            "{name}: no pair is left whose texts have {longest} {unit} or fewer; a larger "
            "--model.context-length would do",
            name=pairs.name,
            longest=longest,
            unit=Notice(tokenizer.unit),
        )
    notices.append(
        Notice(
            "{train} pairs to learn from; {validation} to choose the best weights by and {test} to "
            "score by, none of whose sentences is among the others",
            train=f"{counts[0]:,}",
            validation=f"{counts[1]:,}",
            test=f"{counts[2]:,}",
        )
    )
    if left_out:
        notices.append(
            Notice(
                "{count} pairs with a text of more than {longest} {unit} are left out",
                count=f"{left_out:,}",
                longest=longest,
                unit=Notice(tokenizer.unit),
            )
        )
    return PreparedPairs(
        name=pairs.name,
        spec=pairs.spec,
        fingerprint=pairs.fingerprint,
        tokenizer=tokenizer,
        train=kept[0][1],
        validation=kept[1][1],
        test=tuple(kept[2][0]),
        summary=tuple(notices),
    )


def _tokenizer(pairs: Pairs, parts: Split, config: PairConfig) -> tuple[Tokenizer, list[Notice]]:
    kind = config.tokenizer or ("char" if pairs.spec in TASKS else "bpe")
    if kind == "byte":
        return ByteTokenizer(), []
    if kind == "char":
        return CharTokenizer({char for pair in pairs.pairs for text in pair for char in text}), []
    from partwise.text.bpe import learn_bpe

    learned = learn_bpe(_lines(parts.train), config.bpe_vocab_size)
    notice = Notice(
        "BPE: {tokens} tokens learned on both columns of the training pairs",
        tokens=f"{learned.vocab_size:,}",
    )
    return learned, [notice]


def _lines(pairs: Iterable[Pair]) -> Iterable[str]:
    return (f"{text}\n" for pair in pairs for text in pair)


def _that_fit(
    pairs: Sequence[Pair], tokenizer: Tokenizer, longest: int
) -> tuple[list[Pair], EncodedPairs]:
    kept, sources, targets = [], [], []
    for pair in pairs:
        source, target = (tokenizer.encode(text) for text in pair)
        if 0 < len(source) <= longest and 0 < len(target) <= longest:
            kept.append(pair)
            sources.append(source)
            targets.append(target)
    return kept, EncodedPairs(sources, targets)
