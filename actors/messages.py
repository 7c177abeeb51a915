"""What a run actor is told. Commands are imperatives, events past tense; all are about one run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .attempts import Attempts
    from .define import Step
    from .executor import Done


@dataclass(frozen=True, slots=True)
class Tick:
    """Look at the log: something may have landed, or something may be due."""

    swept: bool = False
    """Rung by the sweeper: if it finds work, somebody's bell was lost."""


@dataclass(frozen=True, slots=True)
class NodeDied:
    """An incarnation has died: whether an attempt of it is lost stands in the claims, not in the log."""

    incarnation: str


@dataclass(frozen=True, slots=True)
class Running:
    """An attempt whose body runs on this node: what is needed to say how it ended, by whoever owns the run."""

    run_id: str
    app: str
    step: Step[Any, Any]
    state: Attempts


@dataclass(frozen=True, slots=True)
class StepEnded:
    """The body of an attempt ended here. The claim `token` is the right to record it."""

    op: str
    attempt: int
    token: str
    done: Done
    running: Running | None = None


@dataclass(frozen=True, slots=True)
class SlotReserved:
    """A step slot was reserved for an operation that waited for one."""

    op: str


@dataclass(frozen=True, slots=True)
class Passivate:
    """Go to sleep if there is nothing to do."""


@dataclass(frozen=True, slots=True)
class HandOver:
    """Go to sleep whatever there is to do: another node decides from here on."""


RunMessage = Tick | NodeDied | StepEnded | SlotReserved | Passivate | HandOver
