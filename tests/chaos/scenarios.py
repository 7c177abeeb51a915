"""What is done to a stack under load. Each act draws its moments from the round's seed, and heals what it broke."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import asyncpg

from tests.chaos.delays import Faults, now
from tests.chaos.stack import LEASE_S, LOOP_DEAD_S, SCHEMA

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.chaos.nodes import Node
    from tests.chaos.proxies import How, Proxy
    from tests.chaos.stack import Stack

LAPSED_S = LEASE_S + 1.5
AT_ONCE_S = 1.0
"""The goal when a supervisor sees its node die."""
SILENT = "the loop of the node gave no sign"


@dataclass
class Attack:
    """What an act works with."""

    stack: Stack
    rng: random.Random
    faults: Faults

    async def pause(self, least_s: float, most_s: float) -> None:
        await asyncio.sleep(self.rng.uniform(least_s, most_s))  # real time: the moment is what is drawn

    def node(self) -> Node:
        return self.rng.choice(self.stack.nodes)

    @asynccontextmanager
    async def away(self, what: str) -> AsyncIterator[None]:
        """Note a fault that lets nobody go on while it lasts."""
        self.faults.note(what)
        begin = now()
        try:
            yield
        finally:
            self.faults.away.append((begin, now()))
            self.faults.note(f"{what}: over")


@dataclass(frozen=True)
class Scenario:
    """An act, what it needs, and how long a run may stand still for it."""

    name: str
    act: Callable[[Attack], Awaitable[None]]
    goal_s: float = LEASE_S + 1
    may_say: tuple[str, ...] = ()
    """How errors begin that nodes may log."""
    max_connections: int | None = None
    twins: bool = False
    """Whether the first node has a second one of its name."""
    spares: bool = False
    """Whether no node process may die of it."""
    stretch: float = 1.0
    """How much longer than usual the load lasts."""


SCENARIOS: dict[str, Scenario] = {}


def scenario(
    goal_s: float = LEASE_S + 1,
    *,
    may_say: tuple[str, ...] = (),
    max_connections: int | None = None,
    twins: bool = False,
    spares: bool = False,
    stretch: float = 1.0,
) -> Callable[[Callable[[Attack], Awaitable[None]]], Callable[[Attack], Awaitable[None]]]:
    def entered(act: Callable[[Attack], Awaitable[None]]) -> Callable[[Attack], Awaitable[None]]:
        SCENARIOS[act.__name__] = Scenario(act.__name__, act, goal_s, may_say, max_connections, twins, spares, stretch)
        return act

    return entered


@scenario(AT_ONCE_S, spares=True)
async def calm(attack: Attack) -> None:
    """Nothing: what the others are compared with."""
    await attack.pause(1, 2)


# ---- kill -9


@scenario(AT_ONCE_S)
async def kill_child(attack: Attack) -> None:
    """The node process dies and its supervisor lives: it says so, and starts another."""
    for _ in range(3):
        await attack.pause(0.5, 2.5)
        node = attack.node()
        if node.kill("child"):
            attack.faults.note(f"child of {node.name} killed")


@scenario(AT_ONCE_S)
async def kill_supervisor(attack: Attack) -> None:
    """The supervisor dies and its node process lives: that leaves and ends."""
    for _ in range(2):
        await attack.pause(0.5, 2)
        node = attack.node()
        node.kill("supervisor")
        attack.faults.note(f"supervisor of {node.name} killed")
        await attack.pause(0, 3)
        node.start(attack.stack.app(1))


@scenario()
async def kill_both(attack: Attack) -> None:
    """A machine dies: nobody says so, its lease has to run out."""
    await attack.pause(0.5, 2)
    node = attack.node()
    node.kill("both")
    attack.faults.note(f"machine of {node.name} killed")
    await attack.pause(LAPSED_S, LAPSED_S + 1)
    node.start(attack.stack.app(1))


@scenario(LEASE_S + 3)  # while the second is not declared dead, half of the first's partitions wait for it
async def kill_both_and_back(attack: Attack) -> None:
    """A machine dies and is back before its lease has run out: two incarnations of one name."""
    for _ in range(2):
        await attack.pause(0.5, 2)
        node = attack.node()
        node.kill("both")
        attack.faults.note(f"machine of {node.name} killed")
        await attack.pause(0, 0.5)
        node.start(attack.stack.app(1))


@scenario()
async def kill_all(attack: Attack) -> None:
    """All machines die at once. Until the first of them serves again nobody can do anything."""
    await attack.pause(1, 3)
    nodes = attack.stack.nodes
    async with attack.away("all machines killed"):
        ready = [(node, node.readies + 1) for node in nodes]
        for node in nodes:
            node.kill("both")
        await attack.pause(0, 2)
        for node in nodes:
            node.start(attack.stack.app(1))
        waiting = [asyncio.create_task(node.until_ready(times)) for node, times in ready]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.gather(*waiting)


@scenario(spares=True)
async def kill_nats(attack: Attack) -> None:
    """The nats-server dies and comes back with its store."""
    for _ in range(2):
        await attack.pause(0.5, 2)
        attack.faults.note("nats-server killed")
        await attack.stack.nats.kill()
        await attack.pause(0, 3)
        await attack.stack.nats.start()


@scenario(spares=True)
async def kill_nats_store(attack: Attack) -> None:
    """The nats-server dies and comes back with nothing."""
    for _ in range(2):
        await attack.pause(0.5, 2)
        attack.faults.note("nats-server killed, its store deleted")
        await attack.stack.nats.kill()
        shutil.rmtree(attack.stack.nats.store)
        await attack.pause(0, 2)
        await attack.stack.nats.start()


@scenario()
async def kill_postgres(attack: Attack) -> None:
    """Postgres crashes and recovers, before the leases have run out and after."""
    for least_s, most_s in ((0.0, 1.0), (LAPSED_S, LAPSED_S + 1)):
        await attack.pause(0.5, 2)
        async with attack.away("Postgres killed"):
            await attack.stack.postgres.kill()
            await attack.pause(least_s, most_s)
            await attack.stack.postgres.start()


@scenario()
async def kill_postgres_and_child(attack: Attack) -> None:
    """A node process dies while Postgres is away: its supervisor cannot say so yet."""
    await attack.pause(0.5, 2)
    async with attack.away("Postgres killed"):
        await attack.stack.postgres.kill()
        await attack.pause(0, 1)
        attack.node().kill("child")
        attack.faults.note("a child killed")
        await attack.pause(0.5, 2)
        await attack.stack.postgres.start()


# ---- stopped clocks


async def stopped(attack: Attack, whom: str, least_s: float) -> None:
    node = attack.node()
    await attack.pause(0.5, 2)
    node.signal(signal.SIGSTOP, whom)
    attack.faults.note(f"{whom} of {node.name} stopped")
    await attack.pause(least_s, least_s + 2)
    node.signal(signal.SIGCONT, whom)
    attack.faults.note(f"{whom} of {node.name} goes on")


@scenario(LOOP_DEAD_S + 2, may_say=(SILENT,))  # its stack is asked for, for a second
async def stop_child(attack: Attack) -> None:
    """The node process stands still: its supervisor gives it up after `loop_dead_after`."""
    await stopped(attack, "child", LOOP_DEAD_S + 1)


@scenario(spares=True)
async def stop_child_shortly(attack: Attack) -> None:
    """The node process stands still for less than that."""
    for _ in range(2):
        await stopped(attack, "child", 0.5)


@scenario()
async def stop_supervisor(attack: Attack) -> None:
    """The supervisor stands still past the lease: its node process is declared dead, and works on until it hears so."""
    await stopped(attack, "supervisor", LAPSED_S)


@scenario(may_say=(SILENT,))
async def stop_both(attack: Attack) -> None:
    """A machine stands still past the lease, and goes on as if nothing had been."""
    await stopped(attack, "both", LAPSED_S)


@scenario(LEASE_S + 3, may_say=(SILENT,))
async def stop_all(attack: Attack) -> None:
    """All machines stand still past every lease."""
    await attack.pause(1, 2)
    async with attack.away("all machines stopped"):
        for node in attack.stack.nodes:
            node.signal(signal.SIGSTOP, "both")
        await attack.pause(LAPSED_S, LAPSED_S + 2)
        for node in attack.stack.nodes:
            node.signal(signal.SIGCONT, "both")


# ---- networks


async def cut_off(attack: Attack, *proxies: Proxy, what: str) -> None:
    how: How = attack.rng.choice(("cut", "hold", "swallow"))
    await attack.pause(0.5, 2)
    for proxy in proxies:
        proxy.turn(how)
    attack.faults.note(f"{what}: {how}")
    await attack.pause(0.5, LAPSED_S + 2)
    for proxy in proxies:
        proxy.turn("flow")
    attack.faults.note(f"{what}: healed")


@scenario(spares=True)
async def cut_nats(attack: Attack) -> None:
    """A node hears no bus any more."""
    for _ in range(2):
        node = attack.node()
        await cut_off(attack, attack.stack.links[node.name].nats, what=f"{node.name} cut off from NATS")


@scenario()
async def cut_postgres(attack: Attack) -> None:
    """A node and its supervisor cannot reach the world."""
    for _ in range(2):
        node = attack.node()
        await cut_off(attack, attack.stack.links[node.name].postgres, what=f"{node.name} cut off from Postgres")


@scenario()
async def cut_both(attack: Attack) -> None:
    """A node reaches nobody, and its steps reach the provider."""
    for _ in range(2):
        node = attack.node()
        await cut_off(attack, *attack.stack.links[node.name].both(), what=f"{node.name} cut off")


@scenario(spares=True)
async def cut_nats_for_all(attack: Attack) -> None:
    """No node hears the bus: all keep what they have."""
    proxies = [links.nats for links in attack.stack.links.values()]
    await cut_off(attack, *proxies, what="all cut off from NATS")


@scenario(spares=True)
async def slow_links(attack: Attack) -> None:
    """Everything of a node is late."""
    node = attack.node()
    await attack.pause(0.5, 1)
    attack.faults.note(f"links of {node.name} slow")
    for proxy in attack.stack.links[node.name].both():
        proxy.delay_s = attack.rng.uniform(0.005, 0.05)
    await attack.pause(3, 5)
    for proxy in attack.stack.links[node.name].both():
        proxy.delay_s = 0.0


@scenario(spares=True)
async def failover(attack: Attack) -> None:
    """Of the client's two ways to the bus one dies at a time."""
    doors = list(attack.stack.doors)
    attack.rng.shuffle(doors)
    for door in doors:
        await attack.pause(0.5, 2)
        door.turn(attack.rng.choice(("cut", "swallow")))
        attack.faults.note("one of the client's URLs died")
        await attack.pause(2, 4)
        door.turn("flow")


