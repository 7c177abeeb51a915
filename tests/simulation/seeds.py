"""What CI lives through: 2,000 seeds in files of their own, because a test worker takes a file as a whole.

`run.py 10000` does the same by command, on all cores.
"""

from __future__ import annotations

import gc

from tests.simulation.run import told
from tests.simulation.seed import simulate

IN_A_FILE = 500
AT_ONCE = 10

gc.freeze()  # what is loaded by now stays: to look through it after each seed would be a twentieth of its time


def pieces(file: int) -> range:
    """Return the first seed of each test of a file."""
    return range(1 + file * IN_A_FILE, 1 + (file + 1) * IN_A_FILE, AT_ONCE)


def failures(first: int) -> list[str]:
    """Live through the seeds of a test, and return what is wrong with those that failed."""
    outcomes = [simulate(seed) for seed in range(first, first + AT_ONCE)]
    return [told(outcome) for outcome in outcomes if outcome.broken]
