"""From how a body ended to what the log says about it. Pure, but for the jitter of a retry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fencepost.world import events as ev

from . import failures, retry
from .errors import StepLost, StepTimeout
from .executor import Cancelled, Failed, Lost, Succeeded, TimedOut
from .values import inline

if TYPE_CHECKING:
    from datetime import datetime
    from random import Random

    from .attempts import Attempts
    from .define import Step
    from .messages import StepEnded


def outcome_of(
    ended: StepEnded, step: Step[Any, Any], state: Attempts, rng: Random, *, now: datetime
) -> ev.Outcome | None:
    """Return the event that records how an attempt ended; None when its body was only told to stop.

    A body that still runs after its timeout is recorded under its claim as well, which drains until it has ended.
    """
    match ended.done:
        case Succeeded(result=result):
            value = inline(result)
            return ev.StepCompleted(op=ended.op, attempt=ended.attempt, token=ended.token, result=value)
        case Failed(error=error, exception=exception):
            return _failed(ended, step, error, exception, rng=rng, now=now)
        case TimedOut(still_running=still_running):
            late = StepTimeout(
                f"step {step.name!r} took longer than its timeout of {step.timeout_s:g} s",
                step=step.name,
                attempts=ended.attempt,
            )
            described = failures.describe(late)
            return _failed(ended, step, described, late, rng=rng, now=now, code="timeout", drains=still_running)
        case Lost(reason=reason):
            return lost(step, state, reason, ended.token)
        case Cancelled():
            # Somebody still wants it, so it was not we who stopped it: the node stops and gives the attempt back.
            return ev.StepRetrying(op=ended.op, attempt=ended.attempt, delay_s=0.0, token=ended.token, deferred=True)


def _failed(
    ended: StepEnded,
    step: Step[Any, Any],
    error: ev.ErrorData,
    exception: BaseException,
    *,
    rng: Random,
    now: datetime,
    code: str = "user_error",
    drains: bool = False,
) -> ev.StepRetrying | ev.StepFailed:
    op, attempt, token = ended.op, ended.attempt, ended.token
    delay_s = retry.next_step(step.retry, attempt, exception, rng, now=now)
    if delay_s is None:
        return ev.StepFailed(op=op, attempt=attempt, code=code, error=error, token=token, drains=drains)
    return ev.StepRetrying(op=op, attempt=attempt, delay_s=delay_s, token=token, error=error, drains=drains)


def lost(step: Step[Any, Any], state: Attempts, reason: str, token: str = "") -> ev.StepRetrying | ev.StepFailed:
    """Return the verdict on an attempt whose node or process died: once more, or `node_lost` after `MAX_LOST`.

    A loss is no failure: the attempt is repeated under its own number (L14).
    """
    times = state.lost + 1
    if times > retry.MAX_LOST:
        error = StepLost(
            f"step {step.name!r} was lost {state.lost} times in a row ({reason}): it seems to kill its node",
            step=step.name,
            attempts=state.attempt,
        )
        described = failures.describe(error)
        return ev.StepFailed(op=state.op, attempt=state.attempt, code="node_lost", error=described, token=token)
    described = failures.describe(StepLost(f"step {step.name!r} was lost: {reason}", step=step.name))
    return ev.StepRetrying(
        op=state.op,
        attempt=state.attempt,
        delay_s=retry.loss_delay(times),
        token=token,
        error=described,
        lost=times,
    )


def too_slow(step: Step[Any, Any], state: Attempts) -> ev.StepFailed:
    """Return the verdict on a step that took longer than its `total_timeout`; a running body drains."""
    error = StepTimeout(
        f"step {step.name!r} took longer than its total_timeout of {step.total_timeout_s:g} s",
        step=step.name,
        attempts=state.attempt,
    )
    described = failures.describe(error)
    return ev.StepFailed(op=state.op, attempt=state.attempt, code="timeout", error=described, drains=state.running)
