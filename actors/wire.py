"""What a node and an isolated process say to each other: JSON in frames, over the child's stdin and stdout."""

from __future__ import annotations

import struct
from typing import IO, Final

import msgspec

from fencepost.world import events

_LENGTH: Final = struct.Struct(">I")


class Hello(msgspec.Struct, tag=True):
    """First word to a child: what to enter before it serves, as `module:qualified.name`, or nothing."""

    lifespan: str


class Job(msgspec.Struct, tag=True):
    """An attempt to be made. `step` is `module:qualified.name`."""

    step: str
    run_id: str
    op: str
    step_name: str
    args: msgspec.Raw
    attempt: int
    token: str
    idempotency_key: str
    value_bytes_max: int


class Stop(msgspec.Struct, tag=True):
    """Tell the body to stop."""

    token: str


class Ready(msgspec.Struct, tag=True):
    """The child serves; or its lifespan failed with `error`."""

    error: events.ErrorData | None = None


class Answer(msgspec.Struct, tag=True):
    """How the attempt ended: one of the three. `hopeless`: the error is of a kind that no retry helps."""

    token: str
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: events.ErrorData | None = None
    cancelled: bool = False
    hopeless: bool = False


class Told(msgspec.Struct, tag=True):
    """The body has something to tell on the live feed; JSON."""

    topic: str
    body: msgspec.Raw


ToChild = Hello | Job | Stop
FromChild = Ready | Answer | Told

_to_child: Final = msgspec.json.Decoder(ToChild)
_from_child: Final = msgspec.json.Decoder(FromChild)
_encoder: Final = msgspec.json.Encoder()


def send(stream: IO[bytes], message: ToChild | FromChild) -> None:
    """Write one frame.

    Raises:
        OSError: the other side is gone.
    """
    body = _encoder.encode(message)
    stream.write(_LENGTH.pack(len(body)) + body)
    stream.flush()


def to_child(stream: IO[bytes]) -> ToChild | None:
    """Read the next frame in a child; None when the node is gone."""
    body = _frame(stream)
    return None if body is None else _to_child.decode(body)


def from_child(stream: IO[bytes]) -> FromChild | None:
    """Read the next frame in the node; None when the child is gone."""
    body = _frame(stream)
    return None if body is None else _from_child.decode(body)


def _frame(stream: IO[bytes]) -> bytes | None:
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    body = stream.read(length)
    return body if len(body) == length else None
