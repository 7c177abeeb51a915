"""What the run actors of a node share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from fencepost.world import Offer, World

    from .bodies import Bodies
    from .define import Workflow
    from .host import Host
    from .messages import StepEnded
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
    hears: Callable[[str], bool]
    """Tell whether something has come for a run that its actor should take before it writes more."""
    pause: Callable[[float], Awaitable[None]]
    """Wait some seconds, at most until the world answers again."""
    hand_over: Callable[[str, list[StepEnded]], None]
    """Record what ended from outside, under its claims, and wake the run: another node decides for it."""
    lacks_workflow: Callable[[int], bool]
    """Say that a run of a partition has a workflow nobody here knows; True when a node with newer code is asked."""
    offer: Callable[[str, Offer], None]
    """Offer a step of a run to the nodes that serve its queue."""
    is_alive: Callable[[str], bool]
    """Tell whether an incarnation lived when the world was last asked."""
    repaired: Callable[[], None]
    """Count a repair by the sweeper."""
    turn: type[Turn]
    shadow: bool
    run_ahead: bool = True
    """Let a batch hold results and what they led to (L4)."""
