"""When a failed attempt is made again: pure arithmetic, nothing else."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, cast

from fencepost.world import ValueTooLarge

from .durations import MAX_S, Duration, seconds, signed_seconds
from .errors import (
    DefinitionError,
    FatalError,
    NondeterminismError,
    RetryAfter,
    SerializationError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

MAX_LOST: Final = 20
"""Losses after which a step is given up (L14)."""

_LOSS_FIRST_S: Final = 0.05
_LOSS_MAX_S: Final = 300.0
_TIMES_MAX: Final = 1_000_000

_HOPELESS: Final = (FatalError, SerializationError, DefinitionError, NondeterminismError, ValueTooLarge)
"""Another attempt meets the same wall."""


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and when a failed step is tried again: `times` retries after the first attempt.

    The n-th delay is `first · factor^(n-1)`, at most `max`, less up to `jitter` of itself at random. Jitter only
    shortens: a delay over `max` would break the promise of its name.
    """

    times: int = 3
    first: Duration = "1s"
    factor: float = 2
    max: Duration = "1m"
    jitter: float = 0.2

    def __post_init__(self) -> None:
        """Refuse what makes no sense, in one sentence.

        Raises:
            DefinitionError: naming the field.
        """
        if not _is_whole(self.times) or not 0 <= self.times <= _TIMES_MAX:
            raise DefinitionError(f"Retry(times=…) must be a whole number from 0 to 1,000,000, got {self.times!r:.60}")
        if not _is_real(self.factor) or not 1 <= self.factor < math.inf:
            raise DefinitionError(f"Retry(factor=…) must be a number from 1 up, got {self.factor!r:.60}")
        if not _is_real(self.jitter) or not 0 <= self.jitter <= 1:
            raise DefinitionError(f"Retry(jitter=…) must be a number from 0 to 1, got {self.jitter!r:.60}")
        first_s, max_s = _span("first", self.first), _span("max", self.max)
        if max_s < first_s:
            raise DefinitionError(f"Retry(max={self.max!r}) must not be shorter than first={self.first!r}")

    @classmethod
    def of(cls, value: object) -> Retry:
        """Return the policy that a user's `retry=` means: a policy, a number of retries, or None for the default.

        Raises:
            DefinitionError: it means none.
        """
        match value:
            case None:
                return cls()
            case Retry():
                return value
            case int() if not isinstance(value, bool):
                return cls(times=value)
            case _:
                raise DefinitionError(f"retry= must be a Retry or a number of retries, got {value!r:.60}")


def next_step(
    retry: Retry, attempt: int, error: BaseException, rng: Random, *, now: datetime | None = None
) -> float | None:
    """Return the delay in seconds before the next attempt, or None when `attempt` (from 1) was the last.

    Errors inside exception groups count: one that is fatal is fatal for all, the longest `RetryAfter` is kept.
    """
    if attempt > retry.times or is_hopeless(error):
        return None
    asked = [delay for leaf in _leaves(error) if (delay := _asked_delay(leaf, now)) is not None]
    return max(asked) if asked else backoff(retry, attempt, rng)


def is_hopeless(error: BaseException) -> bool:
    """Tell whether another attempt would meet the same wall."""
    return any(isinstance(leaf, _HOPELESS) for leaf in _leaves(error))


def backoff(retry: Retry, attempt: int, rng: Random) -> float:
    """Return the delay after a failed attempt (from 1) as the policy has it."""
    first_s, max_s = seconds(retry.first), seconds(retry.max)
    try:
        full = min(first_s * float(retry.factor) ** (attempt - 1), max_s)
    except OverflowError:
        full = max_s if first_s else 0.0
    return full * (1 - retry.jitter * rng.random())


def loss_delay(lost: int) -> float:
    """Return the delay in seconds before an attempt whose nodes died `lost` times is started again."""
    return min(_LOSS_FIRST_S * 2.0 ** min(lost, 60), _LOSS_MAX_S)


def _asked_delay(error: BaseException, now: datetime | None) -> float | None:
    """Return what a `RetryAfter` asks for, 0 when that has passed; None when nothing readable was asked."""
    if not isinstance(error, RetryAfter):
        return None
    try:
        delay = cast("Any", getattr(error, "delay", None))
        span = _until(delay, now) if isinstance(delay, datetime) else signed_seconds(delay)
    except ValueError:
        return None
    return min(max(span, 0.0), MAX_S)


def _until(instant: datetime, now: datetime | None) -> float:
    """Return the seconds until an instant; one without a zone is UTC (nodes may stand in different zones)."""
    aware = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
    return (aware - (now or datetime.now(UTC))).total_seconds()


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for member in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _leaves(member)
    else:
        yield error


def _span(name: str, value: object) -> float:
    try:
        return seconds(value)
    except ValueError as exc:
        raise DefinitionError(f"Retry({name}=…): {exc}") from None


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_real(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
