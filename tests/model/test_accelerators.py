"""The table of accelerators."""

import pytest

from partwise.errors import ConfigError
from partwise.model.accelerators import ACCELERATORS, accelerator


@pytest.mark.parametrize("name", ["A100", "a100", "rtx-4090", "RTX 4090", "tpu_v4"])
def test_names_are_found_as_people_write_them(name: str) -> None:
    assert accelerator(name) in ACCELERATORS.values()


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean H100"):
        accelerator("H1000")


def test_every_chip_has_a_source_and_sensible_units() -> None:
    for chip in ACCELERATORS.values():
        assert chip.source
        assert 5e13 < chip.flops < 1e16
        assert 1e10 < chip.memory < 1e12
        # No chip can read a byte for each operation, nor needs a million of them for one.
        assert 10 < chip.flops / chip.bandwidth < 1000
