"""Other sessions at a Postgres world's database: one that holds rows, one that watches who waits."""

import asyncio
from contextlib import asynccontextmanager

from tests.contract.postgres_stores import SCHEMA

WAITING = """
    SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
"""
OTHERS = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


@asynccontextmanager
async def holding(session, *run_ids):
    """Hold rows of runs as a session that is inside a transaction does, and let go at the end."""
    await session.execute("BEGIN")
    await session.fetch(f"SELECT FROM {SCHEMA}.runs WHERE run_id = ANY ($1) ORDER BY run_id FOR UPDATE", run_ids)
    yield
    await session.execute("COMMIT")


async def waiting(watch, count=1):
    """Return once so many sessions wait for a lock."""
    while await watch.fetchval(WAITING) < count:  # noqa: ASYNC110  (other processes set no event here)
        await asyncio.sleep(0.001)  # real time: other processes get there


async def end_waiting(watch):
    """End the sessions that wait for a lock, as an administrator would."""
    await watch.execute(f"SELECT pg_terminate_backend(pid) {OTHERS} AND wait_event_type = 'Lock'")


async def end_others(watch):
    """End all other sessions."""
    await watch.execute(f"SELECT pg_terminate_backend(pid) {OTHERS}")
