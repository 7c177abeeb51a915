"""The world's clock as a node estimates it."""

from datetime import UTC, datetime, timedelta

import pytest

from fencepost.actors.host import WorldClock

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def after(seconds):
    return NOON + timedelta(seconds=seconds)


def test_before_any_reading_it_is_the_machines_own():
    clock = WorldClock()

    before = datetime.now(UTC)
    told = clock.at(5.0)

    assert before <= told <= datetime.now(UTC)


def test_it_is_never_ahead_of_the_world():
    clock = WorldClock()

    clock.tell(NOON, asked_s=100.0, heard_s=100.5)  # read at any moment of that half second

    assert clock.at(100.5) == NOON
    assert clock.at(110.5) == after(10)


def test_of_the_last_readings_the_one_that_lagged_least_counts():
    clock = WorldClock()

    clock.tell(NOON, asked_s=100.0, heard_s=100.002)
    clock.tell(after(1.0), asked_s=101.0, heard_s=101.6)  # its answer took long

    assert clock.at(102.002) == after(2)


def test_an_old_reading_is_forgotten_after_a_while():
    clock = WorldClock()
    clock.tell(NOON, asked_s=100.0, heard_s=100.0)

    for second in range(1, WorldClock.READINGS + 1):
        clock.tell(after(second - 0.04), asked_s=100.0 + second, heard_s=100.0 + second)

    assert clock.at(110.0) == after(9.96)


@pytest.mark.parametrize("set_to_s", [3600, -3600])
def test_a_clock_of_the_world_that_was_set_is_followed_at_once(set_to_s):
    clock = WorldClock()
    clock.tell(NOON, asked_s=100.0, heard_s=100.002)

    clock.tell(after(set_to_s), asked_s=101.0, heard_s=101.01)

    assert clock.at(101.01) == after(set_to_s)


def test_what_this_machines_clock_says_moves_nothing():
    """Two nodes whose own clocks differ by minutes agree: only the world's and the monotonic clock are looked at."""
    fast, slow = WorldClock(), WorldClock()

    fast.tell(NOON, asked_s=1000.0, heard_s=1000.01)
    slow.tell(NOON, asked_s=5.0, heard_s=5.01)

    assert fast.at(1060.01) == slow.at(65.01)
