"""What a node answers while a server is away: clients have to know that they should ask again."""

import json

import pytest

from fencepost.actors.api import _answered
from fencepost.bus import Unreachable
from fencepost.world import Unavailable, UnknownEvent, Unusable
from fencepost.world.postgres.journal import Lost


async def asked(error):
    async def work():
        raise error

    return await _answered(work())


@pytest.mark.parametrize("error", [Unavailable("a"), Unusable("a"), Lost("a"), Unreachable("a")])
async def test_whatever_is_away_has_the_one_name_that_clients_ask_again_for(error):
    reply = await asked(error)

    assert reply.error == "Unavailable"
    assert json.loads(reply.body) == {"error": "Unavailable", "message": "a"}


async def test_a_log_of_newer_code_is_not_asked_for_again():
    assert (await asked(UnknownEvent("run_1", 3, "moon_rose"))).error == "UnknownEvent"
