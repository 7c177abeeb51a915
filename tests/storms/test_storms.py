"""A small storm of each kind on a file and a real nats-server; `just storm` plays thousands, on the full stack too."""

import pytest

from tests.storms.play import play
from tests.storms.storms import STORMS


@pytest.mark.timeout(120)
async def test_a_small_storm_of_each_kind_ends_well(tmp_path):
    rows = await play(list(STORMS.values()), "sqlite", 8, 1, tmp_path, together=True)

    assert [row.wrong for row in rows] == [[]] * len(STORMS)
    assert [row.completed for row in rows] == [8] * len(STORMS)
    assert all(row.ticks and row.inputs for row in rows)
