"""Repairs are what the sweeper found because a bell was lost: none without a fault, some when no bell arrives."""

import pytest

from tests.simulation.plan import Weather, draw
from tests.simulation.seed import simulate

FAULT_FREE = [seed for seed in range(1, 300) if not draw(seed).faulty]
DEAF_UNTIL_S = 60.0


def without_faults(plan):
    plan.bell_lost = 0.0


def without_bells(plan):
    plan.bell_lost, plan.lasts_s = 1.0, DEAF_UNTIL_S
    if plan.together is not None:
        plan.together.weather = Weather(lost=1.0)


def of_kind(count, *, together):
    return [seed for seed in FAULT_FREE if (draw(seed).together is not None) == together][:count]


@pytest.mark.parametrize("together", [False, True])
def test_without_a_fault_there_is_nothing_to_repair(together):
    outcomes = [simulate(seed, bend=without_faults) for seed in of_kind(12, together=together)]

    assert [outcome.broken for outcome in outcomes if outcome.broken] == []
    assert sum(outcome.figures["repairs"] for outcome in outcomes) == 0
    assert sum(outcome.figures["runs"] for outcome in outcomes) > 20


@pytest.mark.parametrize("together", [False, True])
def test_without_any_bell_the_sweeper_repairs_and_all_runs_end(together):
    outcomes = [simulate(seed, bend=without_bells) for seed in of_kind(6, together=together)]

    assert [outcome.broken for outcome in outcomes if outcome.broken] == []
    assert sum(outcome.figures["repairs"] > 0 for outcome in outcomes) > len(outcomes) / 2
