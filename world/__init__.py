"""What is true: events, runs, claims, due. See `interface.World` for the contract.

What belongs to Postgres is loaded at its first use: its driver takes a tenth of a second that others need not wait.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from .errors import (
    ClaimLost,
    HookFull,
    HookNotFound,
    IncarnationDead,
    Refused,
    RunEnded,
    RunExists,
    RunNotFound,
    StaleLog,
    Superseded,
    Taken,
    Unavailable,
    UnknownEvent,
    Unusable,
    ValueTooLarge,
    WorldError,
)
from .folding import HOOK_UNREAD_MAX, weight_of
from .interface import World
from .partitions import partition_of
from .records import (
    LIVE,
    PAGE,
    UNREAD,
    Accepted,
    Batch,
    Claim,
    Claimed,
    Created,
    Due,
    Facts,
    Fence,
    Hook,
    Letter,
    Member,
    NewLetter,
    NewRun,
    Offer,
    Opened,
    Read,
    Run,
    RunQuery,
    Share,
    Status,
)
from .simulated import Checks, SimulatedWorld
from .sqlite import SQLiteWorld

if TYPE_CHECKING:
    from .postgres import PostgresWorld
    from .postgres.migrating import Migrated, migrate
    from .postgres_server import PostgresServer, postgres_binaries

__all__ = [
    "HOOK_UNREAD_MAX",
    "LIVE",
    "PAGE",
    "UNREAD",
    "Accepted",
    "Batch",
    "Checks",
    "Claim",
    "ClaimLost",
    "Claimed",
    "Created",
    "Due",
    "Facts",
    "Fence",
    "Hook",
    "HookFull",
    "HookNotFound",
    "IncarnationDead",
    "Letter",
    "Member",
    "Migrated",
    "NewLetter",
    "NewRun",
    "Offer",
    "Opened",
    "PostgresServer",
    "PostgresWorld",
    "Read",
    "Refused",
    "Run",
    "RunEnded",
    "RunExists",
    "RunNotFound",
    "RunQuery",
    "SQLiteWorld",
    "Share",
    "SimulatedWorld",
    "StaleLog",
    "Status",
    "Superseded",
    "Taken",
    "Unavailable",
    "UnknownEvent",
    "Unusable",
    "ValueTooLarge",
    "World",
    "WorldError",
    "migrate",
    "partition_of",
    "postgres_binaries",
    "weight_of",
]

_OF_POSTGRES: Final = {
    "Migrated": "postgres.migrating",
    "PostgresServer": "postgres_server",
    "PostgresWorld": "postgres",
    "migrate": "postgres.migrating",
    "postgres_binaries": "postgres_server",
}


def __getattr__(name: str) -> Any:
    """Load what belongs to Postgres."""
    if name not in _OF_POSTGRES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{_OF_POSTGRES[name]}"), name)
    globals()[name] = found
    return found