# ---- people


@scenario(AT_ONCE_S, twins=True)
async def twins(attack: Attack) -> None:
    """Two nodes of one name; a process of one of them dies, then one is stopped."""
    both = [attack.stack.nodes[0], attack.stack.nodes[-1]]
    await attack.pause(0.5, 2)
    attack.rng.choice(both).kill("child")
    attack.faults.note("a child of one of the two killed")
    await attack.pause(0.5, 1.5)
    leaving = attack.rng.choice(both)
    attack.faults.note(f"{leaving.name} is stopped")
    await leaving.stop()


@scenario(AT_ONCE_S, stretch=4.0)
async def rolling(attack: Attack) -> None:
    """New code, one node after the other."""
    version = attack.rng.randrange(2, 1000)
    for node in list(attack.stack.nodes):
        await attack.pause(0.2, 1)
        attack.faults.note(f"{node.name} gets version {version}")
        await node.stop()
        ready = node.readies + 1
        node.start(attack.stack.app(version))
        await node.until_ready(ready)


# ---- databases


@scenario(max_connections=40)
async def connections_exhausted(attack: Attack) -> None:
    """Others hold every connection there is; meanwhile a node process dies and wants new ones."""
    await attack.pause(0.5, 1)
    async with contextlib.AsyncExitStack() as held:
        url = attack.stack.database_url(attack.stack.postgres.port)
        with contextlib.suppress(asyncpg.PostgresError):
            while True:
                connection = await asyncpg.connect(url)
                held.callback(connection.terminate)
        attack.faults.note("no connection is left")
        await attack.pause(0.5, 1.5)
        attack.node().kill("child")
        attack.faults.note("a child killed")
        await attack.pause(2, 4)
    attack.faults.note("connections are back")


