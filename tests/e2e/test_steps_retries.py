"""Attempts: how many, when, and what counts as one."""

from datetime import UTC, datetime, timedelta

import pytest

from fencepost.actors import FatalError, Retry, RetryAfter, step, step_info, workflow
from fencepost.errors import RunFailed
from tests.e2e.world_and_bus import PATIENCE_S

QUICK = Retry(times=3, first=0.01, factor=1, jitter=0)


async def test_a_plain_error_is_retried_to_its_limit_and_then_fails_the_run_with_it(stack):
    seen = []

    @step(retry=QUICK)
    async def always_fails() -> None:
        seen.append((step_info().attempt, step_info().idempotency_key))
        raise ValueError(f"attempt {step_info().attempt}")

    @workflow
    async def hopes() -> None:
        await always_fails()

    run = await stack.start(hopes)
    failed = await stack.ended(run)

    assert isinstance(failed.cause, ValueError)
    assert str(failed.cause) == "attempt 4"
    assert [attempt for attempt, _ in seen] == [1, 2, 3, 4]
    assert len({key for _, key in seen}) == 1
    assert len(await stack.events(run, "step_retrying")) == 3


async def test_a_step_that_succeeds_at_last_gives_its_result(stack):
    starts = []

    @step(retry=QUICK)
    def third_time() -> int:
        starts.append(1)
        if len(starts) < 3:
            raise ConnectionError("not yet")
        return len(starts)

    @workflow
    async def hopes() -> int:
        return await third_time()

    assert await stack.run(hopes) == 3


@pytest.mark.parametrize("retry", [0, Retry(times=0)])
async def test_retry_of_nothing_is_exactly_one_start(stack, retry):
    starts = []

    @step(retry=retry)
    async def once() -> None:
        starts.append(1)
        raise ValueError("no")

    @workflow
    async def tries() -> None:
        await once()

    with pytest.raises(RunFailed):
        await stack.run(tries)

    assert len(starts) == 1


async def test_a_fatal_error_is_not_tried_again(stack):
    class Rejected(FatalError):
        pass

    starts = []

    @step(retry=QUICK)
    async def rejects() -> None:
        starts.append(1)
        raise Rejected("for good")

    @workflow
    async def asks() -> None:
        await rejects()

    with pytest.raises(RunFailed, match="for good"):
        await stack.run(asks)

    assert len(starts) == 1


@pytest.mark.parametrize("past", [0, -5, datetime(1999, 1, 1, tzinfo=UTC), timedelta(days=-1)], ids=str)
async def test_retry_after_what_has_passed_is_at_once(stack, past):
    starts = []

    @step
    async def again_at_once() -> int:
        starts.append(1)
        if len(starts) == 1:
            raise RetryAfter(past)
        return len(starts)

    @workflow
    async def asks() -> int:
        return await again_at_once()

    run = await stack.start(asks)

    assert await run.result(0.9) == 2
    assert (await stack.events(run, "step_retrying"))[0].data["delay_s"] == 0


@pytest.mark.parametrize(
    ("delay", "wait"),
    [
        ("1h", {"hours": 1}),
        (3600, {"hours": 1}),
        (timedelta(days=3650), {"days": 3650}),
        (datetime(2040, 1, 1, tzinfo=UTC), {"days": 3652}),
    ],
    ids=str,
)
async def test_retry_after_an_hour_or_ten_years_is_then_and_not_before(skipping, delay, wait):
    starts = []

    @step
    async def much_later() -> int:
        starts.append(1)
        if len(starts) == 1:
            raise RetryAfter(delay)
        return len(starts)

    @workflow
    async def asks() -> int:
        return await much_later()

    run = await skipping.start(asks)
    await skipping.saw(run, "step_retrying")
    due = (await run.status()).due - skipping.world_now()
    await skipping.skip(**wait)

    assert abs(due - timedelta(**wait)) < timedelta(seconds=1)
    assert await run.result(PATIENCE_S) == 2


async def test_a_backoff_that_overflows_stops_at_its_maximum(skipping):
    @step(retry=Retry(times=1, first="40d", factor=1e300, max="60d", jitter=0))
    async def fails() -> None:
        raise ValueError("no")

    @workflow
    async def asks() -> None:
        await fails()

    run = await skipping.start(asks)
    retrying = await skipping.saw(run, "step_retrying")
    await skipping.skip(days=41)
    await skipping.saw(run, "step_failed")

    assert retrying.data["delay_s"] == 40 * 86_400  # more than 32 bits of milliseconds


async def test_a_backoff_survives_a_restart_and_the_attempts_are_not_counted_again(stack):
    starts = []

    @step(retry=Retry(times=2, first=0.2, factor=1, jitter=0))
    async def fails_twice() -> list[int]:
        starts.append(step_info().attempt)
        if len(starts) < 3:
            raise ValueError("no")
        return starts

    @workflow
    async def asks() -> list[int]:
        return await fails_twice()

    run = await stack.start(asks)
    await stack.saw(run, "step_retrying")
    await stack.restart()

    assert await run.result(PATIENCE_S) == [1, 2, 3]
    assert len(await stack.events(run, "step_started")) == 3


async def test_an_unserializable_result_is_one_small_clear_failure(stack):
    starts = []

    @step(retry=QUICK)
    async def returns_an_object():
        starts.append(1)
        return object()

    @workflow
    async def asks() -> None:
        await returns_an_object()

    with pytest.raises(RunFailed, match="returns_an_object") as failed:
        await stack.run(asks)

    assert len(starts) == 1
    assert failed.value.kind.endswith("SerializationError")


async def test_a_result_that_does_not_fit_its_type_is_a_clear_failure(stack):
    @step(retry=QUICK)
    async def lies() -> int:
        return "not a number"

    @workflow
    async def asks() -> None:
        await lies()

    with pytest.raises(RunFailed, match="lies"):
        await stack.run(asks)


async def test_a_result_over_the_limit_fails_the_step_and_the_run_goes_on(local):
    @step(retry=QUICK)
    def too_much() -> bytes:
        return bytes(17 * 1024 * 1024)

    @workflow
    async def goes_on() -> str:
        try:
            await too_much()
        except Exception as error:  # noqa: BLE001  (which one is the question)
            return str(error)
        return "took it"

    run = await local.start(goes_on)

    assert "limit" in await run.result(PATIENCE_S)
    assert len(await local.events(run, "step_started")) == 1
