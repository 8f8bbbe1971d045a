"""Batches follow from (seed, step, rank) alone; windows predict every token but the first once."""

import threading
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.errors import ConfigError, TextError
from partwise.messages import use_language
from partwise.text.batches import Batches, ahead, require_tokens, windows
from partwise.text.byte import ByteTokenizer
from partwise.text.tokenfile import TokenFile, write_tokens


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> TokenFile:
    """1,000 tokens in shards of 77, of which the n-th is n mod 251."""
    folder = tmp_path_factory.mktemp("tokens") / "tokens"
    tokenizer = ByteTokenizer()
    write_tokens(
        folder,
        [np.arange(1000) % 251],
        tokenizer=tokenizer,
        text="numbers",
        text_fingerprint="0" * 64,
        shard_tokens=77,
    )
    return TokenFile(folder, tokenizer, verify=True)


def test_targets_are_the_next_tokens(file: TokenFile) -> None:
    inputs, targets = Batches(file.view(), 8, 64, seed=1).batch(0)
    assert inputs.shape == targets.shape == (64, 8)
    assert inputs.dtype == targets.dtype == np.int64
    assert inputs.flags.c_contiguous and targets.flags.c_contiguous
    assert ((inputs + 1) % 251 == targets).all()
    assert (inputs[:, 1:] == targets[:, :-1]).all()


def test_a_batch_is_a_pure_function_of_seed_and_step(file: TokenFile) -> None:
    batches = Batches(file.view(), 8, 4, seed=1)
    first = [batches.batch(step)[0].tolist() for step in range(5)]
    for step in (3, 0, 4, 3):
        again = Batches(file.view(), 8, 4, seed=1).batch(step)[0]
        assert again.tolist() == first[step]
    assert len({str(rows) for rows in first}) == 5
    assert Batches(file.view(), 8, 4, seed=2).batch(0)[0].tolist() != first[0]


def test_the_places_are_those_of_the_format(file: TokenFile) -> None:
    # Philox-4x64-10 (Salmon et al., 2011) with key = seed and counter = (0, step, 0, 0): held here
    # because a run must resume with the same batches under every later version.
    inputs, _ = Batches(file.view(0, 200), 8, 4, seed=1337).batch(12)
    words = np.random.Philox(key=1337, counter=[0, 12, 0, 0]).random_raw(4)
    assert inputs[:, 0].tolist() == [int(word) % 192 for word in words.tolist()]


@pytest.mark.parametrize("world", [1, 2, 3, 6])
def test_processes_share_out_the_same_batch(file: TokenFile, world: int) -> None:
    batches = Batches(file.view(), 5, 6, seed=3)
    whole = batches.batch(7)
    for part in (0, 1):
        shares = [batches.batch(7, rank, world)[part] for rank in range(world)]
        assert np.concatenate(shares).tolist() == whole[part].tolist()


def test_an_epoch_reads_all_before_one_comes_again(file: TokenFile) -> None:
    view = file.view(0, 250)  # of which each token tells its place
    batches = Batches(view, 8, 5, seed=3, order="epochs")
    steps = 6  # of 5 sequences: an epoch has 249 // 8 - 1 = 30
    for epoch in (0, 1):
        rows = [batches.batch(epoch * steps + step)[0] for step in range(steps)]
        read = np.concatenate(rows).flatten().tolist()
        assert len(read) == len(set(read)) == 240
        assert read != sorted(read)
    starts = [{row[0] % 8 for row in batches.batch(step)[0].tolist()} for step in (0, 6, 12, 18)]
    assert all(len(cuts) == 1 for cuts in starts)
    assert len({min(cuts) for cuts in starts}) > 1


def test_an_epoch_is_a_pure_function_of_seed_and_step(file: TokenFile) -> None:
    def drawn(seed: int, steps: list[int]) -> list[list[list[int]]]:
        batches = Batches(file.view(), 8, 7, seed=seed, order="epochs")
        return [batches.batch(step)[0].tolist() for step in steps]

    order = list(range(60))
    forwards = drawn(1, order)
    assert drawn(1, order[::-1])[::-1] == forwards
    assert drawn(2, order) != forwards


@pytest.mark.parametrize("length", [9, 10, 16, 17, 18])
def test_an_epoch_of_a_short_text(file: TokenFile, length: int) -> None:
    inputs, targets = Batches(file.view(0, length), 8, 4, seed=1, order="epochs").batch(5)
    assert inputs.shape == (4, 8)
    assert targets.max() < length


def test_a_batch_that_cannot_be_shared_out_is_refused(file: TokenFile) -> None:
    with pytest.raises(ConfigError, match=r"batch_size=6 .* 4 processes; batch_size=8 would do"):
        Batches(file.view(), 5, 6, seed=3).batch(0, 0, 4)


