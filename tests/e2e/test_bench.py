"""The benchmark runs, and what it counts is what a run may cost. Nothing is timed here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STEPS = 10
WIDTH = 50


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Both pairs, measured small: by pair and workload what came out, and what was printed."""
    folder = tmp_path_factory.mktemp("bench")
    results = folder / "results.jsonl"
    command = [sys.executable, "bench/run.py", "--quick", "--only", "W0,COUNT"]
    done = subprocess.run(
        [*command, "--folder", folder, "--json", results],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    _head, *rows = [json.loads(line) for line in results.read_text().splitlines()]
    return {(row["pair"], row["workload"]): row["figures"] for row in rows}, done.stdout


@pytest.fixture(params=["embedded", "dev"])
def counted(request, measured):
    return measured[0][request.param, "COUNT"]


def test_every_measurement_has_its_figures_and_its_line_in_a_table(measured):
    figures, printed = measured

    assert set(figures) == {(pair, label) for pair in ("embedded", "dev") for label in ("W0", "COUNT")}
    assert all(figures["dev", "W0"][name] > 0 for name in ("p50_ms", "p95_ms", "runs_s"))
    assert "| 10 steps in sequence | dev |" in printed


def test_a_run_without_steps_is_two_commits_its_creation_included(counted):
    assert (counted["run_writes"], counted["run_commits"]) == (2, 2)


def test_a_step_in_sequence_is_at_most_two_commits(counted):
    assert counted["seq_commits"] <= 2 * STEPS + 2


def test_steps_at_once_share_their_commits(counted):
    assert counted["fan_commits"] < WIDTH  # how many depends on how fast they end


def test_a_sleep_is_at_most_four_commits_its_run_included(counted):
    assert counted["sleep_commits"] <= 4


def test_a_run_in_one_process_sends_nothing_to_a_server(measured):
    counted = measured[0]["embedded", "COUNT"]

    assert counted["seq_msgs_in"] == counted["seq_msgs_out"] == 0
