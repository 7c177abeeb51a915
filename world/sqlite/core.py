"""The whole world over one connection: every subject, synchronous, one method = the body of one transaction."""

from __future__ import annotations

from .letters import Letters
from .members import Members
from .runs import Runs
from .values import Values


class Core(Runs, Members, Letters, Values):
    """All of World's methods without `async`. See World."""
