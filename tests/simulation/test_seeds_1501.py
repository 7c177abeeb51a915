"""Seeds 1501 to 2000, see `seeds`."""

import pytest

from tests.simulation.seeds import failures, pieces


@pytest.mark.parametrize("first", pieces(3))
def test_every_seed_ends_with_all_laws_kept(first):
    assert failures(first) == []
