"""What a long training will take, said before it begins."""

import dataclasses

import pytest

from partwise.ladder import estimate
from partwise.ladder.config import LadderConfig
from partwise.ladder.jobs import Job
from partwise.ladder.plan import plan


@pytest.fixture
def sixth() -> Job:
    (job,), _ = plan(LadderConfig(only="6"))
    return job


def test_the_time_is_that_of_steps_and_evaluations_left(sixth: Job) -> None:
    assert estimate.seconds(sixth, step=2.0, evaluation=30.0) == 5000 * 2 + 10 * 30
    assert estimate.seconds(sixth, step=2.0, evaluation=30.0, done=4400) == 600 * 2 + 2 * 30
    assert estimate.seconds(sixth, step=2.0, evaluation=30.0, done=5000) == 0
    line = str(estimate.notice(sixth, 12.6, 60.0))
    assert "rung 6, scaled: 12.6 s a step here, so its 5,000 steps take about 17.7 hours" in line


def test_a_long_rung_6_has_a_recipe_beside_it(sixth: Job) -> None:
    offered = estimate.quicker(sixth, 12.6, 60.0, 0, "tinyshakespeare")
    assert "no rung of this ladder" in str(offered)
    assert "partwise train tinyshakespeare --recipe fast" in str(offered)
    assert estimate.quicker(sixth, 0.02, 0.5, 0, "tinyshakespeare") is None
    assert estimate.quicker(sixth, 12.6, 60.0, 4990, "tinyshakespeare") is None
    fifth = dataclasses.replace(sixth, rung=5)
    assert estimate.quicker(fifth, 12.6, 60.0, 0, "tinyshakespeare") is None


@pytest.mark.parametrize(
    ("seconds", "said"), [(40, "40 seconds"), (720, "12 minutes"), (21960, "6.1 hours")]
)
def test_a_time_is_said_as_people_say_it(seconds: float, said: str) -> None:
    assert estimate.duration(seconds) == said
