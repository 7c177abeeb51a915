"""Kill, stop, cut off and crowd real nodes under the orders example, and judge what became of every order.

    python tests/chaos/chaos.py                              every scenario once
    python tests/chaos/chaos.py --minutes 30                 again and again, with other seeds
    python tests/chaos/chaos.py --scenario cut_both --seed 7 one round, the same draws (the moments are the machine's)

A round fails when an order was charged twice or not at all, a law is broken in any log, a finished run does not replay,
a run stands still, a node says something odd or does not stop. Delays are reported beside their goal: a machine that
does other things as well misses some of them.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import signal
import sys
import tempfile
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from typing import TYPE_CHECKING

from tests.chaos.rounds import Report, Size, play
from tests.chaos.scenarios import SCENARIOS, Scenario

if TYPE_CHECKING:
    from collections.abc import Iterator


def say(what: str) -> None:
    """Write a line."""
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def told(report: Report) -> str:
    """Return a round in one line."""
    verdict = "FAILED" if report.broken else "well"
    met = "" if report.worst_s <= report.goal_s else " MISSED"
    return (
        f"{report.names:24} seed {report.seed:<5} {verdict:6} {report.runs:3} runs"
        f"  worst delay {report.worst_s:5.2f} s (goal {report.goal_s:g} s{met})"
        f"  last end {report.healed_s:5.1f} s after healing  slowest start {report.slowest_start_s:5.2f} s"
        f"  slowest stop {report.slowest_stop_s:4.2f} s"
        f"  repairs {sum(report.repairs.values()):2}  idle {report.busiest:4.0%}  took {report.took_s:3.0f} s"
    )


def explained(report: Report) -> str:
    """Return all that is known about a round that failed."""
    settings = " ".join(f"{name}={value}" for name, value in report.settings.items())
    faults = "\n".join(f"  {when:%H:%M:%S.%f} {what}" for when, what in report.faults.done)
    wrong = "\n".join(f"  - {what}" for what in report.broken[:30])
    again = f"python tests/chaos/chaos.py --scenario {report.names} --seed {report.seed}"
    worst = f"  {report.worst}\n  slowest start: {report.slowest_start}"
    parts = (settings, "faults (UTC):", faults, "worst delay:", worst, "wrong:", wrong, "nodes:", report.logs)
    return "\n".join((*parts, f"again: {again}"))


def planned(asked: argparse.Namespace) -> Iterator[tuple[Scenario, int]]:
    """Yield scenarios and seeds: all once, or until the time is over."""
    chosen = [SCENARIOS[asked.scenario]] if asked.scenario else list(SCENARIOS.values())
    until_s = time.monotonic() + asked.minutes * 60
    for turn in itertools.count():
        for one in chosen:
            if (turn or one is not chosen[0]) and asked.minutes and time.monotonic() > until_s:
                return
            yield one, asked.seed + turn
        if not asked.minutes:
            return


async def played(asked: argparse.Namespace) -> list[Report]:
    """Play all rounds; a line each, and more about those that failed."""
    task = asyncio.current_task()
    assert task is not None
    for ended in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(ended, task.cancel)
    size = Size(asked.nodes, asked.orders, asked.span)
    reports = []
    for one, seed in planned(asked):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            report = await play([one], seed, Path(folder), size)
        reports.append(report)
        say(told(report))
        if report.broken or asked.verbose > (report.worst_s <= report.goal_s):
            say(explained(report))
    return reports


def summed_up(reports: list[Report]) -> str:
    failed = sum(bool(report.broken) for report in reports)
    late = [report for report in reports if report.worst_s > report.goal_s]
    slow = "".join(f"\n  {one.names} seed {one.seed}: {one.worst_s:.2f} s, goal {one.goal_s:g} s" for one in late)
    return f"{len(reports)} rounds, {failed} failed, {len(late)} slower than their goal{slow}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scenario", choices=sorted(SCENARIOS))
    parser.add_argument("--minutes", type=float, default=0.0, help="go on so long, with the next seeds")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--orders", type=int, default=60)
    parser.add_argument("--span", type=float, default=8.0, help="over how many seconds orders are started")
    parser.add_argument(
        "-v", "--verbose", action="count", default=0, help="explain what missed its goal, too; twice: all"
    )
    try:
        reports = asyncio.run(played(parser.parse_args()))
    except asyncio.CancelledError:
        return 130
    say(summed_up(reports))
    return any(report.broken for report in reports)


if __name__ == "__main__":
    sys.exit(main())