@scenario()
async def read_only(attack: Attack) -> None:
    """Nothing can be written for a while."""
    await attack.pause(0.5, 2)
    async with attack.away("Postgres read-only"):
        await attack.stack.reload("default_transaction_read_only", "on")
        await attack.pause(1, LAPSED_S + 1)
        await attack.stack.reload("default_transaction_read_only", None)


@scenario(spares=True)
async def rows_held(attack: Attack) -> None:
    """Somebody's transaction holds the rows of live runs: theirs wait, and only theirs."""
    await attack.pause(1, 2)
    async with attack.stack.superuser() as connection:
        await connection.execute("BEGIN")
        rows = await connection.fetch(
            f"SELECT run_id FROM {SCHEMA}.runs WHERE ended_at IS NULL ORDER BY run_id LIMIT 5 FOR UPDATE"
        )
        async with attack.away(f"{len(rows)} runs held"):
            await attack.pause(2, 4)
            await connection.execute("ROLLBACK")


@scenario(may_say=(SILENT,))
async def storm(attack: Attack) -> None:
    """Three of all, one after the other."""
    others = [
        one for one in SCENARIOS.values() if one.act not in {storm, calm} and not (one.max_connections or one.twins)
    ]
    for one in attack.rng.sample(others, 3):
        await one.act(attack)
