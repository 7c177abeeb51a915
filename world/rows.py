"""Rows as the types of the interface."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from .errors import UnknownEvent
from .events import Event, HookCreated, decode_body, is_known
from .instants import from_us, maybe_from_us
from .records import Claim, Due, Fence, Hook, Letter, NewLetter, Run
from .sharing import Part, Taker

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from sqlite3 import Row

_made = msgspec.json.Decoder(HookCreated)

LETTER = "dead_"
"""What ids of dead letters begin with; the rest is a number."""


@dataclass(frozen=True, slots=True)
class Held:
    """A run's row, read under its lock: what checks and effects look at."""

    run_id: str
    app: str
    workflow: str
    partition: int
    status: str
    stalled: str
    seq: int
    tick: int
    last_batch: str
    last_at: datetime
    decided_seq: int
    waking_seq: int
    revoked_seq: int
    in_band_count: int
    owns: int
    due: datetime | None

    @property
    def fence(self) -> Fence:
        """The fence as it is now."""
        return Fence(self.tick, self.last_batch)

    @property
    def is_live(self) -> bool:
        """Whether the run has no terminal event."""
        return self.status in ("pending", "running")


def held(row: Row) -> Held:
    """Return a locked row."""
    columns: dict[str, Any] = dict(zip(row.keys(), row, strict=True))
    columns["last_at"], columns["due"] = from_us(row["last_at"]), maybe_from_us(row["due"])
    return Held(**columns)


def event(run_id: str, row: Row) -> Event:
    """Return an event.

    Raises:
        UnknownEvent: its type is not of this version.
    """
    seq, tick, at, kind, data = row
    if not is_known(kind):
        raise UnknownEvent(run_id, seq, kind)
    return Event(seq, tick, from_us(at), decode_body(data))


def events(run_id: str, rows: Iterable[Row]) -> tuple[Event, ...]:
    """Return events in the order of their rows."""
    return tuple(event(run_id, row) for row in rows)


def run(row: Row, attributes: dict[str, str]) -> Run:
    """Return what a list shows of a run."""
    return Run(
        run_id=row["run_id"],
        chain_id=row["chain_id"],
        app=row["app"],
        workflow=row["workflow"],
        status=row["status"],
        stalled=row["stalled"],
        seq=row["seq"],
        tick=row["tick"],
        decided_seq=row["decided_seq"],
        created_at=from_us(row["created_at"]),
        last_at=from_us(row["last_at"]),
        ended_at=maybe_from_us(row["ended_at"]),
        in_band_count=row["in_band_count"],
        partition=row["partition"],
        due=maybe_from_us(row["due"]),
        parent=row["parent"],
        attributes=attributes,
    )


def claim(row: Row) -> Claim:
    """Return a claim with the life of its incarnation."""
    return Claim(
        op=row["op"],
        attempt=row["attempt"],
        dispatch=row["dispatch"],
        token=row["token"],
        incarnation=row["incarnation"],
        draining=bool(row["draining"]),
        alive=bool(row["alive"]),
    )


def hook(row: Row) -> Hook:
    """Return whose a token is."""
    token, run_id, app, partition, is_open, unread, data = row
    return Hook(token, run_id, app, partition, _made.decode(data), is_open=bool(is_open), unread=unread)


def due(row: Row) -> Due:
    """Return something that wants to be looked at."""
    kind, id_, app, partition, at = row
    return Due(kind, id_, app, partition, from_us(at))


def taker(row: Row) -> Taker:
    """Return a node that takes partitions."""
    incarnation, ordinal, hears = row
    return Taker(incarnation, ordinal, bool(hears))


def part(row: Row) -> Part:
    """Return whose a partition is."""
    number, owner, newest, free_since = row
    return Part(number, owner, newest, maybe_from_us(free_since))


def letter(row: Row) -> Letter:
    """Return a dead letter."""
    new = NewLetter(
        kind=row["kind"],
        subject=row["subject"],
        code=row["code"],
        reason=row["reason"],
        body=row["body"],
        headers=msgspec.json.decode(row["headers"], type=dict[str, str]),
        source=row["source"],
    )
    return Letter(letter_id(row["number"]), from_us(row["at"]), new, row["replayed_as"])


def letter_id(number: int) -> str:
    """Return the id of the letter with a number."""
    return f"{LETTER}{number}"


def letter_number(id_: str) -> int:
    """Return the number behind an id, 0 (which no letter has) when it is none of ours."""
    digits = id_.removeprefix(LETTER)
    is_ours = id_.startswith(LETTER) and digits.isascii() and digits.isdecimal() and len(digits) < 19  # noqa: PLR2004  (64 bits)
    return int(digits) if is_ours else 0
