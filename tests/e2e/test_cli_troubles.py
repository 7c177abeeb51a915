"""What `dev` lets through of its node's log."""

import logging

import pytest
import structlog

from fencepost import configure_logging
from fencepost.cli.troubles import SOURCE, Troubles


class Shown:
    """Logging as `dev` sets it up, and what people see of it."""

    def __init__(self, capsys):
        configure_logging("console", "warning")
        logging.getLogger(SOURCE).setLevel("INFO")
        self.troubles = Troubles()
        logging.getLogger().handlers[0].addFilter(self.troubles)
        self.log = structlog.get_logger(SOURCE)
        self._capsys = capsys

    def lines(self):
        return self._capsys.readouterr().err.splitlines()


@pytest.fixture
def listen(capsys):
    """Begin when called: stderr is another one in the test than it is here."""
    root, source = logging.getLogger(), logging.getLogger(SOURCE)
    before = root.handlers[:], root.level, source.level
    yield lambda: Shown(capsys)
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    source.setLevel(before[2])
    structlog.reset_defaults()


def test_a_step_is_told_of_from_its_third_failure_on(listen):
    shown = listen()
    for attempt in range(1, 5):
        shown.log.info("step tried again", attempt=attempt)
    shown.log.info("step failed", attempt=5)
    shown.log.warning("run failed", run="run_1")
    structlog.get_logger("fencepost.elsewhere").info("not for people")

    assert [line.split("=")[-1] for line in shown.lines()] == ["3", "4", "run_1"]


def test_a_flood_is_a_few_lines_and_a_count(listen):
    shown = listen()
    for number in range(50):
        shown.log.warning("run failed", run=number)
    shown.troubles._tell_more()

    lines = shown.lines()
    assert len(lines) == 6
    assert "count=45" in lines[-1]


def test_while_a_bar_moves_there_is_a_count_after_it(listen):
    shown = listen()
    with shown.troubles.hushed():
        shown.log.warning("run failed", run=1)
        shown.log.warning("run failed", run=2)
        meanwhile = shown.lines()

    [after] = shown.lines()
    assert meanwhile == []
    assert "count=2" in after


def test_a_connection_to_its_own_server_that_is_lost_is_not_told_twice(listen):
    shown = listen()
    bus = logging.getLogger("fencepost.bus")

    bus.warning("bus %s: %s", "nats://here", "unexpected EOF")
    bus.warning("stream %s was changed", "START")

    [line] = shown.lines()
    assert "stream START was changed" in line
