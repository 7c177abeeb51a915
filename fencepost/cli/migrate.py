"""`fencepost migrate`: a namespace's schema in Postgres, made or brought to this version."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fencepost.world import Migrated, Unusable, WorldError
from fencepost.world import migrate as migrated

from ..logs import configure_logging
from ..settings import Settings, redacted
from .exits import CommandError, Exit
from .output import emit, tell

if TYPE_CHECKING:
    from fencepost.world import Facts

__all__ = ["migrate"]


def migrate(namespace: str | None, *, dry_run: bool, json: bool) -> int:
    """Do it, or only look; say what was done."""
    settings = Settings.load(**({"namespace": namespace} if namespace else {}))
    configure_logging("json" if json else settings.log_format, settings.log_level)
    if not settings.postgres_url:
        raise CommandError(
            "there is nothing to migrate without Postgres: set FENCEPOST_DATABASE_URL (SQLite files need no command)",
            Exit.USAGE,
        )
    done = asyncio.run(_done(settings, dry_run=dry_run))
    if json:
        emit(
            {
                "namespace": done.facts.namespace,
                "schema": done.facts.schema,
                "applied": done.applied,
                "dry_run": dry_run,
                "partitions": done.facts.partitions,
            }
        )
    else:
        tell(_sentence(done.facts, done.applied, redacted(settings.postgres_url), dry_run=dry_run))
    return Exit.OK


async def _done(settings: Settings, *, dry_run: bool) -> Migrated:
    try:
        return await migrated(settings.postgres_url, settings.namespace, dry_run=dry_run)
    except WorldError as error:
        code = Exit.FAILED if isinstance(error, Unusable) else Exit.UNREACHABLE
        raise CommandError(redacted(str(error)), code) from error


def _sentence(facts: Facts, applied: tuple[int, ...], where: str, *, dry_run: bool) -> str:
    place = f"namespace {facts.namespace} in {where}"
    if not applied:
        return f"{place} has version {facts.schema} already: nothing to do"
    verb = "would get" if dry_run else "has got"
    steps = ", ".join(f"{number:04}" for number in applied)
    return f"{place} {verb} version {facts.schema} (applied {steps}), {facts.partitions} partitions"
