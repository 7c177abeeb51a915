"""Histories recorded once replay for ever: in this process, under other hash seeds, on each Python that is here."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.golden import replay

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", replay.NAMES)
def test_a_golden_history_comes_to_its_recorded_end(name):
    found = replay.replay(name)

    assert found.state == "same", found.why


def test_every_flow_has_its_history():
    flows = {n for n, value in vars(replay.flows).items() if type(value).__name__ == "Workflow"}

    assert flows == set(replay.NAMES)


@pytest.mark.parametrize("hash_seed", ["0", "1", "4242"])
def test_the_hash_seed_of_the_process_does_not_matter(hash_seed):
    done = subprocess.run(
        [sys.executable, "tests/golden/replay.py"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
