"""What is looked for at the end of a seed is found: each law of `rest` fires on a fleet that was tampered with."""

import pytest

from tests.simulation import flows
from tests.simulation.cluster import Variant
from tests.simulation.fleet import Fleet
from tests.simulation.ledger import present
from tests.simulation.plan import EVERYTHING, Plan, RunPlan, Together
from tests.simulation.rest import at_rest


@pytest.fixture
def fleet():
    plan = Plan(nodes=2, faulty=False, lasts_s=2.0, runs=[RunPlan(0.1, flows.sequence, 2, None)])
    plan.together = Together([EVERYTHING] * 2, [False, False], bus_only=True)
    made = Fleet(1, plan, Variant())
    with present(made.ledger):
        made.loop.run(made.live())
        yield made
        made.close()


def sql(fleet, statement):
    fleet.world.core.connection.execute(statement)


def tamper_offer(fleet):
    sql(fleet, "INSERT INTO offers (run_id, op, queue, attempt, dispatch) SELECT run_id, '9', 'q', 1, 1 FROM runs")


def tamper_claim(fleet):
    inc = fleet.places[0].node.incarnation
    sql(
        fleet,
        "INSERT INTO claims (run_id, op, attempt, dispatch, token, incarnation, draining)"
        f" SELECT run_id, '9', 1, 1, 't', '{inc}', 0 FROM runs",
    )


def tamper_partition(fleet):
    sql(fleet, "UPDATE partitions SET incarnation = '' WHERE partition = 1")


def tamper_shares(fleet):
    one, other = (place.node for place in fleet.places)
    sql(fleet, f"UPDATE partitions SET incarnation = '{one.incarnation}'")
    one.ownership._taking |= other.ownership._taking
    other.ownership._taking.clear()


def tamper_slot(fleet):
    fleet.places[0].node.bodies.slots.used += 1


def tamper_line(fleet):
    fleet.places[0].node.bodies.slots._line["run_1"] = {"0.0": None}


def tamper_expected(fleet):
    fleet.places[0].node.bodies.expect("t")


def tamper_report(fleet):
    fleet.places[0].node.reporter.busy += 1


@pytest.mark.parametrize(
    ("tamper", "law"),
    [
        (tamper_offer, "nothing_is_on_offer"),
        (tamper_claim, "every_claim_has_its_body"),
        (tamper_partition, "every_partition_has_one_owner"),
        (tamper_shares, "more than 2"),
        (tamper_slot, "slots taken"),
        (tamper_line, "steps in line"),
        (tamper_expected, "waits for claims"),
        (tamper_report, "still reports"),
    ],
)
def test_what_is_not_at_rest_is_told(fleet, tamper, law):
    assert list(at_rest(fleet)) == []

    tamper(fleet)

    assert any(law in what for what in at_rest(fleet))
