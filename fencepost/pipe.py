"""What a supervisor and its node process say to each other: one JSON message a line, over a socket pair.

The supervisor says `Go` once, and `Stop`. The node process says `Beat` once a second from the loop of its actors,
`Ready` when it serves, and `Over` before it ends by itself. EOF on either side means that the other is dead.
"""

from __future__ import annotations

from typing import Any, Final, Generic, Literal, TypeVar

import msgspec

__all__ = ["PAGE_BYTES", "Beat", "FromChild", "FromParent", "Go", "Inbox", "Over", "Ready", "Stop", "Why", "sent"]

PAGE_BYTES: Final = 4096
"""The memory both share: it begins with the run whose turn is under way."""

Why = Literal["stopped", "dead", "unreachable", "refused", "broken"]
"""Why a node process ended by itself: it was told to, its incarnation was declared dead, the store or NATS is away,
a person has to put something right first, or something that nobody foresaw."""


class Go(msgspec.Struct, tag="go", frozen=True):
    """Serve a target, with settings beyond those of the environment. No passwords: these are in the environment."""

    target: str
    given: dict[str, str]
    log_format: Literal["auto", "console", "json"]
    log_level: str
    verbose: bool = False
    follows: str = ""
    """The incarnation of the process before it."""


class Stop(msgspec.Struct, tag="stop", frozen=True):
    """Take nothing new, let steps end for the grace, leave, end."""


class Beat(msgspec.Struct, tag="beat", frozen=True):
    """The loop runs; `incarnation` is empty until the node has joined.

    `world_away_s`: how long ago the world last answered the node.
    """

    incarnation: str = ""
    world_away_s: float = 0.0


class Ready(msgspec.Struct, tag="ready", frozen=True):
    """The node serves."""

    facts: dict[str, Any]


class Over(msgspec.Struct, tag="over", frozen=True):
    """The process ends now: why, in one sentence, and with which exit code the command should end if that is final."""

    why: Why
    code: int = 0
    sentence: str = ""


FromParent = Go | Stop
FromChild = Beat | Ready | Over
M = TypeVar("M")


def sent(message: FromParent | FromChild) -> bytes:
    """Return a message as it travels."""
    return msgspec.json.encode(message) + b"\n"


class Inbox(Generic[M]):
    """Cuts what arrives into messages."""

    def __init__(self, kind: type[M]) -> None:
        self._decode = msgspec.json.Decoder(kind).decode
        self._rest = b""

    def take(self, data: bytes) -> list[M]:
        """Return the messages that are complete now."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [self._decode(line) for line in lines]
