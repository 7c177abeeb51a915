"""Two rounds of the storm; `just storm-orders` runs fifty."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.chaos.storm import storm

SEEDS = (1, 7)


@pytest.mark.timeout(240)
def test_orders_survive_kill_9_at_random_moments(tmp_path):
    with ThreadPoolExecutor() as at_once:  # a round mostly waits for its moments
        wrong = [*at_once.map(lambda seed: storm(seed, tmp_path / str(seed), kills=3, lines=120), SEEDS)]

    assert wrong == ["", ""]
