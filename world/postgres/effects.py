"""What a batch does to claims, offers and hooks, told from the batch alone.

`append_v2` and `write_hooks_v1` say what each word means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ..events import (
    OUTCOMES,
    TERMINAL,
    EventBody,
    HookConflict,
    HookCreated,
    HookDisposed,
    HookReceived,
    Outcome,
    StepCancelled,
    StepFailed,
    StepRetrying,
    StepStarted,
)
from ..folding import SETTLING, decided_after, ends_claim, weight_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..records import Batch

START: Final = 1
END: Final = 2
DRAIN: Final = 4
WITHDRAW: Final = 8
OFFER: Final = 16
HOOK: Final = 64
DECIDED_BEFORE: Final = 128
DECIDED_NOTHING: Final = 256

SORTS: Final = {"start": START, "end": END, "drain": DRAIN, "cancel": DRAIN, "stop": DRAIN, "twice": 0}


class Effect(NamedTuple):
    """One line for `append_v2`; the order of the fields is that of its arrays."""

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


class HookEffect(NamedTuple):
    """One line for `append_v2` about a hook; the order of the fields is that of its arrays."""

    effect: str
    op: str
    token: str
    number: int
    """Of one that opens, the place of its event in the batch; else how much was put or read."""


HOOK_EFFECTS: Final[dict[type[EventBody], str]] = {HookCreated: "open", HookDisposed: "close", HookReceived: "put"}


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


def hooks_of(batch: Batch) -> list[HookEffect]:
    """Return what a batch does to hooks: what was read of them, then its events in their order."""
    found = [HookEffect("read", read.op, "", read.count) for read in batch.reads]
    for place, body in enumerate(batch.events, 1):
        if isinstance(body, HookCreated | HookDisposed | HookReceived):
            number = weight_of(body) if isinstance(body, HookReceived) else place
            found.append(HookEffect(HOOK_EFFECTS[type(body)], body.op, body.token, number))
    return found


def hook_sorts_of(batch: Batch, hooks: Sequence[HookEffect]) -> int:
    """As `sorts_of`, for hooks; and what a conflict leaves decided, by the rule for it."""
    sort = HOOK if hooks else 0
    if any(isinstance(body, HookConflict) for body in batch.events):
        sort |= DECIDED_BEFORE if decided_after(batch, seq=0, before=1) else DECIDED_NOTHING
    return sort


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
