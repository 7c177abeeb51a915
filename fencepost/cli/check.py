"""One thing that `doctor` looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["APART_S", "Check", "clock_check"]

APART_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at, what was found, and what to do about it."""

    state: Literal["ok", "warn", "bad"]
    what: str
    found: str
    todo: str = ""
    unreachable: bool = False
    """Whether there is nobody who answers."""

    def told(self) -> dict[str, str]:
        """Return what people and programs read."""
        return {"state": self.state, "what": self.what, "found": self.found, "todo": self.todo}


def clock_check(what: str, whose: str, apart_s: float) -> Check:
    """Judge how far a clock is from the one of this machine."""
    off = abs(apart_s) > APART_S
    todo = "let both keep their time from the same source (NTP)" if off else ""
    return Check("warn" if off else "ok", what, f"{whose} is {apart_s:+.3f} s from here", todo)
