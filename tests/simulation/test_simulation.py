"""The real actors under seeded faults. A failure names its seed and the command that repeats it."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.simulation.run import told
from tests.simulation.seed import simulate

ROOT = Path(__file__).resolve().parents[2]
SEEDS = 200
AT_ONCE = 10

CAUGHT = {
    "fence_off": (2, "batches_follow_one_another"),
    "two_events_at_once": (30, "cold replay"),
    "claims_off": (2, "the_dead_write_nothing"),
    "whole_log_off": (4, "whole_log_means_whole"),
    "revoked_off": (47, "decisions_saw_the_cancel"),
    "due_moved_later": (53, "nobody has decided"),
    "ahead_under_the_tick": (4, "cold replay"),
    "last_batch_off": (133, "batches_follow_one_another"),
    "offer_off": (12, "operations_are_legal"),
    "at_off": (48, "time_never_goes_back"),
    "lapse_off": (2, "has not ended"),
    "dead_off": (2, "the_dead_do_not_ask"),
    "ended_off": (37, "nothing_follows_the_end"),
    "claim_asked_anew": (51, "every_claim_has_its_body"),
    "claim_unexpected": (61, "two bodies of"),
    "slot_kept": (2, "has not ended"),
    "surplus_kept": (3, "every_partition_has_one_owner"),
    "clock_unheard": (8, "waits_are_not_early"),
}
"""For each law, a seed in which its absence shows, and which checker sees it."""


lived = cache(simulate)


@pytest.mark.parametrize("first", range(1, SEEDS + 1, AT_ONCE))
def test_every_seed_ends_with_all_laws_kept(first):
    outcomes = [lived(seed) for seed in range(first, first + AT_ONCE)]

    assert [told(outcome) for outcome in outcomes if outcome.broken] == []


def test_the_seeds_are_worth_it():
    figures = [lived(seed).figures for seed in range(1, 31)]

    total = {name: sum(one[name] for one in figures) for name in figures[0]}
    assert total["kills"] > 20
    assert total["losses"] > 10
    assert total["runs"] > 60
    assert total["shared"] > 10
    assert total["claimed"] > 50
    assert total["lapsed"] > 10


@pytest.mark.parametrize("seed", [5, 12, 55])
def test_a_seed_repeats_itself(seed):
    assert simulate(seed).trace == simulate(seed).trace


def test_a_seed_is_the_same_in_another_process_with_another_hash_seed():
    traces = {_traced(12, hash_seed) for hash_seed in ("1", "2")}

    assert traces == {simulate(12).trace}


def _traced(seed, hash_seed):
    command = [sys.executable, "tests/simulation/run.py", "--seed", str(seed)]
    surroundings = os.environ | {"PYTHONHASHSEED": hash_seed}
    told_us = subprocess.run(command, cwd=ROOT, env=surroundings, capture_output=True, check=True, text=True)
    return told_us.stdout.split()[-1]


@pytest.mark.parametrize("variant", CAUGHT)
def test_a_law_that_is_off_is_missed(variant):
    seed, checker = CAUGHT[variant]

    outcome = simulate(seed, variant)

    assert any(checker in what for what in outcome.broken), outcome.broken


@pytest.mark.parametrize("variant", CAUGHT)
def test_the_same_seed_holds_with_the_law(variant):
    seed, _ = CAUGHT[variant]

    assert simulate(seed).broken == ()
