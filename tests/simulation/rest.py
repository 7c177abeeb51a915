"""What is left when every run has ended and all is well: nothing stuck, nothing leaked, every partition owned."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fencepost.actors import Node
    from tests.simulation.fleet import Fleet
    from tests.simulation.ledger import Begun

LEFT = """
SELECT c.run_id, c.op, c.token, m.name, m.incarnation
FROM claims c JOIN members m ON m.incarnation = c.incarnation
WHERE m.left_at IS NULL ORDER BY c.token
"""


def at_rest(fleet: Fleet) -> Iterator[str]:
    """Yield one sentence for each thing that is not as it should be."""
    if fleet.unended():
        return  # told already, and all else follows from it
    nodes = {node.incarnation: node for node in fleet.nodes if any(node is place.node for place in fleet.places)}
    yield from nothing_is_on_offer(fleet)
    yield from every_partition_has_one_owner(fleet, nodes)
    yield from every_claim_has_its_body(fleet, nodes)
    for node in nodes.values():
        yield from nothing_is_held(node)


def nothing_is_on_offer(fleet: Fleet) -> Iterator[str]:
    """What was on offer is claimed or withdrawn."""
    for run_id, op in fleet.world.core.connection.execute("SELECT run_id, op FROM offers ORDER BY run_id, op"):
        yield f"nothing_is_on_offer: {op} of {run_id}, which has ended"


def every_partition_has_one_owner(fleet: Fleet, nodes: dict[str, Node]) -> Iterator[str]:
    """Each partition belongs to one live node that knows it, and no other thinks so. Shares are fair."""
    rows = fleet.world.core.connection.execute("SELECT partition, incarnation FROM partitions WHERE app = 'sim'")
    owners = dict(map(tuple, rows.fetchall()))
    for partition in range(fleet.world.core.facts.partitions):
        owner = owners.get(partition, "")
        think = sorted(incarnation for incarnation, node in nodes.items() if partition in node.ownership.owned)
        if owner not in nodes or think != [owner]:
            yield f"every_partition_has_one_owner: {partition} is owned by {owner!r}, and {think} think they do"
    takers = [incarnation for incarnation, node in nodes.items() if node.ownership.takes]
    shares = Counter(owners.values())
    fair = -(-fleet.world.core.facts.partitions // max(len(takers), 1))
    for incarnation, owned in shares.items():
        if owned > fair:
            yield f"every_partition_has_one_owner: {incarnation} owns {owned}, more than {fair}"


def every_claim_has_its_body(fleet: Fleet, nodes: dict[str, Node]) -> Iterator[str]:
    """A claim that was made since all is well, of a node that lives, is there for a body that runs."""
    begun = fleet.ledger.begun
    for run_id, op, token, name, incarnation in fleet.world.core.connection.execute(LEFT):
        body = begun.get(token)
        if incarnation not in nodes:
            yield f"every_claim_has_its_body: {token[:8]} of {name} lives, whose process does not"
        elif _is_new(body, fleet.quiet_s) and not nodes[incarnation].bodies.knows(token):
            yield f"every_claim_has_its_body: {op} of {run_id} is claimed as {token[:8]}, and nobody runs it"


def _is_new(body: Begun | None, since_s: float) -> bool:
    return body is None or body.at_s > since_s


def nothing_is_held(node: Node) -> Iterator[str]:
    """No slot without a body, no place in line, no claim that is waited for, no outcome to report."""
    bodies, slots, who = node.bodies, node.bodies.slots, f"nothing_is_held: {node.settings.name}"
    if slots.used != bodies.count:
        yield f"{who} has {slots.used} slots taken and {bodies.count} bodies"
    if slots.waiting:
        yield f"{who} has {slots.waiting} steps in line"
    if bodies._kept - bodies._running.keys():
        yield f"{who} waits for claims {sorted(bodies._kept)}"
    if node.reporter.busy:
        yield f"{who} still reports {node.reporter.busy} outcomes"
    if busy := [key for key in node._mailboxes._boxes if key in node._actors]:
        yield f"{who} is still busy with {busy}"
