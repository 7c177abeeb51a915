"""One round of chaos with real nodes; `just chaos` plays every scenario, for as long as one likes."""

import pytest

from tests.chaos.rounds import Size, play
from tests.chaos.scenarios import SCENARIOS

TELLING = ("stop_both", "kill_postgres_and_child", "read_only")


@pytest.mark.timeout(240)
async def test_every_order_is_done_once_whatever_stands_still_dies_or_is_read_only(tmp_path):
    acts = [SCENARIOS[name] for name in TELLING]

    report = await play(acts, 9, tmp_path, Size(nodes=3, orders=30, span_s=12.0))

    assert report.broken == [], report.logs
    assert len(report.faults.done) == 7
