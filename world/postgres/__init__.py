"""The world in Postgres: what every node of a namespace shares. See `world.PostgresWorld`."""

from __future__ import annotations

from .world import PostgresWorld

__all__ = ["PostgresWorld"]
