"""Names of run folders, and of values in them."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partwise.ladder.jobs import LONGEST_SLUG, slug
from partwise.ladder.rungs import written
from partwise.ladder.variants import variants
from partwise.storage import safe_name


@pytest.mark.parametrize(
    ("label", "folder"),
    [
        ("without residual", "without-residual"),
        ("without residual, lr=0.003", "without-residual-lr-0.003"),
        ("norm_placement=post", "norm-placement-post"),
        ("eps=1e-08", "eps-1e-08"),
        ("without final-norm", "without-final-norm"),
    ],
)
def test_a_plain_label_is_readable(label: str, folder: str) -> None:
    assert slug(label) == folder


def test_no_two_variants_share_a_folder() -> None:
    swaps = ["eps=1e-8", "eps=1e8", "norm_eps=1e-8", "norm_eps=1e+8", "wandb=Cats", "wandb=cats"]
    swaps += ["wandb=猫", "wandb=狗", "device=cuda:1", "device=cuda-1", "lr=0.00123456789"]
    swaps += ["lr=0.0012345679", "beta2=0.99", "beta2=0.9900000001"]
    folders = [slug(one.label) for one in variants(swap=swaps, each=True)]
    assert len(folders) == len(swaps)
    for one, other in itertools.combinations(folders, 2):
        assert one.lower() != other.lower()
    for folder in folders:
        assert safe_name(f"rung-1-{folder}-seed-1")
        assert len(folder) <= LONGEST_SLUG


@given(st.floats(allow_nan=False))
def test_a_number_is_written_with_all_of_it(value: float) -> None:
    assert float(written(value)) == value


def test_short_numbers_stay_short() -> None:
    assert [written(x) for x in (0.003, 1e-8, 1.0, math.inf)] == ["0.003", "1e-08", "1", "inf"]
