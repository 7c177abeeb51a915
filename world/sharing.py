"""Who has which partitions: fair shares, code order, what to give back. Pure rules that every store shares.

A partition remembers the newest code that owned it, because its runs may hold what older code cannot replay. So its
fair share is counted among the nodes at least as new, and an older one gets it only when none of those lives and it
has been free for a while: a node that is about to come back should find it free. A node that does not hear the bus
is counted only where none does: it cannot do what is rung for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .folding import OLDER_AFTER

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class Part:
    """A partition: who owns it (empty: nobody), the newest code that ever did, since when it is free."""

    number: int
    owner: str
    newest: int
    free_since: datetime | None


@dataclass(frozen=True, slots=True)
class Taker:
    """A live node that takes partitions: the ordinal of its code, and whether it hears the bus."""

    incarnation: str
    ordinal: int
    hears: bool = True


@dataclass(frozen=True, slots=True)
class Division:
    """What a node takes now, what it owns then, and which of those it should give back."""

    takes: frozenset[int] = frozenset()
    owned: frozenset[int] = frozenset()
    surplus: frozenset[int] = frozenset()


def divide(
    parts: Sequence[Part], taker: Taker, others: Sequence[Taker], now: datetime, *, take: bool = True
) -> Division:
    """Return a node's part of an app's partitions (ascending), given all others that take any.

    A node takes only below its fair share, so for every free one some node has room; and it gives back only what is
    above, so that a node that joins moves no more than its own share.
    """
    sharers = sharing(taker, others)
    had = [part for part in parts if part.owner == taker.incarnation]
    shares = {part.number: fair_share(len(parts), taker, sharers, part.newest) for part in parts}
    takes = set[int]()
    for part in parts if take else ():
        is_free = not part.owner and (taker.ordinal >= part.newest or has_waited(part, now))
        if is_free and len(had) + len(takes) < shares[part.number]:
            takes.add(part.number)
    surplus = set[int]()
    for part in reversed(had):
        if as_new(sharers, part.newest) and len(had) + len(takes) - len(surplus) > shares[part.number]:
            surplus.add(part.number)
    owned = takes.union(part.number for part in had)
    return Division(frozenset(takes), frozenset(owned), frozenset(surplus))


def sharing(taker: Taker, others: Iterable[Taker]) -> list[Taker]:
    """Return the nodes that shares are counted among."""
    takers = [*others, taker]
    return [node for node in takers if node.hears] or takers


def fair_share(partitions: int, taker: Taker, sharers: Sequence[Taker], newest: int) -> int:
    """Return how many partitions a node may own for one of them with this newest code to be its.

    An older node may keep none where a newer lives; where none does, all share.
    """
    able = as_new(sharers, newest)
    if taker not in sharers or (able and taker.ordinal < newest):
        return 0
    return -(-partitions // (able or len(sharers)))


def has_waited(part: Part, now: datetime) -> bool:
    """Tell whether a free partition has waited long enough for code as new as it had."""
    return part.free_since is not None and now - part.free_since >= OLDER_AFTER


def as_new(sharers: Iterable[Taker], newest: int) -> int:
    """Return how many nodes have code at least as new."""
    return sum(node.ordinal >= newest for node in sharers)
