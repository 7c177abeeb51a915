from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.actors.errors import (
    DefinitionError,
    FatalError,
    NondeterminismError,
    RetryAfter,
    SerializationError,
)
from fencepost.actors.retry import MAX_LOST, Retry, loss_delay, next_step
from fencepost.world import ValueTooLarge

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RNG = random.Random(1)


def after(error, *, retry=None, attempt=1):
    return next_step(retry or Retry(), attempt, error, RNG, now=NOW)


def test_no_retries_means_exactly_one_start():
    assert after(ValueError(), retry=Retry(times=0)) is None


def test_times_counts_the_retries_after_the_first_attempt():
    retry = Retry(times=2, jitter=0)

    delays = [after(ValueError(), retry=retry, attempt=n) for n in (1, 2, 3)]

    assert delays == [1.0, 2.0, None]


def test_delays_grow_by_the_factor_up_to_the_maximum():
    retry = Retry(times=10, first="1s", factor=10, max="1m", jitter=0)

    delays = [after(ValueError(), retry=retry, attempt=n) for n in (1, 2, 3, 4)]

    assert delays == [1.0, 10.0, 60.0, 60.0]


@given(
    attempt=st.integers(1, 10**6),
    factor=st.floats(1, 1e300),
    first=st.floats(0, 1e6),
    jitter=st.floats(0, 1),
    seed=st.integers(),
)
def test_backoff_never_overflows_and_never_passes_its_maximum(attempt, factor, first, jitter, seed):
    retry = Retry(times=10**6, first=first, factor=factor, max="365d", jitter=jitter)

    delay = next_step(retry, attempt, ValueError(), random.Random(seed))

    assert delay is not None
    assert 0 <= delay <= 365 * 86_400


@pytest.mark.parametrize(
    "error",
    [
        FatalError("no"),
        SerializationError("no"),
        DefinitionError("no"),
        NondeterminismError("no"),
        ValueTooLarge("result", 2, 1),
        type("Declined", (FatalError,), {})("no"),
        ExceptionGroup("many", [ValueError(), ExceptionGroup("more", [FatalError("no")])]),
    ],
)
def test_what_no_retry_can_help_fails_at_once(error):
    assert after(error) is None


@pytest.mark.parametrize(
    ("delay", "expected"),
    [
        (5, 5.0),
        ("1h", 3600.0),
        (timedelta(hours=1), 3600.0),
        (NOW + timedelta(hours=1), 3600.0),
        (datetime(2026, 1, 1, 1), 3600.0),  # noqa: DTZ001  (without a zone is UTC)
        (NOW - timedelta(days=1), 0.0),
        (timedelta(seconds=-5), 0.0),
        (-5, 0.0),
        (NOW + timedelta(days=3653), 315_619_200.0),
        ("3650d", 315_360_000.0),
    ],
)
def test_retry_after_waits_as_long_as_it_says(delay, expected):
    assert after(RetryAfter(delay)) == expected


def test_retry_after_inside_a_group_counts_and_the_longest_wins():
    error = ExceptionGroup("many", [RetryAfter(5), ValueError(), RetryAfter("1m")])

    assert after(error) == 60.0


def test_retry_after_without_retries_left_is_the_end():
    assert after(RetryAfter(5), attempt=4) is None


@pytest.mark.parametrize("delay", ["soon", float("nan"), None])
def test_an_unreadable_retry_after_falls_back_to_the_policy(delay):
    assert after(RetryAfter(delay), retry=Retry(jitter=0)) == 1.0


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt()])
def test_a_step_that_exits_is_an_ordinary_failure(error):
    assert after(error, retry=Retry(jitter=0)) == 1.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"times": -1},
        {"times": True},
        {"times": 1.5},
        {"times": 10**9},
        {"first": "soon"},
        {"first": -1},
        {"first": "2m"},
        {"factor": 0.5},
        {"factor": float("inf")},
        {"factor": float("nan")},
        {"jitter": -0.1},
        {"jitter": 2},
        {"max": None},
    ],
)
def test_a_policy_that_cannot_work_names_its_field(wrong):
    with pytest.raises(DefinitionError, match=next(iter(wrong))) as caught:
        Retry(**wrong)

    assert "\n" not in str(caught.value)


def test_a_policy_may_be_a_number_a_policy_or_nothing():
    own = Retry(times=7)

    assert Retry.of(None) == Retry()
    assert Retry.of(0) == Retry(times=0)
    assert Retry.of(own) is own
    for nonsense in (True, "3", 1.5):
        with pytest.raises(DefinitionError, match="retry="):
            Retry.of(nonsense)


def test_losses_wait_longer_each_time_and_never_more_than_five_minutes():
    delays = [loss_delay(lost) for lost in range(MAX_LOST + 1)]

    assert delays[:3] == [0.05, 0.1, 0.2]
    assert delays == sorted(delays)
    assert delays[-1] == loss_delay(10**6) == 300.0
