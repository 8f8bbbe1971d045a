"""Two columns in, three parts out: what is wrong is named, and nothing leaks."""

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.errors import ConfigError, TextError
from partwise.text.pair_config import PairConfig
from partwise.text.pair_prepare import open_pairs, prepare_pairs
from partwise.text.pairs import Pairs, read_pairs, sense, split, unique
from partwise.text.tasks import TASKS, task_pairs

PLAIN = PairConfig()


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "pairs.tsv"
    path.write_bytes(text.encode("utf-8") if isinstance(text, str) else text)
    return path


def test_two_columns(tmp_path: Path) -> None:
    text = "\ufeffchat\tcat\r\n\r\n  chien \tdog\nnaïve 你好 🙂\tx\u2028y"
    found = read_pairs(written(tmp_path, text), PLAIN)
    assert found == (("chat", "cat"), ("chien", "dog"), ("naïve 你好 🙂", "x\u2028y"))


def test_columns_can_be_chosen(tmp_path: Path) -> None:
    path = written(tmp_path, "Go.\tVa !\tCC-BY\nRun!\tCours !\n")
    config = PairConfig(source_column=2, target_column=1)
    assert read_pairs(path, config) == (("Va !", "Go."), ("Cours !", "Run!"))


@pytest.mark.parametrize(
    ("text", "config", "said"),
    [
        ("a\tb\nc\n", PLAIN, "line 2: there is no tab, and two columns are needed"),
        ("a\tb\nc\td\te\n", PLAIN, "line 2: 3 columns where 2 are needed"),
        ("a\tb\n\n\tb\n", PLAIN, "line 3: column 1 is empty"),
        ("a\t  \n", PLAIN, "line 1: column 2 is empty"),
        ("a\tb\n", PairConfig(source_column=1, target_column=3), "2 columns, and column 3"),
        ("", PLAIN, "has no pairs"),
        ("\n \n", PLAIN, "has no pairs"),
        (b"a\tb\n\xff\tb\n", PLAIN, "is not UTF-8 at byte 4 (0xff)"),
    ],
)
def test_what_is_wrong_is_named(
    tmp_path: Path, text: str | bytes, config: PairConfig, said: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(TextError) as caught:
        read_pairs(path, config)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_file_longer_than_a_block_is_read_whole(tmp_path: Path) -> None:
    lines = [f"{'é' * 700} {number}\tcopy {number}" for number in range(2000)]
    found = read_pairs(written(tmp_path, "\n".join(lines)), PLAIN)
    assert len(found) == 2000
    assert found[-1] == (f"{'é' * 700} 1999", "copy 1999")


def test_pairs_that_say_the_same_are_one() -> None:
    pairs = [("Chat.", "cat"), ("chat", "Cat !"), ("chat", "pussy"), ("Chat.", "cat")]
    assert unique(pairs) == (("Chat.", "cat"), ("chat", "pussy"))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Save", "save …", True),
        ("« Oui »", "oui", True),
        ("a  b\u00a0c", "A b c!", True),
        ("...", "…", True),
        ("Save", "Saved", False),
        ("C++", "C", False),
    ],
)
def test_sense(one: str, other: str, same: bool) -> None:
    assert (sense(one) == sense(other)) is same


words = st.text("abAB.é", min_size=1, max_size=3)


@settings(max_examples=60, deadline=None)
@given(
    pairs=st.lists(st.tuples(words, words), min_size=20, max_size=80),
    seed=st.integers(0, 5),
    share=st.sampled_from([0.05, 0.2]),
)
def test_no_sentence_is_on_two_sides(pairs: list[tuple[str, str]], seed: int, share: float) -> None:
    config = PairConfig(val_fraction=share, test_fraction=share, split_seed=seed)
    kept = unique(pairs)
    try:
        parts = split(kept, config, "x")
    except TextError:
        return
    every = (*parts.train, *parts.validation, *parts.test)
    assert sorted(every) == sorted(kept)
    said = [
        {sense(text) for pair in part for text in pair}
        for part in (parts.train, parts.validation, parts.test)
    ]
    assert not said[0] & said[1]
    assert not said[0] & said[2]
    assert not said[1] & said[2]


def numbered(count: int) -> list[tuple[str, str]]:
    return [(f"source {n}", f"target {n}") for n in range(count)]


def test_the_split_has_the_shares_and_follows_from_the_seed_alone() -> None:
    pairs = numbered(1000)
    parts = split(pairs, PLAIN, "x")
    assert [len(part) for part in (parts.train, parts.validation, parts.test)] == [900, 50, 50]
    mixed = pairs[:]
    random.Random(0).shuffle(mixed)
    again = split(mixed, PLAIN, "x")
    assert set(again.test) == set(parts.test)
    assert set(again.validation) == set(parts.validation)
    assert set(split(pairs, PairConfig(split_seed=2), "x").test) != set(parts.test)


