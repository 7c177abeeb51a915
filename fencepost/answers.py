"""What a node answers, as the client hands it on: runs, events, ends, dead letters.

Fields that a newer node adds are passed over.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar

import msgspec

from fencepost.world import events as ev

from .errors import RequestRefused

T = TypeVar("T")


class RunStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How far a run is."""

    run_id: str
    id: str
    """The id it was started with, or else `run_id`."""
    workflow: str
    app: str = ""
    status: str
    """pending, running, stalled, completed, failed, cancelled, terminated."""
    stalled: str = ""
    """Why it cannot go on until a person acts."""
    events: int = 0
    created_at: datetime
    last_at: datetime
    ended_at: datetime | None = None
    due: datetime | None = None
    attributes: dict[str, str] = {}


class OpenStep(msgspec.Struct, frozen=True):
    """A step that has not ended: what it does or waits for, and when it is tried again."""

    op: str
    name: str = ""
    queue: str = ""
    state: str = ""
    attempt: int = 0
    lost: int = 0
    retry_at: datetime | None = None


class OpenTimer(msgspec.Struct, frozen=True):
    """A timer that has not run out."""

    op: str
    due: datetime


class OpenHook(msgspec.Struct, frozen=True):
    """A hook that takes payloads: since when, how many came, and how many of them its run has not read."""

    op: str
    token: str
    since: datetime
    received: int = 0
    unread: int | None = None
    """None when only the log was looked at, which does not tell."""


class RunNow(RunStatus, frozen=True, kw_only=True):
    """How far a run is, and what it waits for."""

    steps: list[OpenStep] = []
    timers: list[OpenTimer] = []
    hooks: list[OpenHook] = []


class RunEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a run's log. `data` depends on the type; `tick` is None for what came from outside."""

    id: str
    seq: int
    tick: int | None = None
    at: datetime
    type: str
    op: str = ""
    data: dict[str, Any] = {}


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A message nobody could take, and why. A list leaves out `headers`, `body` and `text`."""

    id: str
    at: datetime
    kind: str
    subject: str
    code: str
    reason: str
    body_bytes: int
    replayed_as: str = ""
    headers: dict[str, str] = {}
    body: bytes = b""
    """The original bytes."""
    text: str = ""
    """The same as text, as far as it is some."""


class Started(msgspec.Struct, frozen=True):
    """What a start or a replay led to."""

    run_id: str
    id: str = ""
    existing: bool = False


class Changed(msgspec.Struct, frozen=True):
    """Whether a request changed the run, and the status of one that had ended before."""

    run_id: str
    changed: bool = False
    status: str = ""


class Delivered(msgspec.Struct, frozen=True):
    """Where a payload was put. `repeated`: it had arrived before, under the same `delivery`."""

    run_id: str
    repeated: bool = False
    delivery: str = ""
    id: str = ""
    """The event's."""


class Ending(msgspec.Struct, frozen=True):
    """How a run ended; with `waiting` how far it is instead. `result` is in place or, with `ref`, kept apart."""

    run_id: str
    status: str
    waiting: bool = False
    stalled: str = ""
    workflow: str = ""
    result: msgspec.Raw = msgspec.Raw(b"null")
    ref: str = ""
    size_bytes: int = 0
    code: str = ""
    reason: str = ""
    error: ev.ErrorData | None = None


class Piece(msgspec.Struct, frozen=True):
    """A piece of a large value."""

    piece: bytes
    last: bool


class EventPage(msgspec.Struct, frozen=True):
    """Events in order; `over` when nothing can follow."""

    run_id: str
    events: list[RunEvent]
    over: bool = False


class RunPage(msgspec.Struct, frozen=True):
    """Runs, newest first; `before` continues, empty at the end."""

    runs: list[RunStatus]
    before: str = ""


class DeadPage(msgspec.Struct, frozen=True):
    """Dead letters, newest first; `before` continues, empty at the end."""

    dead: list[DeadLetter]
    before: str = ""


def read(answer: bytes, kind: type[T]) -> T:
    """Return an answer as its type.

    Raises:
        RequestRefused: it is something else: the node is of another version, or no node.
    """
    try:
        return msgspec.json.decode(answer, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        text = f"the node's answer is none of this version's ({error}): are node and client of the same version?"
        raise RequestRefused(text, "answer") from error
