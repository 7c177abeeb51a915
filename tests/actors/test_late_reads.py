"""A log that is read late says that a body runs which has ended meanwhile: it is not begun a second time."""

import asyncio

from fencepost.actors.define import step, workflow
from fencepost.actors.hooks import hook
from fencepost.actors.messages import HandOver
from tests.actors.attempts import Gate
from tests.actors.racing import bodies, racing


async def no_bodies(race):
    while race.node.bodies.count or race.node.reporter.busy:  # noqa: ASYNC110  (counters of the node)
        await asyncio.sleep(0.001)  # real time: a step ends on its own loop


async def test_a_body_that_ended_and_was_reported_while_its_run_was_read_is_not_begun_again():
    gate = Gate()

    @step
    async def slow() -> int:
        bodies["slow"] += 1
        await gate.apass_through()
        return 7

    @workflow
    async def one() -> int:
        return await slow()

    async with racing(one, shadow=False) as race:
        await race.start(one)
        await race.saw("step_started")
        race.node._actors[race.run_id].drop()  # as when it loses the world: the body runs on
        opened = race.world.open

        async def late(run_id):
            snapshot = await opened(run_id)
            gate.open()
            actor = race.node._actors.pop(run_id)  # as when its partition leaves: what ends is reported
            owns, race.node.ringer.owned = race.node.ringer.owned, frozenset()
            await no_bodies(race)
            race.node.ringer.owned, race.node._actors[run_id] = owns, actor
            return snapshot

        race.world.open = late
        race.node.tick(race.run_id)
        await race.saw("step_completed")
        race.world.open = opened

        assert await race.result() == 7
        await race.settled()
        await no_bodies(race)
        assert bodies["slow"] == 1


async def test_who_hands_a_run_over_wakes_its_new_owner():
    """The last batch of the old owner may land after the new one looked for what is due."""

    @workflow
    async def waiting() -> int:
        return await hook("t", int)

    async with racing(waiting) as race:
        await race.start(waiting)
        await race.saw("hook_created")
        await race.settled()
        rung = []
        race.node.reporter._ring = lambda *run: rung.append(run)

        race.node._mailboxes.post(race.run_id, HandOver())
        await race.settled()

        assert rung == [(race.run_id, "test")]
