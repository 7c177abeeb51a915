"""Spans of time as people write them: 90, "90s", "1h30m", "PT1H30M", timedelta. One way in: `seconds`."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from datetime import datetime

MAX_S: Final = 1000 * 366 * 86_400.0
"""A thousand years: far above any use, far below where adding to an instant overflows."""

Duration = float | str | timedelta

_UNIT_S: Final = {"w": 604_800.0, "d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_NUMBER: Final = r"[0-9]{1,18}(?:\.[0-9]{1,18})?"
# Units must come from large to small and once each: "5m 1h" and "1s1s" are more likely slips than spans.
_SHORT: Final = re.compile(r"\s*".join(rf"(?:({_NUMBER})\s*{unit}(?![a-z]))?" for unit in _UNIT_S))
_ISO: Final = re.compile(
    rf"P(?:({_NUMBER})W)?(?:({_NUMBER})D)?(?:T(?=[0-9])(?:({_NUMBER})H)?(?:({_NUMBER})M)?(?:({_NUMBER})S)?)?"
)
_ISO_CALENDAR: Final = re.compile(r"P[0-9.]*[YM]|P[0-9.]+Y[0-9.]*M?.*|P[^T]*M.*")


def seconds(value: object) -> float:
    """Return the span in seconds: finite, not negative, at most `MAX_S`.

    Raises:
        ValueError: it is no span, in one sentence.
    """
    span = signed_seconds(value)
    if span < 0:
        raise ValueError(f"a duration must not be negative, got {_shown(value)}")
    return span


def signed_seconds(value: object) -> float:
    """As `seconds`, but numbers and timedeltas may be negative (an instant that has passed)."""
    span = _read(value)
    if math.isnan(span):
        raise ValueError("a duration must be a number, got nan")
    if abs(span) > MAX_S:
        raise ValueError(f"a duration must be at most 1,000 years, got {_shown(value)}")
    return span + 0.0  # -0.0 becomes 0.0


def _read(value: object) -> float:
    match value:
        case bool():
            raise ValueError(f"a duration must be seconds, text such as '1h30m' or a timedelta, got {value}")
        case int() | float():
            return _as_float(value)
        case timedelta():
            return value.total_seconds()
        case str():
            return _parse(value)
        case _:
            raise ValueError(
                f"a duration must be seconds, text such as '1h30m' or a timedelta, got {type(value).__name__}"
            )


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _parse(text: str) -> float:
    stripped = text.strip()
    if len(stripped) > 200:  # noqa: PLR2004  (longer than any span; the expressions below need not see it)
        raise ValueError(f"a duration must look like '90s', '1h30m' or 'PT1H30M', got {_shown(text)}")
    if match := _ISO.fullmatch(stripped):
        return _total(match, ("w", "d", "h", "m", "s"), text)
    if match := _SHORT.fullmatch(stripped):
        return _total(match, tuple(_UNIT_S), text)
    raise ValueError(_why_not(stripped))


def _total(match: re.Match[str], units: tuple[str, ...], text: str) -> float:
    given = [(number, unit) for number, unit in zip(match.groups(), units, strict=True) if number is not None]
    if not given:
        raise ValueError(f"a duration must look like '90s', '1h30m' or 'PT1H30M', got {_shown(text)}")
    return math.fsum(float(number) * _UNIT_S[unit] for number, unit in given)


def _why_not(text: str) -> str:
    if _ISO_CALENDAR.fullmatch(text):
        return f"a duration cannot have years or months, which differ in length: use days, got {_shown(text)}"
    if re.fullmatch(_NUMBER, text):
        return f"a duration as text needs a unit, such as '{text[:20]}s', got {_shown(text)}"
    return f"a duration must look like '90s', '1h30m' or 'PT1H30M', got {_shown(text)}"


def _shown(value: object) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**30 else "a huge number"
    return text if len(text) <= 60 else f"{text[:57]}…"  # noqa: PLR2004  (one line of a message)


def after(at: datetime, delay_s: float) -> datetime:
    """Return the instant a delay after another. One longer than any of ours is of a log that was changed."""
    return at + timedelta(seconds=min(max(delay_s, 0.0), MAX_S))
