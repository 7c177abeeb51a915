"""Other durable runtimes, measured on a machine of this kind on 2026-11-30: two shared cores, 24 GB, one machine.

Medians of the three calmest of several repetitions, each peer with its own store as it comes: DBOS, Vercel Workflow
and Absurd on Postgres 18 with fsync, Temporal's development server in memory, Restate in its own log. Read ratios, not
absolutes: what is compared with them was measured on another day.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MEASURED: Final = "2026-11-30"

PEERS: Final = (
    "DBOS 3.4.0",
    "Vercel 4.8.9",
    "Temporal dev",
    "Absurd 0.5.1",
    "Absurd, poll 10 ms",
    "Restate 1.7",
)


@dataclass(frozen=True, slots=True)
class Line:
    """One figure: where ours is found, which direction is good, what the peers had (in the order of `PEERS`)."""

    title: str
    workload: str
    figure: str
    unit: str
    peers: tuple[float | None, ...]
    commits: int = 0
    """How many commits one after the other nothing durable can do without; 0: not held against them."""

    more_is_better: bool = False
    floor: str = ""
    """The figure of `FLOOR` that it is held against."""


LINES: Final = (
    Line("a run without steps, p50", "W0", "p50_ms", "ms", (4.50, 15.9, 49.9, 257, 16.1, 4.18), 2),
    Line("a run without steps, p95", "W0", "p95_ms", "ms", (7.90, 27.9, 56.2, 260, 18.0, 5.69)),
    Line("runs, 50 at once", "W0", "runs_s", "/s", (305, 92.0, 69.3, 415, 530, 641), more_is_better=True),
    Line("1 step", "W1", "seq1_ms", "ms", (9.71, 48.3, 98.8, 259, 21.2, 6.10), 3),
    Line("10 steps in sequence", "W1", "seq10_ms", "ms", (52.8, 271, 550, 270, 32.3, 16.7), 12),
    Line("25 steps in sequence", "W1", "seq25_ms", "ms", (132, 628, 1300, 293, 47.1, 44.9), 27),
    Line("50 steps in sequence", "W1", "seq50_ms", "ms", (240, 1239, 2549, 335, 69.2, 91.6), 52),
    Line("one more step", "W1", "seq_slope_ms", "ms", (4.70, 24.3, 50.0, 1.54, 0.98, 1.74), 1),
    Line("10 steps at once", "W2", "fan10_ms", "ms", (50.8, 127, 99.9, 274, 32.3, 9.72)),
    Line("25 steps at once", "W2", "fan25_ms", "ms", (135, 249, 142, 293, 46.5, 13.8)),
    Line("50 steps at once", "W2", "fan50_ms", "ms", (228, 537, 174, 328, 72.1, 19.4)),
    Line("10 steps raced, one by one", "W3", "race10_ms", "ms", (46.0, 120, 150, None, None, 10.2)),
    Line("25 steps raced, one by one", "W3", "race25_ms", "ms", (123, 295, 203, None, None, 15.2)),
    Line("50 steps raced, one by one", "W3", "race50_ms", "ms", (260, 359, 267, None, None, 15.9)),
    Line("10 steps of 10 KB in sequence", "W4", "pseq10_ms", "ms", (62.8, 190, 549, 275, 31.3, 22.7)),
    Line("50 steps of 10 KB in sequence", "W4", "pseq50_ms", "ms", (245, 1375, 2549, 317, 72.9, 102)),
    Line("50 steps of 10 KB at once", "W4", "pfan50_ms", "ms", (247, 538, 180, 316, 89.4, 22.7)),
    Line(
        "200 runs of 10 steps",
        "W5",
        "steps_s",
        "steps/s",
        (226, 88.0, 153, 653, 759, 1843),
        more_is_better=True,
        floor="pg_actors200_s",
    ),
    Line("1,000 sleeps due together, late p50", "W7", "late_p50_ms", "ms", (1353, 4373, 627, 206, 86.4, 41.4)),
    Line("1,000 sleeps due together, late p99", "W7", "late_p99_ms", "ms", (5996, 4622, 1703, 495, 704, 140)),
    Line("the same, all over after", "W7", "total_s", "s", (9.79, 14.8, 33.9, 4.66, 4.80, 3.06)),
    Line("a payload to a waiting run, p50", "W8", "p50_ms", "ms", (8.09, 14.2, 49.1, 257, 20.8, 4.15), 2),
    Line("a payload to a waiting run, p95", "W8", "p95_ms", "ms", (11.4, 20.1, 59.8, 260, 24.5, 6.03)),
)
