"""The world in one SQLite file. The tables are explained in `sql/schema.sql`."""

from __future__ import annotations

from .world import SQLiteWorld

__all__ = ["SQLiteWorld"]
