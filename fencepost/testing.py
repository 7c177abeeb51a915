"""What users' own tests need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fencepost.actors import Workflow

from . import histories
from .histories import History

__all__ = ["assert_replays"]


def assert_replays(history: str | Path | History, workflow: Workflow[..., Any]) -> None:
    """See to it that the workflow, as it is now, does what a stored history says: the same operations, the same end.

    `history` is a file that `fencepost runs export` wrote. No step runs.

    Raises:
        AssertionError: it does something else; the text says at which event, and the line.
        LoadError: the file holds no history.
    """
    __tracebackhide__ = True  # pytest shows the caller's line
    if not isinstance(workflow, Workflow):  # pyright: ignore[reportUnnecessaryIsInstance]  (tests without a type checker)
        raise TypeError(f"assert_replays needs a workflow, not {type(workflow).__name__}")
    stored = history if isinstance(history, History) else histories.read(Path(history))
    if stored.run.workflow != workflow.name:
        raise AssertionError(f"{stored.run.id} is a run of {stored.run.workflow!r}, not of {workflow.name!r}")
    found = stored.replayed(workflow)
    if found.state != "same":
        raise AssertionError(f"{stored.run.id} at event {found.event}: {found.why}")
