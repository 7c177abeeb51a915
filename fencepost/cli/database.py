"""What `doctor` finds out about Postgres: whether it can be used, what it is set to, its schema, its clock."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from fencepost.world import PostgresWorld, Unusable, WorldError

from ..settings import redacted
from .check import Check, clock_check

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["database_checks"]


async def database_checks(url: str, namespace: str) -> AsyncIterator[Check]:
    """Open the world as a node would, and change nothing: what is in its way is what would be in a node's."""
    try:
        world = await PostgresWorld.connect(url, namespace=namespace)
    except WorldError as error:
        yield _refused(error)
        return
    try:
        facts = await world.facts()
        found = f"{redacted(url)}, schema {facts.schema}, {facts.partitions} partitions"
        yield Check("ok", "postgres", found if world.mode == "direct" else f"{found}, behind a pooler")
        for warning in world.warnings:
            yield Check("warn", "postgres settings", redacted(warning))
        yield await _clock(world)
    except WorldError as error:
        yield _refused(error)
    finally:
        await world.close()


def _refused(error: WorldError) -> Check:
    said = redacted(str(error))
    if isinstance(error, Unusable):
        return Check("bad", "postgres", said, "the sentence says it; another namespace is given with --namespace")
    todo = "start it, or say with FENCEPOST_DATABASE_URL where it is"
    return Check("bad", "postgres", said, todo, unreachable=True)


async def _clock(world: PostgresWorld) -> Check:
    """Compare with the world's clock, which alone counts; a machine far from it writes misleading logs."""
    before = datetime.now(UTC)
    theirs = await world.now()
    after = datetime.now(UTC)
    return clock_check("postgres clock", "the world's", (theirs - (before + (after - before) / 2)).total_seconds())
