"""N-gram embeddings: the right row for each n tokens, and nothing where there are not n yet."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from partwise.model.ngram import NgramTable, ngram_rows


@given(
    tokens=st.lists(st.integers(0, 6), min_size=1, max_size=9),
    n=st.integers(2, 4),
    rows=st.sampled_from([1, 13, 48, 49, 50, 343, 2401]),
)
def test_each_place_gets_the_row_of_the_tokens_that_end_there(tokens, n, rows):
    table = NgramTable(n, 7, rows, 3).double()
    torch.nn.init.normal_(table.weight)
    before = [-1] * (n - 1)
    embedded = table(torch.tensor([before + tokens]))[0]
    assert len(embedded) == len(tokens)
    for end in range(len(tokens)):
        if end < n - 1:
            assert (embedded[end] == 0).all()
            continue
        row = 0
        for token in tokens[end - n + 1 : end + 1]:
            row = row * 7 + token if rows >= 7**n else (row * 1000003 + token + 1) % rows
        assert torch.equal(embedded[end], table.weight[row])


def test_every_n_gram_has_a_row_of_its_own_while_there_are_enough():
    pairs = torch.cartesian_prod(torch.arange(7), torch.arange(7))
    assert sorted(ngram_rows(pairs, 2, 7, 49).flatten().tolist()) == list(range(49))
    assert ngram_rows(pairs, 2, 7, 48).max() < 48


def test_hashing_spreads_and_never_overflows():
    # The largest vocabulary and table that anyone would make.
    tokens = torch.randint(200_000, (1, 20_003))
    rows = ngram_rows(tokens, 4, 200_000, 2**31)
    assert rows.min() >= 0 and rows.max() < 2**31
    counts = torch.bincount(ngram_rows(tokens, 4, 200_000, 1000).flatten(), minlength=1000)
    # 20 a row on average, with a standard deviation of 4.5.
    assert counts.min() > 0 and counts.max() < 50


def test_a_table_starts_at_zero_and_draws_nothing():
    before = torch.get_rng_state()
    table = NgramTable(2, 7, 49, 3)
    assert torch.equal(torch.get_rng_state(), before)
    assert (table.weight == 0).all() and table.weight.requires_grad


def test_missing_tokens_teach_no_row():
    table = NgramTable(2, 7, 49, 3)
    table(torch.tensor([[-1, 4, 5]])).sum().backward()
    touched = table.weight.grad.abs().sum(-1).nonzero().flatten().tolist()
    assert touched == [4 * 7 + 5]
