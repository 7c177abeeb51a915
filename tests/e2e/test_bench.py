"""The benchmark runs, and what it counts is what a run may cost. Nothing is timed here."""

import functools
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAIRS = ("embedded", "dev", "stack")
STEPS = 10
WIDTH = 50
MEASURED_S = 150

pytestmark = pytest.mark.timeout(MEASURED_S + 30)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """All pairs, measured small: by pair and workload what came out, and what was printed."""
    folder = tmp_path_factory.mktemp("bench")
    with ThreadPoolExecutor() as at_once:  # counting is mostly waiting for nothing to happen
        done = [*at_once.map(functools.partial(_measured, folder), PAIRS)]
    rows = [row for some, _ in done for row in some]
    return {(row["pair"], row["workload"]): row["figures"] for row in rows}, "\n".join(printed for _, printed in done)


def _measured(folder, pair):
    results = folder / f"{pair}.jsonl"
    command = [sys.executable, "bench/run.py", "--quick", "--only", "W0,COUNT", "--pairs", pair]
    printed = _done([*command, "--folder", folder, "--json", results])
    _head, *rows = [json.loads(line) for line in results.read_text().splitlines()]
    return rows, printed


def _done(command):
    """Return what a command printed; one that hangs is ended with all it started."""
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        printed, _ = process.communicate(timeout=MEASURED_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(10)
    assert process.returncode == 0, printed
    return printed


@pytest.fixture(params=PAIRS)
def counted(request, measured):
    return measured[0][request.param, "COUNT"]


def test_every_measurement_has_its_figures_and_its_line_in_a_table(measured):
    figures, printed = measured

    assert set(figures) == {(pair, label) for pair in PAIRS for label in ("W0", "COUNT")}
    assert all(figures["stack", "W0"][name] > 0 for name in ("p50_ms", "p95_ms", "runs_s"))
    assert "| 10 steps in sequence | inline | stack |" in printed
    assert "| W0 runs without steps, 50 at once | ≥ 1,000 runs/s |" in printed


def costs(counted, kind, commits):
    """Tell whether runs of a kind are so many commits. Of SQLite one may hold what the node asks for all the while."""
    made, is_exact = counted[f"{kind}_commits"], "run_syncs" in counted
    return counted[f"{kind}_writes"] == commits and (made == commits if is_exact else commits - 1 < made <= commits)


def test_a_run_without_steps_is_one_commit_after_its_creation(counted):
    assert costs(counted, "run", 1 + 1)


def test_n_steps_in_sequence_are_n_and_one_commits_after_the_creation(counted):
    assert costs(counted, "seq", 1 + STEPS + 1)


def test_without_running_ahead_a_step_in_sequence_is_two_commits(counted):
    assert costs(counted, "strict_seq", 1 + 2 * STEPS + 1)


def test_a_dispatched_step_in_sequence_is_two_commits_its_claim_and_its_outcome(counted):
    assert costs(counted, "bus_seq", 1 + 2 * STEPS + 1)


def test_steps_at_once_share_their_commits(counted):
    assert counted["fan_commits"] < WIDTH / 2  # how many depends on how fast they end


def test_dispatched_steps_at_once_share_their_commits(counted):
    assert counted["bus_fan_commits"] < WIDTH / 2


def test_a_sleep_is_two_commits_after_the_creation_of_its_run(counted):
    assert costs(counted, "sleep", 1 + 2)


def test_a_commit_of_postgres_is_one_round_trip_and_what_is_read_does_not_grow_with_the_steps(measured):
    counted = measured[0]["stack", "COUNT"]

    assert counted["seq_statements"] - counted["run_statements"] < STEPS + 3
    assert counted["strict_seq_statements"] - counted["strict_run_statements"] < 2 * STEPS + 3


def test_a_run_in_one_process_sends_nothing_to_a_server(measured):
    counted = measured[0]["embedded", "COUNT"]

    assert counted["seq_msgs_in"] == counted["seq_msgs_out"] == 0
