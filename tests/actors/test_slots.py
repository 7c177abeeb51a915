"""Slots: first come, first served; a place in line waits for who sleeps; a slot is never lost."""

import pytest

from fencepost.actors.slots import Slots


@pytest.fixture
def called():
    return []


@pytest.fixture
def slots(called):
    made = Slots(1, lambda run_id, op: called.append((run_id, op)))
    assert made.take("run_1", "0.0")
    return made


def test_who_waits_longest_is_called_first(slots, called):
    assert not slots.take("run_2", "0.0")
    assert not slots.take("run_3", "0.0")

    slots.give_back()

    assert called == [("run_2", "0.0")]
    assert slots.take("run_2", "0.0")
    assert not slots.take("run_3", "0.0")


def test_asking_again_keeps_the_place(slots, called):
    slots.take("run_2", "0.0")
    slots.take("run_3", "0.0")
    slots.take("run_2", "0.0")

    slots.give_back()

    assert called == [("run_2", "0.0")]
    assert slots.waiting == 1


def test_a_slot_reserved_for_what_nobody_wants_goes_to_the_next(slots, called):
    slots.take("run_2", "0.0")
    slots.take("run_3", "0.0")
    slots.give_back()

    slots.keep_only("run_2", ())

    assert called == [("run_2", "0.0"), ("run_3", "0.0")]
    assert slots.used == 1


def test_a_step_that_is_over_leaves_the_line_and_the_others_stay(slots, called):
    slots.take("run_2", "0.0")
    slots.take("run_2", "0.1")

    slots.keep_only("run_2", {"0.1"})
    slots.give_back()

    assert called == [("run_2", "0.1")]


def test_a_line_that_everybody_left_gives_the_slot_to_who_comes(slots):
    slots.take("run_2", "0.0")
    slots.keep_only("run_2", ())
    slots.give_back()

    assert (slots.used, slots.waiting) == (0, 0)
    assert slots.take("run_4", "0.0")


def test_a_run_with_many_steps_goes_to_the_end_of_the_line_after_each(slots, called):
    for op in ("0.0", "0.1", "0.2"):
        slots.take("run_many", op)
    slots.take("run_one", "0.0")

    slots.give_back()
    assert slots.take(*called[-1])
    slots.give_back()

    assert called == [("run_many", "0.0"), ("run_one", "0.0")]


def test_a_closed_one_gives_no_slot(slots):
    slots.give_back()
    slots.close()

    assert not slots.take("run_2", "0.0")


def test_room_for_others_is_what_nobody_here_waits_for():
    grew, slots = [], Slots(2, lambda *_: None)
    slots.grew = lambda: grew.append(slots.room)

    assert slots.room == 2
    assert slots.take_room()
    assert slots.take("run_a", "0.0")
    assert not slots.take("run_b", "0.0")  # in line
    assert slots.room == 0
    assert not slots.take_room()

    slots.give_back()  # goes to who waits here
    assert grew == []
    assert slots.take("run_b", "0.0")
    slots.give_back()
    assert grew == [1]


def test_room_grows_when_the_last_who_waits_here_is_no_longer_wanted():
    grew, slots = [], Slots(1, lambda *_: None)
    slots.grew = lambda: grew.append(slots.room)
    slots.take("run_a", "0.0")
    slots.take("run_b", "0.0")
    slots.give_back()  # reserved for run_b

    slots.keep_only("run_b", ())

    assert grew == [1]


def test_a_node_that_stops_has_no_room():
    slots = Slots(1, lambda *_: None)

    slots.close()

    assert not slots.take_room()
