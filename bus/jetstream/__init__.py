"""The bus over NATS JetStream."""

from __future__ import annotations

from .bus import JetStreamBus

__all__ = ["JetStreamBus"]
