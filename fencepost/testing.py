"""What users' own tests need."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import histories
from .histories import History

if TYPE_CHECKING:
    from fencepost.actors import Workflow

__all__ = ["assert_replays"]


def assert_replays(history: str | Path | History, workflow: Workflow[..., Any]) -> None:
    """See to it that the workflow, as it is now, does what a stored history says: the same operations, the same end.

    `history` is a file that `fencepost runs export` wrote. No step runs.

    Raises:
        AssertionError: it does something else; the text says at which event, and the line.
        LoadError: the file holds no history.
    """
    __tracebackhide__ = True  # pytest shows the caller's line
    stored = history if isinstance(history, History) else histories.read(Path(history))
    found = stored.replayed(workflow)
    if found.state != "same":
        raise AssertionError(f"{stored.run.id} at event {found.event}: {found.why}")