def test_every_place_is_drawn(file: TokenFile) -> None:
    batches = Batches(file.view(100, 110), 7, 64, seed=0)
    starts = {row[0] for step in range(3) for row in batches.batch(step)[0].tolist()}
    assert starts == {100, 101, 102}


def test_one_sequence_is_enough(file: TokenFile) -> None:
    inputs, targets = Batches(file.view(0, 65), 64, 2, seed=0).batch(0)
    assert inputs.tolist() == [list(range(64))] * 2 and targets[0, -1] == 64


@settings(deadline=None)
@given(st.integers(0, 300), st.integers(1, 40), st.integers(1, 9))
def test_windows_predict_every_token_but_the_first_once(
    file: TokenFile, length: int, context: int, batch: int
) -> None:
    view = file.view(5, 5 + length)
    read, predicted = [], []
    for inputs, targets in windows(view, context, batch):
        assert inputs.shape == targets.shape and len(inputs) <= batch
        assert inputs.shape[1] <= context and inputs.dtype == np.int64
        read += inputs.reshape(-1).tolist()
        predicted += targets.reshape(-1).tolist()
    tokens = view[:].tolist()
    assert predicted == tokens[1:] and read == tokens[:-1]


def test_only_the_last_window_is_short_and_comes_alone(file: TokenFile) -> None:
    shapes = [inputs.shape for inputs, _ in windows(file.view(0, 25), 5, 3)]
    assert shapes == [(3, 5), (1, 5), (1, 4)]


@settings(deadline=None)
@given(st.integers(2, 300), st.integers(1, 40), st.integers(1, 400))
def test_a_limit_takes_windows_from_the_whole_text(
    file: TokenFile, length: int, context: int, limit: int
) -> None:
    view = file.view(0, length)
    chosen = [row for _, rows in windows(view, context, 4, limit) for row in rows.tolist()]
    whole = [row for _, rows in windows(view, context, 4) for row in rows.tolist()]
    assert chosen and all(row in whole for row in chosen)
    count = sum(map(len, chosen))
    assert count <= max(limit, context)
    assert count > min(limit, length - 1) - context
    assert chosen == [row for _, rows in windows(view, context, 7, limit) for row in rows.tolist()]


def test_a_limit_spreads_its_windows(file: TokenFile) -> None:
    firsts = [int(rows[0, 0]) for rows, _ in windows(file.view(0, 201), 10, 1, limit=50)]
    assert firsts == [0, 40, 80, 120, 160]


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_drawing_ahead_changes_nothing_and_ends_cleanly(file: TokenFile, workers: int) -> None:
    batches = Batches(file.view(), 8, 4, seed=1)
    drawn = ahead(batches, 5, workers, rank=1, world=2)
    for step, (inputs, targets) in enumerate(islice(drawn, 12), start=5):
        wanted = batches.batch(step, 1, 2)
        assert (inputs == wanted[0]).all() and (targets == wanted[1]).all()
    # A pool starts no thread while another of its own has nothing to do.
    assert bool(workers) <= drawing() <= workers
    drawn.close()
    assert drawing() == 0


def drawing() -> int:
    """Threads that draw batches, whoever else has threads in this process."""
    return sum(thread.name.startswith("batches") for thread in threading.enumerate())


def test_a_fault_while_drawing_ahead_is_raised(file: TokenFile) -> None:
    batches = Batches(file.view(), 8, 4, seed=1)
    with pytest.raises(ConfigError):
        next(ahead(batches, 0, 2, rank=0, world=3))


def test_a_short_part_is_refused_with_a_context_that_fits(file: TokenFile) -> None:
    view = file.view(0, 20)
    with pytest.raises(TextError) as caught:
        require_tokens(view, 64, "validation")
    line = "the validation part has 20 bytes where 65 are needed; context_length=19 would fit"
    assert str(caught.value) == line
    require_tokens(view, 19, "validation")
    with use_language("zh"):
        line = "验证部分有 20 个字节，而需要 65 个；context_length=19 可以"
        assert str(caught.value) == line


def test_the_context_offered_fits_the_shorter_part_too(file: TokenFile) -> None:
    with pytest.raises(TextError, match=r"the training part has 50 .*; context_length=9 would fit"):
        require_tokens(file.view(0, 50), 64, "training", shortest=10)


@pytest.mark.parametrize("length", [0, 1])
def test_no_context_fits_one_token(file: TokenFile, length: int) -> None:
    with pytest.raises(TextError, match="where 2 are needed; give a longer text"):
        Batches(file.view(0, length), 1, 1, seed=0)
