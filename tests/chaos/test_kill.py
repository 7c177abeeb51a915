"""Two rounds of the storm; `just storm-orders` runs fifty."""

import pytest

from tests.chaos.storm import storm


@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", [1, 7])
def test_orders_survive_kill_9_at_random_moments(seed, tmp_path):
    assert storm(seed, tmp_path, kills=3, lines=120) == ""
