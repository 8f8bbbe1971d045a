"""The covering set is what it says: every two choices that can meet do meet."""

import dataclasses
import itertools

import pytest
from configurations import CONFIGURATIONS, LEVELS, NEEDS, NEVER, ROWS, is_awake, is_valid

from partwise.model.config import ModelConfig
from partwise.settings import options

# What ModelConfig refuses, by hand; every other pair must be met.
REFUSED = {
    (("attention", False), ("feedforward", "none")),
    (("attention", False), ("parallel", True)),
    (("n_heads", 1), ("n_kv_heads", 2)),
    (("n_heads", 3), ("n_kv_heads", 2)),
    (("causal", False), ("window", 3)),
    (("feedforward", "none"), ("parallel", True)),
    (("d_ff", 20), ("feedforward_output", False)),
    (("parallel", True), ("norm_placement", "post")),
}


def test_every_field_varies():
    assert list(LEVELS) == list(options(ModelConfig))
    assert all(len(set(values)) > 1 for values in LEVELS.values())
    for name, option in options(ModelConfig).items():
        assert set(option.choices) <= set(LEVELS[name]), name
        if option.types == (bool,):
            assert set(LEVELS[name]) == {True, False}, name


def test_every_pair_that_can_meet_meets():
    met = set()
    for config in CONFIGURATIONS:
        row = dataclasses.asdict(config)
        met |= set(itertools.combinations([(f, row[f]) for f in LEVELS if is_awake(f, row)], 2))
    missing = []
    for (field, values), (other, others) in itertools.combinations(LEVELS.items(), 2):
        for value, another in itertools.product(values, others):
            asleep = value not in NEEDS.get(other, {}).get(
                field, (value,)
            ) or another not in NEEDS.get(field, {}).get(other, (another,))
            pair = ((field, value), (other, another))
            if not asleep and pair not in REFUSED and pair not in met:
                missing.append(pair)
    assert missing == []
    assert not met & REFUSED
    assert set(NEVER) == REFUSED


@pytest.mark.parametrize("pair", sorted(REFUSED, key=str), ids=str)
def test_a_refused_pair_is_refused_beside_every_other_choice(pair):
    for row in ROWS:
        changed = row | dict(pair)
        if all(is_awake(field, changed) for field, _ in pair):
            assert not is_valid(changed)


def test_the_set_stays_small():
    assert 30 <= len(CONFIGURATIONS) <= 60
    assert len(set(CONFIGURATIONS)) == len(CONFIGURATIONS)
