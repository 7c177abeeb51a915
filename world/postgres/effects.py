"""What a batch's events do to claims and offers, told from the batch alone. `append_v1` says what each word means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ..events import OUTCOMES, TERMINAL, EventBody, Outcome, StepCancelled, StepFailed, StepRetrying, StepStarted
from ..folding import SETTLING, ends_claim

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

START: Final = 1
END: Final = 2
DRAIN: Final = 4
WITHDRAW: Final = 8
OFFER: Final = 16

SORTS: Final = {"start": START, "end": END, "drain": DRAIN, "cancel": DRAIN, "stop": DRAIN, "twice": 0}


class Effect(NamedTuple):
    """One line for `append_v1`; the order of the fields is that of its arrays."""

    effect: str
    op: str
    attempt: int = 0
    dispatch: int = 0
    token: str = ""
    incarnation: str = ""
    is_free: bool = True
    drains: bool = False
    withdraws: bool = True

    @property
    def sort(self) -> int:
        """Which of the function's statements it needs."""
        return SORTS[self.effect] | (WITHDRAW if self.withdraws else 0)


def effects_of(events: Sequence[EventBody]) -> list[Effect]:
    """Return what events do, in their order."""
    found, used = list[Effect](), set[str]()
    for place, body in enumerate(events):
        if isinstance(body, StepStarted):
            found.append(_start(body, events[:place], events[place + 1 :]))
        elif isinstance(body, OUTCOMES):
            found.append(_outcome(body, used))
            used.add(body.token)
        elif isinstance(body, StepCancelled):
            found.append(Effect("cancel", body.op))
        elif isinstance(body, TERMINAL):
            found.append(Effect("stop", body.op))
    return found


def sorts_of(effects: Iterable[Effect]) -> int:
    """Return which of the function's statements a batch needs."""
    sorts = 0
    for effect in effects:
        sorts |= effect.sort
    return sorts


def _outcome(body: Outcome, used: set[str]) -> Effect:
    effect = "end" if ends_claim(body) else "drain"
    if isinstance(body, StepFailed) and not body.token:
        effect = "cancel"
    if body.token and body.token in used:
        effect = "twice"
    withdraws = not isinstance(body, StepRetrying)
    return Effect(effect, body.op, body.attempt, token=body.token, withdraws=withdraws)


def _start(body: StepStarted, before: Iterable[EventBody], after: Iterable[EventBody]) -> Effect:
    return Effect(
        "start",
        body.op,
        body.attempt,
        body.dispatch,
        body.token,
        body.incarnation,
        is_free=not any(_uses_up(other, body) for other in before),
        drains=any(_gives_up(other, body) for other in after),
    )


def _uses_up(other: EventBody, body: StepStarted) -> bool:
    """As `folding.is_free`, for what stands in the same batch."""
    if other.op != body.op:
        return False
    if isinstance(other, StepStarted):
        return (other.attempt, other.dispatch) >= (body.attempt, body.dispatch)
    return isinstance(other, SETTLING)


def _gives_up(other: EventBody, body: StepStarted) -> bool:
    if isinstance(other, TERMINAL):
        return True
    if other.op != body.op or not isinstance(other, (*OUTCOMES, StepCancelled)):
        return False
    if isinstance(other, StepCancelled) or (isinstance(other, StepFailed) and not other.token):
        return True
    return other.attempt == body.attempt and not ends_claim(other)
