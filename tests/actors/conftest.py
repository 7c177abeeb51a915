"""Fixtures for tests of the actors."""

import pytest

from tests.actors import tape


@pytest.fixture(autouse=True)
def put_to_sleep():
    yield
    while tape.AWAKE:
        tape.AWAKE.pop().evict()