def test_what_hangs_together_stays_together_across_columns() -> None:
    # "b" is a target here and a source there: held out, it would have been seen in training.
    chain = [("a", "b"), ("b", "c"), ("c", "d")] * 1
    parts = split([*chain, *numbered(300)], PLAIN, "x")
    sides = [
        sum(pair in part for pair in chain) for part in (parts.train, parts.validation, parts.test)
    ]
    assert sorted(sides) == [0, 0, 3]


def test_pairs_that_all_hang_together_cannot_be_held_out() -> None:
    with pytest.raises(TextError, match="has 40 pairs, of which none can be held out"):
        split([("same", str(n)) for n in range(40)], PLAIN, "x")
    with pytest.raises(TextError, match="give more pairs"):
        split(numbered(3), PLAIN, "x")


@pytest.mark.parametrize("name", sorted(TASKS))
def test_tasks_are_the_same_each_time_and_all_different(name: str) -> None:
    pairs = task_pairs(name, 500)
    assert len(set(pairs)) == 500
    assert task_pairs(name, 200) == pairs[:200]
    for source, target in pairs[:100]:
        if name == "reverse":
            assert target == source[::-1]
        elif name == "sort":
            assert list(target) == sorted(source)
        else:
            year, _, day = target.split("-")
            assert year in source
            assert str(int(day)) in source


def test_dates_are_read_as_people_mean_them() -> None:
    answers = dict(task_pairs("dates", 5000))
    named = {source: target for source, target in answers.items() if source.startswith("Mar")}
    assert named
    assert all(target.split("-")[1] == "03" for target in named.values())
    slashes = [(a, b) for a, b in answers.items() if "/" in a]
    assert all("/".join(reversed(target.split("-"))) == source for source, target in slashes)


def test_pairs_are_opened_by_name_or_path(tmp_path: Path) -> None:
    path = written(tmp_path, "un\tone\nUn\tOne.\ndeux\ttwo\n")
    found = open_pairs(str(path), PLAIN)
    assert found.pairs == (("un", "one"), ("deux", "two"))
    assert found.spec == str(path)
    assert "1 of 3 pairs" in str(found.notices[0])
    assert open_pairs(str(path), PairConfig(swap=True)).pairs[0] == ("one", "un")
    assert len(open_pairs("sort", PairConfig(task_pairs=50)).pairs) == 50
    with pytest.raises(TextError, match=r"there are no pairs revers; .* reverse, sort, dates"):
        open_pairs("revers", PLAIN)


def test_the_fingerprint_is_of_all_pairs_in_their_order() -> None:
    one = Pairs("x", "x", (("a", "b"), ("c", "d")))
    assert one.fingerprint != Pairs("x", "x", (("c", "d"), ("a", "b"))).fingerprint
    assert one.fingerprint != Pairs("x", "x", (("a", "b"), ("c", "e"))).fingerprint
    assert one.fingerprint == Pairs("y", "y", one.pairs).fingerprint


def test_prepared_pairs_are_in_tokens(tmp_path: Path) -> None:
    lines = [f"le nombre {n} est là\tthe number {n} is here" for n in range(200)]
    path = written(tmp_path, "\n".join(lines))
    found = prepare_pairs(str(path), PairConfig(bpe_vocab_size=300), longest=40)
    assert [found.train.count, found.validation.count, len(found.test)] == [180, 10, 10]
    source, target = found.train.sources[0], found.train.targets[0]
    assert found.tokenizer.decode(source).startswith("le nombre ")
    assert found.tokenizer.decode(target).startswith("the number ")
    assert len(found.validation) == sum(len(text) + 1 for text in found.validation.targets)
    again = prepare_pairs(
        str(path), PairConfig(bpe_vocab_size=300), longest=40, tokenizer=found.tokenizer
    )
    assert again.fingerprint == found.fingerprint
    assert all(
        (a == b).all() for a, b in zip(again.train.sources, found.train.sources, strict=True)
    )


def test_pairs_that_are_too_long_are_left_out_and_said(tmp_path: Path) -> None:
    lines = [f"{n}\t{'x' * (n % 4 + 1)} {n}" for n in range(100, 400)]
    path = written(tmp_path, "\n".join(lines))
    config = PairConfig(tokenizer="char")
    found = prepare_pairs(str(path), config, longest=6)
    kept = found.train.count + found.validation.count + len(found.test)
    assert kept == 150
    assert "150 pairs with a text of more than 6 characters are left out" in map(str, found.summary)
    with pytest.raises(TextError, match="no pair is left whose texts have 2 characters or fewer"):
        prepare_pairs(str(path), config, longest=2)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"val_fraction": 0.0}, "val_fraction=0.0 is not a share"),
        ({"val_fraction": 0.3, "test_fraction": 0.3}, "keep more than half"),
        ({"source_column": 1}, "give both or none"),
        ({"source_column": 2, "target_column": 2}, "are both 2"),
        ({"source_column": 0, "target_column": 2}, "source_column=0 is too small"),
        ({"bpe_vocab_size": 256}, "less than the 256 bytes"),
        ({"tokenizer": "word"}, "tokenizer='word' is not a choice"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        PairConfig(**changes)  # type: ignore[arg-type]
    assert said in str(caught.value)
