"""What the whole stack is to reach on two cores with one node, beside what it did: missed ones say by how much."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .cells import Row, figures, foreign, median, number, table

if TYPE_CHECKING:
    from collections.abc import Sequence

PAIR: Final = "stack"
WITHIN: Final = 1.0


@dataclass(frozen=True, slots=True)
class Target:
    """One figure and its bound."""

    title: str
    workload: str
    figure: str
    bound: float
    unit: str
    at_least: bool = False


TARGETS: Final = (
    Target("one more step in sequence", "W1", "seq_slope_ms", 1.5, "ms"),
    Target("200 runs of 10 steps", "W5", "steps_s", 2000, "steps/s", at_least=True),
    Target("50 steps at once", "W2", "fan50_ms", 20, "ms"),
    Target("a run without steps, p50", "W0", "p50_ms", 3, "ms"),
    Target("runs without steps, 50 at once", "W0", "runs_s", 1000, "runs/s", at_least=True),
    Target("one timer alone, late p99", "W7", "alone_late_p99_ms", 20, "ms"),
    Target("a payload to a waiting run, until it completed, p50", "W8", "p50_ms", 3, "ms"),
    Target("a step near the end of 1,000 over one near the beginning", "W1LONG", "growth", 1.2, "times"),
    Target("the same beside 100 outside events a second", "W1OUT", "growth", 1.2, "times"),
    Target("10,000 sleeping runs, above an idle node", "NODE", "memory_mb", 60, "MB"),
    Target("CPU of the node meanwhile", "NODE", "cpu_pct", 2, "%"),
    Target("actors' loop late beside a busy step, p99", "LAG", "beside_p99_ms", 3, "ms"),
    Target("node process killed, until all runs went on", "KILL", "child_worst_s", 1.0, "s"),
    Target("machine killed, until all runs went on, beyond the lease", "KILL", "machine_beyond_s", 1.0, "s"),
)


def targets(rows: Sequence[Row]) -> str:
    """Return the table, empty where nothing of it was measured."""
    lines = [line for target in [*TARGETS, *_at_once(rows)] if (line := _line(rows, target))]
    says = (
        "### What `stack` is to reach (two cores, one node)\n\nThe best of the repetitions is what the machine "
        "disturbed least; the verdict is on the median."
    )
    body = table(["", "to reach", "median", "best", "median over the bound", "others' CPU"], lines)
    return f"{says}\n\n{body}" if body else ""


def _at_once(rows: Sequence[Row]) -> list[Target]:
    """Return the bound for timers due at once: each is a decision, and W5 says how many of these there are a second."""
    rate_s, timers = median(rows, PAIR, "W5", "steps_s"), median(rows, PAIR, "W7", "woke")
    if not rate_s or not timers:
        return []
    title = f"{timers:,.0f} timers due at once, the last one late (1.3 × what the rate of W5 allows)"  # noqa: RUF001
    return [Target(title, "W7", "late_last_ms", round(1.3e3 * timers / rate_s), "ms")]


def _line(rows: Sequence[Row], target: Target) -> list[str] | None:
    found = figures(rows, PAIR, target.workload, target.figure)
    if not found:
        return None
    middle, best = statistics.median(found), (max if target.at_least else min)(found)
    missed = target.bound / middle if target.at_least else middle / target.bound
    verdict = "reached" if missed <= WITHIN else f"**{number(missed)}× missed**"  # noqa: RUF001
    sign = "≥" if target.at_least else "≤"
    values = [f"{sign} {target.bound:,g} {target.unit}", number(middle), number(best)]
    return [f"{target.workload} {target.title}", *values, verdict, foreign(rows, PAIR, target.workload)]
