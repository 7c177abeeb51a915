"""What a run actor is told. Commands are imperatives, events past tense; all are about one run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .executor import Done


@dataclass(frozen=True, slots=True)
class Tick:
    """Look at the log: something may have landed, or something may be due."""

    swept: bool = False
    """Rung by the sweeper: if it finds work, somebody's bell was lost."""


@dataclass(frozen=True, slots=True)
class StepEnded:
    """The body of an attempt ended here. The claim `token` is the right to record it."""

    op: str
    attempt: int
    token: str
    done: Done


@dataclass(frozen=True, slots=True)
class SlotReserved:
    """A step slot was reserved for an operation that waited for one."""

    op: str


@dataclass(frozen=True, slots=True)
class Passivate:
    """Go to sleep if there is nothing to do."""


RunMessage = Tick | StepEnded | SlotReserved | Passivate
