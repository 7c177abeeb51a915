"""Instants as the tables keep them: whole microseconds since 1970, UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)


def to_us(instant: datetime) -> int:
    """Return an aware instant as a number.

    Raises:
        ValueError: it has no time zone, so nobody knows when it is.
    """
    if instant.tzinfo is None:
        raise ValueError(f"{instant} has no time zone")
    return (instant - EPOCH) // MICROSECOND


def from_us(us: int) -> datetime:
    """Return the instant a number stands for."""
    return EPOCH + timedelta(microseconds=us)


def span_us(span: timedelta) -> int:
    """Return a span in microseconds."""
    return span // MICROSECOND


def maybe_to_us(instant: datetime | None) -> int | None:
    """As `to_us`, for a column that may be empty."""
    return None if instant is None else to_us(instant)


def maybe_from_us(us: int | None) -> datetime | None:
    """As `from_us`, for a column that may be empty."""
    return None if us is None else from_us(us)
