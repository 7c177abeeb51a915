"""The whole world over one connection: every subject, synchronous, one method = the body of one transaction."""

from __future__ import annotations

from .claims import Claims
from .letters import Letters
from .partitions import Partitions
from .runs import Runs
from .values import Values


class Core(Runs, Claims, Partitions, Letters, Values):
    """All of World's methods without `async`. See World."""
