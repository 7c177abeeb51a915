"""What the run actors of a node share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from fencepost.world import World

    from .bodies import Bodies
    from .define import Workflow
    from .host import Host
    from .turn import Turn


@dataclass(slots=True)
class Surroundings:
    """See the module."""

    world: World
    host: Host
    workflows: dict[str, Workflow[Any, Any]]
    incarnation: str
    bodies: Bodies
    serves: Callable[[str], bool]
    """Tell whether this node serves a queue."""
    arm: Callable[[str, datetime], None]
    """Tick a run at an instant (the timer actor)."""
    announce: Callable[[str, int, bool], Awaitable[None]]
    """Tell the live feed how far a run's log goes, and whether it ended."""
    activations: asyncio.Semaphore
    world_away: Callable[[str, float], None]
    """Say that the world does not answer, at a time on the host's clock."""
    repaired: Callable[[], None]
    """Count a repair by the sweeper."""
    turn: type[Turn]
    shadow: bool
