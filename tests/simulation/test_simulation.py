"""The simulator keeps its word: seeds repeat exactly, much happens in them, and a law that is off is noticed."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.simulation import run
from tests.simulation.pins import CAUGHT
from tests.simulation.seed import simulate
from tests.simulation.variants import SEEN_BY, VARIANTS

ROOT = Path(__file__).resolve().parents[2]


def test_the_seeds_are_worth_it():
    total = Counter()
    for seed in range(1, 31):
        total.update(simulate(seed).figures)

    assert total["kills"] > 20
    assert total["losses"] > 10
    assert total["runs"] > 60
    assert total["shared"] > 10
    assert total["claimed"] > 50
    assert total["lapsed"] > 10
    assert total["hooks"] > 40
    assert total["received"] > 80
    assert total["conflicts"] > 5
    assert total["sent_again"] > 10


@pytest.mark.parametrize("seed", [5, 12, 55])
def test_a_seed_repeats_itself(seed):
    assert simulate(seed).trace == simulate(seed).trace


def test_a_seed_is_the_same_in_another_process_with_another_hash_seed():
    traces = {_traced(12, hash_seed) for hash_seed in ("1", "2")}

    assert traces == {simulate(12).trace}


def _traced(seed, hash_seed):
    surroundings = os.environ | {"PYTHONHASHSEED": hash_seed, "SEED": str(seed)}
    told_us = subprocess.run(
        [sys.executable, "tests/simulation/run.py"],
        cwd=ROOT,
        env=surroundings,
        capture_output=True,
        check=True,
        text=True,
    )
    return told_us.stdout.split()[-1]


# ---- laws that are off


def test_each_law_that_can_be_off_has_a_pin():
    assert set(SEEN_BY) == set(VARIANTS) - {""}
    assert set(CAUGHT) == set(SEEN_BY)  # else: `run.py --pin`


@pytest.mark.parametrize("variant", SEEN_BY)
def test_a_law_that_is_off_is_noticed(variant):
    outcome = simulate(CAUGHT[variant], variant)

    assert any(SEEN_BY[variant] in what for what in outcome.broken), outcome.broken


def test_the_same_seeds_hold_with_the_laws():
    assert [seed for seed in sorted(set(CAUGHT.values())) if simulate(seed).broken] == []


# ---- the command


def test_a_seed_that_fails_is_told_with_its_history(capsys):
    failed = run.main(["--seed", str(CAUGHT["fence_off"]), "--variant", "fence_off"])

    said = capsys.readouterr().out
    assert failed
    assert "client starts r1: " in said
    assert f"run.py --seed {CAUGHT['fence_off']} --variant fence_off" in said


def test_many_seeds_are_shared_among_processes():
    command = [sys.executable, "tests/simulation/run.py", "20", "--processes", "2"]

    said = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout

    assert said.startswith("20 seeds, 0 failed")


def test_a_variant_that_is_not_noticed_is_told(capsys):
    missed = run.variants(["claim_unexpected"], within=1, processes=1, pin=False)

    assert missed
    assert "NOT NOTICED within 1 seeds" in capsys.readouterr().out
