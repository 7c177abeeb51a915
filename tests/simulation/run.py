"""Seeded simulations of the real actors.

python tests/simulation/run.py 10000                  that many seeds, on all cores; a failure prints its history
python tests/simulation/run.py --seed 17              one seed, exactly; `SEED=17` in the environment does the same
python tests/simulation/run.py --variants             each law missing, one after the other: each has to be noticed
python tests/simulation/run.py --variant fence_off    one law missing
python tests/simulation/run.py --pin                  find a seed for each variant anew and write `pins.py`
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import sys
import time
from collections import Counter, deque
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.simulation.plan import draw
from tests.simulation.seed import simulate
from tests.simulation.timeline import timeline
from tests.simulation.variants import SEEN_BY, VARIANTS, may_show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.simulation.seed import Outcome

AT_ONCE = 10
AHEAD = 64
NOTICED_WITHIN = 1000
PINS = Path(__file__).with_name("pins.py")


@dataclass(slots=True)
class Piece:
    """What came of some seeds: how many, the figures added up, and what is wrong by seed."""

    seeds: int = 0
    totals: Counter[str] = field(default_factory=Counter)
    wrong: dict[int, str] = field(default_factory=dict)


def say(what: str) -> None:
    """Write a line."""
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def told(outcome: Outcome) -> str:
    """Return what is wrong and how to see it again."""
    wrong = "\n".join(f"  {what}" for what in outcome.broken)
    variant = f" --variant {outcome.variant}" if outcome.variant else ""
    return (
        f"seed {outcome.seed} failed:\n{wrong}\nrepeat: python tests/simulation/run.py --seed {outcome.seed}{variant}"
    )


# ---- one seed


def one(seed: int, variant: str) -> int:
    """Live through a seed and print its history."""
    outcome = simulate(seed, variant)
    say(timeline(outcome.lines))
    say(told(outcome) if outcome.broken else f"seed {seed} holds: {outcome.figures}, {outcome.trace}")
    return bool(outcome.broken)


# ---- many


def many(seeds: range, processes: int, *, keep_going: bool) -> int:
    """Live through seeds, on several cores; return 1 when one failed."""
    began_s, whole = time.perf_counter(), Piece()
    with _workers(processes) as mapped:
        for piece in mapped(_piece, _parts(seeds)):
            whole.seeds += piece.seeds
            whole.totals += piece.totals
            whole.wrong |= piece.wrong
            for seed, wrong in piece.wrong.items():
                say(wrong if keep_going else f"{timeline(simulate(seed).lines)}\n{wrong}")
            if whole.wrong and not keep_going:
                break
    took_s = time.perf_counter() - began_s
    say(f"{whole.seeds} seeds, {len(whole.wrong)} failed, {took_s:.1f} s; {dict(whole.totals)}")
    return bool(whole.wrong)


def _piece(seeds: range) -> Piece:
    piece = Piece()
    for seed in seeds:
        outcome = simulate(seed)
        piece.seeds += 1
        piece.totals.update(outcome.figures)
        if outcome.broken:
            piece.wrong[seed] = told(outcome)
    return piece


@contextmanager
def _workers(processes: int) -> Iterator[Callable[..., Iterator[Any]]]:
    """Yield a `map` over processes; what is not asked for any more is not begun."""
    if processes <= 1:
        yield lambda work, parts, **_: map(work, parts)
        return
    spawning = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, mp_context=spawning, initializer=gc.freeze)
    try:
        yield partial(_in_order, pool)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _in_order(pool: ProcessPoolExecutor, work: Any, parts: Iterable[Any], ahead: int = AHEAD) -> Iterator[Any]:
    """Yield results in order; no more is begun than `ahead` of what is looked at."""
    under_way = deque[Any]()
    for part in parts:
        under_way.append(pool.submit(work, part))
        if len(under_way) > ahead:
            yield under_way.popleft().result()
    while under_way:
        yield under_way.popleft().result()


def _parts(seeds: range) -> list[range]:
    return [seeds[i : i + AT_ONCE] for i in range(0, len(seeds), AT_ONCE)]


# ---- laws that are missing


def variants(names: list[str], within: int, processes: int, *, pin: bool) -> int:
    """Look for the first seed in which each missing law shows; return 1 when one does not."""
    pins: dict[str, int] = {}
    with _workers(processes) as mapped:
        for name, found in zip(names, mapped(partial(_noticed, within), names, ahead=len(names)), strict=True):
            if found is None:
                say(f"{name:24} NOT NOTICED within {within} seeds by {SEEN_BY[name]!r}")
            else:
                pins[name], took_s, sentence = found
                say(f"{name:24} seed {pins[name]:4}  {took_s:5.1f} s  {sentence[:160]}")
    if pin:
        _write_pins(pins)
    return int(len(pins) < len(names))


def _noticed(within: int, variant: str) -> tuple[int, float, str] | None:
    began_s = time.perf_counter()
    for seed in (seed for seed in range(1, within + 1) if may_show(variant, draw(seed))):
        for what in simulate(seed, variant).broken:
            if SEEN_BY[variant] in what:
                return seed, time.perf_counter() - began_s, what
    return None


def _write_pins(pins: dict[str, int]) -> None:
    lines = "".join(f'    "{name}": {seed},\n' for name, seed in pins.items())
    PINS.write_text(
        '"""For each missing law a seed in which its absence shows: written by `run.py --pin`, not by hand."""\n\n'
        f"CAUGHT = {{\n{lines}}}\n",
        encoding="utf-8",
    )
    say(f"{len(pins)} pins written into {PINS.name}")


# ---- the command


def main(arguments: list[str] | None = None) -> int:
    """Do what was asked; return 1 when a seed failed, or a missing law was not noticed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seeds", type=int, nargs="?", default=200, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED") or 0) or None)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--keep-going", action="store_true", help="show all seeds that fail, without histories")
    parser.add_argument("--variant", choices=sorted(VARIANTS), default="")
    parser.add_argument("--variants", action="store_true", help="all of them")
    parser.add_argument("--pin", action="store_true", help="as --variants, and write the seeds down")
    asked = parser.parse_args(arguments)
    if asked.seed is not None:
        return one(asked.seed, asked.variant)
    if asked.variants or asked.pin or asked.variant:
        names = [asked.variant] if asked.variant else list(SEEN_BY)
        return variants(names, NOTICED_WITHIN, asked.processes, pin=asked.pin)
    return many(range(asked.first, asked.first + asked.seeds), asked.processes, keep_going=asked.keep_going)


if __name__ == "__main__":
    sys.exit(main())
