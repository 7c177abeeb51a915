"""The log: what can stand in it, and how it is written down.

An event is `(seq, tick, at, body)`. `tick` is its batch's tick, or None when it came from outside (law L3).
Bodies are a closed union told apart by `type`, all past tense. Unknown fields are ignored, an unknown type
is `UnknownEvent`. A value of the user's is a `Value`: JSON in place, or a reference to a stored one.

Four classes matter to the rest of the house:

  orders    what code asked for. Explained by every longer log, so the tick fence is enough for them.
  results   what was found out. They resume code.
  outside   what others said (`hook_received`, `cancel_requested`, `run_terminated`). Never refused for staleness (L5).
  quiet     facts that resume nobody: no bell, no due, not counted by the whole-log fence.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec

NO_JSON: Final = msgspec.Raw(b"")
"""No JSON at all. Only this very object is left out when a field is written: another empty one is no JSON."""


class Value(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value that crossed the codec: `json` in place, or `ref` into the run's stored values.

    `ref` is the SHA-256 of the JSON text in hex; `size_bytes` its length.
    """

    json: msgspec.Raw = NO_JSON
    ref: str = ""
    size_bytes: int = 0


class ErrorData(msgspec.Struct, frozen=True, omit_defaults=True):
    """An exception as data. `type` is `module:Qualified.name`; `args` the JSON text of its arguments."""

    type: str
    message: str
    args: msgspec.Raw = NO_JSON
    attributes: msgspec.Raw = NO_JSON
    traceback: str = ""
    cause: ErrorData | None = None
    group: tuple[ErrorData, ...] = ()


class Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """What all bodies share: the path id of the operation, empty for the run itself."""

    op: str = ""


class RunCreated(Body, frozen=True, tag="run_created"):
    """The first event of every log. `seed` is secret and random: tokens and randomness derive from it."""

    workflow: str
    input: Value
    seed: str
    app: str = ""
    code: str = ""
    python: str = ""
    chain: str = ""
    parent: str = ""
    attributes: dict[str, str] = {}


class RunStarted(Body, frozen=True, tag="run_started"):
    """The body runs from here on. Its batch always carries the whole-log fence (L4)."""

    code: str = ""
    python: str = ""


class StepCreated(Body, frozen=True, tag="step_created"):
    """Code called a step. `digest` is the hash of the arguments: another one only warns."""

    name: str
    args: Value
    queue: str = "default"
    digest: str = ""


class StepStarted(Body, frozen=True, tag="step_started"):
    """An attempt runs under the claim `token` of `incarnation`. `dispatch` grows with every takeover."""

    attempt: int
    token: str
    incarnation: str
    dispatch: int = 1


class StepCompleted(Body, frozen=True, tag="step_completed"):
    """The outcome of the attempt that holds the claim `token`."""

    attempt: int
    token: str
    result: Value


class StepRetrying(Body, frozen=True, tag="step_retrying"):
    """The attempt failed or was lost; the next one starts `delay_s` seconds after this event's `at`.

    `lost` counts the losses so far (its node died; no attempt counted, L14). `deferred`: it must wait for a
    lock, no attempt counted. Empty `token`: a verdict of the decider (timeout, loss), which needs no claim.
    `drains`: the body still runs (it did not end when its time was over), and its claim drains.
    """

    attempt: int
    delay_s: float
    token: str = ""
    error: ErrorData | None = None
    lost: int = 0
    deferred: bool = False
    drains: bool = False


class StepFailed(Body, frozen=True, tag="step_failed"):
    """No further attempt. `code` is one of user_error, timeout, node_lost, cancelled, internal."""

    attempt: int
    code: str
    error: ErrorData
    token: str = ""
    drains: bool = False


class StepCancelled(Body, frozen=True, tag="step_cancelled"):
    """Code stopped waiting for the step. A running body is told; its claim drains."""


class WaitCreated(Body, frozen=True, tag="wait_created"):
    """A timer: `delay_s` seconds after this event's `at`, fixed once; or `until`, an instant."""

    delay_s: float = 0.0
    until: datetime | None = None


class WaitCompleted(Body, frozen=True, tag="wait_completed"):
    """The timer fell due before anybody cancelled it."""


class HookReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a caller over HTTP is answered: `status`, `body` and `headers` at once, or by a step when `manual`."""

    status: int = 202
    body: msgspec.Raw = NO_JSON
    headers: dict[str, str] = {}
    manual: bool = False


class HookCreated(Body, frozen=True, tag="hook_created"):
    """The outside may put payloads under `token` from here on. A token belongs to one open hook of the namespace.

    `model` is the payload's type as `module:Qualified.name` where it has such a name, `schema` its JSON Schema for
    who does not have the code; both empty: anything. With `reply` it is a webhook: deliveries keep their headers.
    """

    token: str
    model: str = ""
    schema: msgspec.Raw = NO_JSON
    reply: HookReply | None = None


class HookDisposed(Body, frozen=True, tag="hook_disposed"):
    """The hook takes no payload any more, and its token is free."""

    token: str


class HookConflict(Body, frozen=True, tag="hook_conflict"):
    """The hook was never made: its token belonged to an open hook of run `owner`. Stands in place of `hook_created`."""

    token: str
    owner: str


class HookReceived(Body, frozen=True, tag="hook_received"):
    """Somebody put a payload. `delivery` makes it idempotent under its token; `digest` is of what was sent for it."""

    token: str
    delivery: str
    payload: Value
    digest: str = ""
    headers: dict[str, str] = {}


class CancelRequested(Body, frozen=True, tag="cancel_requested"):
    """Somebody asked the run to stop. Only the first one counts; `key` makes the request idempotent."""

    reason: str = ""
    key: str = ""


class RunCompleted(Body, frozen=True, tag="run_completed"):
    """The body returned."""

    result: Value


class RunFailed(Body, frozen=True, tag="run_failed"):
    """The body raised, or a bound was passed. `code`: user_error, max_events, timeout, node_lost, internal."""

    code: str
    error: ErrorData


class RunCancelled(Body, frozen=True, tag="run_cancelled"):
    """The body ended by cancellation, or never began."""

    reason: str = ""


class RunTerminated(Body, frozen=True, tag="run_terminated"):
    """Ended from outside without running code again: an operator's word, or `cancel_grace` ran out."""

    reason: str = ""
    key: str = ""


EventBody = (
    RunCreated
    | RunStarted
    | StepCreated
    | StepStarted
    | StepCompleted
    | StepRetrying
    | StepFailed
    | StepCancelled
    | WaitCreated
    | WaitCompleted
    | HookCreated
    | HookDisposed
    | HookConflict
    | HookReceived
    | CancelRequested
    | RunCompleted
    | RunFailed
    | RunCancelled
    | RunTerminated
)
Terminal = RunCompleted | RunFailed | RunCancelled | RunTerminated
Outcome = StepCompleted | StepRetrying | StepFailed

TERMINAL: Final = (RunCompleted, RunFailed, RunCancelled, RunTerminated)
ORDERS: Final = (RunStarted, StepCreated, StepCancelled, WaitCreated, HookCreated, HookDisposed)
HOOKS: Final = (HookCreated, HookDisposed, HookConflict, HookReceived)
QUIET: Final = (StepStarted,)
OUTCOMES: Final = (StepCompleted, StepRetrying, StepFailed)

STATUS_AFTER: Final[dict[type[Body], str]] = {
    RunCompleted: "completed",
    RunFailed: "failed",
    RunCancelled: "cancelled",
    RunTerminated: "terminated",
}


class Event(msgspec.Struct, frozen=True):
    """One line of a run's log; its public id is `<run_id>:<seq>`."""

    seq: int
    tick: int | None
    at: datetime
    body: EventBody


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(EventBody)
_types: Final = frozenset(str(t.__struct_config__.tag) for t in EventBody.__args__)  # pyright: ignore[reportAttributeAccessIssue]


def kind_of(body: EventBody) -> str:
    """Return the `type` a body is stored under."""
    return str(body.__struct_config__.tag)


def encode_body(body: EventBody) -> bytes:
    """Write a body as JSON, `type` and `op` included."""
    return _encoder.encode(body)


def decode_body(data: bytes) -> EventBody:
    """Read a body back.

    Raises:
        msgspec.ValidationError: the type is unknown or a field does not fit; see `is_known`.
    """
    return _decoder.decode(data)


def is_known(kind: str) -> bool:
    """Tell whether this version can read events of the type."""
    return kind in _types


def resumes_code(body: EventBody) -> bool:
    """Tell whether feeding the event can make a workflow go on (what the whole-log fence guards)."""
    return not isinstance(body, (*ORDERS, *QUIET))


def as_json(value: Any) -> msgspec.Raw:
    """Return a plain JSON value as the raw text that `Value.json` holds."""
    return msgspec.Raw(_encoder.encode(value))
