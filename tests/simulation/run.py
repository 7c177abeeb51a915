"""Seeded simulations of the real actors.

python tests/simulation/run.py --seeds 500            many seeds; the first failure prints its history
python tests/simulation/run.py --seed 17              one seed, exactly; `SEED=17` in the environment does the same
python tests/simulation/run.py --variant fence_off    a law missing: has to fail
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.simulation.seed import Outcome, simulate
from tests.simulation.variants import VARIANTS


def say(what: str) -> None:
    """Write a line."""
    sys.stdout.write(f"{what}\n")


def timeline(outcome: Outcome) -> str:
    """Return the history by writer, one line each."""
    return "\n".join(f"{at_s:10.4f}  {who:7}  {what}" for at_s, who, what in outcome.lines)


def told(outcome: Outcome) -> str:
    """Return what is wrong and how to see it again."""
    wrong = "\n".join(f"  {what}" for what in outcome.broken)
    variant = f" --variant {outcome.variant}" if outcome.variant else ""
    return (
        f"seed {outcome.seed} failed:\n{wrong}\nrepeat: python tests/simulation/run.py --seed {outcome.seed}{variant}"
    )


def main(arguments: list[str] | None = None) -> int:
    """Run seeds; return 1 when one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED", "0")) or None)
    parser.add_argument("--variant", choices=sorted(VARIANTS), default="")
    parser.add_argument("--keep-going", action="store_true", help="show all seeds that fail, without histories")
    asked = parser.parse_args(arguments)
    if asked.seed is not None:
        outcome = simulate(asked.seed, asked.variant)
        say(timeline(outcome))
        say(told(outcome) if outcome.broken else f"seed {asked.seed} holds: {outcome.figures}, {outcome.trace}")
        return bool(outcome.broken)
    return _many(range(asked.first, asked.first + asked.seeds), asked.variant, keep_going=asked.keep_going)


def _many(seeds: range, variant: str, *, keep_going: bool) -> int:
    began_s, failed, totals = time.perf_counter(), 0, {}
    for seed in seeds:
        outcome = simulate(seed, variant)
        for name, figure in outcome.figures.items():
            totals[name] = totals.get(name, 0) + figure
        if outcome.broken:
            failed += 1
            say(told(outcome))
            if not keep_going:
                break
    say(f"{seed - seeds[0] + 1} seeds, {failed} failed, {time.perf_counter() - began_s:.1f} s; {totals}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
