"""One round: a fresh stack, orders, faults among them; then it is healed, everything must finish, and is judged."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
import uuid
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psutil

from tests.chaos import judges
from tests.chaos.delays import Delay, Faults, delays
from tests.chaos.load import Load, drawn
from tests.chaos.processes import marking
from tests.chaos.scenarios import Attack, Scenario
from tests.chaos.stack import SCHEMA, Stack, stacked

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from datetime import datetime
    from pathlib import Path

    from fencepost import Client

FINISH_S = 60.0
"""How long after healing everything must have ended."""
TIDY_S = 15.0
LATE_S = 15.0
"""How much later than its goal a run may go on, on a machine that does other things as well."""
HEARD_S = 25.0
IDLE_S = 2.0
IDLE_CPU_MAX = 0.35
"""Of a core, for one process of a node that has nothing to do."""
ASK_S = 0.5
SHOWN = 40


@dataclass
class Report:
    """What came out of a round."""

    names: str
    seed: int
    goal_s: float
    settings: dict[str, str]
    broken: list[str] = field(default_factory=list)
    faults: Faults = field(default_factory=Faults)
    worst: Delay | None = None
    slowest_start_s: float = 0.0
    slowest_start: str = ""
    healed_s: float = 0.0
    """From the end of the faults to the end of the last run."""
    repairs: dict[str, int] = field(default_factory=dict)
    """By incarnation."""
    busiest: float = 0.0
    slowest_stop_s: float = 0.0
    """Of nodes that have nothing to do."""
    runs: int = 0
    took_s: float = 0.0
    logs: str = ""

    @property
    def worst_s(self) -> float:
        return self.worst.seconds if self.worst else 0.0


@dataclass(frozen=True)
class Size:
    """How much happens in a round."""

    nodes: int = 3
    orders: int = 60
    span_s: float = 8.0


def settings_drawn(rng: random.Random) -> dict[str, str]:
    """Draw how nodes work: what is offered to others, what runs ahead, who stands by."""
    return {
        "FENCEPOST_DISPATCH": rng.choice(("auto", "bus")),
        "FENCEPOST_STEP_SLOTS": rng.choice(("64", "4")),
        "FENCEPOST_RUN_AHEAD": rng.choice(("true", "true", "false")),
        "FENCEPOST_STANDBY": rng.choice(("true", "true", "false")),
    }


async def play(scenarios: Sequence[Scenario], seed: int, folder: Path, size: Size) -> Report:
    """Play one round of these scenarios, one after the other."""
    rng = random.Random(seed)
    report = Report(
        "+".join(one.name for one in scenarios), seed, max(one.goal_s for one in scenarios), settings_drawn(rng)
    )
    began_s = time.monotonic()
    mark = uuid.uuid4().hex
    bound = next((one.max_connections for one in scenarios if one.max_connections), None)
    with marking(mark):
        async with stacked(folder, nodes=size.nodes, settings=report.settings, max_connections=bound) as stack:
            if any(one.twins for one in scenarios):
                twin = await stack.add_node("twin", called=stack.nodes[0].name)
                await twin.until_ready()
            load = Load(drawn(rng, size.orders), size.span_s * max(one.stretch for one in scenarios))
            await _play_on(stack, scenarios, rng, load, report)
            evidence = await _gathered(stack, report)
            await _stop(stack, report)
            report.broken += evidence.judged(stack, load)
            report.broken += judges.nodes_said_nothing_odd(
                stack.nodes, tuple(what for one in scenarios for what in one.may_say)
            )
            if all(one.spares for one in scenarios):
                report.broken += judges.no_node_process_died(stack.nodes)
            report.runs = len(evidence.runs)
            found = [delay for run in evidence.runs for delay in delays(run.run_id, run.log, report.faults)]
            report.worst = max(found, default=None)
            if report.worst_s > report.goal_s + LATE_S:
                report.broken.append(f"a run stood still for {report.worst_s:.1f} s")
            report.logs = "\n".join(f"{node.name}:\n{node.tail(SHOWN, matters)}" for node in stack.nodes)
    report.took_s = time.monotonic() - began_s
    return report


async def _play_on(stack: Stack, scenarios: Sequence[Scenario], rng: random.Random, load: Load, report: Report) -> None:
    async with stack.client() as client, _asking(client, report):
        loading = asyncio.create_task(load.run(client))
        try:
            for one in scenarios:
                await one.act(Attack(stack, rng, report.faults))
            await heal(stack)
            healed_s = time.monotonic()
            if await _finished(stack, loading, report):
                report.healed_s = time.monotonic() - healed_s
                await load.finish(HEARD_S)
        finally:
            loading.cancel()
            load.stop()
            await asyncio.gather(loading, return_exceptions=True)
    report.broken += load.broken
    report.slowest_start_s, report.slowest_start = load.slowest_start_s, load.slowest_start


async def heal(stack: Stack) -> None:
    """Put right whatever an act has left broken."""
    for proxy in [*stack.doors, *(proxy for links in stack.links.values() for proxy in links.both())]:
        proxy.delay_s = 0.0
        if proxy.how != "flow":
            proxy.turn("flow")
    for server in (stack.nats, stack.postgres):
        if server.pid is None:
            await server.start()
    for node in stack.nodes:
        with contextlib.suppress(psutil.Error):
            for process in node.processes:
                process.resume()
        if not node.lives and not node.codes:
            node.start(stack.app(1))


async def _finished(stack: Stack, loading: asyncio.Task[None], report: Report) -> bool:
    """Wait until all orders are accepted and all runs have ended."""
    try:
        async with asyncio.timeout(FINISH_S):
            await loading
            async with stack.superuser() as connection:
                live = f"SELECT count(*) FROM {SCHEMA}.runs WHERE ended_at IS NULL"
                while await connection.fetchval(live):  # noqa: ASYNC110  (processes have no events)
                    await asyncio.sleep(0.05)  # real time: others are at work
    except TimeoutError:
        what = "all runs had ended" if loading.done() else "all orders were accepted"
        report.broken.append(f"{FINISH_S:g} s after healing not {what}")
        return False
    except ExceptionGroup as several:
        report.broken.append(f"starting orders ended with {several.exceptions[0]!r}")
        return False
    return True


@asynccontextmanager
async def _asking(client: Client, report: Report) -> AsyncIterator[None]:
    """Ask the nodes for their repairs from time to time: the figure dies with them."""

    async def ask() -> None:
        while True:
            with contextlib.suppress(Exception):
                info = await client.info()
                report.repairs[info["incarnation"]] = info["repairs"]
            await asyncio.sleep(ASK_S)  # real time: a sample

    asking = asyncio.create_task(ask())
    try:
        yield
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


def matters(line: dict) -> bool:
    """Tell whether a log line says more than that the load is under way."""
    return not str(line.get("event")).startswith(("HTTP Request", "step tried again", "step failed", "run failed"))


# ---- judging


@dataclass(frozen=True)
class Evidence:
    """What was found when everything had ended. Judged when the nodes have stopped: links stand still then."""

    runs: list[judges.Finished]
    left: dict[str, datetime | None]
    ledger: dict[str, list[dict[str, Any]]]

    def judged(self, stack: Stack, load: Load) -> Iterator[str]:
        """Yield what is wrong with it."""
        yield from judges.logs_keep_the_laws(self.runs)
        yield from judges.rows_say_what_logs_say(self.runs)
        yield from judges.runs_replay(self.runs, stack.app(1))
        yield from judges.the_dead_write_nothing(self.runs, self.left)
        yield from judges.the_ledger_agrees(load.lines, self.runs, load.run_ids, self.ledger)
        yield from judges.bodies_began_under_their_starts(self.runs, self.ledger)
        yield from judges.postgres_said_nothing_odd((stack.folder / "postgres" / "postgres.log").read_text())


async def _gathered(stack: Stack, report: Report) -> Evidence:
    async with stack.superuser() as connection:
        report.broken += await _tidy(connection)
        runs, left = await judges.read_runs(connection), await judges.departures(connection)
    report.broken += await _idle(stack, report)
    return Evidence(runs, left, await stack.ledger())


async def _tidy(connection: judges.asyncpg.Connection) -> list[str]:
    """Return what is not tidy, after it has had time to become so."""
    until_s = time.monotonic() + TIDY_S
    while (left := await judges.tables_are_tidy(connection)) and time.monotonic() < until_s:  # noqa: ASYNC110  (as above)
        await asyncio.sleep(0.1)  # real time: partitions are shared out, bodies end
    return left


async def _idle(stack: Stack, report: Report) -> list[str]:
    """Measure what nodes use that have nothing to do."""
    processes = [process for node in stack.nodes for process in node.processes]
    before = {process: cpu_s(process) for process in processes}
    await asyncio.sleep(IDLE_S)  # real time: what is measured
    shares = {process: (cpu_s(process) - before[process]) / IDLE_S for process in processes}
    report.busiest = max(shares.values(), default=0.0)
    return [
        f"process {process.pid} uses {share:.0%} of a core and has nothing to do"
        for process, share in shares.items()
        if share > IDLE_CPU_MAX
    ]


def cpu_s(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.Error):
        times = process.cpu_times()
        return times.user + times.system
    return 0.0


async def _stop(stack: Stack, report: Report) -> None:
    """Stop all nodes as one would: each ends with 0, and nothing of them is left alive."""
    lived = [node for node in stack.nodes if node.lives]
    await stack.stop_nodes()
    report.slowest_stop_s = max((node.stops_s[-1] for node in lived), default=0.0)
    report.broken += [
        f"node {node.name} ended with {node.codes[-1]} when it was stopped" for node in lived if any(node.codes)
    ]
    async with stack.superuser() as connection:
        alive = await connection.fetchval(f"SELECT count(*) FROM {SCHEMA}.members WHERE left_at IS NULL")
    if alive:
        report.broken.append(f"{alive} incarnations are alive after all nodes have stopped")
