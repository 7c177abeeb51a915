"""What the world refuses, as types. Nobody reads message texts.

WorldError
├── Refused                 the write did not happen, and repeating it as it is will not help
│   ├── Superseded          another decider wrote since this one's fence was read
│   ├── StaleLog            the tail moved; `between` is what landed
│   ├── ClaimLost           an outcome without its current claim; `ops` names them
│   ├── RunEnded            nothing follows a terminal event
│   ├── RunNotFound
│   ├── RunExists           the id is taken by a run with other input
│   ├── IncarnationDead     the node was declared dead; it has to join anew
│   ├── Taken               a token or child id in the batch belongs to somebody else
│   ├── HookNotFound        no hook has this token, or not any more
│   ├── HookFull            the run has not read what was put there before
│   └── ValueTooLarge       refused before the write
├── UnknownEvent            the log holds a type this version does not know
└── Unavailable             the store cannot answer now (full, locked, gone); nothing is half done
    └── Unusable            it never will until somebody acts: not ours, newer, read-only, in use
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .events import Event


class WorldError(Exception):
    """Root of everything this floor raises."""


class Refused(WorldError):
    """The write did not happen."""


class Superseded(Refused):
    """Another decider appended since the fence was read: drop the coroutine and reload."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id}: another decider wrote first")
        self.run_id = run_id


class StaleLog(Refused):
    """Events that matter landed after the position the batch was decided from."""

    def __init__(self, run_id: str, between: tuple[Event, ...]) -> None:
        super().__init__(f"run {run_id}: {len(between)} events landed after the batch was decided")
        self.run_id = run_id
        self.between = between


class ClaimLost(Refused):
    """An outcome came without the claim it needs; the whole batch is refused."""

    def __init__(self, run_id: str, ops: tuple[str, ...]) -> None:
        super().__init__(f"run {run_id}: no current claim for {', '.join(ops)}")
        self.run_id = run_id
        self.ops = ops


class RunEnded(Refused):
    """The run has its terminal event already."""

    def __init__(self, run_id: str, status: str) -> None:
        super().__init__(f"run {run_id} is {status}; nothing can follow")
        self.run_id = run_id
        self.status = status


class RunNotFound(Refused):
    """No run and no chain has this id."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"there is no run {run_id!r}")
        self.run_id = run_id


class RunExists(Refused):
    """The id belongs to a run that was started with another workflow or other input."""

    def __init__(self, chain_id: str, run_id: str, *, same_input: bool = False) -> None:
        other = "started already with this input" if same_input else "started with other input"
        remedy = "attach to that run" if same_input else "send the same input to attach to that run"
        super().__init__(f"id {chain_id!r} belongs to {run_id}, {other}: use another id, or {remedy}")
        self.chain_id = chain_id
        self.run_id = run_id


class IncarnationDead(Refused):
    """The incarnation has left or was declared dead. It never lives again: join anew."""

    def __init__(self, incarnation: str) -> None:
        super().__init__(f"incarnation {incarnation} was declared dead: join anew")
        self.incarnation = incarnation


class Taken(Refused):
    """An order names a token or child id that somebody else owns: another run, or another operation of this one."""

    def __init__(self, run_id: str, op: str, owner: str) -> None:
        super().__init__(f"run {run_id}: what {op} asks for belongs to {owner}")
        self.run_id = run_id
        self.op = op
        self.owner = owner


class HookNotFound(Refused):
    """No open hook has this token: not made yet, disposed, or its run is over."""

    def __init__(self, token: str) -> None:
        super().__init__(f"no hook {token[:80]!r} is open: it was not made yet, was disposed, or its run has ended")
        self.token = token


class HookFull(Refused):
    """The run has too many payloads of this hook it has not read. Nothing was written; try again later."""

    def __init__(self, token: str, limit: int) -> None:
        super().__init__(f"hook {token[:80]!r} holds {limit:,} payloads its run has not read: try again later")
        self.token = token
        self.limit = limit


class ValueTooLarge(Refused):
    """A value is over the bound; nothing was written."""

    def __init__(self, what: str, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"{what} has {size_bytes:,} bytes, over the limit of {limit_bytes:,}: "
            "store it elsewhere and pass a reference"
        )
        self.what = what
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class UnknownEvent(WorldError):
    """An event of a type this version does not know: written by a newer one."""

    def __init__(self, run_id: str, seq: int, kind: str) -> None:
        super().__init__(f"run {run_id}: event {seq} has the unknown type {kind!r}; upgrade this node")
        self.run_id = run_id
        self.seq = seq
        self.kind = kind


class Unavailable(WorldError):
    """The store cannot answer now. Nothing is half done; try again later."""


class Unusable(Unavailable):
    """The store cannot be used as it is; the message says what to do."""
