"""The simulated bus: who takes gets it, with room and a line that is whole; what nobody settled comes again."""

# workflow time: the clock is virtual, a sleep costs nothing (see `loop.py`)

import asyncio
from random import Random

import pytest

from fencepost.bus import Again, Bell, Offering, Unreachable
from tests.simulation.bus import ACK_WAIT_S, Line, Post, Weather
from tests.simulation.loop import SimLoop

BELL = Bell("run", "run_1", 3, "sim")
OFFERING = Offering("default", "run_1", "0.0", "sim")


@pytest.fixture
def loop():
    made = SimLoop(Random(1), shuffle=True)
    yield made
    made.close()


@pytest.fixture
def post(loop):
    return Post(loop, Random(1), Weather())


def line_of(post, name):
    return Line(post, post.loop.start(name))


def hears(book):
    async def note(message):
        book.append(message)

    return note


def test_a_bell_goes_to_who_takes_its_partition(loop, post):
    one, other = [], []

    async def main():
        await line_of(post, "n1").take("sim", [1], hears(one))
        await line_of(post, "n2").take("sim", [3], hears(other))
        post.send(BELL)
        await asyncio.sleep(1)

    loop.run(main())

    assert (one, other) == ([], [BELL])


def test_a_bell_astray_goes_to_who_takes_another(loop, post):
    post.weather.astray = 1.0
    heard = []

    async def main():
        await line_of(post, "n1").take("sim", [1], hears(heard))
        post.send(BELL)
        await asyncio.sleep(1)

    loop.run(main())

    assert heard == [BELL]


@pytest.mark.parametrize(("weather", "times"), [(Weather(lost=1.0), 0), (Weather(twice=1.0), 2)])
def test_a_bell_is_lost_or_doubled(loop, post, weather, times):
    post.weather = weather
    heard = []

    async def main():
        await line_of(post, "n1").take("sim", [3], hears(heard))
        post.send(BELL)
        await asyncio.sleep(1)

    loop.run(main())

    assert len(heard) == times


def test_an_offering_waits_for_room(loop, post):
    room, heard = [0], []

    async def main():
        taking = await line_of(post, "n1").steps("sim", "default", hears(heard), lambda: room[0])
        post.send(OFFERING)
        await asyncio.sleep(1)
        assert heard == []
        room[0] = 1
        taking.room_grew()
        await asyncio.sleep(1)

    loop.run(main())

    assert heard == [OFFERING]


def test_what_is_given_back_comes_again(loop, post):
    heard = []

    async def not_now(_message):
        heard.append(loop.now_s)
        if len(heard) == 1:
            raise Again(2.0)

    async def main():
        await line_of(post, "n1").take("sim", [3], not_now)
        post.send(BELL)
        await asyncio.sleep(60)

    loop.run(main())

    assert len(heard) == 2
    assert heard[1] - heard[0] == pytest.approx(2.0)


def test_what_a_dead_process_was_given_comes_to_another(loop, post):
    one, other = line_of(post, "n1"), line_of(post, "n2")
    heard = []

    async def hang(_message):
        await asyncio.sleep(3600)

    async def main():
        await one.take("sim", [3], hang)
        post.send(BELL)
        await asyncio.sleep(1)
        loop.kill(one.proc)
        await other.take("sim", [3], hears(heard))
        await asyncio.sleep(ACK_WAIT_S + 1)

    loop.run(main())

    assert heard == [BELL]


def test_a_cut_line_hears_nothing_says_nothing_and_knows_for_how_long(loop, post):
    line, heard = line_of(post, "n1"), []

    async def main():
        await line.take("sim", [3], hears(heard))
        line.cut("a reason")
        post.send(BELL)
        await line.ring(Bell("run", "run_2", 3, "sim"))
        await asyncio.sleep(7)
        assert (heard, line.unheard_s) == ([], 7.0)
        with pytest.raises(Unreachable):
            await line.take("sim", [4], hears(heard))
        line.mend("a reason")
        await asyncio.sleep(1)

    loop.run(main())

    assert heard == [BELL]
    assert line.unheard_s == 0.0
