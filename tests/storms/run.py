"""Storms: races of runs with timers, steps and payloads, by the thousand, on real nodes that are killed meanwhile.

    python tests/storms/run.py                             every storm on both pairs, about four minutes
    python tests/storms/run.py --runs 10000                as many runs in all
    python tests/storms/run.py --storm hook --pair stack   one of them
    python tests/storms/run.py --minutes 30                again and again, with the next seeds

A storm fails when a run ends other than completed, stalls or does not finish; when its log breaks a law or does not
replay; when a payload that was accepted is not in it once, or what the run returned is not what its log says.
A seed repeats the draws; the moments are the machine's.
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

from tests.storms.pairs import PAIRS
from tests.storms.play import play
from tests.storms.storms import STORMS
from tests.storms.table import Row, explained, notes, table

RUNS = 1200


def say(what: str) -> None:
    """Write a line."""
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


async def played(asked: argparse.Namespace) -> list[Row]:
    """Play until all was played, or the time is over."""
    task = asyncio.current_task()
    assert task is not None
    for ended in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(ended, task.cancel)
    storms = [STORMS[asked.storm]] if asked.storm else list(STORMS.values())
    pairs = PAIRS if asked.pair == "both" else (asked.pair,)
    each = max(1, asked.runs // (len(storms) * len(pairs)))
    until_s = time.monotonic() + 60 * asked.minutes
    found: dict[tuple[str, str], Row] = {}
    for turn, pair in ((turn, pair) for turn in itertools.count() for pair in pairs):
        if turn and time.monotonic() > until_s:
            break
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            for row in await play(storms, pair, each, asked.seed + turn, Path(folder)):
                say(f"{row.storm} on {row.pair}: {row.runs:,} runs in {row.took_s:.0f} s")
                found.setdefault((row.pair, row.storm), Row(row.storm, row.pair)).add(row)
    return list(found.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=RUNS, help=f"in all, {RUNS:,} unless given")
    parser.add_argument("--pair", choices=[*PAIRS, "both"], default="both")
    parser.add_argument("--storm", choices=list(STORMS), help="only this one")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=0.0, help="go on so long, with the next seeds")
    asked = parser.parse_args()
    try:
        rows = asyncio.run(played(asked))
    except asyncio.CancelledError:
        return 130
    say(f"{table(rows)}\n\n{notes(rows)}")
    broken = any(row.wrong for row in rows)
    if broken:
        say(explained(rows))
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
