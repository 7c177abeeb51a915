"""Steps by name, for a worker whose App was not told of their module."""

import gc

from fencepost.actors import step
from fencepost.actors.define import find_step


@step(name="find_me")
async def kept() -> int:
    return 1


def test_the_last_one_declared_is_found():
    @step(name="find_me")
    async def later() -> int:
        return 2

    assert find_step("find_me") is later


def test_one_that_is_gone_hides_none_that_is_still_there():
    @step(name="find_me")
    async def gone() -> int:
        return 3

    del gone
    gc.collect()

    assert find_step("find_me") is kept


def test_a_name_nobody_declared_finds_nothing():
    assert find_step("nobody has declared me") is None
